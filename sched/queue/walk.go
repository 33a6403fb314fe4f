package queue

// Order is an order of candidates.
type Order interface {
	// Key returns the place of an entry of c. A shorter or earlier entry never comes later.
	Key(c *Class, predicted, elig int64) int64
}

// Candidate is an entry with its place in the order of backfill candidates.
type Candidate struct {
	key int64
	E   *Entry
}

// Before reports whether a is taken before b, which has the same tier and rank: by key, then in the order of the queue.
func (a Candidate) Before(b Candidate) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	return CompareEntries(a.E, b.E) < 0
}

// Walk lists the entries of a class that have one rank in the order of candidates, best first. It looks into a part of the queue only when
// nothing better is known: the aggregates of the part bound how good its entries can be.
type Walk struct {
	o    Order
	rank uint32
	heap []step
}

// step is an entry, or a part of the queue that has not been visited.
type step struct {
	key  int64
	e    *Entry
	leaf bool
}

// before prefers the first in the queue among equals. The parts are disjoint and the queue is the order of the tree, so any entry of a part
// gives its position.
func (a step) before(b step) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	return CompareEntries(a.e, b.e) < 0
}

// Start begins at the best candidate of a rank below root.
func (w *Walk) Start(o Order, root *Entry, rank uint32) {
	w.o, w.rank, w.heap = o, rank, w.heap[:0]
	w.into(root)
}

func (w *Walk) into(t *Entry) {
	if t != nil && t.Min.lowest <= w.rank && w.rank <= t.Min.highest {
		w.push(step{w.o.Key(t.Class, t.Min.predicted, t.Min.Elig), t, false})
	}
}

// Top returns the best entry of those that require less time than below; false when there is none left.
func (w *Walk) Top(below int64) (Candidate, bool) {
	for len(w.heap) > 0 {
		x := w.heap[0]
		switch {
		case x.leaf && x.e.Least < below:
			return Candidate{x.key, x.e}, true
		case x.leaf || x.e.Min.Least >= below:
			w.Pop()
		default:
			w.Pop()
			if x.e.Job.Rank == w.rank {
				w.push(step{w.o.Key(x.e.Class, x.e.predicted, x.e.Eligible), x.e, true})
			}
			w.into(x.e.left)
			w.into(x.e.right)
		}
	}
	return Candidate{}, false
}

func (w *Walk) push(x step) {
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

// Pop advances to the next candidate.
func (w *Walk) Pop() {
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
