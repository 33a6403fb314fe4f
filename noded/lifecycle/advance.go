package lifecycle

import (
	"context"

	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// advance moves a step to the phase that it has reached. For the controller it ends only after its epilog.
func (s *Steps) advance(ctx context.Context, j *Step) {
	phase := j.rep.GetPhase()
	if phase == pb.StepPhase_STEP_ENDED && s.askFault(ctx, j) {
		return
	}
	if phase == pb.StepPhase_STEP_ENDED && s.stepsLeft(j.key) {
		phase = pb.StepPhase_STEP_COMPLETING // an allocation ends after its steps
	}
	if phase == pb.StepPhase_STEP_ENDED && !j.refused && j.key.Holder() && s.host.Settings().GetEpilog() != "" {
		phase = pb.StepPhase_STEP_COMPLETING
		s.startEpilog(ctx, j)
	}
	if phase == pb.StepPhase_STEP_ENDED && j.phase != phase {
		s.logFailure(j)
	}
	j.phase = phase
	s.unkillable(ctx, j)
	s.mark(j)
	if phase == pb.StepPhase_STEP_ENDED && !j.key.Holder() {
		s.advanceHolder(ctx, j.key)
	}
}

// logFailure logs why a job could not be launched, for the administrator of this node.
func (s *Steps) logFailure(j *Step) {
	switch x := j.rep.GetExit(); x.GetVerdict() {
	case pb.VerdictNodeFailed, pb.VerdictLaunchFailed, pb.VerdictOutputFailed, pb.VerdictPrologFailed:
		s.log.Warn("a job could not be launched", "job", j.key.Job, "attempt", j.key.Attempt, "verdict", x.GetVerdict(), "why",
			x.GetDetail())
	}
}

// askFault asks noded-root, once, what is wrong with this node before the report that it could not start a step, so that the
// controller drains it with that report. It returns true while the answer is pending.
func (s *Steps) askFault(ctx context.Context, j *Step) bool {
	if j.rep.GetExit().GetVerdict() != pb.VerdictNodeFailed || j.phase == pb.StepPhase_STEP_ENDED {
		return false
	}
	if j.asked {
		return j.asking
	}
	j.asked, j.asking = true, true
	s.host.Work(ctx, func() func() {
		a, err := s.host.Call(ctx, &nodepb.Request{What: &nodepb.Request_Check{Check: &nodepb.Check{All: true}}})
		return func() {
			j.asking = false
			if err == nil {
				j.fault = a.GetFault()
				s.host.Fault(j.fault)
			}
			s.advance(ctx, j)
		}
	})
	return true
}

// startEpilog runs the epilog of an ended step, once; then the step has ended for the controller, too.
func (s *Steps) startEpilog(ctx context.Context, j *Step) {
	if j.epilog {
		return
	}
	j.epilog = true
	exit, spec, key := j.rep.GetExit(), j.spec, j.key.Proto()
	if spec == nil {
		spec = fromBundle(j.brief, s.node)
	}
	env := taskenv.Hook(taskenv.Epilog, spec, exit, s.host.Settings().GetCluster(), s.host.Daemon())
	s.host.Work(ctx, func() func() {
		a, err := s.hook(ctx, &nodepb.Hook{Kind: nodepb.HookKind_HOOK_EPILOG, Key: key, Env: env})
		return func() {
			if err != nil && a == nil {
				return // the daemon is stopping: the next one runs the epilog again
			}
			j.epilogErr, j.phase = a.GetFailed(), pb.StepPhase_STEP_ENDED
			if err != nil {
				j.epilogErr = err.Error()
			}
			s.mark(j)
		}
	})
}

// unkillable reports whether a report says that the step's processes survive SIGKILL (UnkillableStepTimeout).
func unkillable(r *pb.StepReport) bool {
	return r.GetExit() != nil && r.GetPhase() != pb.StepPhase_STEP_ENDED
}

// unkillable runs UnkillableStepProgram for such a step, once. The controller drains the node when it gets the report.
func (s *Steps) unkillable(ctx context.Context, j *Step) {
	if j.stuck || !unkillable(j.rep) {
		return
	}
	j.stuck = true
	s.log.Error("a step cannot be killed", "job", j.key.Job, "why", j.rep.Exit.Detail)
	set := s.host.Settings()
	if set.GetUnkillableProgram() == "" {
		return
	}
	env := taskenv.Unkillable(j.key.Job, j.key.Step, set.GetCluster(), s.host.Daemon())
	s.host.Work(ctx, func() func() {
		h := &nodepb.Hook{Kind: nodepb.HookKind_HOOK_UNKILLABLE, Key: j.key.Proto(), Env: env}
		if _, err := s.hook(ctx, h); err != nil && ctx.Err() == nil {
			s.log.Error("UnkillableStepProgram failed", "job", j.key.Job, "err", err)
		}
		return func() {}
	})
}
