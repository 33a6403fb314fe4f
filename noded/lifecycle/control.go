package lifecycle

import (
	"context"
	"time"

	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/noded/agent"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// retryAfter is the pause after an order that could not be passed on.
const retryAfter = time.Second

// control passes an order on to a step.
func (s *Steps) control(ctx context.Context, j *Step, a agent.Action) {
	if j.busy {
		return // Reconcile runs again when that is done
	}
	if a.Detail != "" {
		s.log.Warn("ending a step", "job", j.key.Job, "attempt", j.key.Attempt, "why", a.Detail)
	}
	if j.launching {
		// Orders other than to end the step wait until noded-root has it.
		if a.Order.Want == pb.StepWant_WANT_STOP || a.Order.Want == pb.StepWant_WANT_KILL {
			j.cancel(stopped{a.Order.StopReason})
		}
		return
	}
	if j.rep.GetPhase() == pb.StepPhase_STEP_ENDED { // its epilog runs
		j.applied = j.applied.After(a.Order)
		return
	}
	j.busy = true
	order := withoutLaunch(a.Order)
	s.host.Signal(ctx, func() func() {
		_, err := s.host.Call(ctx, &nodepb.Request{What: &nodepb.Request_Control{Control: order}})
		return func() {
			j.busy = false
			if err == nil {
				j.applied = j.applied.After(a.Order)
				s.changed = true
				return
			}
			s.log.Warn("cannot forward an order to a step: will retry", "job", j.key.Job, "order", orderWord(a.Order), "err", err)
			s.lookLater(ctx)
		}
	})
}

// forget deletes a step whose end the controller has recorded.
func (s *Steps) forget(ctx context.Context, j *Step) {
	if j.busy || j.launching {
		return
	}
	j.busy = true
	s.host.Work(ctx, func() func() {
		failpoint.Hit("noded.forget")
		_, err := s.host.Call(ctx, &nodepb.Request{What: &nodepb.Request_Forget{Forget: &nodepb.Forget{Key: j.key.Proto()}}})
		return func() {
			j.busy = false
			if err != nil {
				s.log.Warn("cannot delete the remains of a step: will retry", "job", j.key.Job, "err", err)
				s.lookLater(ctx)
				return
			}
			delete(s.steps, j.key)
			delete(s.dirty, j.key)
			s.changed = true
		}
	})
}

func (s *Steps) lookLater(ctx context.Context) {
	s.host.Later(ctx, retryAfter, func() { s.changed = true })
}

// withoutLaunch returns an order without the launch of a step that runs already.
func withoutLaunch(o *pb.StepOrder) *pb.StepOrder {
	c := pb.ShallowCopy(o)
	c.Launch = nil
	return c
}

// orderWord names an order in the log.
func orderWord(o *pb.StepOrder) string {
	switch o.GetWant() {
	case pb.StepWant_WANT_STOP:
		return "stop"
	case pb.StepWant_WANT_KILL:
		return "kill"
	}
	return "run on"
}
