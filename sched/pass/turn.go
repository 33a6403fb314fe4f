package pass

import (
	"math"
	"slices"

	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
)

// turn is the state of a class in the pass under way.
type turn struct {
	*queue.Class
	line *line

	next     *queue.Entry
	walk     queue.Walk // while candidates are taken
	top      queue.Candidate
	bound    int64         // entries that cannot be given less cannot start
	reserved int64         // start promised to the last one that got a promise
	lasting  int64         // and its limit
	capped   bool          // what it would hold is more than its limits leave
	over     bool          // nothing more of it in this pass, or not before the other candidates of its rank
	wait     record.Reason // why those that remain wait; set as the pass begins
}

// line is the state of a partition in the pass under way.
type line struct {
	promises  int
	old       int   // jobs that have waited for longer than MaxWaitS, as far as it matters how many: see guard.count
	startable int   // jobs and array tasks that could start when the pass began, as far as it matters how many
	longest   int64 // time limit of those, in seconds
	waiting   int
	closed    bool // FIFO: something before waits
	put       bool // put off: the first that waits is not promised a start yet
}

// takeTurns makes a turn for each class, reusing the memory of the last pass.
func (p *pass) takeTurns() {
	p.turns = slices.Grow(p.turns[:0], len(p.q.Classes))[:len(p.q.Classes)]
	i := 0
	for _, c := range p.q.Classes {
		t := &p.turns[i]
		t.Class, t.line, t.next = c, &p.lines[c.Part.Index], nil
		t.bound, t.reserved, t.lasting, t.over, t.capped = math.MaxInt64, 0, 0, false, false
		i++
	}
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
