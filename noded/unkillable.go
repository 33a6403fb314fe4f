package noded

import (
	"context"

	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// unkillable tells whether a shim says of a step that has not ended that its processes survive SIGKILL (UnkillableStepTimeout).
func unkillable(r *pb.StepReport) bool {
	return r.GetExit() != nil && r.GetPhase() != pb.StepPhase_STEP_ENDED
}

// unkillable runs UnkillableStepProgram for such a step, once. The controller, which is told with every report, drains the node.
func (n *node) unkillable(ctx context.Context, j *job) {
	if j.stuck || !unkillable(j.rep) {
		return
	}
	j.stuck = true
	n.log.Error("a step cannot be killed", "job", j.key.Job, "why", j.rep.Exit.Detail)
	set := n.settings
	if set.GetUnkillableProgram() == "" {
		return
	}
	env := taskenv.Unkillable(j.key.Job, j.key.Step, set.GetCluster(), n.bundler.daemon)
	n.work(ctx, func() func() {
		h := &nodepb.Hook{Kind: nodepb.HookKind_HOOK_UNKILLABLE, Key: j.key.Proto(), Env: env}
		if _, err := n.hook(ctx, h); err != nil && ctx.Err() == nil {
			n.log.Error("UnkillableStepProgram failed", "job", j.key.Job, "err", err)
		}
		return func() {}
	})
}
