package noded

import (
	"context"
	"time"

	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// host is the node as its steps see it (lifecycle.Host).
type host struct{ *node }

// Call sends noded-root a request.
func (h host) Call(ctx context.Context, r *nodepb.Request) (*nodepb.Answer, error) {
	return h.root.Call(ctx, r)
}

// Work runs f in a goroutine, limited as work that may wait for a disk or a program.
func (h host) Work(ctx context.Context, f func() func()) { h.within(ctx, h.workers, f) }

// Signal is Work with a limit of its own, for work that must not wait behind the other.
func (h host) Signal(ctx context.Context, f func() func()) { h.within(ctx, h.signals, f) }

// Later makes the loop run f after d.
func (h host) Later(ctx context.Context, d time.Duration, f func()) {
	h.wg.Add(1)
	go func() {
		defer h.wg.Done()
		pause(ctx, d)
		select {
		case h.results <- f:
		case <-ctx.Done():
		}
	}()
}

// Pause waits for d.
func (h host) Pause(ctx context.Context, d time.Duration) { pause(ctx, d) }

// Now is the time of day.
func (h host) Now() time.Time { return time.Now() }

// Boot is CLOCK_BOOTTIME.
func (h host) Boot() int64 { return clock.Boot() }

// Settings are the controller's settings.
func (h host) Settings() *pb.NodeSettings { return h.settings }

// Bundle builds the shim's description of a launch.
func (h host) Bundle(l *pb.LaunchSpec) *pb.Bundle { return h.bundler.Build(l, h.settings) }

// Daemon describes this node for job environments.
func (h host) Daemon() taskenv.Daemon { return h.bundler.Environ(h.settings) }

// Fault notes why this node cannot start steps.
func (h host) Fault(why string) { h.tellFault(why) }

// hook makes noded-root run one of the administrator's programs, and waits for its end.
func (n *node) hook(ctx context.Context, h *nodepb.Hook) (*nodepb.Answer, error) {
	return n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Hook{Hook: h}})
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
