package noded

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// health schedules HealthCheckProgram: by the clock, so at the same time on all nodes; with CYCLE, at this node's offset in the
// interval. It belongs to node.loop. The program itself acts on what it finds, with scontrol.
type health struct {
	timer   *time.Timer
	every   time.Duration
	offset  time.Duration
	running bool
}

// C delivers when the next check is due; nil, and so never, without a check.
func (h *health) C() <-chan time.Time {
	if h.timer == nil {
		return nil
	}
	return h.timer.C
}

// plan applies the controller's settings for the check.
func (h *health) plan(s *pb.NodeSettings, now time.Time) {
	every, offset := time.Duration(s.GetHealthCheckS())*time.Second, time.Duration(s.GetHealthOffsetS())*time.Second
	if s.GetHealthCheck() == "" {
		every = 0
	}
	if every == h.every && offset == h.offset {
		return
	}
	h.stop()
	h.every, h.offset = every, offset
	if every > 0 {
		h.timer = time.NewTimer(untilCheck(now, every, offset))
	}
}

// again schedules the next check.
func (h *health) again(now time.Time) {
	if h.timer != nil {
		h.timer.Reset(untilCheck(now, h.every, h.offset))
	}
}

func (h *health) stop() {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// untilCheck returns the time from now to the next check. Checks are due offset after each whole interval since the zero time.
func untilCheck(now time.Time, every, offset time.Duration) time.Duration {
	last := now.Add(-offset).Truncate(every).Add(offset)
	return last.Add(every).Sub(now)
}

// checkHealth runs the check if the node is in one of the configured states and linked to the controller. As in Slurm, a node
// that does not respond is not checked.
func (n *node) checkHealth(ctx context.Context) {
	n.health.again(time.Now())
	if n.stream != nil && n.heard && n.healthState(n.settings.GetHealthStates()) {
		n.runHealthCheck(ctx)
	}
}

// runHealthCheck runs the check in any state of the node, unless it runs already. It also runs once after the first contact with
// the controller, because the check that noded-root ran at startup could not reach the controller.
func (n *node) runHealthCheck(ctx context.Context) {
	if n.health.running {
		return
	}
	set := n.settings
	n.health.running = true
	n.work(ctx, func() func() {
		h := &nodepb.Hook{Kind: nodepb.HookKind_HOOK_HEALTH, Env: taskenv.Check(set.GetCluster(), n.bundler.Daemon)}
		if _, err := n.hook(ctx, h); err != nil && ctx.Err() == nil {
			n.log.Error("cannot check the health of this node", "program", set.GetHealthCheck(), "err", err)
		}
		return func() { n.health.running = false }
	})
}

// healthState reports whether the node is now in one of states (HealthCheckNodeState). A DOWN node matches only ANY.
func (n *node) healthState(states string) bool {
	is := "IDLE"
	cpus, jobs := n.busy()
	switch {
	case n.standing.GetDown():
		is = "DOWN"
	case jobs > 0 && cpus >= n.settings.GetNode().GetCpus():
		is = "ALLOC"
	case jobs > 0:
		is = "MIXED"
	}
	any := true // CYCLE alone does not restrict the states
	for word := range strings.SplitSeq(states, ",") {
		switch word {
		case "", "CYCLE":
		case "ANY":
			return true
		case "NONDRAINED_IDLE":
			if any = false; is == "IDLE" && !n.standing.GetDrained() {
				return true
			}
		default: // START_ONLY is a state that no node is in
			if any = false; word == is && word != "DOWN" {
				return true
			}
		}
	}
	return any
}

// busy returns the number of jobs on this node and their CPUs.
func (n *node) busy() (cpus uint32, jobs int) {
	for j := range n.steps.All() {
		if j.Phase() != pb.StepPhase_STEP_ENDED && !j.Refused() {
			cpus, jobs = cpus+j.CPUs(), jobs+1
		}
	}
	return cpus, jobs
}
