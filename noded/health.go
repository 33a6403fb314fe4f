package noded

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// health runs HealthCheckProgram on all nodes at the same time, by the clock, or with CYCLE each at its own time within the interval. It
// belongs to node.loop. What a check finds is the program's own to act upon, with scontrol.
type health struct {
	timer   *time.Timer
	every   time.Duration
	offset  time.Duration
	running bool
}

// C is when the next check is due; nil, and so never, without a check.
func (h *health) C() <-chan time.Time {
	if h.timer == nil {
		return nil
	}
	return h.timer.C
}

// plan takes over what the controller says of the check.
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

// again waits for the next turn.
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

// untilCheck is how long after now the next whole interval since the epoch begins, and offset later.
func untilCheck(now time.Time, every, offset time.Duration) time.Duration {
	last := now.Add(-offset).Truncate(every).Add(offset)
	return last.Add(every).Sub(now)
}

// checkHealth runs the check when this node is in one of the states that it is for, and can be reached: a node that does not respond is
// not checked.
func (n *node) checkHealth(ctx context.Context) {
	n.health.again(time.Now())
	if n.stream != nil && n.heard && n.healthState(n.settings.GetHealthStates()) {
		n.runHealthCheck(ctx)
	}
}

// runHealthCheck runs the check in whatever state this node is, unless it runs already. It does so once after the controller has first
// spoken: the check that the root half ran before, as the daemon was started, could not reach the controller.
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

// healthState tells whether a check for these states (HealthCheckNodeState) is for this node as it is now. A node that is DOWN is in none
// of them but ANY.
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
	any := true // CYCLE alone says nothing of states
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

// busy counts the CPUs of the jobs that are on this node, and these.
func (n *node) busy() (cpus uint32, jobs int) {
	for j := range n.steps.All() {
		if j.Phase() != pb.StepPhase_STEP_ENDED && !j.Refused() {
			cpus, jobs = cpus+j.CPUs(), jobs+1
		}
	}
	return cpus, jobs
}
