package pass

import (
	"container/heap"
	"math"

	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// turn is the state of a class in the current pass.
type turn struct {
	*queue.Class
	line *line
	kin  bool // the classes below it in its family's heap have been considered

	next     *queue.Entry
	walk     queue.Walk // while candidates are taken
	top      queue.Candidate
	bound    int64         // entries that require at least this time cannot start
	reserved int64         // start of the last promise
	lasting  int64         // and its limit
	capped   bool          // its allocation would exceed its limits
	over     bool          // done in this pass, or until the other candidates of its rank
	wait     reason.Reason // why the remaining ones wait; set as the pass begins
}

// line is the state of a partition in the current pass.
type line struct {
	promises  int
	old       int   // jobs that have waited for longer than MaxWaitS, counted as far as relevant: see guard.count
	startable int   // jobs and array tasks that could start when the pass began, counted as far as relevant
	longest   int64 // their longest time limit, in seconds
	waiting   int
	closed    bool // FIFO: an earlier job waits
	put       bool // delayed: the first waiting job is not promised a start yet
}

// open makes a turn for a class, reusing the memory of the last pass.
func (p *pass) open(c *queue.Class) *turn {
	if p.opened == len(p.turns) {
		p.turns = append(p.turns, &turn{})
	}
	t := p.turns[p.opened]
	c.Pass, c.Turn = p.number, p.opened
	p.opened++
	*t = turn{Class: c, line: &p.lines[c.Part.Index], walk: t.walk, next: c.Root.First(), bound: math.MaxInt64,
		wait: reason.Reason{Code: reason.Priority}}
	return t
}

// openKin opens the classes below c in its family's heap, if a pass may do anything for them.
func (p *pass) openKin(c *turn) {
	c.kin = true
	for _, k := range c.Class.Next() {
		if p.mayMatter(c, k) {
			heap.Push(&p.first, p.open(k))
		}
	}
}

// mayMatter reports whether class k, or those below it in the family of c, may get something: a start, preemption, or a promise.
func (p *pass) mayMatter(c *turn, k *queue.Class) bool {
	switch {
	case c.line.closed:
		return false
	case p.guard.promisesLeft(c.line), p.mayPreempt(c), p.until != nil:
		return true
	case p.guard.longLeft(c.line) && p.ix.Now-k.Below.Elig > p.guard.long(c.line):
		return true
	}
	return !p.beaten(c)
}

// beaten reports whether nothing of the family of c can start in this pass any more.
func (p *pass) beaten(c *turn) bool {
	f := c.Family
	if f.Pass != p.number {
		f.Pass, f.Beaten, f.Tested, f.Wait = p.number, false, 0, reason.Reason{}
	}
	if now := len(p.plan.Start) + 1; !f.Beaten && f.Tested != now { // otherwise it fits as before
		f.Tested = now
		why := reason.Reason{Code: reason.Priority}
		if f.Beaten = !p.fits(f, f.First().Below.Least, &why); f.Beaten {
			f.Wait = why
		}
	}
	return f.Beaten
}

// fits reports whether a job of the family of that length fits now; if not, why.
func (p *pass) fits(f *queue.Family, least int64, why *reason.Reason) bool {
	if p.pl.LicensesUntil(f.Shape) <= p.ix.Now {
		*why = reason.Reason{Code: reason.Licenses}
		return false
	}
	if p.defeats.cover(f, least) {
		return false
	}
	if p.pl.Pick(f.Shape, record.Add(p.ix.Now, least)) == nil {
		p.defeats.add(f, least)
		return false
	}
	return true
}

// turnHeap is a heap of turns.
type turnHeap struct {
	list []*turn
	less func(a, b *turn) bool
}

func (h *turnHeap) Len() int { return len(h.list) }

func (h *turnHeap) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }

func (h *turnHeap) Swap(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] }

func (h *turnHeap) Push(x any) { h.list = append(h.list, x.(*turn)) }

func (h *turnHeap) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}
