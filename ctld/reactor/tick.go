package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Tick is what time alone does; the loop sends one every second.
type Tick struct {
	Purge bool // look for jobs to forget, too (a walk over all jobs)
}

// requestMemoryNS is how long the controller remembers a request id at least, so that a client's retry finds its job.
const requestMemoryNS = 120e9

// purgeAtOnce bounds the jobs forgotten in one commit.
const purgeAtOnce = 2000

// Handle runs the timers.
func (c Tick) Handle(tx *state.Tx) any {
	s := tx.Settings()
	if s.NodeTimeoutS > 0 {
		for _, n := range tx.Nodes() {
			silent(tx, n, int64(s.NodeTimeoutS)*1e9)
		}
	}
	endReservations(tx)
	for _, id := range tx.Preempted() {
		overdue(tx, tx.Job(id))
	}
	if c.Purge {
		purge(tx, int64(s.MinJobAgeS)*1e9)
	}
	return nil
}

// silent marks a node that has been without a link: not responding after a third of SlurmdTimeout, DOWN after all of it.
func silent(tx *state.Tx, n *state.Node, timeoutNS int64) {
	if n.LinkUp || n.State == pb.NodeState_NODE_DOWN || n.State == pb.NodeState_NODE_FUTURE {
		return
	}
	since := tx.NowNS - n.LinkNS
	if n.LinkNS == 0 {
		c := change(n)
		c.LinkNS = tx.NowNS
		tx.Emit(state.NodeChanged{Node: c})
		return
	}
	if since >= timeoutNS {
		nodeDown(tx, n.Name, notResponding, Caller{UID: tx.Settings().SlurmUserUID, Operator: true}, "slurm")
		return
	}
	if since >= timeoutNS/3 && n.StateFlags&pb.NodeNoRespond == 0 {
		c := change(n)
		c.StateFlags |= pb.NodeNoRespond
		tx.Emit(state.NodeChanged{Node: c, What: "not responding"})
	}
}

func purge(tx *state.Tx, minAgeNS int64) {
	left := purgeAtOnce
	var old []uint32
	for j := range tx.Jobs().All() {
		if left == 0 {
			break
		}
		if state.Active(j) || tx.NowNS-j.EndNs < minAgeNS || tx.NowNS-j.SubmitNs < requestMemoryNS || j.ArrayJobId != 0 && tx.ArrayActive(j.ArrayJobId) {
			continue
		}
		old = append(old, j.Id)
		left--
	}
	for _, id := range old {
		tx.Emit(state.JobForgotten{ID: id})
	}
}
