package simtest

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

// world is time and chance: a heap of events and a seeded source.
type world struct {
	now    int64 // nanoseconds since 1970
	count  uint64
	events eventHeap
	rng    *rand.Rand

	tracing bool
	trace   []string
	err     error // the first violation; ends the run
}

type event struct {
	at int64
	n  uint64 // events at the same time happen in the order in which they were scheduled
	do func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].n < h[j].n
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// epoch is the start time of every simulation.
const epoch = 1_700_000_000e9

func newWorld(seed uint64, tracing bool) world {
	return world{now: epoch, rng: rand.New(rand.NewPCG(seed, 0x51d)), tracing: tracing}
}

// step executes the next event; false: there is none, or a violation.
func (w *world) step() bool {
	if w.err != nil || len(w.events) == 0 {
		return false
	}
	e := heap.Pop(&w.events).(event)
	w.now = max(w.now, e.at)
	e.do()
	return w.err == nil
}

// at and after schedule an event.
func (w *world) at(t int64, do func()) {
	w.count++
	heap.Push(&w.events, event{at: max(t, w.now), n: w.count, do: do})
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now+int64(d), do) }

func (w *world) since() time.Duration { return time.Duration(w.now - epoch) }

// chance returns true with probability p.
func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// between returns a uniformly distributed duration.
func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(b-a)+1))
}

// short returns mostly a fraction of d and sometimes d: most things are quick, and the order of two is rarely certain.
func (w *world) short(d time.Duration) time.Duration {
	if w.chance(0.1) {
		return w.between(0, d)
	}
	return w.between(0, d/100)
}

// maxTrace bounds a trace: only its end is kept.
const maxTrace = 4000

func (w *world) logf(format string, args ...any) {
	if !w.tracing {
		return
	}
	if len(w.trace) >= 2*maxTrace {
		w.trace = append(w.trace[:0], w.trace[maxTrace:]...)
	}
	w.trace = append(w.trace, fmt.Sprintf("%10.3f %s", w.since().Seconds(), fmt.Sprintf(format, args...)))
}

// fail notes a violation.
func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %.3f s: %w", w.since().Seconds(), fmt.Errorf(format, args...))
		w.logf("VIOLATION: %v", w.err)
	}
}
