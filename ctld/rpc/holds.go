package rpc

import (
	"context"
	"sync"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Holds are allocations without a batch script and who waits for their end: salloc and srun, for as long as they live. An allocation that
// nobody waits for any more has been left behind. That is not part of the state: after a start nobody is known to have waited.
type Holds struct {
	mu   sync.Mutex
	jobs map[uint32]int
}

// NewHolds makes one in which nobody waits.
func NewHolds() *Holds { return &Holds{jobs: map[uint32]int{}} }

// hold counts a call that waits for the end of a job, until it is released.
func (h *Holds) hold(ctx context.Context, j *pb.JobRecord) (release func()) {
	peer := peerOf(ctx)
	if h == nil || j == nil || !j.Spec.GetInteractive() || peer.UID != j.Spec.Uid && !peer.Operator {
		return func() {}
	}
	h.mu.Lock()
	h.jobs[j.Id]++
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		h.jobs[j.Id]--
		h.mu.Unlock()
	}
}

// Of says how many wait for the end of a job, and whether anybody ever has.
func (h *Holds) Of(job uint32) (waiting int, ever bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting, ever = h.jobs[job]
	return waiting, ever
}

// Forget drops jobs of which nobody needs to know any more.
func (h *Holds) Forget(over func(job uint32) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, n := range h.jobs {
		if n == 0 && over(id) {
			delete(h.jobs, id)
		}
	}
}
