package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestAdopt: a process that runs elsewhere comes into an allocation, is under its limits, and has an end of its own.
func TestAdopt(t *testing.T) {
	for name, r := range roots(t) {
		for what, l := range map[string]*pb.Limits{"no limits": nil, "limits": {Pids: 50, CpusetCpus: "0", MemoryMib: 64}} {
			t.Run(name+" "+what, func(t *testing.T) { adopted(t, r, l) })
		}
	}
}

// session starts a program outside of any group of a job.
func session(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func adopted(t *testing.T, r Root, l *pb.Limits) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	job, err := r.Create("job_8.1", l)
	must(err)
	step, err := r.Create("job_8.1/step_0", l)
	must(err)
	first := session(t, "sleep", "600")
	if err := step.Adopt(first.Process.Pid); err == nil {
		t.Error("a step has adopted a process")
	}
	must(job.Adopt(first.Process.Pid))
	must(job.Adopt(first.Process.Pid)) // again, as the second line in PAM does
	root, _ := r.(*linuxRoot)
	in, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", first.Process.Pid))
	must(err)
	if !In(string(in), root.name, "job_8.1") || In(string(in), root.name, "job_8") || In(string(in), root.name, "job_8.11") {
		t.Errorf("it is in %s", in)
	}
	if l != nil && strings.Count(string(in), "/job_8.1") < 2 && r.Layout() != Unified {
		t.Errorf("it is under none of the limits: %s", in)
	}
	if rss, _ := job.Memory(); rss == 0 {
		t.Error("its memory is not the allocation's")
	}
	// What is done to the script, or to a step, is not done to it.
	batch, task := into(t, job), into(t, step)
	must(job.Signal(int(unix.SIGTERM)))
	must(step.Kill())
	must(job.KillOwn())
	_, _ = batch.Process.Wait()
	_, _ = task.Process.Wait()
	must(step.Remove())
	if empty, err := job.Empty(); empty || err != nil {
		t.Errorf("with a session in it: empty %v, %v", empty, err)
	}
	// It is frozen with the allocation, and ended by itself.
	must(job.Freeze(true))
	must(job.SignalAdopted(int(unix.SIGTERM)))
	must(job.Freeze(false))
	if state, _ := first.Process.Wait(); !strings.Contains(state.String(), "terminated") {
		t.Errorf("after SIGTERM: %v", state)
	}
	// What forks goes on being in it, and is ended with all that is there.
	second := exec.Command("sh", "-c", "trap '' TERM; read go; sleep 600 & sleep 600")
	stdin, err := second.StdinPipe()
	must(err)
	must(second.Start())
	must(job.Adopt(second.Process.Pid))
	_, err = fmt.Fprintln(stdin)
	must(err)
	var pids []int
	for deadline := time.Now().Add(time.Minute); len(pids) < 3; runtime.Gosched() {
		if pids, err = cgroups.GetAllPids(root.track + "/job_8.1"); err != nil || time.Now().After(deadline) {
			t.Fatalf("the session and its children: %v, %v", pids, err)
		}
	}
	if !slices.Contains(pids, second.Process.Pid) {
		t.Errorf("the session %d is not among %v", second.Process.Pid, pids)
	}
	must(killUntilEmpty(job, time.Minute))
	_, _ = second.Process.Wait()
	must(job.Remove())
	if r.Layout() != Unified && exists(root.memory+"/job_8.1", "cgroup.procs") {
		t.Error("a folder of the memory controller is left")
	}
	if err := job.Adopt(os.Getpid()); err == nil {
		t.Error("a group that was removed has adopted a process")
	}
}

// TestAdoptWithoutCgroups: there is nothing to put a process into.
func TestAdoptWithoutCgroups(t *testing.T) {
	g, err := newTree(nil).Create("job_8.1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Adopt(1); err == nil || g.SignalAdopted(int(unix.SIGTERM)) != nil {
		t.Errorf("a process tree adopts: %v", err)
	}
}
