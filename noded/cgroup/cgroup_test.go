package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestCPULists(t *testing.T) {
	for _, c := range []struct{ want, have, both string }{
		{"0-3", "0-1", "0-1"}, {"0,2,4-6", "0-7", "0,2,4-6"}, {"8-15", "0-7", ""}, {"", "0-7", ""},
		{"1", "", ""}, {"3,1,2", "0-7", "1-3"}, {"x", "0-7", ""}, {"3-1", "0-7", ""}, {"-1", "0-7", ""}, {"0-99999999999", "0-7", ""},
		{"1,,2", "0-7", ""},
	} {
		if got := intersect(c.want, c.have); got != c.both {
			t.Errorf("intersect(%q, %q) = %q, want %q", c.want, c.have, got, c.both)
		}
	}
}

func TestCPUListRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.SliceOfDistinct(rapid.IntRange(0, maxCPU-1), rapid.ID).Draw(t, "cpus")
		var all []string
		for _, c := range cpus {
			all = append(all, fmt.Sprint(c))
		}
		sorted, ok := parseList(strings.Join(all, ","))
		again, ok2 := parseList(formatList(sorted))
		if !ok || !ok2 || fmt.Sprint(sorted) != fmt.Sprint(again) || len(again) != len(cpus) {
			t.Fatalf("%v became %v became %v", cpus, sorted, again)
		}
	})
}

func FuzzCPUList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "0-8191", "9-1", ",", "-", "1-", "+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, ok := parseList(s)
		if !ok {
			return
		}
		if again, ok := parseList(formatList(cpus)); !ok || fmt.Sprint(again) != fmt.Sprint(cpus) {
			t.Errorf("%q: %v became %v", s, cpus, again)
		}
	})
}

// roots makes a root of each layout that this machine can be made to use. When the test has ended nothing may be left of them.
func roots(t *testing.T) map[string]Root {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	all := map[string]Root{}
	name := fmt.Sprintf("sluice-test/cgroup-%d", os.Getpid())
	t.Cleanup(func() {
		for _, mount := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			if left, _ := filepath.Glob(mount + name + "*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	})
	for _, plugin := range []string{PluginAuto, PluginV1, PluginV2} {
		r, err := Open(name+"/n1", plugin)
		if err != nil {
			t.Fatal(err)
		}
		if r.Layout() != Tree {
			all[r.Layout().String()] = r
			t.Cleanup(r.Tidy)
		}
	}
	if len(all) == 0 {
		t.Skip("needs a writable cgroup hierarchy")
	}
	return all
}

func TestGroupLife(t *testing.T) {
	for name, r := range roots(t) {
		t.Run(name, func(t *testing.T) { groupLife(t, r) })
	}
}

func groupLife(t *testing.T, r Root) {
	g, err := r.Create("job_1.1", &pb.Limits{Pids: 50, CpusetCpus: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create("job_1.1", nil); !errors.Is(err, ErrExists) {
		t.Errorf("made twice: %v", err)
	}
	if empty, err := g.Empty(); !empty || err != nil {
		t.Errorf("fresh: empty %v, %v", empty, err)
	}
	// A fork bomb, within the process limit, that ignores everything it can.
	cmd := exec.Command("python3", "-ISc",
		"import os,signal,time\nfor s in (1,2,15): signal.signal(s, signal.SIG_IGN)\nprint('up', flush=True)\ninput()\nwhile True:\n  "+
			"try: os.fork()\n  except OSError: pass\n")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	start(t, g, cmd)
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if empty, _ := g.Empty(); empty {
		t.Error("empty with a process in it")
	}
	if rss, vm := g.Memory(); rss < 1000 || vm < rss {
		t.Errorf("resident: %d KiB, virtual: %d KiB", rss, vm)
	}
	fmt.Fprintln(in, "go")
	if err := g.Signal(int(unix.SIGTERM)); err != nil {
		t.Errorf("signal: %v", err)
	}
	if err := killUntilEmpty(g, 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if err := g.Remove(); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := r.Create("job_1.1", nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Reclaim(&pb.Bundle{Cgroup: "job_1.1"}); err != nil {
		t.Errorf("reclaim an empty group: %v", err)
	}
	if err := r.Reclaim(&pb.Bundle{Cgroup: "job_1.1"}); err != nil {
		t.Errorf("reclaim what is gone: %v", err)
	}
}

func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "/x", "..", "../x", "a/../b", "a//b", "a/"} {
		if _, err := Open(name, ""); err == nil {
			t.Errorf("Open(%q) was accepted", name)
		}
	}
	if _, err := Open("a", "cgroup/v3"); err == nil || !strings.Contains(err.Error(), "cgroup/v3") {
		t.Errorf("unknown plugin: %v", err)
	}
	for _, r := range roots(t) {
		for _, name := range []string{"", "..", "../x", "a/b", ".x", "a\nb"} {
			if _, err := r.Create(name, nil); err == nil {
				t.Errorf("Create(%q) was accepted", name)
			}
			if err := r.Reclaim(&pb.Bundle{Cgroup: name}); err == nil {
				t.Errorf("Reclaim(%q) was accepted", name)
			}
		}
	}
}

func TestStepMarks(t *testing.T) {
	env := []string{"A=1", "SLURM_JOB_ID=7", "SLURMD_NODENAME=n1", "SLURM_JOB_IDX=3", "SLURM_RESTART_COUNT=1"}
	if got := fmt.Sprintf("%s", stepMarks(env)); got != "[SLURM_JOB_ID=7 SLURMD_NODENAME=n1 SLURM_RESTART_COUNT=1]" {
		t.Errorf("marks %s", got)
	}
	if got := stepMarks([]string{"SLURMD_NODENAME=n1"}); got != nil {
		t.Errorf("without a job id: %s, would match other jobs", got)
	}
}

func TestTreeOfThisProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 600 & echo up; wait")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	g := treeGroup{cmd.Process.Pid}
	if pids := descendants(cmd.Process.Pid); len(pids) != 1 {
		t.Errorf("descendants of the shell: %v, want its sleep", pids)
	}
	if empty, _ := g.Empty(); empty {
		t.Error("empty, but a child lives")
	}
	if err := (treeGroup{os.Getpid()}).Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the shell ended with %v", err)
	}
}

// TestProcessesAreAlwaysLimited: also where a step's limit is above what the machine can have, as with the usual pid_max of 32768. All
// jobs together leave a quarter, and the shims do not share in what is left to jobs.
func TestProcessesAreAlwaysLimited(t *testing.T) {
	for name, r := range roots(t) {
		t.Run(name, func(t *testing.T) {
			lr, ok := r.(*linuxRoot)
			if !ok || lr.pids == "" {
				t.Skip("no pids controller")
			}
			g, err := r.Create("job_2.1", &pb.Limits{Pids: math.MaxUint32})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Remove()
			for dir, want := range map[string]uint64{"job_2.1": mostPids() / 4, "": mostPids() / 4 * 3} {
				if got := readTrim(filepath.Join(lr.pids, dir), "pids.max"); got != fmt.Sprint(want) {
					t.Errorf("pids.max of %q is %q, want %d of %d", dir, got, want, mostPids())
				}
			}
			shim := exec.Command("sleep", "600")
			if err := shim.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = shim.Process.Kill(), shim.Wait() }()
			if err := r.Shelter(shim.Process.Pid); err != nil {
				t.Fatal(err)
			}
			in, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", shim.Process.Pid))
			if err != nil || strings.Contains(string(in), lr.name+"/") || !strings.Contains(string(in), lr.name+shelter+"\n") {
				t.Errorf("a shim is in the groups %q, %v: it is under the limit of jobs", in, err)
			}
		})
	}
}
