package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// unifiedRoot opens a root on a machine where cgroup v2 has the controllers.
func unifiedRoot(t *testing.T) *linuxRoot {
	t.Helper()
	for _, r := range roots(t) {
		if r, ok := r.(*linuxRoot); ok && r.layout == Unified && r.memory != "" {
			return r
		}
	}
	t.Skip("needs cgroup v2 with its controllers: make test-vm boots a kernel that has them")
	return nil
}

// inside starts a shell script in the group by CLONE_INTO_CGROUP alone, and gives what its first line says.
func inside(t *testing.T, g Group, script string) (cmd *exec.Cmd, said string) {
	t.Helper()
	cmd = exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD(), Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, string(buf[:n])
}

// TestUnifiedLimits: what the kernel says of the limits, and that they hold from the first instruction.
func TestUnifiedLimits(t *testing.T) {
	r := unifiedRoot(t)
	g, err := r.Create("job_2.1", &pb.Limits{MemoryMib: 64, MemorySwapMib: 96, Pids: 20, CpusetCpus: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if g.FD() < 0 {
		t.Fatal("no descriptor: the first process cannot be cloned into the group")
	}
	dir := filepath.Join(r.track, "job_2.1")
	for file, want := range map[string]string{
		"memory.max": fmt.Sprint(64 << 20), "memory.swap.max": fmt.Sprint(32 << 20), "pids.max": "20", "cpuset.cpus": "0",
	} {
		if got := readTrim(dir, file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	cmd, said := inside(t, g, `echo $(cat /proc/self/cgroup) $(grep Cpus_allowed_list /proc/self/status); exec sleep 600`)
	want := "0::" + strings.TrimPrefix(dir, unifiedMount) + "/" + leaf + " Cpus_allowed_list: 0\n"
	if said != want {
		t.Errorf("the process says %q, want %q", said, want)
	}
	if err := killUntilEmpty(g, 5*time.Minute); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// TestUnifiedKill: one write to cgroup.kill ends what has left its session and its parent, frozen or not.
func TestUnifiedKill(t *testing.T) {
	r := unifiedRoot(t)
	if !r.kill {
		t.Skip("needs cgroup.kill: Linux 5.14")
	}
	for _, frozen := range []bool{false, true} {
		name := fmt.Sprintf("job_3.%v", frozen)
		g, err := r.Create(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		cmd, _ := inside(t, g, `(setsid sh -c 'sleep 600 & sleep 600' &) ; sleep 600 & echo up; sleep 600`)
		if frozen {
			if err := g.Freeze(true); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the others are nobody's children: the group tells when they are gone
		events := filepath.Join(r.track, name, "cgroup.events")
		for deadline := time.Now().Add(5 * time.Minute); ; {
			empty, err := g.Empty()
			if err != nil {
				t.Fatal(err)
			}
			if empty {
				break
			}
			if time.Now().After(deadline) {
				raw, _ := os.ReadFile(events)
				t.Fatalf("frozen %v: not empty after one kill: %s", frozen, raw)
			}
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}
