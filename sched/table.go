package sched

import "slices"

// table follows one slice of a snapshot from pass to pass. It keeps a value of
// our own for each record and looks only at records whose pointer changed.
type table[R any, V any] struct {
	recs []*R
	vals []V
	buf  []V // for merge
}

// tableOps says what to do about differences. change may return another value.
type tableOps[R any, V any] struct {
	cmp    func(a, b *R) int // by key
	add    func(*R) V
	change func(V, *R) V
	remove func(V)
}

// update makes the table follow in and returns how many records differed.
// Unsorted input is sorted first; of records with one key the first counts.
func (t *table[R, V]) update(in []*R, ops *tableOps[R, V]) int {
	a, b := t.recs, in
	lo := 0
	for lo < len(a) && lo < len(b) && a[lo] == b[lo] {
		lo++
	}
	if lo == len(a) && lo == len(b) {
		return 0
	}
	hi := suffix(a[lo:], b[lo:])
	if !inOrder(a[max(0, lo-1):min(len(a), len(a)-hi+1)], b[max(0, lo-1):min(len(b), len(b)-hi+1)], ops.cmp) {
		b = slices.Clone(b)
		slices.SortStableFunc(b, ops.cmp)
		b = slices.CompactFunc(b, func(x, y *R) bool { return ops.cmp(x, y) == 0 })
		lo, hi = 0, 0
	}
	mid, changed := t.merge(a[lo:len(a)-hi], t.vals[lo:len(a)-hi], b[lo:len(b)-hi], ops)
	t.vals = slices.Replace(t.vals, lo, len(a)-hi, mid...)
	t.recs = append(t.recs[:0], b...)
	return changed
}

// suffix is how many records at the end are the same.
func suffix[R any](a, b []*R) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// inOrder reports whether b ascends, given that a does. Records that stand in
// both in the same order need no looking into, unless one is new beside them.
func inOrder[R any](a, b []*R, cmp func(a, b *R) int) bool {
	i, known := 0, false
	for k, rec := range b {
		same := i < len(a) && a[i] == rec
		if k > 0 && !(same && known) && cmp(b[k-1], rec) >= 0 {
			return false
		}
		if !same {
			for i < len(a) && a[i] != rec && cmp(a[i], rec) < 0 {
				i++
			}
			same = i < len(a) && a[i] == rec
		}
		if known = same; same {
			i++
		}
	}
	return true
}

func (t *table[R, V]) merge(a []*R, av []V, b []*R, ops *tableOps[R, V]) ([]V, int) {
	out := t.buf[:0]
	changed, i := 0, 0
	for _, rec := range b {
		for i < len(a) && a[i] != rec && ops.cmp(a[i], rec) < 0 {
			ops.remove(av[i])
			i++
			changed++
		}
		switch {
		case i < len(a) && a[i] == rec:
			out = append(out, av[i])
			i++
		case i < len(a) && ops.cmp(a[i], rec) == 0:
			out = append(out, ops.change(av[i], rec))
			i++
			changed++
		default:
			out = append(out, ops.add(rec))
			changed++
		}
	}
	for ; i < len(a); i++ {
		ops.remove(av[i])
		changed++
	}
	t.buf = out
	return out, changed
}
