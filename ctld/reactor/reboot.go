package reactor

import (
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// The steps of a reboot: requested (REBOOT_REQUESTED), issued when nothing runs on the node any more (REBOOT_ISSUED and DOWN: the node
// daemon runs RebootProgram), done when the node registers with another boot id, given up after ResumeTimeout. While it is issued, the node
// may be silent. The node's reason shows the progress, in Slurm's words.

// askReboot is scontrol reboot for one node; n is a copy of its record. asap drains the node, so that it becomes idle soon. A reboot under
// way is not repeated.
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
	if n.State == pb.NodeState_NODE_DOWN { // a reboot alone does not return a node to service
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

// cancelReboot cancels a reboot that has not begun, and the drain of ASAP; an earlier drain stays.
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

// issue begins a requested reboot when nothing runs on the node; n is a copy of its record. It reports whether it did.
func issue(tx *state.Tx, n *state.Node) bool {
	if n.StateFlags&pb.NodeRebootRequested == 0 || len(n.Jobs) > 0 || !n.LinkUp {
		return false
	}
	n.StateFlags = n.StateFlags&^pb.NodeRebootRequested | pb.NodeRebootIssued
	n.State, n.RebootNs = pb.NodeState_NODE_DOWN, tx.NowNS
	n.Reason, n.ReasonNs = withWords(n.Reason, "reboot issued"), tx.NowNS
	return true
}

// reboots issues waiting reboots, and gives up those that take longer than ResumeTimeout.
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

// rebootDone updates a node that is back; n is a copy of its record. Its state is that of nextstate=, or the previous one without the drain
// of ASAP. A node that rebooted before it was told to has done its reboot too. It reports whether a reboot was requested.
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
