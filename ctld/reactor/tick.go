package reactor

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/reactor/resv"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Tick applies the passing of time; the loop sends one every second.
type Tick struct {
	Purge bool // also look for jobs to forget (a walk over all jobs)
	// Unstored are the jobs whose present record accounting has not stored: when forgotten, they go into the outbox.
	Unstored map[uint32]struct{}
}

// requestMemoryNS is the least time for which the controller remembers a request id, so that a client's retry finds its job.
const requestMemoryNS = state.RequestMemoryNS

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
	for _, n := range tx.Nodes() {
		reboots(tx, n)
	}
	powers(tx)
	recallLost(tx)
	resv.Tick(tx)
	overspent(tx)
	accrue(tx)
	for _, id := range tx.Preempted() {
		overdue(tx, tx.Job(id))
	}
	if c.Purge {
		purge(tx, c.Unstored)
	}
	return nil
}

// silent marks a node without a link: not responding after a third of SlurmdTimeout, DOWN after all of it.
func silent(tx *state.Tx, n *state.Node, timeoutNS int64) {
	if n.LinkUp || n.StateFlags&(pb.NodeRebootIssued|state.PowerFlags) != 0 || n.State == pb.NodeState_NODE_DOWN ||
		n.State == pb.NodeState_NODE_FUTURE {
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

// purge forgets jobs that ended MinJobAge ago. Jobs that never ran are forgotten earlier while there are more records than MaxJobCount,
// because they do not count towards it and would otherwise grow without bound; on a nearly full disk they are forgotten at once. A job
// stays while a long dependency names it in a condition that has been met; the record with the dependency is weighed for the next purge.
func purge(tx *state.Tx, unstored map[uint32]struct{}) {
	left := purgeAtOnce
	minAgeNS := int64(tx.Settings().MinJobAgeS) * 1e9
	crowded := tx.Settings().MaxJobCount > 0 && tx.Jobs().Len() > int(tx.Settings().MaxJobCount)
	short := tx.Room < scarce
	namedBy := tx.Unweighed()
	looks, kept := map[uint32]bool{}, uint32(0) // records that still name due jobs, and one of these jobs
	aged := func(j *pb.JobRecord) bool {
		ago := tx.EndedAgo(j)
		return short && j.Attempt == 0 || (ago >= minAgeNS || crowded && j.Attempt == 0) && ago+j.EndNs-j.SubmitNs >= requestMemoryNS
	}
	due := func(j *pb.JobRecord) bool {
		if state.Active(j) || owedTo(tx, j) || !aged(j) {
			return false
		}
		by := slices.Concat(namedBy[j.Id], namedBy[j.ArrayJobId])
		for _, id := range by {
			looks[id], kept = true, j.Id
		}
		return len(by) == 0
	}
	arrays := map[uint32]bool{} // whether all records are due: an array goes as a whole, since dependencies ask about all its tasks
	wholeDue := func(array uint32) bool {
		all, seen := arrays[array]
		if !seen {
			all = !tx.ArrayActive(array) && !slices.ContainsFunc(tx.ArrayRecords(array), func(id uint32) bool { return !due(tx.Job(id)) })
			arrays[array] = all
		}
		return all
	}
	var old []uint32
	var orphans []*pb.JobRecord
	for j := range tx.Jobs().All() {
		if left == 0 {
			break
		}
		if state.Live(j) && nodeless(tx, j) != "" {
			orphans = append(orphans, j)
		}
		if !due(j) || j.ArrayJobId != 0 && !wholeDue(j.ArrayJobId) {
			continue
		}
		old = append(old, j.Id)
		left--
	}
	if kept != 0 {
		tx.Owe(state.Source{Job: kept}, slices.Sorted(maps.Keys(looks)))
	}
	for _, id := range old {
		_, keep := unstored[id]
		tx.Emit(state.JobForgotten{ID: id, Keep: keep})
	}
	for _, j := range orphans {
		for name := nodeless(tx, j); name != ""; name = nodeless(tx, tx.Job(j.Id)) {
			lose(tx, tx.Job(j.Id), name, fmt.Sprintf("node %s is no longer in slurm.conf", name))
		}
	}
}

// owedTo reports whether records that wait for a job have not yet learned how it ended.
func owedTo(tx *state.Tx, j *pb.JobRecord) bool {
	return tx.Owes(state.Source{}) || tx.Owes(state.Source{Job: j.Id}) || j.ArrayJobId != 0 && tx.Owes(state.Source{Job: j.ArrayJobId})
}

// nodeless returns a node of a running job that no longer exists; "" = none. It was removed from slurm.conf while no controller ran; a
// running controller refuses that.
func nodeless(tx *state.Tx, j *pb.JobRecord) string {
	for _, a := range j.GetAlloc() {
		if !a.Ended && tx.Node(a.Node) == nil {
			return a.Node
		}
	}
	return ""
}
