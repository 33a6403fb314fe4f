package reactor

import (
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// judgeLong handles a change for a waiting record with many conditions: it judges only the conditions that the change is about, and weighs
// the record if that decides anything (state.LongWait). It returns false for other records, and for those that have to be weighed anyway.
func judgeLong(tx *state.Tx, j *pb.JobRecord, about []jobid.Condition) bool {
	w := tx.LongWait(j)
	if w == nil || !w.Weighed() || len(about) > w.Conditions() || !state.Pending(j) {
		return false
	}
	tx.Spend(1 + len(about)/4)
	arrays, due := arraysOf(tx), false
	for _, c := range about {
		if w.Has(c) && w.Note(c, judgeCondition(arrays, j, c), j.DependencyNever) {
			due = true
		}
	}
	if due {
		look(tx, j)
	}
	return true
}

// named returns the conditions that may name a changed record, or these of its tasks. It leaves out aftercorr: a record with such
// conditions has no LongWait.
func named(changed *pb.JobRecord, tasks jobid.Set) (list []jobid.Condition) {
	add := func(c jobid.Condition) {
		for _, kind := range []jobid.Kind{jobid.After, jobid.AfterAny, jobid.AfterOK, jobid.AfterNotOK} {
			c.Kind = kind
			list = append(list, c)
		}
	}
	add(jobid.Condition{Job: changed.Id})
	if changed.ArrayJobId != 0 && changed.ArrayJobId != changed.Id {
		add(jobid.Condition{Job: changed.ArrayJobId})
	}
	for t := range tasks.All() {
		add(jobid.Condition{Job: changed.ArrayJobId, Task: t, HasTask: true})
	}
	return list
}
