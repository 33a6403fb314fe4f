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

	number uint64         // of the current pass
	turns  []*turn        // of the current pass, and for reuse
	opened int            // number of those in use
	astray []*queue.Class // classes whose reason differs from their family's since the last pass
}

// New returns a Runner. It reads params at each pass.
func New(params *record.Params, ix *index.Index, pl *placement.Placer, q *queue.Queue) *Runner {
	return &Runner{params: params, ix: ix, pl: pl, fu: placement.NewFuture(params, ix, pl), q: q}
}

// Plan makes a plan for the snapshot that the index and the queue have followed, up to one job if until is not nil.
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
