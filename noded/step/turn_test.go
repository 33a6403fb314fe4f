package step

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// TestLaunchesTakeTurns: never more at once than there are slots, all in the end, and none for a caller that has gone.
func TestLaunchesTakeTurns(t *testing.T) {
	r := &Runner{slots: make(chan struct{}, 3)}
	var wg sync.WaitGroup
	var now, most, done atomic.Int32
	full, open := make(chan struct{}), make(chan struct{})
	for range 20 {
		wg.Go(func() {
			err := r.inTurn(t.Context(), func() error {
				n := now.Add(1)
				defer now.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if n == 3 && done.Load() == 0 {
					close(full)
				}
				<-open
				done.Add(1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-full
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.inTurn(ctx, func() error { t.Error("begun for a caller that has gone"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the caller has gone", err)
	}
	close(open)
	wg.Wait()
	if most.Load() != 3 || done.Load() != 20 {
		t.Errorf("%d at once, %d in all; want 3 and 20", most.Load(), done.Load())
	}
}
