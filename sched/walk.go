package sched

// walk lists the entries of a class in the order of candidates, best first,
// looking into a part of the queue only when nothing better is known: what is
// least there bounds how good any of its entries can be.
type walk struct {
	s    *Scheduler
	heap []step
}

// step is an entry, or a part of the queue that has not been looked into.
type step struct {
	key  int64
	e    *entry
	leaf bool
}

// before: among equals the first in the queue. The parts are disjoint and the
// queue is the order of the tree, so any entry of a part tells where it stands.
func (a step) before(b step) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	return compareEntries(a.e, b.e) < 0
}

func (w *walk) start(s *Scheduler, root *entry) {
	w.s, w.heap = s, w.heap[:0]
	w.into(root)
}

func (w *walk) into(t *entry) {
	if t != nil {
		w.push(step{w.s.keyOf(t.class, t.min.predicted, t.min.elig), t, false})
	}
}

// top is the best entry of those that may be given less than below; false when
// there is none left.
func (w *walk) top(below int64) (candidate, bool) {
	for len(w.heap) > 0 {
		x := w.heap[0]
		switch {
		case x.leaf && x.e.least < below:
			return candidate{x.key, x.e}, true
		case x.leaf || x.e.min.least >= below:
			w.pop()
		default:
			w.pop()
			w.push(step{w.s.keyOf(x.e.class, x.e.predicted, x.e.elig), x.e, true})
			w.into(x.e.left)
			w.into(x.e.right)
		}
	}
	return candidate{}, false
}

func (w *walk) push(x step) {
	w.heap = append(w.heap, x)
	for i := len(w.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !w.heap[i].before(w.heap[up]) {
			break
		}
		w.heap[i], w.heap[up] = w.heap[up], w.heap[i]
		i = up
	}
}

func (w *walk) pop() {
	last := len(w.heap) - 1
	w.heap[0] = w.heap[last]
	w.heap = w.heap[:last]
	for i := 0; ; {
		k := 2*i + 1
		if k+1 < last && w.heap[k+1].before(w.heap[k]) {
			k++
		}
		if k >= last || !w.heap[k].before(w.heap[i]) {
			return
		}
		w.heap[i], w.heap[k] = w.heap[k], w.heap[i]
		i = k
	}
}
