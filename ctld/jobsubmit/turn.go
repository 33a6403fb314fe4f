package jobsubmit

import (
	"context"
	"slices"
	"sync"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// What may wait for the script at a time: at up to ten seconds a call, more would have no use. A user who has none waiting may always
// add one, so that others cannot keep them out.
const (
	maxWaiting     = 256
	maxWaitingUser = 32
)

// turns lets one call at a time use the script. Users take turns, and the calls of one user are in order.
type turns struct {
	mu      sync.Mutex
	busy    bool
	waiting map[uint32][]chan struct{} // by user, in order; closed when it is that call's turn
	users   []uint32                   // who wait, the next one first
	count   int
}

// enter waits for the caller's turn. After it, leave has to be called; with a refusal it has not.
func (t *turns) enter(ctx context.Context, uid uint32) *pb.Problem {
	t.mu.Lock()
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return nil
	}
	mine := t.waiting[uid]
	if len(mine) >= maxWaitingUser || t.count >= maxWaiting && len(mine) > 0 {
		t.mu.Unlock()
		return pb.NewProblem(pb.CodeRateLimited, "%d of your requests wait for job_submit.lua", len(mine))
	}
	turn := make(chan struct{})
	if t.waiting == nil {
		t.waiting = map[uint32][]chan struct{}{}
	}
	if len(mine) == 0 {
		t.users = append(t.users, uid)
	}
	t.waiting[uid] = append(mine, turn)
	t.count++
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.withdraw(uid, turn) { // the turn came at the same moment
		t.leave()
	}
	return pb.NewProblem(pb.CodeRateLimited, "the caller has gone")
}

// leave gives the turn to the user who has waited for one the longest.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.users) == 0 {
		t.busy = false
		return
	}
	uid := t.users[0]
	t.users = t.users[1:]
	turn := t.waiting[uid][0]
	if t.waiting[uid] = t.waiting[uid][1:]; len(t.waiting[uid]) == 0 {
		delete(t.waiting, uid)
	} else {
		t.users = append(t.users, uid)
	}
	t.count--
	close(turn)
}

// withdraw takes a call out of its queue, false if its turn has come.
func (t *turns) withdraw(uid uint32, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[uid], turn)
	if i < 0 {
		return false
	}
	if t.waiting[uid] = slices.Delete(t.waiting[uid], i, i+1); len(t.waiting[uid]) == 0 {
		delete(t.waiting, uid)
		t.users = slices.DeleteFunc(t.users, func(u uint32) bool { return u == uid })
	}
	t.count--
	return true
}
