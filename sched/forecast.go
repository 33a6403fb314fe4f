package sched

import "github.com/sluice-hpc/sluice/sched/record"

// Forecast returns when and where the first depth jobs of the queue are expected to start, for squeue --start: it plans the snapshot with a
// promised start for each of them. It is not a promise, and costs more than a pass: call it now and then, or on request. It does not touch
// the scheduler's own index.
func (s *Scheduler) Forecast(in *record.Snapshot, depth int) []record.Reserve {
	if s.forecaster == nil {
		params := s.params
		params.Policy, params.Preempt = record.Conservative, record.PreemptNone
		s.forecaster = New(params)
	}
	s.forecaster.params.Depth = depth
	whole := *in
	whole.Resume = record.Cursor{}
	plan := s.forecaster.Plan(&whole)
	out := plan.Reserve
	for i := range out {
		out[i].Promised, out[i].First = false, false
	}
	for i := range plan.Start {
		st := &plan.Start[i]
		r := record.Reserve{ID: st.Job.ID, Task: st.Task, Partition: st.Partition, At: in.Now, End: record.Add(in.Now, st.LimitS)}
		for _, a := range st.Allocs {
			r.Nodes = append(r.Nodes, a.Node)
		}
		out = append(out, r)
	}
	return out
}

// PlanTo returns a plan in which every job is promised a start, up to job id in the queue; jobs behind it are left out. The job's result is
// that of the whole plan, unless the budget (Snapshot.Budget) ends first: then the plan is truncated. Like Explain it is for a Scheduler of
// its own, or between passes.
func (s *Scheduler) PlanTo(in *record.Snapshot, id uint32) *record.Plan {
	whole := *in
	whole.Resume = record.Cursor{}
	s.follow(&whole)
	params := s.params
	defer func() {
		s.params = params
		s.ix.Renew()
	}()
	s.params.Policy, s.params.Depth = record.Conservative, 0
	s.ix.Renew() // the two differ in their faults
	s.q.ChoosePrimaries()
	return s.runner.Plan(&whole, s.q.JobOf(id))
}
