package queue

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Jobs of a class need the same of every limited resource, so limits hold whole classes, and only classes under a limit whose rest has
// changed have to be looked at. All classes of a family need the same: a limit with many users is compared once for each family. The pass
// checks time limits, because they may depend on deadlines.

// underLimit holds the classes under a limit, by family.
type underLimit map[*Family]map[*Class]struct{}

// sameLimits reports whether the snapshot begins with the known limits; more may have been appended.
func (q *Queue) sameLimits(in *record.Snapshot) bool {
	old, fresh := q.limits, in.Limits
	if len(fresh) < len(old) {
		return false
	}
	return len(old) == 0 || &old[0] == &fresh[0] || slices.Equal(old, fresh[:len(old)])
}

// followLimits holds classes whose limits are exhausted, and releases those whose limits have room again.
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
	for i, was := range old { // new limits have no classes yet
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

// needs returns how much of a limit a job of a family needs.
func (q *Queue) needs(f *Family, i int32) int64 {
	if l := &q.limits[i]; !l.Timed() {
		return sizing.LimitNeed(l.What, &f.Counts, 0)
	}
	return 0
}

func (q *Queue) lacks(f *Family, i int32) bool {
	return !q.limits[i].Timed() && q.needs(f, i) > q.left[i]
}

// enlist adds a new class to its limits; strike removes it.
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
