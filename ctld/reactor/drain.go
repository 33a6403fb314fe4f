package reactor

import (
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// setState implements State= of scontrol(1): DRAIN and FAIL need a reason, RESUME and IDLE return the node to service, UNDRAIN only clears
// DRAIN.
func (c UpdateNode) setState(tx *state.Tx, n *state.Node, value string, down map[string]bool) *pb.Problem {
	hasReason := c.sets("reason")
	up := strings.ToUpper(value)
	switch up {
	case "DRAIN", "DRAINED", "DRAINING", "FAIL", "DOWN":
		if !hasReason && n.Reason == "" {
			return pb.NewProblem(pb.CodeInvalidNodeState, "You must specify a reason when %s a node.",
				strings.ToLower(value)).WithHint("add Reason=\"…\"")
		}
	}
	clear := pb.NodeDrain | pb.NodeFail | pb.NodeMaint | pb.NodePowerDrain
	switch up {
	case "DRAIN", "DRAINED", "DRAINING":
		n.StateFlags = n.StateFlags&^pb.NodePowerDrain | pb.NodeDrain
	case "FAIL", "FAILING":
		n.StateFlags |= pb.NodeFail
	case "UNDRAIN":
		n.StateFlags &^= clear
		n.Reason = ""
	case "RESUME", "IDLE":
		answers := n.UntoldNs != 0 && hasReason // not for a command that resumes all nodes, whatever their state
		if answers {
			n.ToldSeq, n.UntoldNs = tx.View().Restored, 0
		}
		if given, busy := atWork(n), len(n.Jobs) > 0; given && (up == "RESUME" || busy) {
			if answers {
				return nil
			}
			return pb.NewProblem(pb.CodeInvalidNodeState, "node %s is neither down nor drained: there is nothing to resume", n.Name)
		}
		n.StateFlags &^= clear | pb.NodeInvalidReg
		if n.StateFlags&pb.NodePoweringDown != 0 { // it may be powered up at once
			n.StateFlags = n.StateFlags&^pb.NodePoweringDown | pb.NodePoweredDown
		}
		n.LaunchFailures = nil
		n.Reason = ""
		forgetReboot(n)
		if n.State == pb.NodeState_NODE_DOWN || n.State == pb.NodeState_NODE_FUTURE {
			n.State = pb.NodeState_NODE_UNKNOWN
			if n.LinkUp || n.StateFlags&state.PowerFlags != 0 {
				n.State = pb.NodeState_NODE_IDLE
			}
			n.LinkNS = tx.NowNS
		}
	case "DOWN":
		down[n.Name] = true
		n.ToldSeq, n.UntoldNs = tx.View().Restored, 0 // jobs from before a restore no longer wait for it
	case "REBOOT", "REBOOT_ASAP":
		return c.askReboot(tx, n, up == "REBOOT_ASAP")
	case "CANCEL_REBOOT":
		return cancelReboot(n)
	case "FUTURE":
		if len(n.Jobs) > 0 {
			return pb.NewProblem(pb.CodeInvalidNodeState, "%d job(s) run on node %s", len(n.Jobs), n.Name)
		}
		n.State, n.StateFlags = pb.NodeState_NODE_FUTURE, n.StateFlags&pb.NodeDynamic
	default:
		return pb.NewProblem(pb.CodeInvalidNodeState, "%q", value).WithHint("one of DOWN, DRAIN, FAIL, FUTURE, IDLE, RESUME, UNDRAIN")
	}
	return nil
}

// atWork reports whether a node can be given jobs, so that there is nothing to resume.
func atWork(n *state.Node) bool {
	switch n.State {
	case pb.NodeState_NODE_DOWN, pb.NodeState_NODE_FUTURE, pb.NodeState_NODE_UNKNOWN:
		return false
	}
	return (n.LinkUp || n.StateFlags&(pb.NodePoweredDown|pb.NodePoweringUp) != 0) && n.Reason == "" &&
		n.StateFlags&(pb.NodeDrain|pb.NodeFail|pb.NodeMaint|pb.NodeInvalidReg|pb.NodeRebootRequested|pb.NodeRebootIssued|
			pb.NodePoweringDown) == 0
}

// drain drains a node for a reason that the controller found; running jobs continue. A node that is drained already keeps its reason, as in
// Slurm: the first finding, or the administrator's.
func drain(tx *state.Tx, node, reason string) {
	old := tx.Node(node)
	if old == nil || old.StateFlags&(pb.NodeDrain|pb.NodePowerDrain) == pb.NodeDrain && old.Reason != "" {
		return
	}
	n := change(old)
	n.StateFlags = n.StateFlags&^pb.NodePowerDrain | pb.NodeDrain
	n.Reason, n.ReasonNs, n.ReasonUser, n.ReasonUid = reason, tx.NowNS, "slurm", tx.Settings().SlurmUserUID
	tx.Emit(state.NodeChanged{Node: n, What: "drained", Durable: true})
}

// nodeDown sets a node DOWN and gives up its jobs.
func nodeDown(tx *state.Tx, name, reason string, by Caller, byName string) {
	n := change(tx.Node(name))
	n.State = pb.NodeState_NODE_DOWN
	n.Reason, n.ReasonNs, n.ReasonUser, n.ReasonUid = reason, tx.NowNS, byName, by.UID
	n.Strays = withStrays(tx, n)
	tx.Emit(state.NodeChanged{Node: n, What: "down", Durable: true})
	for _, id := range n.Jobs {
		if j := tx.Job(id); j != nil && state.AllocOn(j, name) != nil {
			lose(tx, j, name, fmt.Sprintf("node %s is down: %s", name, reason))
		}
	}
}
