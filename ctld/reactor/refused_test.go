package reactor

import (
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestNodeRefused: a node whose clock was put wrong is refused repeatedly, for much longer than SlurmdTimeout. It is not given up, the
// job there runs on, and nothing else starts; it says why. When it is let in it can be used as before.
func TestNodeRefused(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Requeue: 1})
	b.start(id, "n1")
	b.do(NodeGone{Node: "n1", Stream: 1})
	refused := NodeRefused{Node: "n1", Why: RefusedClock, Text: "the clock of n1 shows 1999"}
	for range 100 {
		b.now += 5e9
		b.do(refused)
		b.do(Tick{})
	}
	n := b.view.Node("n1")
	if n.State != pb.NodeState_NODE_IDLE || n.StateFlags != pb.NodeDrain|pb.NodeInvalidReg ||
		n.Reason != "Clock: the clock of n1 shows 1999" {
		t.Errorf("the node is %v with flags %#x, reason %q", n.State, n.StateFlags, n.Reason)
	}
	if j := b.view.Jobs.Get(id); j.State != pb.JobState_JOB_RUNNING || j.Attempt != 1 {
		t.Errorf("its job is %v, attempt %d", j.State, j.Attempt)
	}
	b.do(NodeRefused{Node: "n1", Why: RefusedVersion, Text: "upgrade n1"})
	if n := b.view.Node("n1"); n.Reason != "Version: upgrade n1" {
		t.Errorf("refused for something else: %q", n.Reason)
	}
	b.do(NodeRefused{Node: "n1", Why: RefusedVersion, Text: "upgrade the controller"})
	if n := b.view.Node("n1"); n.Reason != "Version: upgrade the controller" {
		t.Errorf("refused after one of the two was replaced: %q", n.Reason)
	}
	b.do(hello("n1", "boot1", &pb.StepReport{Key: &pb.StepKey{JobId: id, Attempt: 1, Step: pb.BatchStep},
		Phase: pb.StepPhase_STEP_RUNNING}))
	if n := b.view.Node("n1"); !n.LinkUp || n.StateFlags != 0 || n.Reason != "" {
		t.Errorf("let in, the node has flags %#x, reason %q", n.StateFlags, n.Reason)
	}
	if j := b.view.Jobs.Get(id); j.State != pb.JobState_JOB_RUNNING || j.Attempt != 1 {
		t.Errorf("let in, its job is %v, attempt %d", j.State, j.Attempt)
	}
	b.do(refused)
	if n := b.view.Node("n1"); !n.LinkUp || n.Reason != "" {
		t.Errorf("a stream that is open: %v, %q", n.LinkUp, n.Reason)
	}
	b.do(NodeRefused{Node: "nobody", Why: RefusedClock})
}

// TestDrainedNodeRefused: an administrator's drain and reason stay when the node is refused.
func TestDrainedNodeRefused(t *testing.T) {
	b := newBench(t, nil)
	b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "DRAIN"},
		{Key: "Reason", Value: "new disks"}}})
	b.do(NodeGone{Node: "n1", Stream: 1})
	b.do(NodeRefused{Node: "n1", Why: RefusedClock, Text: "late"})
	b.do(hello("n1", "boot1"))
	if n := b.view.Node("n1"); n.StateFlags != pb.NodeDrain || !strings.HasPrefix(n.Reason, "new disks") {
		t.Errorf("the node has flags %#x, reason %q", n.StateFlags, n.Reason)
	}
}
