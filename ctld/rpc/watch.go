package rpc

import (
	"context"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/state"
)

// Watch lets calls wait for changes of one job, or for the end of an array. Its Changed is a loop observer.
type Watch struct {
	mu   sync.Mutex
	jobs map[uint32]*change // that somebody waits for
}

// change is the next one of a job.
type change struct {
	come    chan struct{} // closed
	waiting int
}

// NewWatch makes a Watch.
func NewWatch() *Watch { return &Watch{jobs: map[uint32]*change{}} }

// Changed wakes who waits for a job of the commit. Who waits for an array is woken when none of its records is active any more, which the
// writer's index knows: to look at all jobs at each change is more than many who wait for a large array may cost.
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

// next gives the job's next change, until left.
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

// until waits for cond to hold of the view, looking again at each change of the job; of an array, when all of it has ended.
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
