package queue

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// What jobs of a class need of what is limited is the same for all, so limits hold whole classes, and it is enough to look at those of a
// limit of which more or less is left than before. All classes of a family need the same: a limit with many users is compared once for
// each family. How long a job may be is left to the pass, as it may depend on its deadline.

// underLimit are the classes under a limit, by family.
type underLimit map[*Family]map[*Class]struct{}

// sameLimits reports whether the first limits of a snapshot are those that are known: more may have come.
func (q *Queue) sameLimits(in *record.Snapshot) bool {
	old, fresh := q.limits, in.Limits
	if len(fresh) < len(old) {
		return false
	}
	return len(old) == 0 || &old[0] == &fresh[0] || slices.Equal(old, fresh[:len(old)])
}

// followLimits holds classes that limits leave nothing, and lets those go to which they do.
func (q *Queue) followLimits(in *record.Snapshot) {
	old, fresh := q.left, in.Left
	q.limits, q.left = in.Limits, fresh
	for len(q.under) < len(q.limits) {
		q.under = append(q.under, nil)
	}
	if len(old) == len(fresh) && (len(old) == 0 || &old[0] == &fresh[0]) {
		return
	}
	turned := map[*Class]struct{}{}
	for i, was := range old { // under those that have come there is nobody yet
		if was == fresh[i] || q.limits[i].Timed() {
			continue
		}
		for f, list := range q.under[i] {
			need := q.needs(f, int32(i))
			if (need > was) == (need > fresh[i]) {
				continue
			}
			for c := range list {
				if need > fresh[i] {
					c.lacking++
				} else {
					c.lacking--
				}
				f.settle(c)
				turned[c] = struct{}{}
			}
		}
	}
	for c := range turned { // when all are known: the reason is the first of several
		q.SetUniform(c, q.Standing(c))
	}
}

// needs is how much a job of a family needs of a limit.
func (q *Queue) needs(f *Family, i int32) int64 {
	if l := &q.limits[i]; !l.Timed() {
		return sizing.LimitNeed(l.What, &f.Counts, 0)
	}
	return 0
}

func (q *Queue) lacks(f *Family, i int32) bool {
	return !q.limits[i].Timed() && q.needs(f, i) > q.left[i]
}

// enlist notes under which limits a new class is, and strike that it is gone.
func (q *Queue) enlist(c *Class) {
	for _, i := range c.limits {
		u := q.under[i]
		if u == nil {
			u = underLimit{}
			q.under[i] = u
		}
		if u[c.Family] == nil {
			u[c.Family] = map[*Class]struct{}{}
		}
		u[c.Family][c] = struct{}{}
		if q.lacks(c.Family, i) {
			c.lacking++
		}
	}
}

func (q *Queue) strike(c *Class) {
	for _, i := range c.limits {
		u := q.under[i]
		if delete(u[c.Family], c); len(u[c.Family]) == 0 {
			delete(u, c.Family)
		}
	}
}
