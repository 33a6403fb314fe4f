package rpc

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/ctld/dispatch"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// maxReports bounds the step reports from a node in one commit. One more message may wait meanwhile, and the node with the next.
const maxReports = 4096

// intake passes a node's step reports to the writer: all that arrive during a commit go into the next. Most nodes of a large cluster report
// nothing for a long time, so there is a goroutine only while there are reports to pass on.
type intake struct {
	s    *NodeServer
	ctx  context.Context // of the stream
	link *dispatch.Link
	name string

	mu    sync.Mutex
	steps []*pb.StepReport
	taken chan struct{} // closed when steps are taken; nil: nobody waits
	busy  bool
	ended bool
	wg    sync.WaitGroup
}

// put adds the reports of a message, and waits while there are too many already. Only the goroutine that reads the messages calls it.
func (in *intake) put(steps []*pb.StepReport) error {
	for {
		in.mu.Lock()
		if in.ended {
			in.mu.Unlock()
			return context.Canceled
		}
		if len(in.steps) < maxReports {
			break
		}
		if in.taken == nil {
			in.taken = make(chan struct{})
		}
		taken := in.taken
		in.mu.Unlock()
		select {
		case <-taken:
		case <-in.ctx.Done():
			return in.ctx.Err()
		}
	}
	defer in.mu.Unlock()
	if in.steps == nil {
		in.steps = steps
	} else {
		in.steps = append(in.steps, steps...)
	}
	if !in.busy {
		in.busy = true
		in.wg.Go(in.run)
	}
	return nil
}

// run passes reports to the writer until there are none.
func (in *intake) run() {
	for {
		in.mu.Lock()
		steps := in.steps
		in.steps = nil
		if in.taken != nil {
			close(in.taken)
			in.taken = nil
		}
		if in.busy = len(steps) > 0 && in.ctx.Err() == nil; !in.busy {
			in.mu.Unlock()
			return
		}
		in.mu.Unlock()
		in.hand(steps)
	}
}

// hand passes reports to the writer and the link.
func (in *intake) hand(steps []*pb.StepReport) {
	in.link.Saw(steps)
	for {
		_, err := in.s.Writer.Do(in.ctx, reactor.StepReports{Node: in.name, Steps: steps})
		if err == nil || in.ctx.Err() != nil {
			break
		}
		in.s.Log.Warn("cannot process a node's reports yet", "node", in.name, "err", err)
		select { // the mailbox or the disk is full: the reports must not be lost
		case <-in.ctx.Done():
		case <-time.After(busyRetry):
		}
	}
	in.link.Wake()
}

// end waits, once ctx has ended, until nothing is being passed on.
func (in *intake) end() {
	in.mu.Lock()
	in.ended = true
	in.mu.Unlock()
	in.wg.Wait()
}
