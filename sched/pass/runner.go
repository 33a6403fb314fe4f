package pass

import (
	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Runner makes plans, one pass after another.
type Runner struct {
	params *record.Params
	ix     *index.Index
	pl     *placement.Placer
	fu     *placement.Future
	q      *queue.Queue

	number uint64         // of the pass under way
	turns  []*turn        // of it, and to be reused
	opened int            // how many of those are of it
	astray []*queue.Class // say something else since the last pass than what their families do
}

// New returns a Runner. It reads params at each pass.
func New(params *record.Params, ix *index.Index, pl *placement.Placer, q *queue.Queue) *Runner {
	return &Runner{params: params, ix: ix, pl: pl, fu: placement.NewFuture(params, ix, pl), q: q}
}

// Plan makes a plan for what the index and the queue have read of the snapshot, as far as one job where that is not nil.
func (pr *Runner) Plan(in *record.Snapshot, until *queue.Job) *record.Plan {
	p := newPass(pr, in)
	if until != nil {
		p.until = until
		for _, e := range until.Entries {
			if p.q.FaultOf(e.Class.Family).Code == "" {
				p.left++
			}
		}
	}
	p.run()
	p.finish()
	return p.plan
}
