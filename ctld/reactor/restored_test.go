package reactor

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// restored has the state so far come from a backup.
func (b *bench) restored() {
	v := *b.view
	v.Restored = v.Seq + 1000
	v.Seq = v.Restored
	b.view = &v
}

// TestStrangers: attempts that a restored state does not know are killed before anything new starts on their node, and recorded as lost;
// ids of jobs go on above those that the node has had.
func TestStrangers(t *testing.T) {
	b := newBench(t, nil)
	known, waits := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{})
	b.start(known, "n1")
	b.restored()
	at := func(job, attempt uint32, epoch uint64, phase pb.StepPhase) *pb.StepReport {
		return &pb.StepReport{Key: &pb.StepKey{JobId: job, Attempt: attempt, Epoch: epoch, Step: pb.BatchStep}, Phase: phase}
	}
	const running = pb.StepPhase_STEP_RUNNING
	h := hello("n1", "boot1", at(known, 1, b.job(known).Epoch, running), at(waits, 1, 500, running), at(7, 1, 501, running))
	h.Hello.HighestJob = 40
	b.trace = nil
	b.do(h)
	b.do(h)
	b.expect("NodeChanged n1 registered", "JobChanged lost an attempt", "NodeChanged n1 "+state.WhatLost, "NodeChanged n1 registered")
	n := b.view.Node("n1")
	if len(n.Strays) != 2 || n.Strays[0].JobId != waits || n.Strays[1].JobId != 7 || n.Up() {
		t.Errorf("strays: %v", n.Strays)
	}
	if j := b.job(waits); j.State != pb.JobState_JOB_PENDING ||
		!strings.Contains(j.SystemComment, "attempt 1, on n1, was lost") {
		t.Error(j)
	}
	if id := b.submit(&pb.JobSpec{}); id != 41 {
		t.Errorf("the next job is %d", id)
	}
	gone := at(waits, 1, 500, pb.StepPhase_STEP_ENDED)
	gone.Exit = &pb.ExitRecord{Verdict: "cancelled"}
	other := at(7, 1, 501, pb.StepPhase_STEP_ENDED)
	other.Exit = gone.Exit
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{gone, other}})
	if n := b.view.Node("n1"); len(n.Strays) != 0 || !n.Up() {
		t.Errorf("strays: %v", n.Strays)
	}
	h.Hello.HighestJob = 4_000_000_000
	b.do(h)
	if b.view.NextJobID > 100 {
		t.Error("a node may use up all ids")
	}
}

// TestRestored: an attempt that a restored state shows as started waits until its node has said what became of it, also when that was
// rebooted since; one that is unknown there is requeued if it may be.
func TestRestored(t *testing.T) {
	for _, c := range []struct {
		requeue uint32
		verdict string
		want    string
	}{
		{pb.Yes, "exited", "COMPLETED"},
		{pb.Yes, "unknown", "PENDING"},
		{pb.No, "unknown", "NODE_FAIL"},
	} {
		b := newBench(t, nil)
		id := b.submit(&pb.JobSpec{Requeue: c.requeue})
		b.start(id, "n1")
		b.restored()
		b.do(hello("n1", "boot2"))
		if s := b.state(id); !strings.HasPrefix(s, "RUNNING") {
			t.Errorf("before its node has said anything: %s", s)
		}
		b.ended(id, "n1", c.verdict, 0)
		if s := b.state(id); !strings.HasPrefix(s, c.want) {
			t.Errorf("%s, requeue=%d: %s", c.verdict, c.requeue, s)
		}
	}
}
