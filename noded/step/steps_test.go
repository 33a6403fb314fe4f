package step_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/sruntest"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// allocation holds a node for a job whose first step has this many tasks.
func (n *node) allocation(tasks int, batch string) (holder, b *pb.Bundle) {
	n.t.Helper()
	holder = n.bundle()
	if batch == "" {
		holder.HoldOnly, holder.Key.Step = true, pb.ExternStep
	}
	n.launch(holder, batch)
	n.running(holder.Key)
	b = n.bundle()
	b.Key = &pb.StepKey{JobId: holder.Key.JobId, Attempt: 1, Epoch: 7, Step: 0}
	b.Cgroup, b.Argv, b.Step = folder.Group(b.Key), nil, &pb.StepTasks{}
	for i := range tasks {
		b.Step.Tasks = append(b.Step.Tasks, &pb.StepTask{Rank: uint32(i), Env: []string{fmt.Sprint("SLURM_PROCID=", i)}})
	}
	return holder, b
}

// srun begins a step.
func (n *node) srun(b *pb.Bundle, argv ...string) *sruntest.Srun {
	n.t.Helper()
	s := sruntest.New(n.t, b, &pb.StepWork{Programs: []*pb.StepProgram{{Argv: argv}}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: n.work,
		Umask: 0o22, InTask: stepwire.All})
	must(n.t, n.r.Launch(n.t.(*testing.T).Context(), b, nil))
	return s
}

// release ends an allocation.
func (n *node) release(holder *pb.Bundle) {
	n.t.Helper()
	n.order(&pb.StepOrder{Key: holder.Key, Want: pb.StepWant_WANT_STOP})
	n.ended(holder.Key)
	must(n.t, n.r.Forget(holder.Key))
}

func TestStepsOfSrun(t *testing.T) {
	n := newNode(t)
	holder, b := n.allocation(2, "")
	s := n.srun(b, "sh", "-c", "id -u; exit $SLURM_PROCID")
	if rec := n.ended(b.Key); rec.Verdict != "exited" || rec.WaitStatus != 1<<8 || rec.StartNs == 0 {
		t.Errorf("%v", rec)
	}
	s.Await("the last word", func() bool { return s.Ended != nil })
	if got := s.Text("out 1"); got != fmt.Sprintln(n.uid) {
		t.Errorf("%q", got)
	}
	must(t, n.r.Forget(b.Key))
	n.release(holder)
}

// TestStepsEndWithTheirAllocation: with time to come to an end.
func TestStepsEndWithTheirAllocation(t *testing.T) {
	n := newNode(t)
	for _, batch := range []string{"", "sleep 600"} {
		holder, b := n.allocation(1, batch)
		s := n.srun(b, "sh", "-c", "trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.01; done")
		s.Await("it runs", func() bool { return s.Out["out 0"] != nil })
		holder.KillWaitS = 1
		n.order(&pb.StepOrder{Key: holder.Key, Want: pb.StepWant_WANT_STOP})
		n.order(&pb.StepOrder{Key: b.Key, Want: pb.StepWant_WANT_STOP})
		if rec := n.ended(b.Key); rec.Verdict != "cancelled" || rec.WaitStatus != 5<<8 {
			t.Errorf("%v", rec)
		}
		n.ended(holder.Key)
	}
}

// TestAllocationEndsWithoutAnOrderForItsSteps: KillWait later they are killed.
func TestAllocationEndsWithoutAnOrderForItsSteps(t *testing.T) {
	for _, plugin := range []string{"", cgroup.PluginV1, cgroup.PluginDisabled} {
		t.Run("plugin "+plugin, func(t *testing.T) { allocationEndsWithoutAnOrderForItsSteps(t, newNodeWith(t, plugin)) })
	}
}

func allocationEndsWithoutAnOrderForItsSteps(t *testing.T, n *node) {
	holder, b := n.allocation(1, "")
	s := n.srun(b, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.01; done")
	s.Await("it runs", func() bool { return s.Out["out 0"] != nil })
	n.order(&pb.StepOrder{Key: holder.Key, Want: pb.StepWant_WANT_STOP})
	if n.r.Layout().String() == "process tree" {
		n.order(&pb.StepOrder{Key: b.Key, Want: pb.StepWant_WANT_STOP})
	}
	if rec := n.ended(b.Key); rec.WaitStatus != uint32(unix.SIGKILL) {
		t.Errorf("%v", rec)
	}
	n.ended(holder.Key)
}

// TestShimOfAStepKilled: its tasks are killed, srun sees the connection end, and the step is lost; the allocation stays.
func TestShimOfAStepKilled(t *testing.T) {
	n := newNode(t)
	holder, b := n.allocation(1, "sleep 600")
	s := n.srun(b, "sh", "-c", "echo $PPID; exec sleep 600")
	s.Await("it runs", func() bool { return s.Out["out 0"] != nil && strings.Contains(s.Out["out 0"].String(), "\n") })
	shim, err := strconv.Atoi(strings.TrimSpace(s.Text("out 0")))
	must(t, err)
	must(t, unix.Kill(shim, unix.SIGKILL))
	if rec := n.ended(b.Key); rec.Verdict != "lost" {
		t.Errorf("%v", rec)
	}
	if rep := n.running(holder.Key); rep.Phase != pb.StepPhase_STEP_RUNNING {
		t.Errorf("the allocation: %v", rep)
	}
	n.release(holder)
}

// TestRestartWithASrunStep: the step goes on, and is found again.
func TestRestartWithASrunStep(t *testing.T) {
	n := newNode(t)
	holder, b := n.allocation(1, "")
	s := n.srun(b, "sh", "-c", "echo up; read x; echo got $x")
	s.Await("it runs", func() bool { return s.Out["out 0"] != nil })
	if have := n.restart(); len(have) != 2 {
		t.Errorf("found %v", have)
	}
	s.Send(stepwire.In, 0, []byte("it\n"))
	if rec := n.ended(b.Key); rec.Verdict != "exited" || rec.WaitStatus != 0 {
		t.Errorf("%v", rec)
	}
	s.Await("the last word", func() bool { return s.Ended != nil })
	if got := s.Text("out 0"); got != "up\ngot it\n" {
		t.Errorf("%q", got)
	}
	n.release(holder)
}

// TestSuspendedAllocation: a step of it is ended although the script is frozen, and while it is frozen itself.
func TestSuspendedAllocation(t *testing.T) {
	for _, plugin := range []string{"", cgroup.PluginV1, cgroup.PluginDisabled} {
		t.Run("plugin "+plugin, func(t *testing.T) { suspendedAllocation(t, newNodeWith(t, plugin)) })
	}
}

func suspendedAllocation(t *testing.T, n *node) {
	holder, b := n.allocation(1, "sleep 600")
	s := n.srun(b, "sh", "-c", "trap 'exit 6' TERM; echo up; while :; do sleep 0.01; done")
	s.Await("it runs", func() bool { return s.Out["out 0"] != nil })
	for _, k := range []*pb.StepKey{holder.Key, b.Key} {
		n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, Suspended: true})
	}
	if len(n.groupDirs()) > 0 {
		n.awaitFrozen(holder)
	}
	n.order(&pb.StepOrder{Key: b.Key, Want: pb.StepWant_WANT_STOP})
	if rec := n.ended(b.Key); rec.Verdict != "cancelled" || rec.WaitStatus != 6<<8 {
		t.Errorf("%v", rec)
	}
	n.release(holder)
}

// TestStepLimits: narrower than those of the allocation, whatever the layout.
func TestStepLimits(t *testing.T) {
	n := newNode(t)
	holder := n.bundle()
	holder.Limits = &pb.Limits{MemoryMib: 200, Pids: 100, CpusetCpus: "0"}
	n.launch(holder, "sleep 600")
	n.running(holder.Key)
	b := n.bundle()
	b.Key = &pb.StepKey{JobId: holder.Key.JobId, Attempt: 1, Epoch: 7, Step: 3}
	b.Cgroup, b.Argv, b.Step = folder.Group(b.Key), nil, &pb.StepTasks{Tasks: []*pb.StepTask{{Rank: 0}}}
	b.Limits = &pb.Limits{MemoryMib: 100, CpusetCpus: "0"}
	s := n.srun(b, "cat", "/proc/self/cgroup", "/proc/self/status")
	if rec := n.ended(b.Key); rec.WaitStatus != 0 {
		t.Errorf("%v, said %q", rec, s.Said)
	}
	s.Await("the last word", func() bool { return s.Ended != nil })
	got := s.Text("out 0")
	if len(n.groupDirs()) > 0 && (!strings.Contains(got, "/step_3\n") || !strings.Contains(got, filepath.Base(holder.Cgroup)+"/")) {
		t.Errorf("its groups: %s", got)
	}
	n.release(holder)
}

// TestStepsShareTheRoomOfTheirJob: what is in memory, System V memory among it, is one for all steps of a job on a node, and its script;
// also after the node daemon has been replaced, and not for the next job.
func TestStepsShareTheRoomOfTheirJob(t *testing.T) {
	n := newNode(t)
	n.private = n.privacy(&pb.Privacy{Dirs: []string{"/dev/shm"}, Ipc: true})
	name := "/dev/shm/sluice-test-" + filepath.Base(filepath.Dir(n.spool))
	srun := func(b *pb.Bundle, script string) string {
		t.Helper()
		s := n.srun(b, "sh", "-c", script+"; true")
		if rec := n.ended(b.Key); rec.Verdict != "exited" || rec.WaitStatus != 0 {
			t.Errorf("%v", rec)
		}
		s.Await("the last word", func() bool { return s.Ended != nil })
		must(t, n.r.Forget(b.Key))
		b.Key = proto.Clone(b.Key).(*pb.StepKey)
		b.Key.Step++
		b.Cgroup = folder.Group(b.Key)
		return s.Text("out 0")
	}
	look := "cat " + name + " 2>&1; /usr/bin/python3 -ISc 'import ctypes; print(ctypes.CDLL(None).shmget(0x51ce, 4096, 0) >= 0)'"
	none := "cat: " + name + ": No such file or directory\nFalse\n"
	for _, batch := range []string{"", "echo batch >" + name + "; echo made; sleep 600"} {
		holder, b := n.allocation(1, batch)
		want := ""
		if batch != "" {
			n.awaitOutput(holder, "made")
			want = "batch\n"
		} else if got := srun(b, look); got != none {
			t.Errorf("at first: %q", got)
		}
		srun(b, "echo step >>"+name+"; "+
			"/usr/bin/python3 -ISc 'import ctypes; ctypes.CDLL(None).shmget(0x51ce, 4096, 0o1666)'")
		want += "step\nTrue\n"
		if got := srun(b, look); got != want {
			t.Errorf("script %q: the next step sees %q", batch, got)
		}
		n.restart()
		if got := srun(b, look); got != want {
			t.Errorf("script %q: after a restart: %q", batch, got)
		}
		n.release(holder)
		if _, err := os.Stat(name); err == nil {
			t.Error("it is seen by all")
		}
	}
	holder, b := n.allocation(1, "")
	if got := srun(b, look); got != none {
		t.Errorf("the next job sees %q", got)
	}
	n.release(holder)
}
