package reactor

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func reboot(nodes []string, state string, more ...string) UpdateNode {
	c := UpdateNode{Caller: root, UserName: "root", Nodes: nodes, Set: []*pb.KeyValue{{Key: "State", Value: state}}}
	for i := 0; i < len(more); i += 2 {
		c.Set = append(c.Set, &pb.KeyValue{Key: more[i], Value: more[i+1]})
	}
	return c
}

func rebooting(s *state.Settings) { s.RebootProgram, s.ResumeTimeoutS = "/sbin/reboot", 60 }

func (b *bench) node(name string) *state.Node { return b.view.Node(name) }

func TestRebootWaitsUntilNothingRuns(t *testing.T) {
	b := newBench(t, rebooting)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	if r := b.do(reboot([]string{"n1"}, "REBOOT_ASAP", "NextState",
		"RESUME")); b.node("n1").StateFlags != pb.NodeRebootRequested|pb.NodeDrain {
		t.Fatalf("asked for: %v, flags %x", r, b.node("n1").StateFlags)
	}
	if r := b.node("n1").Reason; r != "Reboot ASAP" {
		t.Errorf("reason %q", r)
	}
	b.do(Tick{})
	if b.node("n1").StateFlags&pb.NodeRebootIssued != 0 {
		t.Fatal("a node that runs a job was rebooted")
	}
	b.ended(id, "n1", "exited", 0)
	b.do(Tick{})
	if b.node("n1").StateFlags&pb.NodeRebootIssued == 0 {
		t.Fatal("an idle node was not rebooted")
	}
	b.do(NodeGone{Node: "n1"})
	b.now += 59e9
	b.do(Tick{})
	if n := b.node("n1"); n.State != pb.NodeState_NODE_IDLE || n.StateFlags&pb.NodeNoRespond != 0 {
		t.Errorf("a node that reboots is silent, and became %v %x", n.State, n.StateFlags)
	}
	b.do(hello("n1", "boot1")) // the daemon alone was started again
	if b.node("n1").StateFlags&pb.NodeRebootIssued == 0 {
		t.Error("the reboot was forgotten in the same boot")
	}
	b.do(hello("n1", "boot2"))
	if n := b.node("n1"); n.StateFlags != 0 || n.State != pb.NodeState_NODE_IDLE || n.Reason != "" || n.RebootNs != 0 {
		t.Errorf("after the reboot: %v", n.NodeRecord)
	}
}

func TestRebootTimesOut(t *testing.T) {
	b := newBench(t, rebooting)
	b.do(reboot([]string{"n1"}, "REBOOT", "Reason", "new kernel"))
	b.do(NodeGone{Node: "n1"})
	b.now += 61e9
	b.do(Tick{})
	if n := b.node("n1"); n.State != pb.NodeState_NODE_DOWN || n.Reason != "new kernel : reboot timed out" ||
		n.StateFlags&pb.NodeRebootIssued != 0 {
		t.Errorf("%v", n.NodeRecord)
	}
}

func TestRebootToDown(t *testing.T) {
	b := newBench(t, rebooting)
	b.do(reboot([]string{"n1"}, "REBOOT", "NextState", "DOWN", "Reason", "disk"))
	b.do(hello("n1", "boot2"))
	if n := b.node("n1"); n.State != pb.NodeState_NODE_DOWN || n.Reason != "disk : reboot complete" {
		t.Errorf("%v", n.NodeRecord)
	}
}

func TestCancelReboot(t *testing.T) {
	b := newBench(t, rebooting)
	if p, _ := b.do(reboot([]string{"n1"}, "CANCEL_REBOOT")).(*pb.Problem); p.GetCode() != uint32(pb.CodeInvalidNodeState) {
		t.Errorf("nothing to cancel: %v", p)
	}
	b.start(b.submit(&pb.JobSpec{}), "n1")
	b.do(reboot([]string{"n1"}, "REBOOT_ASAP"))
	b.do(reboot([]string{"n1"}, "CANCEL_REBOOT"))
	if n := b.node("n1"); n.StateFlags != 0 || n.Reason != "" {
		t.Errorf("%v", n.NodeRecord)
	}
}

func TestRebootRefused(t *testing.T) {
	b := newBench(t, nil)
	if p, _ := b.do(reboot([]string{"n1"}, "REBOOT")).(*pb.Problem); p.GetCode() != uint32(pb.CodeDisabled) {
		t.Errorf("without RebootProgram: %v", p)
	}
	b = newBench(t, rebooting)
	c := reboot([]string{"n1"}, "REBOOT")
	c.Caller = alice
	if p, _ := b.do(c).(*pb.Problem); p.GetCode() != uint32(pb.CodeAccessDenied) {
		t.Errorf("by a user: %v", p)
	}
	if p, _ := b.do(reboot([]string{"n1"}, "REBOOT", "NextState", "IDLE")).(*pb.Problem); p.GetCode() != uint32(pb.CodeInvalidNodeState) {
		t.Errorf("next state: %v", p)
	}
}
