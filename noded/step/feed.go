package step

import (
	"context"
	"sync"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// feed delivers reports in the order of their first change. It queues names, not reports, so it never holds more entries than
// there are steps, however slow the reader is.
type feed struct {
	out    chan *pb.StepReport
	mu     sync.Mutex
	queue  []string
	queued map[string]bool
	wake   chan struct{}
}

func (f *feed) init() {
	f.out = make(chan *pb.StepReport, 64)
	f.queued = map[string]bool{}
	f.wake = make(chan struct{}, 1)
}

func (f *feed) touch(name string) {
	f.mu.Lock()
	if !f.queued[name] {
		f.queued[name] = true
		f.queue = append(f.queue, name)
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *feed) pop() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		f.queue = nil
		return "", false
	}
	name := f.queue[0]
	f.queue = f.queue[1:]
	delete(f.queued, name)
	return name, true
}

func (f *feed) run(ctx context.Context, newest func(string) *pb.StepReport) {
	for {
		name, ok := f.pop()
		if !ok {
			select {
			case <-f.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		rep := newest(name)
		if rep == nil {
			continue
		}
		select {
		case f.out <- rep:
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) close() { close(f.out) }
