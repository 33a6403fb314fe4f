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
	if n := b.node("n1"); n.State != pb.NodeState_NODE_DOWN || n.StateFlags != pb.NodeRebootIssued|pb.NodeDrain ||
		n.Reason != "Reboot ASAP : reboot issued" {
		t.Errorf("a node that reboots became %v", n.NodeRecord)
	}
	b.do(hello("n1", "boot1")) // the daemon alone was started again
	if n := b.node("n1"); n.StateFlags&pb.NodeRebootIssued == 0 || n.State != pb.NodeState_NODE_DOWN {
		t.Errorf("the reboot was forgotten in the same boot: %v", n.NodeRecord)
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
	if n := b.node("n1"); n.State != pb.NodeState_NODE_DOWN || n.Reason != "new kernel : reboot issued : reboot timed out" ||
		n.StateFlags&pb.NodeRebootIssued != 0 {
		t.Errorf("%v", n.NodeRecord)
	}
}

func TestRebootToDown(t *testing.T) {
	b := newBench(t, rebooting)
	b.do(reboot([]string{"n1"}, "REBOOT", "NextState", "DOWN", "Reason", "disk"))
	b.do(hello("n1", "boot2"))
	if n := b.node("n1"); n.State != pb.NodeState_NODE_DOWN || n.Reason != "disk : reboot issued : reboot complete" {
		t.Errorf("%v", n.NodeRecord)
	}
}

// TestRebootOfANode: reasons and states of rebooted nodes are those of a real Slurm 22.05.
func TestRebootOfANode(t *testing.T) {
	idle, down := pb.NodeState_NODE_IDLE, pb.NodeState_NODE_DOWN
	for name, c := range map[string]struct {
		first        []string // State, Reason
		reboot, next string
		reason       string // of scontrol reboot
		issued       string // the reason then
		state        pb.NodeState
		flags        uint32
		after        string
	}{
		"idle":          {reboot: "REBOOT", issued: "reboot requested : reboot issued", state: idle},
		"with a reason": {reboot: "REBOOT", reason: "disk", issued: "disk : reboot issued", state: idle},
		"at once":       {reboot: "REBOOT_ASAP", issued: "Reboot ASAP : reboot issued", state: idle},
		"to be down": {reboot: "REBOOT", next: "DOWN", issued: "reboot requested : reboot issued", state: down,
			after: "reboot requested : reboot issued : reboot complete"},
		"drained": {first: []string{"DRAIN", "mine"}, reboot: "REBOOT", issued: "mine : reboot issued", state: idle,
			flags: pb.NodeDrain, after: "mine : reboot issued"},
		"drained, at once": {first: []string{"DRAIN", "mine"}, reboot: "REBOOT_ASAP", issued: "mine : reboot issued", state: idle},
		"drained, to resume": {first: []string{"DRAIN", "mine"}, reboot: "REBOOT", next: "RESUME",
			issued: "mine : reboot issued", state: idle},
		"down": {first: []string{"DOWN", "broken"}, reboot: "REBOOT", issued: "broken : reboot issued",
			state: idle, flags: pb.NodeDrain, after: "broken : reboot issued"},
		"down, to resume": {first: []string{"DOWN", "broken"}, reboot: "REBOOT_ASAP", next: "RESUME",
			issued: "broken : reboot issued", state: idle},
	} {
		for mode := range 3 {
			b := newBench(t, func(s *state.Settings) { rebooting(s); s.ReturnToService = mode })
			if c.first != nil {
				b.do(reboot([]string{"n1"}, c.first[0], "Reason", c.first[1]))
			}
			var more []string
			if c.next != "" {
				more = append(more, "NextState", c.next)
			}
			if c.reason != "" {
				more = append(more, "Reason", c.reason)
			}
			b.do(reboot([]string{"n1"}, c.reboot, more...))
			if n := b.node("n1"); n.State != down || n.StateFlags&pb.NodeRebootIssued == 0 || n.Reason != c.issued {
				t.Errorf("%s: issued: %v", name, n.NodeRecord)
			}
			if p := b.do(reboot([]string{"n1"}, c.reboot)); b.node("n1").Reason != c.issued {
				t.Errorf("%s: asked for again: %v, %v", name, p, b.node("n1").NodeRecord)
			}
			b.do(NodeGone{Node: "n1"})
			b.do(hello("n1", "boot2"))
			if n := b.node("n1"); n.State != c.state || n.StateFlags != c.flags || n.Reason != c.after || n.RebootNext != "" ||
				n.RebootAsap {
				t.Errorf("%s, ReturnToService=%d: afterwards: %v", name, mode, n.NodeRecord)
			}
		}
	}
}

// TestUnexpectedReboot: a node that has rebooted by itself is DOWN, unless ReturnToService is 2. Slurm keeps the reason of one that was
// drained before.
func TestUnexpectedReboot(t *testing.T) {
	for _, c := range []struct {
		mode   int
		before func(*bench)
		reason string // "": it is used
	}{
		{0, nil, unexpectedReboot},
		{1, nil, unexpectedReboot},
		{2, nil, ""},
		{1, func(b *bench) { b.do(reboot([]string{"n1"}, "DRAIN", "Reason", "mine")) }, "mine"},
		{1, func(b *bench) { nodeDownNow(b, notResponding) }, unexpectedReboot},
		{1, func(b *bench) { nodeDownNow(b, "broken") }, "broken"},
		{2, func(b *bench) { nodeDownNow(b, "broken") }, ""},
	} {
		b := newBench(t, func(s *state.Settings) { s.ReturnToService = c.mode })
		if c.before != nil {
			c.before(b)
		}
		b.do(NodeGone{Node: "n1"})
		b.do(hello("n1", "boot2"))
		if n := b.node("n1"); n.Reason != c.reason || (n.State == pb.NodeState_NODE_DOWN) != (c.reason != "") {
			t.Errorf("ReturnToService=%d, to be %q: %v", c.mode, c.reason, n.NodeRecord)
		}
	}
}

func nodeDownNow(b *bench, reason string) { b.do(reboot([]string{"n1"}, "DOWN", "Reason", reason)) }

func TestCancelReboot(t *testing.T) {
	b := newBench(t, rebooting)
	if p, _ := b.do(reboot([]string{"n1"}, "CANCEL_REBOOT")).(*pb.Problem); p.GetCode() != uint32(pb.CodeInvalidNodeState) {
		t.Errorf("nothing to cancel: %v", p)
	}
	b.start(b.submit(&pb.JobSpec{}), "n1")
	for _, c := range []struct {
		reboot, reason string
		drained        bool
		after          string
	}{
		{"REBOOT", "", false, ""}, {"REBOOT", "why", false, ""}, {"REBOOT_ASAP", "", false, ""}, {"REBOOT_ASAP", "why", false, ""},
		{"REBOOT", "", true, "mine"}, {"REBOOT_ASAP", "", true, "mine"}, // Slurm takes back the drain of ASAP, and no other
	} {
		if c.drained {
			b.do(reboot([]string{"n1"}, "DRAIN", "Reason", "mine"))
		}
		more := []string{"Reason", c.reason}
		if c.reason == "" {
			more = nil
		}
		b.do(reboot([]string{"n1"}, c.reboot, more...))
		b.do(reboot([]string{"n1"}, c.reboot)) // twice is once
		if b.node("n1").StateFlags&pb.NodeRebootRequested == 0 {
			t.Errorf("%+v: %v", c, b.node("n1").NodeRecord)
		}
		b.do(reboot([]string{"n1"}, "CANCEL_REBOOT"))
		if n := b.node("n1"); n.Reason != c.after || (n.StateFlags&pb.NodeDrain != 0) != c.drained || n.RebootNext != "" {
			t.Errorf("%+v: %v", c, n.NodeRecord)
		}
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
