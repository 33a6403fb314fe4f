package sched

import "slices"

// The queue of a class is a treap in queue order. Each entry knows the least
// of its subtree in three ways, so that a pass finds the next job that is short
// enough, or the best candidate for backfill, without looking at the rest:
// both take about the logarithm of the queue.

// span is the least of a subtree: of what its jobs must be given, of when they
// became eligible, and of how long they are expected to run; and its longest
// time limit.
type span struct{ least, elig, predicted, longest int64 }

// pull works out what e knows of its subtree.
func (e *entry) pull() {
	e.min = span{e.least, e.elig, e.predicted, e.limit}
	for _, t := range []*entry{e.left, e.right} {
		if t != nil {
			e.min = span{min(e.min.least, t.min.least), min(e.min.elig, t.min.elig), min(e.min.predicted, t.min.predicted), max(e.min.longest, t.min.longest)}
		}
	}
}

// older counts those of a subtree that became eligible before since, up to most.
func (e *entry) older(since int64, most int) int {
	if e == nil || most <= 0 || e.min.elig >= since {
		return 0
	}
	n := e.left.older(since, most)
	if e.elig < since {
		n++
	}
	return min(most, n+e.right.older(since, most-n))
}

// weigh gives e its place in the heap order: a number that looks random and is
// the same for the same job everywhere.
func (e *entry) weigh() {
	x := uint64(e.job.rec.ID)<<8 ^ uint64(e.order)
	x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	e.weight = uint32(x >> 32)
}

func (e *entry) split(at *entry) (before, after *entry) {
	if e == nil {
		return nil, nil
	}
	if compareEntries(e, at) < 0 {
		e.right, after = e.right.split(at)
		e.pull()
		return e, after
	}
	before, e.left = e.left.split(at)
	e.pull()
	return before, e
}

func join(a, b *entry) *entry {
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

func (e *entry) insert(x *entry) *entry {
	if e == nil || x.weight > e.weight {
		x.left, x.right = e.split(x)
		x.pull()
		return x
	}
	if compareEntries(x, e) < 0 {
		e.left = e.left.insert(x)
	} else {
		e.right = e.right.insert(x)
	}
	e.pull()
	return e
}

func (e *entry) remove(x *entry) *entry {
	switch {
	case e == nil:
		return nil
	case e == x:
		out := join(e.left, e.right)
		e.left, e.right = nil, nil
		return out
	case compareEntries(x, e) < 0:
		e.left = e.left.remove(x)
	default:
		e.right = e.right.remove(x)
	}
	e.pull()
	return e
}

// plant makes a treap of entries in any order.
func plant(list []*entry) *entry {
	slices.SortFunc(list, compareEntries)
	var spine []*entry // the right edge, root first
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

// each visits the subtree in order.
func (e *entry) each(visit func(*entry)) {
	if e != nil {
		e.left.each(visit)
		visit(e)
		e.right.each(visit)
	}
}

func (e *entry) first() *entry {
	for e != nil && e.left != nil {
		e = e.left
	}
	return e
}

// wanted says which entries matter: those that may be given less than below,
// those that became eligible before since, or all.
type wanted struct {
	below, since int64
	all          bool
}

func (w *wanted) matches(least, elig int64) bool { return w.all || least < w.below || elig < w.since }

// next is the first entry after at (nil: of all) that matters.
func (e *entry) next(at *entry, w *wanted) *entry {
	if e == nil || !w.matches(e.min.least, e.min.elig) {
		return nil
	}
	if at != nil && compareEntries(e, at) <= 0 {
		return e.right.next(at, w)
	}
	if x := e.left.next(at, w); x != nil {
		return x
	}
	if w.matches(e.least, e.elig) {
		return e
	}
	return e.right.next(nil, w)
}

// seek is the first entry for which before no longer holds.
func (e *entry) seek(before func(*entry) bool) *entry {
	var out *entry
	for e != nil {
		if before(e) {
			e = e.right
		} else {
			out, e = e, e.left
		}
	}
	return out
}
