package state

import (
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stepWorld is a state with a job that runs, and its journal.
type stepWorld struct {
	t     *testing.T
	view  *View
	store *journal.Memory
	job   *pb.JobRecord
	last  Change
}

func newStepWorld(t *testing.T) *stepWorld {
	w := &stepWorld{t: t, view: New(testConfig(2, 4), "c", 1), store: journal.NewMemory()}
	w.job = &pb.JobRecord{Id: 1, Attempt: 1, Epoch: 5, State: pb.JobState_JOB_RUNNING, StartNs: 100e9, Spec: &pb.JobSpec{Uid: 7},
		Alloc: []*pb.NodeAlloc{{Node: w.view.Nodes()[0].Name, Cpus: 4}}}
	w.emit(JobSubmitted{Job: &pb.JobRecord{Id: 1, Spec: &pb.JobSpec{Uid: 7}}}, JobStarted{Job: w.job})
	return w
}

func (w *stepWorld) emit(events ...Event) {
	w.t.Helper()
	tx := Begin(w.view, 1000e9)
	for _, e := range events {
		tx.Emit(e)
	}
	rows, err := tx.Rows()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.Commit(journal.Batch{Seq: tx.Seq, Rows: rows}); err != nil {
		w.t.Fatal(err)
	}
	w.view, w.last = tx.Freeze()
	if err := w.view.Check(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *stepWorld) step(id uint32) *pb.StepRecord {
	return &pb.StepRecord{JobId: 1, StepId: id, Attempt: w.job.Attempt, Epoch: w.job.Epoch, State: pb.JobState_JOB_RUNNING, Uid: 7,
		StartNs: 200e9, Spec: &pb.StepSpec{Name: "x", Overlap: true}, Nodes: []*pb.StepNode{{Node: w.job.Alloc[0].Node, Cpus: 1}}}
}

// leave takes the job off its node.
func (w *stepWorld) leave() {
	w.t.Helper()
	left := CloneJob(w.job)
	left.StateFlags, left.Alloc = pb.JobCompleting, []*pb.NodeAlloc{{Node: w.job.Alloc[0].Node, Cpus: 4, Ended: true}}
	w.emit(JobLeftNode{Job: left, Node: left.Alloc[0].Node})
}

func ended(s *pb.StepRecord) *pb.StepRecord {
	n := CloneStep(s)
	n.State, n.EndNs = pb.JobState_JOB_COMPLETED, 300e9
	n.Nodes = []*pb.StepNode{{Node: s.Nodes[0].Node, Cpus: 1, Ended: true}}
	return n
}

func (w *stepWorld) load() *View {
	w.t.Helper()
	v, err := Load(testConfig(2, 4), w.store, "c", 1)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := v.Check(); err != nil {
		w.t.Fatal(err)
	}
	return v
}

func TestStepsAreLoaded(t *testing.T) {
	w := newStepWorld(t)
	w.emit(StepCreated{w.step(0)}, StepCreated{w.step(1)}, StepCreated{w.step(pb.InteractiveStep)})
	if !slices.Equal(w.last.Wake, []string{w.job.Alloc[0].Node}) || !slices.Equal(w.last.Stepped, []uint32{1}) || len(w.last.Jobs) != 0 {
		t.Error(w.last)
	}
	w.emit(StepEnded{ended(w.step(0))})
	for _, v := range []*View{w.view, w.load()} {
		all := v.Steps(1)
		if len(all.List) != 3 || all.Running != 2 || all.Next != 2 || all.Get(0).State != pb.JobState_JOB_COMPLETED ||
			len(v.StepOutbox) != 0 {
			t.Error(all, v.StepOutbox)
		}
		if got, want := (&Tx{next: *v}).UserBytes(7), JobBytes(w.job)+3*StepBytes(w.step(0)); got != want {
			t.Errorf("the user holds %d bytes, not %d", got, want)
		}
	}
	w.view.Reindex()
	if got, want := (&Tx{next: *w.view}).UserBytes(7), JobBytes(w.job)+3*StepBytes(w.step(0)); got != want {
		t.Errorf("counted anew: %d, not %d", got, want)
	}
}

// TestStepsLeaveTheTable: with the next attempt, with their job, and when there are too many; their rows stay until accounting has them.
func TestStepsLeaveTheTable(t *testing.T) {
	w := newStepWorld(t)
	most := KeptSteps + KeptSteps/4
	for id := range uint32(most) {
		w.emit(StepCreated{w.step(id)})
		w.emit(StepEnded{ended(w.step(id))})
	}
	if all := w.view.Steps(1); len(all.List) != KeptSteps || all.Next != uint32(most) || len(w.last.StepsKept) != most-KeptSteps {
		t.Errorf("%d steps are kept, %d in the outbox", len(all.List), len(w.last.StepsKept))
	}
	kept := w.last.StepsKept
	w.emit(StepsStored{append(slices.Clone(kept[1:]), StepKey{1, 1, uint32(most) - 1})}) // the last one is the table's
	v := w.load()
	if n := len(v.Steps(1).List); n != KeptSteps+1 {
		t.Errorf("%d steps are loaded", n)
	}
	w.leave()
	next := CloneJob(w.job)
	next.Attempt, next.Epoch = 2, 6
	w.emit(JobStarted{Job: next})
	w.job = next
	if w.view.Steps(1) != nil || len(w.last.StepsKept) != KeptSteps {
		t.Error(w.view.Steps(1), len(w.last.StepsKept))
	}
	w.emit(StepCreated{w.step(0)})
	if v := w.load(); len(v.StepOutbox) != KeptSteps+1 || len(v.Steps(1).List) != 1 {
		t.Error(len(v.StepOutbox), v.Steps(1))
	}
	w.emit(StepEnded{ended(w.step(0))})
	w.leave()
	w.emit(JobForgotten{ID: 1})
	if v := w.load(); len(v.StepOutbox) != KeptSteps+2 || v.Steps(1) != nil {
		t.Error(len(v.StepOutbox), v.Steps(1))
	}
}

// TestStepTimesFollowTheClock: as those of jobs.
func TestStepTimesFollowTheClock(t *testing.T) {
	w := newStepWorld(t)
	w.emit(ClockSet{Clock: &pb.ClockRecord{BootId: "b", SinceNs: 50e9}})
	s := w.step(0)
	s.LimitNs = 500e9
	w.emit(StepCreated{s})
	w.emit(ClockSet{Clock: &pb.ClockRecord{BootId: "b", SinceNs: 1050e9, OffsetNs: 1000e9}, ByNS: 1000e9})
	for _, v := range []*View{w.view, w.load()} {
		if s := v.Steps(1).Get(0); s.StartNs != 1200e9 || s.LimitNs != 1500e9 {
			t.Error(s)
		}
	}
}

// TestGraceFollowsTheClock: after a reboot of the controller's machine a preempted job still has the grace time of its QOS.
func TestGraceFollowsTheClock(t *testing.T) {
	w := newStepWorld(t)
	d := w.view.Policy().Draft()
	d.Put(&pb.PolicyRow{Qos: &pb.QosRecord{Id: 9, Name: "low", Values: []*pb.PolicyValue{{Name: "GraceTime", Value: 600}}}}, false)
	w.emit(PolicyChanged{Draft: d})
	w.emit(ClockSet{Clock: &pb.ClockRecord{BootId: "b", SinceNs: 50e9}})
	j := CloneJob(w.view.Jobs.Get(1))
	j.Spec = CloneSpec(j.Spec)
	j.Spec.Qos, j.PreemptNs = "low", 5000e9
	w.emit(JobChanged{Job: j})
	w.emit(ClockSet{Clock: &pb.ClockRecord{BootId: "c", SinceNs: 1000e9}}) // of how long ago that was nothing is known
	if got := w.view.Jobs.Get(1).PreemptNs; got != 1600e9 {
		t.Errorf("it has until %d s, not until 1600", got/1e9)
	}
}

// TestCopiesAmongSteps: those that bring files count on their own, few of them are kept, and no number is used twice.
func TestCopiesAmongSteps(t *testing.T) {
	w := newStepWorld(t)
	w.emit(StepCreated{w.step(0)}, StepCreated{w.step(pb.InteractiveStep)})
	most := uint32(3 * keptCopies)
	for id := range most {
		w.emit(StepCreated{w.step(pb.CopyStep + id)})
		w.emit(StepEnded{ended(w.step(pb.CopyStep + id))})
	}
	w.emit(StepCreated{w.step(pb.CopyStep + most)})
	for _, v := range []*View{w.view, w.load()} {
		all := v.Steps(1)
		if all.Next != 1 || all.Copy != pb.CopyStep+most+1 || all.Running != 3 || all.Get(pb.CopyStep+most) == nil {
			t.Errorf("next %d and %#x, %d run", all.Next, all.Copy, all.Running)
		}
	}
	if n := len(w.view.Steps(1).copies()); n != keptCopies+1 {
		t.Errorf("%d copies are kept", n)
	}
	w.emit(StepEnded{ended(w.step(0))})
	if w.view.Steps(1).Get(0) == nil || w.view.Steps(1).Get(pb.InteractiveStep) == nil {
		t.Error("a step has gone for a copy")
	}
}
