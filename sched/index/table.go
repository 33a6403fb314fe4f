package index

import "slices"

// Table follows one slice of a snapshot from pass to pass. It keeps a value for each record and looks only at records whose pointer
// changed.
type Table[R any, V any] struct {
	Recs []*R
	Vals []V
	buf  []V // for merge
}

// TableOps handles the differences. change may return another value.
type TableOps[R any, V any] struct {
	Cmp    func(a, b *R) int // by key
	Add    func(*R) V
	Change func(V, *R) V
	Remove func(V)
}

// Update makes the table follow in and returns how many records differed. Unsorted input is sorted first; of records with the same key the
// first counts.
func (t *Table[R, V]) Update(in []*R, ops *TableOps[R, V]) int {
	a, b := t.Recs, in
	lo := 0
	for lo < len(a) && lo < len(b) && a[lo] == b[lo] {
		lo++
	}
	if lo == len(a) && lo == len(b) {
		return 0
	}
	hi := suffix(a[lo:], b[lo:])
	if !inOrder(a[max(0, lo-1):min(len(a), len(a)-hi+1)], b[max(0, lo-1):min(len(b), len(b)-hi+1)], ops.Cmp) {
		b = slices.Clone(b)
		slices.SortStableFunc(b, ops.Cmp)
		b = slices.CompactFunc(b, func(x, y *R) bool { return ops.Cmp(x, y) == 0 })
		lo, hi = 0, 0
	}
	mid, changed := t.merge(a[lo:len(a)-hi], t.Vals[lo:len(a)-hi], b[lo:len(b)-hi], ops)
	t.Vals = slices.Replace(t.Vals, lo, len(a)-hi, mid...)
	t.Recs = append(t.Recs[:0], b...)
	return changed
}

// suffix returns the number of equal records at the end.
func suffix[R any](a, b []*R) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// inOrder reports whether b ascends, given that a does. Adjacent records that are in both in the same order need no comparison.
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

func (t *Table[R, V]) merge(a []*R, av []V, b []*R, ops *TableOps[R, V]) ([]V, int) {
	out := t.buf[:0]
	changed, i := 0, 0
	for _, rec := range b {
		for i < len(a) && a[i] != rec && ops.Cmp(a[i], rec) < 0 {
			ops.Remove(av[i])
			i++
			changed++
		}
		switch {
		case i < len(a) && a[i] == rec:
			out = append(out, av[i])
			i++
		case i < len(a) && ops.Cmp(a[i], rec) == 0:
			out = append(out, ops.Change(av[i], rec))
			i++
			changed++
		default:
			out = append(out, ops.Add(rec))
			changed++
		}
	}
	for ; i < len(a); i++ {
		ops.Remove(av[i])
		changed++
	}
	t.buf = out
	return out, changed
}
