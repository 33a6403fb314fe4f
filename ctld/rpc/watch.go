package rpc

import (
	"context"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/state"
)

// Watch lets calls wait for changes of one job. Its Changed is a loop observer.
type Watch struct {
	mu   sync.Mutex
	jobs map[uint32]chan struct{} // closed at the job's next change
}

// NewWatch makes a Watch.
func NewWatch() *Watch { return &Watch{jobs: map[uint32]chan struct{}{}} }

// Changed wakes who waits for a job of the commit.
func (w *Watch) Changed(c state.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) == 0 {
		return
	}
	for _, id := range c.Jobs {
		w.wake(id)
		if j := c.View.Jobs.Get(id); j != nil && j.ArrayJobId != 0 {
			w.wake(j.ArrayJobId)
		}
	}
}

func (w *Watch) wake(id uint32) {
	if ch, ok := w.jobs[id]; ok {
		close(ch)
		delete(w.jobs, id)
	}
}

// next returns a channel that is closed at the job's next change.
func (w *Watch) next(id uint32) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch, ok := w.jobs[id]
	if !ok {
		ch = make(chan struct{})
		w.jobs[id] = ch
	}
	return ch
}

// until waits for cond to hold of the view, looking again at each change of the job.
func (w *Watch) until(ctx context.Context, id uint32, view func() *state.View, cond func(*state.View) bool) error {
	for {
		changed := w.next(id)
		if cond(view()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
