package noded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/internal/failpoint"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/privsep"
	"github.com/sluice-hpc/sluice/noded/root"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// stopped is why a launch was given up: an order to end the step came first.
type stopped struct{ why string } // StepOrder.stop_reason

func (s stopped) Error() string { return "cancelled before it started" }

// start begins a step: devices, prolog, launch.
func (n *node) start(ctx context.Context, a agent.Action) {
	l := a.Order.Launch
	j := &job{key: a.Key, phase: pb.StepPhase_STEP_PREPARING, applied: agent.Launched(a.Order), spec: bare(l), launching: true,
		begun: clock.Boot()}
	jctx, cancel := context.WithCancelCause(ctx)
	j.cancel = cancel
	n.jobs[a.Key] = j
	n.desired.Present(a.Key)
	n.mark(j)
	if !a.Key.Holder() {
		l = n.withHolders(j, l)
	} else if len(devicesOf(l)) > 0 {
		n.work(ctx, func() func() {
			l, err := n.withDevices(jctx, l)
			return func() { n.begin(ctx, jctx, j, l, err) }
		})
		return
	}
	n.begin(ctx, jctx, j, l, nil)
}

// withDevices has the devices of a launch made ready, and gives it with the devices that there are then; on an error, as it was.
func (n *node) withDevices(ctx context.Context, l *pb.LaunchSpec) (*pb.LaunchSpec, error) {
	a, err := n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Prepare{Prepare: &nodepb.Prepare{Key: l.Key, Devices: devicesOf(l)}}})
	if err != nil {
		return l, err
	}
	out := proto.CloneOf(l)
	for i, d := range devicesOf(out) {
		if i < len(a.Devices) {
			d.Id = a.Devices[i].Id
		}
	}
	return out, nil
}

// begin starts a step whose devices are as they should be, or could not be made so. jctx ends with an order to stop.
func (n *node) begin(ctx, jctx context.Context, j *job, l *pb.LaunchSpec, err error) {
	j.spec = bare(l)
	set, bundle := n.settings, n.bundler.bundle(l, n.settings)
	if j.key.Holder() { // its steps' are among them
		j.cpus = bundle.Cpus
	}
	bundle.BegunBootNs = j.begun
	daemon := n.bundler.daemonFor(set)
	n.work(ctx, func() func() {
		err := n.prepare(jctx, j.spec, set, daemon, bundle, l.Script, err)
		j.cancel(nil)
		return func() { n.launched(ctx, j, err) }
	})
}

// Launching is tried again: what refuses it (no process to be had, no space) may pass.
const launchTries = 3

// prepare runs the prolog and gives the step to a shim, unless err says that it cannot begin. It returns nil when the runner knows the
// step, if only as failed.
func (n *node) prepare(ctx context.Context, l *pb.LaunchSpec, set *pb.NodeSettings, d taskenv.Daemon, b *pb.Bundle, script []byte,
	err error) error {
	verdict := pb.VerdictNodeFailed
	if err == nil {
		var ours bool
		if ours, err = n.prolog(ctx, l, set, d); !ours {
			verdict = pb.VerdictPrologFailed
		}
	}
	if err == nil {
		verdict = pb.VerdictNodeFailed
		var refused bool
		if refused, err = n.launch(ctx, b, script); refused {
			verdict = pb.VerdictLaunchFailed
		}
	}
	if err == nil || errors.Is(err, privsep.ErrGone) { // gone: the next daemon starts over
		return err
	}
	exit := &pb.ExitRecord{Key: b.Key, Verdict: verdict, Detail: err.Error(), StartNs: l.StartNs, EndNs: time.Now().UnixNano()}
	if ctx.Err() != nil {
		stop := stopped{}
		if !errors.As(context.Cause(ctx), &stop) {
			return ctx.Err() // the daemon ends: the next one starts over
		}
		exit.Verdict, exit.Detail, exit.StoppedOnOrder = pb.VerdictCancelled, "cancelled before its script started", true
		exit.StopReason = stop.why
	}
	if ferr := n.fail(b, exit); ferr != nil {
		return fmt.Errorf("%s (%w)", exit.Detail, ferr)
	}
	return nil
}

// fail records the end of a step that never began.
func (n *node) fail(b *pb.Bundle, exit *pb.ExitRecord) error {
	f := &nodepb.Fail{Bundle: root.Brief(b), Exit: exit}
	_, err := n.root.Call(context.Background(), &nodepb.Request{What: &nodepb.Request_Fail{Fail: f}})
	return err
}

// prolog runs the prolog. ours: that it has not been run is this node's fault, not the program's.
func (n *node) prolog(ctx context.Context, l *pb.LaunchSpec, set *pb.NodeSettings, d taskenv.Daemon) (ours bool, err error) {
	if set.GetProlog() == "" && set.GetEpilog() == "" || l.Step != nil {
		return false, ctx.Err()
	}
	h := &nodepb.Hook{Kind: nodepb.HookKind_HOOK_PROLOG, Key: l.Key, Remember: l}
	if set.GetProlog() != "" {
		h.Env = taskenv.Hook(taskenv.Prolog, l, nil, set.GetCluster(), d)
	}
	if a, err := n.hook(ctx, h); err != nil {
		return a.GetFault() != "", err
	}
	return false, ctx.Err()
}

// hook has a program of the administrator run, and waits for its end.
func (n *node) hook(ctx context.Context, h *nodepb.Hook) (*nodepb.Answer, error) {
	return n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Hook{Hook: h}})
}

// launch gives a step to a shim. refused: the policy of this node is against it, which is the job's to know.
func (n *node) launch(ctx context.Context, b *pb.Bundle, script []byte) (refused bool, err error) {
	failpoint.Hit("noded.launch")
	for try := range launchTries {
		a, err := n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Launch{Launch: &nodepb.Launch{Bundle: b, Script: script}}})
		if err == nil {
			failpoint.Hit("noded.launched")
			return false, nil
		}
		if ctx.Err() != nil || try == launchTries-1 || a.GetRefused() || errors.Is(err, privsep.ErrGone) {
			return a.GetRefused(), err
		}
		n.log.Warn("cannot launch a job: trying again", "job", b.Key.JobId, "err", err)
		pause(ctx, time.Duration(try+1)*200*time.Millisecond)
	}
	return false, nil
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

// launched: the runner has the step, or could not even note that it failed.
func (n *node) launched(ctx context.Context, j *job, err error) {
	j.launching = false
	if errors.Is(err, privsep.ErrGone) {
		return // and so do we
	}
	if err != nil && ctx.Err() == nil {
		n.log.Error("cannot start a job, nor record that it did not start", "job", j.key.Job, "err", err)
		j.rep = &pb.StepReport{Key: j.key.Proto(), Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Key: j.key.Proto(),
			Verdict: pb.VerdictNodeFailed, Detail: err.Error(), EndNs: time.Now().UnixNano()}}
		n.advance(ctx, j)
	}
	n.changed = true // orders that came meanwhile
}

// control passes an order on to a step.
func (n *node) control(ctx context.Context, j *job, a agent.Action) {
	if j.busy {
		return // looked at again when that is through
	}
	if a.Detail != "" {
		n.log.Warn("ending a step", "job", j.key.Job, "attempt", j.key.Attempt, "why", a.Detail)
	}
	if j.launching {
		// Everything but an end waits until the runner has the step.
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
	order := n.withLimit(j.key, withoutLaunch(a.Order))
	n.within(ctx, n.signals, func() func() {
		_, err := n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Control{Control: order}})
		return func() {
			j.busy = false
			if err == nil {
				j.applied = j.applied.After(a.Order)
				n.changed = true
				return
			}
			n.log.Warn("cannot forward an order to a step: trying again", "job", j.key.Job, "order", orderWord(a.Order), "err", err)
			n.later(ctx)
		}
	})
}

// withoutLaunch is an order about a step that has been launched.
func withoutLaunch(o *pb.StepOrder) *pb.StepOrder {
	c := pb.ShallowCopy(o)
	c.Launch = nil
	return c
}

// later looks again after a while.
func (n *node) later(ctx context.Context) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		pause(ctx, retryAfter)
		select {
		case n.results <- func() { n.changed = true }:
		case <-ctx.Done():
		}
	}()
}

// forget deletes a step whose end the controller has recorded.
func (n *node) forget(ctx context.Context, j *job) {
	if j.busy || j.launching {
		return
	}
	j.busy = true
	n.work(ctx, func() func() {
		failpoint.Hit("noded.forget")
		_, err := n.root.Call(ctx, &nodepb.Request{What: &nodepb.Request_Forget{Forget: &nodepb.Forget{Key: j.key.Proto()}}})
		return func() {
			j.busy = false
			if err != nil {
				n.log.Warn("cannot delete the remains of a step: trying again", "job", j.key.Job, "err", err)
				n.later(ctx)
				return
			}
			delete(n.jobs, j.key)
			delete(n.dirty, j.key)
			n.changed = true
		}
	})
}

// refuse answers an order that cannot be carried out with an end.
func (n *node) refuse(ctx context.Context, a agent.Action) {
	n.log.Warn("refusing an order", "job", a.Key.Job, "attempt", a.Key.Attempt, "epoch", a.Key.Epoch, "why", a.Detail)
	key := a.Key.Proto()
	j := &job{key: a.Key, phase: pb.StepPhase_STEP_PREPARING, refused: true, launching: true, cancel: func(error) {}}
	n.jobs[a.Key] = j
	n.desired.Present(a.Key)
	exit := &pb.ExitRecord{Key: key, Verdict: a.Verdict, Detail: a.Detail, EndNs: time.Now().UnixNano(),
		StoppedOnOrder: a.Verdict == pb.VerdictCancelled, StopReason: a.Order.GetStopReason()}
	n.work(ctx, func() func() {
		err := n.fail(refusal(key), exit)
		return func() { n.launched(ctx, j, err) }
	})
}

// startEpilog runs the epilog of a step that has ended, once; then the step has ended for the controller too.
func (n *node) startEpilog(ctx context.Context, j *job) {
	if j.epilog {
		return
	}
	j.epilog = true
	exit, set, spec, key := j.rep.GetExit(), n.settings, j.spec, j.key.Proto()
	if spec == nil {
		spec = fromBundle(j.brief, n.about.Node)
	}
	env := taskenv.Hook(taskenv.Epilog, spec, exit, set.GetCluster(), n.bundler.daemonFor(set))
	n.work(ctx, func() func() {
		a, err := n.hook(ctx, &nodepb.Hook{Kind: nodepb.HookKind_HOOK_EPILOG, Key: key, Env: env})
		return func() {
			if err != nil && a == nil {
				return // the daemon ends: the next one runs the epilog again
			}
			j.epilogErr, j.phase = a.GetFailed(), pb.StepPhase_STEP_ENDED
			if err != nil {
				j.epilogErr = err.Error()
			}
			n.mark(j)
		}
	})
}
