package sched

import (
	"github.com/sluice-hpc/sluice/sched/explain"
	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/pass"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Scheduler makes plans. Not safe for concurrent use; the package comment says what it remembers.
type Scheduler struct {
	params record.Params // the components below read it, too

	ix     *index.Index
	pl     *placement.Placer
	q      *queue.Queue
	runner *pass.Runner

	forecaster *Scheduler // of Forecast
}

// New returns a Scheduler for one configuration. A changed configuration is a
// new Scheduler.
func New(p record.Params) *Scheduler {
	s := &Scheduler{params: p}
	s.reset(false)
	return s
}

// reset forgets everything, as after New, except byUser: whether users have to be distinguished.
func (s *Scheduler) reset(byUser bool) {
	s.ix = index.New(&s.params, byUser)
	s.pl = placement.New(&s.params, s.ix)
	s.q = queue.New(&s.params, s.ix, s.pl)
	s.runner = pass.New(&s.params, s.ix, s.pl, s.q)
}

// Plan decides which jobs start now, which are promised a start, and why the rest waits. Deterministic: it depends only on the snapshot,
// not on the order of its slices.
func (s *Scheduler) Plan(in *record.Snapshot) *record.Plan {
	changed := s.follow(in)
	s.q.ChoosePrimaries()
	p := s.runner.Plan(in, nil)
	p.Stats.Changed = changed
	return p
}

// follow brings index and queue up to the snapshot, and returns how many records differed. After a change of nodes, partitions or
// reservations (not of their state) it starts over: such changes are rare, and exactness is worth more.
func (s *Scheduler) follow(in *record.Snapshot) int {
	if s.ix.Now > in.Now || s.restructured(in) || s.pl.Remembers(idleShapes+2*len(s.q.Families)) {
		s.reset(s.ix.ByUser)
	}
	empty := s.ix.Empty()
	changed := s.ix.Follow(in)
	if empty {
		s.pl.Measure(in)
		s.q.Measure(in)
	}
	changed += s.q.Follow(in)
	if s.ix.Stale() { // the first --exclusive=user: shapes are by user from now on
		s.reset(true)
		return changed + s.follow(in)
	}
	s.ix.TrimLog()
	return changed
}

// idleShapes is the number of requests without waiting jobs that are remembered before everything is forgotten: in a cluster where no two
// jobs are alike the index must not grow for ever.
const idleShapes = 4096

// restructured reports whether everything has to be built anew.
func (s *Scheduler) restructured(in *record.Snapshot) bool {
	return s.q.Restructured(in) || !s.ix.Empty() && (s.pl.Restructured(in) || s.ix.Restructured(in))
}

// Explain explains why the pending job id waits in the snapshot. It costs up to a conservative pass: call it on demand only, on a Scheduler
// of its own or between passes. It returns false when the job is not pending.
func (s *Scheduler) Explain(in *record.Snapshot, id uint32) (*explain.Explanation, bool) {
	s.follow(in)
	s.q.ChoosePrimaries()
	j := s.q.JobOf(id)
	if j == nil {
		return nil, false
	}
	return explain.Why(in, j, s.ix, s.pl, s.q, s, func() explain.Plans { return New(s.params) }), true
}
