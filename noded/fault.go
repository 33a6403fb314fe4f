package noded

import (
	"context"
	"time"

	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
)

// lookForFault checks with every heartbeat whether this node can start steps, so that a node whose spool is full is drained
// before it gets another job. A launch that fails reports its fault at once.
func (n *node) lookForFault(ctx context.Context) {
	if n.faulted {
		return
	}
	n.faulted = true
	all := n.fault != ""
	answered := make(chan struct{})
	n.noticeSilence(ctx, answered)
	n.work(ctx, func() func() {
		why, err := n.findFault(ctx, all)
		close(answered)
		return func() {
			n.faulted = false
			if err == nil {
				n.tellFault(why)
			}
		}
	})
}

// rootPatience is how long noded-root may take for the check: longer than it waits for a spool that hangs.
var rootPatience = 90 * time.Second

const rootSilent = "the root half of the node daemon does not answer"

// noticeSilence drains this node when noded-root hangs or is stopped. It starts and ends nothing then, while noded-link would go
// on to report a healthy node.
func (n *node) noticeSilence(ctx context.Context, answered <-chan struct{}) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		late := time.NewTimer(rootPatience)
		defer late.Stop()
		select {
		case <-ctx.Done():
			return
		case <-answered:
			return
		case <-late.C:
		}
		select {
		case <-ctx.Done():
		case <-answered:
		case n.results <- func() {
			if n.faulted {
				n.tellFault(rootSilent)
			}
		}:
		}
	}()
}

func (n *node) findFault(ctx context.Context, all bool) (string, error) {
	a, err := n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Check{Check: &nodepb.Check{All: all}}})
	return a.GetFault(), err
}

func (n *node) tellFault(why string) {
	if why == n.fault {
		return
	}
	if why != "" {
		n.log.Error("this node cannot start jobs: draining it", "why", why)
	} else {
		n.log.Info("this node can start jobs again: return it to service with scontrol update state=resume", "was", n.fault)
	}
	n.fault, n.beat = why, true
}
