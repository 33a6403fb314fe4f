package planner

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/explain"
	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Why returns the scheduler's explanation of why a job waits, and the array that it belongs to (nil: none); false when it does not wait.
func (g *Advisor) Why(v *state.View, j *pb.JobRecord) (x *explain.Explanation, array *record.Array, ok bool) {
	params, shares := g.known()
	m := mirror{shares: shares}
	m.rebuild(v)
	if x, ok = sched.New(params).Explain(m.snapshot(v, v.NowNS/1e9, record.Cursor{}), j.Id); ok {
		array = m.sources[j.Id].job.Array
	}
	return x, array, ok
}

// Priorities returns the terms of the priorities of waiting jobs, each in the partition of the same index (sprio).
func (g *Advisor) Priorities(v *state.View, jobs []*pb.JobRecord, partitions []string) (parts []priority.Parts, weights record.Weights) {
	params, shares := g.known()
	m := mirror{shares: shares}
	m.rebuildNodes(v)
	list := make([]*record.Job, len(jobs))
	for i, j := range jobs {
		list[i] = pendingJob(v, j, nil)
		list[i].Partitions = partitions[i : i+1]
		list[i].AssocFactor = m.assocFactor(list[i], j.Spec)
	}
	return priority.Of(&params, m.snapshot(v, v.NowNS/1e9, record.Cursor{}), list), params.Weights
}
