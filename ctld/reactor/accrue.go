package reactor

import (
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// From a job's AccrueTime on its age counts in its priority. Where MaxJobsAccrue… or GrpJobsAccrue limit how many jobs have one, a job that
// waits gets it while there is room, the one with the lowest id first; to start, to end or to be held makes room. A lower limit takes it
// from nobody.

// accrueFrom is the AccrueTime of a job that becomes eligible then.
func accrueFrom(tx *state.Tx, j *pb.JobRecord, eligibleNS int64) int64 {
	if len(limit.Accrue(tx.View(), j)) > 0 {
		return 0 // accrue gives it one
	}
	return eligibleNS
}

// accrue gives the AccrueTimes for which there is room.
func accrue(tx *state.Tx) {
	v := tx.View()
	if !v.Settings.EnforceLimits || !v.Policy().Accrues() {
		return
	}
	used := map[limit.Group]int64{}
	count := func(j *pb.JobRecord) {
		for _, g := range limit.AccruesIn(v, j) {
			used[g] += state.Tasks(j)
		}
	}
	var waiting, held []*pb.JobRecord
	for j := range tx.Jobs().All() {
		switch {
		case !state.Pending(j):
		case j.Priority == 0:
			if j.AccrueNs != 0 {
				held = append(held, j)
			}
		case j.EligibleNs == 0 || j.EligibleNs > tx.NowNS:
		case j.AccrueNs != 0:
			count(j)
		default:
			waiting = append(waiting, j)
		}
	}
	set := func(j *pb.JobRecord, ns int64) {
		n := state.CloneJob(j)
		n.AccrueNs = ns
		tx.Emit(state.JobChanged{Job: n})
	}
	for _, j := range held {
		if len(limit.Accrue(v, j)) > 0 {
			set(j, 0)
		}
	}
	for _, j := range waiting {
		limits := limit.Accrue(v, j)
		if len(limits) == 0 {
			set(j, j.EligibleNs)
			continue
		}
		room := state.Tasks(j)
		for _, l := range limits {
			room = min(room, l.Most-used[l.Group])
		}
		for range max(0, room) {
			n := j
			if j.ArrayTasks != "" {
				task, _ := state.ArraySet(j).Min()
				n = splitTasks(tx, j, jobid.SetOf(task))
				j = tx.Job(j.Id)
			}
			count(n)
			set(n, tx.NowNS)
		}
	}
}
