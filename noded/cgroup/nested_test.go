package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// into starts a program that sleeps in a group.
func into(t *testing.T, g Group) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	start(t, g, cmd)
	return cmd
}

// start starts a program in a group, as a shim does.
func start(t *testing.T, g Group, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: g.FD() >= 0, CgroupFD: max(g.FD(), 0), Setsid: true}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if g.FD() < 0 {
		if err := errors.Join(cmd.Start(), g.Add(cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
		return
	}
	err := errors.Join(g.Enter(), cmd.Start())
	if err := errors.Join(err, g.Leave()); err != nil {
		t.Fatal(err)
	}
}

// TestStepsInAnAllocation: a step's group lies in that of its allocation, whose processes it does not meet.
func TestStepsInAnAllocation(t *testing.T) {
	for name, r := range roots(t) {
		for what, l := range map[string]*pb.Limits{"no limits": nil, "limits": {Pids: 50, CpusetCpus: "0", MemoryMib: 64}} {
			t.Run(name+" "+what, func(t *testing.T) { nested(t, r, l) })
		}
	}
}

func nested(t *testing.T, r Root, l *pb.Limits) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Create("job_5.1/step_0", nil); err == nil {
		t.Fatal("a step in no allocation")
	}
	job, err := r.Create("job_5.1", l)
	must(err)
	batch := into(t, job)
	var steps []Group
	var tasks []*exec.Cmd
	for i, sl := range []*pb.Limits{nil, {MemoryMib: 32, CpusetCpus: "0"}, {Pids: 20}} {
		s, err := r.Create(fmt.Sprintf("job_5.1/step_%d", i), sl)
		must(err)
		steps, tasks = append(steps, s), append(tasks, into(t, s))
	}
	if empty, err := steps[0].Empty(); empty || err != nil {
		t.Errorf("a step with a process is empty: %v %v", empty, err)
	}
	// Frozen, an allocation's steps run on; and one step dies while the allocation is frozen, and while it is itself.
	must(job.Freeze(true))
	must(steps[1].Freeze(true))
	must(steps[1].Signal(int(unix.SIGKILL)))
	must(killUntilEmpty(steps[1], time.Minute))
	_ = tasks[1].Wait()
	must(steps[1].Remove())
	must(steps[0].Signal(int(unix.SIGTERM)))
	_ = tasks[0].Wait()
	if empty, err := steps[0].Empty(); !empty || err != nil {
		t.Errorf("after SIGTERM beside a frozen script: empty %v, %v", empty, err)
	}
	must(steps[0].Remove())
	// The script alone is killed, also frozen.
	must(job.KillOwn())
	_ = batch.Wait()
	if empty, err := job.Empty(); empty || err != nil {
		t.Errorf("with a step left: empty %v, %v", empty, err)
	}
	// All is killed, also what is frozen for itself, and what is empty is removed.
	must(steps[2].Freeze(true))
	must(killUntilEmpty(job, time.Minute))
	_ = tasks[2].Wait()
	must(job.Remove())
	for _, base := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		left, _ := filepath.Glob(fmt.Sprintf("%ssluice-test/cgroup-%d/job_5*", base, os.Getpid()))
		for _, dir := range left {
			if filepath.Base(dir) == "job_5.1" || what(dir) {
				t.Errorf("left: %s", dir)
			}
		}
	}
	must(steps[2].Remove())
}

// what is a step's folder outside of its allocation's, which the step itself removes.
func what(dir string) bool {
	return !exists(dir, "cgroup.procs")
}

// TestReclaimNested: of a step whose shim has died, and of an allocation with all its steps.
func TestReclaimNested(t *testing.T) {
	for name, r := range roots(t) {
		t.Run(name, func(t *testing.T) {
			for _, which := range []string{"job_6.1/step_3", "job_6.1"} {
				job, err := r.Create("job_6.1", &pb.Limits{MemoryMib: 64})
				if err != nil {
					t.Fatal(err)
				}
				step, err := r.Create("job_6.1/step_3", &pb.Limits{MemoryMib: 32})
				if err != nil {
					t.Fatal(err)
				}
				batch, task := into(t, job), into(t, step)
				if err := r.Reclaim(&pb.Bundle{Cgroup: which}); err != nil {
					t.Error(err)
				}
				_ = task.Wait()
				if empty, _ := job.Empty(); empty != (which == "job_6.1") {
					t.Errorf("%s reclaimed: the allocation is empty: %v", which, empty)
				}
				if which != "job_6.1" {
					if err := r.Reclaim(&pb.Bundle{Cgroup: "job_6.1"}); err != nil {
						t.Error(err)
					}
				}
				_ = batch.Wait()
				for _, n := range []string{"job_6.1/step_3", "job_6.1"} {
					if err := r.Reclaim(&pb.Bundle{Cgroup: n}); err != nil {
						t.Errorf("%s again: %v", n, err)
					}
				}
			}
		})
	}
}

// TestLimitsFromTheFirstInstruction: a process that a thread makes between Enter and Leave is in all folders of its group, and the thread
// is in none of them afterwards.
func TestLimitsFromTheFirstInstruction(t *testing.T) {
	for name, r := range roots(t) {
		t.Run(name, func(t *testing.T) {
			job, err := r.Create("job_7.1", &pb.Limits{MemoryMib: 64, Pids: 50, CpusetCpus: "0"})
			if err != nil {
				t.Fatal(err)
			}
			step, err := r.Create("job_7.1/step_0", &pb.Limits{MemoryMib: 32})
			if err != nil {
				t.Fatal(err)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			before, _ := os.ReadFile("/proc/thread-self/cgroup")
			task := into(t, step)
			of, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", task.Process.Pid))
			lr := r.(*linuxRoot)
			for _, base := range []string{lr.track, lr.memory, lr.pids, lr.cpuset} {
				kind := filepath.Base(strings.TrimSuffix(base, "/"+lr.name))
				for line := range strings.Lines(string(of)) {
					_, rest, _ := strings.Cut(line, ":")
					controller, dir, _ := strings.Cut(rest, ":")
					ours := controller == kind || controller == "" && base == lr.track && lr.layout != Legacy
					if ours && !strings.Contains(dir, "/job_7.1") {
						t.Errorf("the task is in %q", line)
					}
				}
			}
			after, _ := os.ReadFile("/proc/thread-self/cgroup")
			if len(before) == 0 || string(after) != string(before) {
				t.Errorf("the thread is in\n%s, was in\n%s", after, before)
			}
			if err := killUntilEmpty(job, time.Minute); err != nil {
				t.Error(err)
			}
			_ = task.Wait()
			if err := errors.Join(step.Remove(), job.Remove()); err != nil {
				t.Error(err)
			}
		})
	}
}
