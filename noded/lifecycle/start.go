package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/bundle"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// stopped aborts a launch: the order to end the step came first.
type stopped struct{ why string } // StepOrder.stop_reason

func (s stopped) Error() string { return "cancelled before it started" }

// start starts a step: devices, prolog, launch.
func (s *Steps) start(ctx context.Context, a agent.Action) {
	l := a.Order.Launch
	j := &Step{key: a.Key, phase: pb.StepPhase_STEP_PREPARING, applied: agent.Launched(a.Order), spec: bare(l), launching: true,
		begun: s.host.Boot()}
	jctx, cancel := context.WithCancelCause(ctx)
	j.cancel = cancel
	s.steps[a.Key] = j
	s.desired.Present(a.Key)
	s.mark(j)
	if !a.Key.Holder() {
		l = s.withHolder(j, l)
	} else if len(bundle.DevicesOf(l)) > 0 {
		s.host.Work(ctx, func() func() {
			l, err := s.withDevices(jctx, l)
			return func() { s.begin(ctx, jctx, j, l, err) }
		})
		return
	}
	s.begin(ctx, jctx, j, l, nil)
}

// withDevices prepares the devices of a launch and returns the launch with their ids. On an error, the launch is unchanged.
func (s *Steps) withDevices(ctx context.Context, l *pb.LaunchSpec) (*pb.LaunchSpec, error) {
	p := &nodepb.Prepare{Key: l.Key, Devices: bundle.DevicesOf(l)}
	a, err := s.host.Call(ctx, &nodepb.Request{What: &nodepb.Request_Prepare{Prepare: p}})
	if err != nil {
		return l, err
	}
	out := proto.CloneOf(l)
	for i, d := range bundle.DevicesOf(out) {
		if i < len(a.Devices) {
			d.Id = a.Devices[i].Id
		}
	}
	return out, nil
}

// begin starts a step whose devices are ready, or with err could not be prepared. jctx ends with an order to stop.
func (s *Steps) begin(ctx, jctx context.Context, j *Step, l *pb.LaunchSpec, err error) {
	j.spec = bare(l)
	b := s.host.Bundle(l)
	if j.key.Holder() { // the CPUs of srun steps are among the holder's
		j.cpus = b.Cpus
	}
	b.BegunBootNs, b.SuspendedNs = j.begun, l.SuspendedNs
	set, daemon := s.host.Settings(), s.host.Daemon()
	s.host.Work(ctx, func() func() {
		err := s.prepare(jctx, j.spec, set, daemon, b, l.Script, err)
		j.cancel(nil)
		return func() { s.launched(ctx, j, err) }
	})
}

// launchTries is how often a launch is tried: the cause of a failure (no process or no space left) may pass.
const launchTries = 3

// prepare runs the prolog and launches the step, unless err says that it cannot start. It returns nil once noded-root has the
// step, even if only as failed.
func (s *Steps) prepare(ctx context.Context, l *pb.LaunchSpec, set *pb.NodeSettings, d taskenv.Daemon, b *pb.Bundle, script []byte,
	err error) error {
	verdict := pb.VerdictNodeFailed
	if err == nil {
		var ours bool
		if ours, err = s.prolog(ctx, l, set, d); !ours {
			verdict = pb.VerdictPrologFailed
		}
	}
	if err == nil {
		verdict = pb.VerdictNodeFailed
		var refused bool
		if refused, err = s.launch(ctx, b, script); refused {
			verdict = pb.VerdictLaunchFailed
		}
	}
	if err == nil || errors.Is(err, privsep.ErrGone) { // gone: the next daemon starts over
		return err
	}
	end := s.host.Now().UnixNano() // start and end by this node's clock, also when the controller's shows another time
	exit := &pb.ExitRecord{Key: b.Key, Verdict: verdict, Detail: err.Error(), StartNs: end - (s.host.Boot() - b.BegunBootNs), EndNs: end}
	if ctx.Err() != nil {
		stop := stopped{}
		if !errors.As(context.Cause(ctx), &stop) {
			return ctx.Err() // the daemon is stopping: the next one starts over
		}
		exit.Verdict, exit.Detail, exit.StoppedOnOrder = pb.VerdictCancelled, "cancelled before its script started", true
		exit.StopReason = stop.why
	}
	if ferr := s.fail(b, exit); ferr != nil {
		return fmt.Errorf("%s (%w)", exit.Detail, ferr)
	}
	return nil
}

// fail records the end of a step that never began.
func (s *Steps) fail(b *pb.Bundle, exit *pb.ExitRecord) error {
	f := &nodepb.Fail{Bundle: privsep.Brief(b), Exit: exit}
	_, err := s.host.Call(context.Background(), &nodepb.Request{What: &nodepb.Request_Fail{Fail: f}})
	return err
}

// prolog runs the prolog. ours: it could not run because of a fault of this node.
func (s *Steps) prolog(ctx context.Context, l *pb.LaunchSpec, set *pb.NodeSettings, d taskenv.Daemon) (ours bool, err error) {
	if set.GetProlog() == "" && set.GetEpilog() == "" || l.Step != nil {
		return false, ctx.Err()
	}
	h := &nodepb.Hook{Kind: nodepb.HookKind_HOOK_PROLOG, Key: l.Key, Remember: l}
	if set.GetProlog() != "" {
		h.Env = taskenv.Hook(taskenv.Prolog, l, nil, set.GetCluster(), d)
	}
	if a, err := s.hook(ctx, h); err != nil {
		return a.GetFault() != "", err
	}
	return false, ctx.Err()
}

// hook runs a program of the administrator and waits for its end.
func (s *Steps) hook(ctx context.Context, h *nodepb.Hook) (*nodepb.Answer, error) {
	return s.host.Call(ctx, &nodepb.Request{What: &nodepb.Request_Hook{Hook: h}})
}

// launch gives a step to a shim. refused: this node's policy forbids it, so a retry is pointless.
func (s *Steps) launch(ctx context.Context, b *pb.Bundle, script []byte) (refused bool, err error) {
	failpoint.Hit("noded.launch")
	for try := range launchTries {
		a, err := s.host.Call(ctx, &nodepb.Request{What: &nodepb.Request_Launch{Launch: &nodepb.Launch{Bundle: b, Script: script}}})
		if err == nil {
			failpoint.Hit("noded.launched")
			return false, nil
		}
		if ctx.Err() != nil || try == launchTries-1 || a.GetRefused() || errors.Is(err, privsep.ErrGone) {
			return a.GetRefused(), err
		}
		s.log.Warn("cannot launch a job: trying again", "job", b.Key.JobId, "err", err)
		s.host.Pause(ctx, time.Duration(try+1)*200*time.Millisecond)
	}
	return false, nil
}

// launched handles the result: noded-root has the step, or could not even record that it failed.
func (s *Steps) launched(ctx context.Context, j *Step, err error) {
	j.launching = false
	if errors.Is(err, privsep.ErrGone) {
		return // this daemon is stopping, too
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("cannot start a job, nor record that it did not start", "job", j.key.Job, "err", err)
		j.rep = &pb.StepReport{Key: j.key.Proto(), Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Key: j.key.Proto(),
			Verdict: pb.VerdictNodeFailed, Detail: err.Error(), EndNs: s.host.Now().UnixNano()}}
		s.advance(ctx, j)
	}
	s.changed = true // orders that came meanwhile
}

// refuse answers an order that cannot be carried out with an end.
func (s *Steps) refuse(ctx context.Context, a agent.Action) {
	s.log.Warn("refusing an order", "job", a.Key.Job, "attempt", a.Key.Attempt, "epoch", a.Key.Epoch, "why", a.Detail)
	key := a.Key.Proto()
	j := &Step{key: a.Key, phase: pb.StepPhase_STEP_PREPARING, refused: true, launching: true, cancel: func(error) {}}
	s.steps[a.Key] = j
	s.desired.Present(a.Key)
	exit := &pb.ExitRecord{Key: key, Verdict: a.Verdict, Detail: a.Detail, EndNs: s.host.Now().UnixNano(),
		StoppedOnOrder: a.Verdict == pb.VerdictCancelled, StopReason: a.Order.GetStopReason()}
	s.host.Work(ctx, func() func() {
		err := s.fail(refusal(key), exit)
		return func() { s.launched(ctx, j, err) }
	})
}
