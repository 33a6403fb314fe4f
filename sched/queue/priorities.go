package queue

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
)

func (q *Queue) factors(j *record.Job) priority.Parts {
	highest := uint16(0)
	for _, name := range j.Partitions {
		if p := q.ix.Partition(name); p != nil {
			highest = max(highest, p.Rec.PriorityFactor)
		}
	}
	return priority.PartsOf(&q.cluster, &q.params.Weights, j, highest, q.params.Weights.Period(q.ix.Now))
}

// priorityOf returns a job's priority in the present calculation period.
func (q *Queue) priorityOf(j *record.Job) uint32 {
	if j.Priority > 0 {
		return j.Priority
	}
	if q.params.Weights.Basic {
		return basicTop - min(j.ID, basicTop-1)
	}
	return priority.Total(q.factors(j))
}

// prioritise computes the job's priority and its rank, and reports whether either has changed. Jobs of one rank have equal claims, and
// merit may order them. Under priority/basic these are all jobs except those that an administrator has moved to the front or far back.
func (q *Queue) prioritise(j *Job) bool {
	prio := q.priorityOf(j.Rec)
	rank := prio
	if q.params.Weights.Basic && prio >= basicTop/2 && prio < basicTop {
		rank = basicTop / 2
	}
	same := prio == j.Priority && rank == j.Rank
	j.Priority, j.Rank = prio, rank
	return !same
}

const basicTop = 4294901760

func sameShares(a, b []record.Share) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// reprioritise recomputes priorities in a new calculation period, or when the fair-share factors have changed.
func (q *Queue) reprioritise(in *record.Snapshot) {
	period := q.params.Weights.Period(q.ix.Now)
	if period == q.period && sameShares(q.shares, in.Shares) {
		return
	}
	q.period = period
	q.cluster, q.shares = priority.Measure(in), in.Shares
	if q.params.Weights.Basic {
		return
	}
	dirty := map[*Class]struct{}{}
	for _, j := range q.Jobs.Vals {
		if len(j.Entries) == 0 {
			continue
		}
		if q.prioritise(j) {
			for _, e := range j.Entries {
				dirty[e.Class] = struct{}{}
			}
		}
	}
	for c := range dirty {
		list := make([]*Entry, 0, c.size)
		c.Root.Each(func(e *Entry) { list = append(list, e) })
		c.Root, c.stale = plant(list), true
	}
	for c := range dirty {
		if c.stale {
			c.remake()
			c.stale = false
		}
	}
}
