package queue

import "slices"

// The queue of a class is a treap in queue order. Each entry has aggregates of its subtree, so that a pass finds the next job that is short
// enough, or the best candidate for backfill, without looking at the rest: both take about the logarithm of the queue.

// span aggregates a subtree: the least required time, the earliest time of eligibility, and the shortest predicted run time; the longest
// time limit; and the highest and lowest rank.
type span struct {
	Least, Elig, predicted, Longest int64
	highest, lowest                 uint32
}

// pull computes the aggregates of e's subtree.
func (e *Entry) pull() {
	e.Min = span{e.Least, e.Eligible, e.predicted, e.Limit, e.Job.Rank, e.Job.Rank}
	for _, t := range []*Entry{e.left, e.right} {
		if t != nil {
			e.Min = e.Min.with(&t.Min)
		}
	}
}

// with returns the aggregates of both.
func (s span) with(t *span) span {
	return span{min(s.Least, t.Least), min(s.Elig, t.Elig), min(s.predicted, t.predicted), max(s.Longest, t.Longest),
		max(s.highest, t.highest), min(s.lowest, t.lowest)}
}

// Older counts the jobs of a subtree that became eligible before since, up to most.
func (e *Entry) Older(since int64, most int) int {
	if e == nil || most <= 0 || e.Min.Elig >= since {
		return 0
	}
	n := e.left.Older(since, most)
	if e.Eligible < since {
		n++
	}
	return min(most, n+e.right.Older(since, most-n))
}

// Startable counts the jobs and array tasks of a subtree that array limits let start, up to most.
func (e *Entry) Startable(most int) int {
	if e == nil || most <= 0 {
		return 0
	}
	n := 1
	if a := e.Job.Rec.Array; a != nil {
		n = min(most, a.Startable())
	}
	n += e.left.Startable(most - n)
	return min(most, n+e.right.Startable(most-n))
}

// weigh sets e's weight in the heap order: a pseudo-random number that is always the same for a job.
func (e *Entry) weigh() {
	x := uint64(e.Job.Rec.ID)<<8 ^ uint64(e.order)
	x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	e.weight = uint32(x >> 32)
}

func (e *Entry) split(at *Entry) (before, after *Entry) {
	if e == nil {
		return nil, nil
	}
	if CompareEntries(e, at) < 0 {
		e.right, after = e.right.split(at)
		e.pull()
		return e, after
	}
	before, e.left = e.left.split(at)
	e.pull()
	return before, e
}

func join(a, b *Entry) *Entry {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.weight >= b.weight:
		a.right = join(a.right, b)
		a.pull()
		return a
	}
	b.left = join(a, b.left)
	b.pull()
	return b
}

func (e *Entry) insert(x *Entry) *Entry {
	if e == nil || x.weight > e.weight {
		x.left, x.right = e.split(x)
		x.pull()
		return x
	}
	if CompareEntries(x, e) < 0 {
		e.left = e.left.insert(x)
	} else {
		e.right = e.right.insert(x)
	}
	e.pull()
	return e
}

func (e *Entry) remove(x *Entry) *Entry {
	switch {
	case e == nil:
		return nil
	case e == x:
		out := join(e.left, e.right)
		e.left, e.right = nil, nil
		return out
	case CompareEntries(x, e) < 0:
		e.left = e.left.remove(x)
	default:
		e.right = e.right.remove(x)
	}
	e.pull()
	return e
}

// plant makes a treap of entries in any order.
func plant(list []*Entry) *Entry {
	slices.SortFunc(list, CompareEntries)
	var spine []*Entry // the right edge, root first
	for _, e := range list {
		e.left, e.right = nil, nil
		for len(spine) > 0 && spine[len(spine)-1].weight < e.weight {
			e.left = spine[len(spine)-1]
			e.left.pull()
			spine = spine[:len(spine)-1]
		}
		if len(spine) > 0 {
			spine[len(spine)-1].right = e
		}
		spine = append(spine, e)
	}
	for i := len(spine) - 1; i >= 0; i-- {
		spine[i].pull()
	}
	if len(spine) == 0 {
		return nil
	}
	return spine[0]
}

// Each visits the subtree in order.
func (e *Entry) Each(visit func(*Entry)) {
	if e != nil {
		e.left.Each(visit)
		visit(e)
		e.right.Each(visit)
	}
}

// First returns the first entry of a subtree.
func (e *Entry) First() *Entry {
	for e != nil && e.left != nil {
		e = e.left
	}
	return e
}

// Wanted selects entries: those that require less time than Below, those that became eligible before Since, or all.
type Wanted struct {
	Below, Since int64
	All          bool
}

func (w *Wanted) matches(least, elig int64) bool { return w.All || least < w.Below || elig < w.Since }

// Next returns the first selected entry after at (nil: of all).
func (e *Entry) Next(at *Entry, w *Wanted) *Entry {
	if e == nil || !w.matches(e.Min.Least, e.Min.Elig) {
		return nil
	}
	if at != nil && CompareEntries(e, at) <= 0 {
		return e.right.Next(at, w)
	}
	if x := e.left.Next(at, w); x != nil {
		return x
	}
	if w.matches(e.Least, e.Eligible) {
		return e
	}
	return e.right.Next(nil, w)
}

// Seek returns the first entry for which before no longer holds.
func (e *Entry) Seek(before func(*Entry) bool) *Entry {
	var out *Entry
	for e != nil {
		if before(e) {
			e = e.right
		} else {
			out, e = e, e.left
		}
	}
	return out
}
