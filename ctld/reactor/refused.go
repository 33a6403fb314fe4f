package reactor

import (
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Refusal says why a node may not connect: the beginning of the reason for its drain.
type Refusal string

// The reasons.
const (
	RefusedVersion Refusal = "Version: "
	RefusedClock   Refusal = "Clock: "
	// RefusedGeneration: the node has followed a controller with a newer state than this one's.
	RefusedGeneration Refusal = "Generation: "
)

// NodeRefused: a node said hello, but the controller cannot work with it.
type NodeRefused struct {
	Node string
	Why  Refusal
	Text string // for people
}

// Handle shows the reason, and lets no job start there until the node registers. The node answers, so its jobs are not given up: they
// continue however long that takes.
func (c NodeRefused) Handle(tx *state.Tx) any {
	old := tx.Node(c.Node)
	if old == nil || old.LinkUp { // its previous stream is left alone
		return nil
	}
	n := change(old)
	n.LinkNS = tx.NowNS
	n.StateFlags &^= pb.NodeNoRespond
	reason := string(c.Why) + plain(c.Text, maxWords)
	// The difference of the clocks varies each time; a version only changes when a daemon is replaced.
	same := n.Reason == reason || c.Why == RefusedClock && strings.HasPrefix(n.Reason, string(c.Why))
	known := n.StateFlags&pb.NodeInvalidReg != 0 && (same || !ofRegistration(n.Reason))
	if known || n.State == pb.NodeState_NODE_DOWN {
		tx.Emit(state.NodeChanged{Node: n})
		return nil
	}
	if n.StateFlags&pb.NodeDrain == 0 || ofRegistration(n.Reason) { // otherwise somebody has drained it for another reason
		n.Reason, n.ReasonNs = reason, tx.NowNS
		n.ReasonUser, n.ReasonUid = "slurm", tx.Settings().SlurmUserUID
	}
	n.StateFlags |= pb.NodeDrain | pb.NodeInvalidReg
	tx.Emit(state.NodeChanged{Node: n, What: "refused", Durable: true})
	return nil
}

// ofRegistration reports whether a good registration clears this reason.
func ofRegistration(reason string) bool {
	for _, begin := range []string{lowReason, string(RefusedVersion), string(RefusedClock), string(RefusedGeneration)} {
		if strings.HasPrefix(reason, begin) {
			return true
		}
	}
	return false
}
