package reactor

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// endsOf are a node's reports that steps have ended.
func endsOf(keys []*pb.StepKey) []*pb.StepReport {
	var out []*pb.StepReport
	for _, k := range keys {
		out = append(out, &pb.StepReport{Key: k, Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Key: k, Verdict: "cancelled"}})
	}
	return out
}

// TestStraysOfAReboot: a reboot leaves none.
func TestStraysOfAReboot(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.ReturnToService = 2 })
	b.do(hello("n1", "boot1"))
	b.start(b.submit(&pb.JobSpec{}), "n1")
	set := func(value string) {
		b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"},
			Set: []*pb.KeyValue{{Key: "State", Value: value}, {Key: "Reason", Value: "x"}}})
	}
	set("DOWN")
	set("RESUME")
	b.do(hello("n1", "boot1"))
	if b.view.Node("n1").Up() {
		t.Error("a node that says hello again, and not that its stray is gone, is used")
	}
	b.do(hello("n1", "boot2"))
	if n := b.view.Node("n1"); !n.Up() || len(n.Strays) != 0 {
		t.Errorf("after a reboot: %v", n.Strays)
	}
}

// TestStopped: squeue(1), STOPPED.
func TestStopped(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	for _, c := range []struct {
		signal uint32
		want   bool
	}{{19, true}, {10, true}, {18, false}, {19, true}} {
		b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(id)}, Signal: c.signal})
		if got := b.job(id).StateFlags&pb.JobStopped != 0; got != c.want {
			t.Errorf("after signal %d: stopped is %v", c.signal, got)
		}
	}
	b.ended(id, "n1", "exited", 0)
	if b.job(id).StateFlags != 0 || b.job(id).State != pb.JobState_JOB_COMPLETED {
		t.Errorf("ended: %s, flags %d", b.state(id), b.job(id).StateFlags)
	}
}
