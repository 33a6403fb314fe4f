package sched

// Forecast says when and where the first depth jobs of the queue are expected
// to start, for squeue --start: a plan over the snapshot in which each of them
// is promised a start. It is not a promise, and costs more than a pass: call it
// now and then, or when asked. The scheduler's own index is left alone.
func (s *Scheduler) Forecast(in *Snapshot, depth int) []Reserve {
	if s.forecaster == nil {
		params := s.params
		params.Policy, params.Preempt = Conservative, PreemptNone
		s.forecaster = New(params)
	}
	s.forecaster.params.Depth = depth
	whole := *in
	whole.Resume = Cursor{}
	plan := s.forecaster.Plan(&whole)
	out := plan.Reserve
	for i := range out {
		out[i].Promised = false
	}
	for i := range plan.Start {
		st := &plan.Start[i]
		r := Reserve{ID: st.Job.ID, Task: st.Task, Partition: st.Partition, At: in.Now, End: add(in.Now, st.LimitS)}
		for _, a := range st.Allocs {
			r.Nodes = append(r.Nodes, a.Node)
		}
		out = append(out, r)
	}
	return out
}
