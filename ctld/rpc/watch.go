package rpc

import (
	"context"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/state"
)

// Watch lets calls wait for changes of one job, or for the end of an array. Its Changed is a loop observer.
type Watch struct {
	mu   sync.Mutex
	jobs map[uint32]*change // with waiting calls
}

// change is the next change of a job.
type change struct {
	come    chan struct{} // closed
	waiting int
}

// NewWatch makes a Watch.
func NewWatch() *Watch { return &Watch{jobs: map[uint32]*change{}} }

// Changed wakes the calls that wait for a job of the commit. Calls that wait for an array are woken when none of its records is active any
// more, according to the writer's index: looking at all jobs at each change would cost too much for many waiters on a large array.
func (w *Watch) Changed(c state.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) == 0 {
		return
	}
	for _, id := range c.Stepped {
		w.wake(id)
	}
	for _, id := range c.Jobs {
		j := c.View.Jobs.Get(id)
		if j == nil || j.ArrayJobId != id {
			w.wake(id)
		}
		if j != nil && j.ArrayJobId != 0 && w.jobs[j.ArrayJobId] != nil && c.View.ArrayCounts(j.ArrayJobId).Active == 0 {
			w.wake(j.ArrayJobId)
		}
	}
}

func (w *Watch) wake(id uint32) {
	if c, ok := w.jobs[id]; ok {
		close(c.come)
		delete(w.jobs, id)
	}
}

// next returns the job's next change, until left.
func (w *Watch) next(id uint32) *change {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.jobs[id]
	if c == nil {
		c = &change{come: make(chan struct{})}
		w.jobs[id] = c
	}
	c.waiting++
	return c
}

func (w *Watch) leave(id uint32, c *change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.waiting--; c.waiting == 0 && w.jobs[id] == c {
		delete(w.jobs, id)
	}
}

// until waits for cond to hold of the view. It checks at each change of the job; for an array, when all of it has ended.
func (w *Watch) until(ctx context.Context, id uint32, view func() *state.View, cond func(*state.View) bool) error {
	for {
		next := w.next(id)
		done := cond(view())
		if !done {
			select {
			case <-next.come:
			case <-ctx.Done():
			}
		}
		w.leave(id, next)
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
