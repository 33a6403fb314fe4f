package reactor

import (
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A node that is declared DOWN loses its jobs but may be alive: cut off, or set DOWN by hand. Attempts that may still run there are strays.
// Its record names them until the node has reported each of them gone, or has rebooted. Nothing new starts on it before, because it would
// share CPUs, memory and devices with them. The dispatcher orders them killed, and the node answers such an order even for attempts that it
// does not have (agent.Reconcile).

// withStrays returns a node's strays together with the attempts of its jobs that it may still run.
func withStrays(tx *state.Tx, n *state.Node) []*pb.StepKey {
	out := slices.Clone(n.Strays)
	for _, id := range n.Jobs {
		j := tx.Job(id)
		if j == nil || state.AllocOn(j, n.Name) == nil || j.StateFlags&pb.JobPowerUp != 0 {
			continue
		}
		out = append(out, &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: state.HolderOn(j, n.Name)})
		for _, s := range tx.Steps(id).Live() {
			if state.StepOn(s, n.Name) != nil {
				out = append(out, &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: s.StepId})
			}
		}
	}
	return out
}

// straysGone removes the strays that the node reports as ended. A report with epoch 0 is about an attempt that the node can no longer read.
func straysGone(tx *state.Tx, node string, steps []*pb.StepReport) {
	old := tx.Node(node)
	if old == nil || len(old.Strays) == 0 {
		return
	}
	left := slices.DeleteFunc(slices.Clone(old.Strays), func(k *pb.StepKey) bool {
		return slices.ContainsFunc(steps, func(r *pb.StepReport) bool {
			return r.Phase == pb.StepPhase_STEP_ENDED && r.Key.GetJobId() == k.JobId && r.Key.Attempt == k.Attempt &&
				r.Key.Step == k.Step &&
				(r.Key.Epoch == k.Epoch || r.Key.Epoch == 0)
		})
	})
	if len(left) == len(old.Strays) {
		return
	}
	n := change(old)
	n.Strays = left
	tx.Emit(state.NodeChanged{Node: n, What: "strays gone", Durable: true})
	awake(tx, node)
}
