package jobsubmit

import (
	"context"
	"slices"
	"sync"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// enterLater calls enter in a goroutine and returns once the call waits. Its turn is reported to done.
func enterLater(t *testing.T, q *turns, ctx context.Context, uid uint32, done func(*pb.Problem)) {
	t.Helper()
	q.mu.Lock()
	before := q.count
	q.mu.Unlock()
	go func() { done(q.enter(ctx, uid)) }()
	for now := before; now == before; {
		q.mu.Lock()
		now = q.count
		q.mu.Unlock()
	}
}

// A user with many calls takes turns with the others, whose calls came later.
func TestTurnsAreFair(t *testing.T) {
	var q turns
	if p := q.enter(t.Context(), 1); p != nil {
		t.Fatal(p)
	}
	var mu sync.Mutex
	var order []uint32
	var all sync.WaitGroup
	for _, uid := range []uint32{1, 1, 1, 1, 2, 2, 3} {
		all.Add(1)
		enterLater(t, &q, t.Context(), uid, func(p *pb.Problem) {
			defer all.Done()
			if p != nil {
				t.Error(p)
				return
			}
			mu.Lock()
			order = append(order, uid)
			mu.Unlock()
			q.leave()
		})
	}
	q.leave()
	all.Wait()
	if want := []uint32{1, 2, 3, 1, 2, 1, 1}; !slices.Equal(order, want) {
		t.Errorf("turns of %v, want %v", order, want)
	}
	if q.busy || q.count != 0 || len(q.waiting) != 0 || len(q.users) != 0 {
		t.Errorf("left: %+v", &q)
	}
}

// One user cannot fill the queue for others, and a caller who goes leaves it.
func TestTurnsAreBoundedAndEnd(t *testing.T) {
	var q turns
	if p := q.enter(t.Context(), 1); p != nil {
		t.Fatal(p)
	}
	ctx, gone := context.WithCancel(t.Context())
	var all sync.WaitGroup
	wait := func(uid uint32) {
		all.Add(1)
		enterLater(t, &q, ctx, uid, func(p *pb.Problem) {
			defer all.Done()
			if p == nil {
				t.Error("a call that has been given up got a turn")
			}
		})
	}
	for range maxWaitingUser {
		wait(1)
	}
	if p := q.enter(t.Context(), 1); p == nil {
		t.Fatal("a user has more calls waiting than one may")
	}
	for uid := range uint32(maxWaiting / maxWaitingUser) {
		for range maxWaitingUser {
			q.mu.Lock()
			full := q.count >= maxWaiting
			q.mu.Unlock()
			if !full {
				wait(100 + uid)
			}
		}
	}
	wait(7) // who has none, though the queue is full
	if p := q.enter(t.Context(), 7); p == nil {
		t.Fatal("the queue has no bound")
	}
	gone()
	all.Wait()
	if q.count != 0 || len(q.waiting) != 0 || len(q.users) != 0 {
		t.Errorf("callers who have gone still wait: %d", q.count)
	}
	q.leave()
	if p := q.enter(t.Context(), 9); p != nil {
		t.Error(p)
	}
}
