package reactor

import (
	"math"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// From its AccrueTime on a job gains priority by age. Where MaxJobsAccrue… or GrpJobsAccrue limit the number of such jobs, a waiting job
// gets an AccrueTime while there is room, lowest id first. A job makes room when it starts, ends, is held or has to wait for a time or a
// dependency again. A lowered limit takes the AccrueTime from no job, and a job that an update puts under a limit keeps its own.

// accrueFrom returns the AccrueTime of a job that becomes eligible at eligibleNS.
func accrueFrom(tx *state.Tx, j *pb.JobRecord, eligibleNS int64) int64 {
	if len(limit.Accrue(tx.View(), j)) > 0 {
		return 0 // accrue will set it
	}
	return eligibleNS
}

// accrue sets AccrueTimes while there is room.
func accrue(tx *state.Tx) {
	v := tx.View()
	if !v.Settings.EnforceLimits || !v.Policy().Accrues() {
		return
	}
	type kind struct{ user, account, qos, partition string } // of jobs with the same limits
	type room struct {
		limits []limit.Limit
		used   []*int64 // of each group that they count for
	}
	used, rooms := map[limit.Group]*int64{}, map[kind]*room{}
	of := func(j *pb.JobRecord) *room {
		k := kind{j.Spec.GetUser(), j.Spec.GetAccount(), j.Spec.GetQos(), j.Partition}
		r := rooms[k]
		if r == nil {
			r = &room{limits: limit.Accrue(v, j)}
			for _, g := range limit.AccruesIn(v, j) {
				if used[g] == nil {
					used[g] = new(int64)
				}
				r.used = append(r.used, used[g])
			}
			rooms[k] = r
		}
		return r
	}
	count := func(j *pb.JobRecord) {
		n := state.Tasks(j)
		for _, u := range of(j).used {
			*u += n
		}
	}
	var waiting, back []*pb.JobRecord
	for j := range tx.Jobs().All() {
		switch {
		case !state.Pending(j):
		case j.Priority == 0 || j.Dependency != "" || j.EligibleNs == 0 || j.EligibleNs > tx.NowNS:
			if j.AccrueNs != 0 {
				back = append(back, j)
			}
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
	for _, j := range back {
		if len(of(j).limits) > 0 {
			set(j, 0)
		}
	}
	for _, j := range waiting {
		limits := of(j).limits
		if len(limits) == 0 {
			set(j, j.EligibleNs)
			continue
		}
		left := int64(math.MaxInt64)
		for _, l := range limits {
			left = min(left, l.Most-*used[l.Group])
		}
		if left <= 0 {
			continue
		}
		if left < state.Tasks(j) {
			j = splitTasks(tx, j, firstTasks(j, left))
		}
		count(j)
		set(j, tx.NowNS)
	}
}

// firstTasks returns the first n tasks of an array.
func firstTasks(j *pb.JobRecord, n int64) jobid.Set {
	var tasks []uint32
	for task := range state.ArraySet(j).All() {
		if int64(len(tasks)) == n {
			break
		}
		tasks = append(tasks, task)
	}
	return jobid.SetOf(tasks...)
}
