package stepd

import (
	"context"
	"sync"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// board holds the newest report of a step for any number of readers. Published reports are immutable.
type board struct {
	mu      sync.Mutex
	report  *pb.StepReport
	changed chan struct{} // closed and replaced at each change; nil while nobody waits
}

func (b *board) put(r *pb.StepReport) {
	b.mu.Lock()
	b.report = r
	c := b.changed
	b.changed = nil
	b.mu.Unlock()
	if c != nil {
		close(c)
	}
}

func (b *board) get() *pb.StepReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.report
}

// await returns the first report for which done is true, or the newest when ctx ends.
func (b *board) await(ctx context.Context, done func(*pb.StepReport) bool) *pb.StepReport {
	for {
		b.mu.Lock()
		if done(b.report) {
			defer b.mu.Unlock()
			return b.report
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		c := b.changed
		b.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			return b.get()
		}
	}
}

// within is await with a time limit.
func (b *board) within(ctx context.Context, limit time.Duration, done func(*pb.StepReport) bool) *pb.StepReport {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return b.await(ctx, done)
}
