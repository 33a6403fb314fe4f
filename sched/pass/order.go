package pass

import (
	"cmp"

	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
)

// order is the order of backfill candidates: see record.Order.
type order struct {
	params *record.Params
	now    int64
	guardS int64
}

func newOrder(params *record.Params, now int64) *order {
	return &order{params, now, cmp.Or(params.GuardS, 86400)}
}

// Key returns the place of an entry of c in that order. A shorter or earlier entry never comes later.
func (o *order) Key(c *queue.Class, predicted, elig int64) int64 {
	switch {
	case o.params.Order == record.Merit:
		return o.merit(c, predicted, elig)
	case o.now-elig > o.guardS:
		return -1 // before the others, and by priority among themselves
	}
	return predicted
}

// merit is lower for jobs that should be taken earlier: see record.Merit. It uses whole numbers, so that it is the same on every machine.
func (o *order) merit(c *queue.Class, predicted, elig int64) int64 {
	const perDay = 32
	days := min(max(0, o.now-elig), 1<<32) * perDay / 86400
	days = min(days, 1<<15)
	scaled := min(predicted, 1<<31) << 30
	return scaled / (perDay*perDay + days*days) / c.Share
}
