package reactor

import (
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A reboot goes: asked for (REBOOT_REQUESTED), issued when nothing runs on the node any more (REBOOT_ISSUED and DOWN: the node daemon runs
// RebootProgram), over when the node registers with another boot id, given up after ResumeTimeout. While it is issued, silence of the
// node is no fault. The node's reason says how far it has come, in Slurm's words.

// askReboot is scontrol reboot of one node, n being a copy of its record; asap drains it, so that it becomes idle soon. What happens
// already is not done again.
func (c UpdateNode) askReboot(tx *state.Tx, n *state.Node, asap bool) *pb.Problem {
	switch {
	case n.State == pb.NodeState_NODE_FUTURE:
		return pb.NewProblem(pb.CodeInvalidNodeState, "node %s is FUTURE", n.Name)
	case n.StateFlags&pb.NodeRebootIssued != 0:
		return nil
	}
	reason := func(text string) {
		if n.Reason == "" && !c.sets("reason") {
			n.Reason, n.ReasonNs, n.ReasonUid, n.ReasonUser = text, tx.NowNS, c.Caller.UID, c.UserName
		}
	}
	n.StateFlags |= pb.NodeRebootRequested
	n.RebootNext, n.RebootNs = "", 0
	if n.State == pb.NodeState_NODE_DOWN { // a node that may not be used is not given back by a reboot alone
		n.StateFlags |= pb.NodeDrain
	}
	if asap {
		n.RebootAsap = n.RebootAsap || n.StateFlags&pb.NodeDrain == 0
		n.StateFlags |= pb.NodeDrain
		n.RebootNext = "RESUME"
		reason("Reboot ASAP")
	}
	reason("reboot requested")
	return nil
}

// cancelReboot takes back a reboot that has not begun, and the drain of ASAP; what the node was drained for before stays.
func cancelReboot(n *state.Node) *pb.Problem {
	if n.StateFlags&pb.NodeRebootRequested == 0 {
		return pb.NewProblem(pb.CodeInvalidNodeState, "no reboot of node %s is pending", n.Name)
	}
	if n.RebootAsap {
		n.StateFlags &^= pb.NodeDrain
	}
	if n.StateFlags&(pb.NodeDrain|pb.NodeFail) == 0 && n.State != pb.NodeState_NODE_DOWN {
		n.Reason = ""
	}
	forgetReboot(n)
	return nil
}

func forgetReboot(n *state.Node) {
	n.StateFlags &^= pb.NodeRebootRequested | pb.NodeRebootIssued
	n.RebootAsap, n.RebootNext, n.RebootNs = false, "", 0
}

// issue begins a reboot that was asked for, when nothing runs on the node, n being a copy of its record. It reports whether it did.
func issue(tx *state.Tx, n *state.Node) bool {
	if n.StateFlags&pb.NodeRebootRequested == 0 || len(n.Jobs) > 0 || !n.LinkUp {
		return false
	}
	n.StateFlags = n.StateFlags&^pb.NodeRebootRequested | pb.NodeRebootIssued
	n.State, n.RebootNs = pb.NodeState_NODE_DOWN, tx.NowNS
	n.Reason, n.ReasonNs = withWords(n.Reason, "reboot issued"), tx.NowNS
	return true
}

// reboots issues what was asked for and waits, and gives up what takes longer than ResumeTimeout.
func reboots(tx *state.Tx, old *state.Node) {
	if old.StateFlags&(pb.NodeRebootRequested|pb.NodeRebootIssued) == 0 {
		return
	}
	n := change(old)
	switch {
	case issue(tx, n):
		tx.Emit(state.NodeChanged{Node: n, What: "reboot issued", Durable: true})
	case n.StateFlags&pb.NodeRebootIssued != 0 && tx.NowNS-n.RebootNs > int64(tx.Settings().ResumeTimeoutS)*1e9:
		reason := withWords(n.Reason, "reboot timed out")
		forgetReboot(n)
		tx.Emit(state.NodeChanged{Node: n, What: "reboot timed out", Durable: true})
		nodeDown(tx, n.Name, reason, Caller{UID: tx.Settings().SlurmUserUID, Operator: true}, "slurm")
	}
}

// rebootDone is a node that is back, n being a copy of its record: as nextstate= said, else as it was, but for the drain of ASAP. One that
// came back before it was told to has done all the same what was asked for.
// It reports whether one was asked for.
func rebootDone(tx *state.Tx, n *state.Node) bool {
	const asked = pb.NodeRebootRequested | pb.NodeRebootIssued
	if n.StateFlags&asked == 0 {
		return false
	}
	if n.StateFlags&pb.NodeRebootIssued != 0 {
		n.State = pb.NodeState_NODE_IDLE
	}
	if n.RebootAsap || n.RebootNext != "" {
		n.StateFlags &^= pb.NodeDrain
	}
	switch {
	case n.RebootNext == "DOWN":
		n.State = pb.NodeState_NODE_DOWN
		n.Reason, n.ReasonNs = withWords(n.Reason, "reboot complete"), tx.NowNS
	case n.RebootNext == "RESUME":
		n.State, n.Reason = pb.NodeState_NODE_IDLE, ""
	case n.StateFlags&(pb.NodeDrain|pb.NodeFail) == 0 && n.State != pb.NodeState_NODE_DOWN:
		n.Reason = ""
	}
	forgetReboot(n)
	return true
}

func withWords(reason, words string) string {
	if reason == "" {
		return words
	}
	return reason + " : " + words
}

// sets reports whether the update names a key.
func (c UpdateNode) sets(key string) bool {
	for _, kv := range c.Set {
		if strings.EqualFold(kv.Key, key) {
			return true
		}
	}
	return false
}
