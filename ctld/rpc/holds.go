package rpc

import (
	"context"
	"sync"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Holds counts the clients that wait for the end of allocations without a batch script: salloc and srun, for as long as they live. An
// allocation for which nobody waits any more is abandoned. Holds are not part of the state: after a start none are known.
type Holds struct {
	mu   sync.Mutex
	jobs map[uint32]int
}

// NewHolds returns one without waiting clients.
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

// Of returns how many clients wait for the end of a job, and whether any ever has.
func (h *Holds) Of(job uint32) (waiting int, ever bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting, ever = h.jobs[job]
	return waiting, ever
}

// Forget drops jobs that are over.
func (h *Holds) Forget(over func(job uint32) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, n := range h.jobs {
		if n == 0 && over(id) {
			delete(h.jobs, id)
		}
	}
}
