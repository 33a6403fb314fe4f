package noded

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-hpc/sluice/conf/failpoint"
	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stopped is why a launch was given up: an order to end the step came first.
type stopped struct{ order *pb.StepOrder }

func (s stopped) Error() string { return "ended by order before it began" }

// start begins a step: prolog, then launch.
func (n *node) start(ctx context.Context, a agent.Action) {
	l := a.Order.Launch
	j := &job{key: a.Key, name: step.Name(a.Key.Proto()), phase: pb.StepPhase_STEP_PREPARING, applied: agent.Launched(a.Order),
		spec: bare(l), uid: l.GetSpec().GetUid(), devices: devicesOf(l), launching: true, hooked: n.settings.GetProlog() != "" || n.settings.GetEpilog() != ""}
	jctx, cancel := context.WithCancelCause(ctx)
	j.cancel = cancel
	n.jobs[a.Key] = j
	n.desired.Present(a.Key)
	n.mark(j)
	if n.mustCut(l) {
		n.cut(ctx, j, l, func(l *pb.LaunchSpec, err error) { n.begin(ctx, jctx, j, l, err) })
		return
	}
	n.begin(ctx, jctx, j, l, nil)
}

// begin starts a step whose devices are as they should be, or could not be made so. jctx ends with an order to stop.
func (n *node) begin(ctx, jctx context.Context, j *job, l *pb.LaunchSpec, cutErr error) {
	j.spec = bare(l)
	if cutErr == nil {
		cutErr = n.gone(l)
	}
	set, bundle := n.settings, n.bundler.bundle(l, n.settings)
	j.devices = bundle.Devices
	n.holdDevices(j.name, bundle)
	n.work(ctx, func() func() {
		err := n.prepare(jctx, j.name, j.spec, set, bundle, l.Script, cutErr)
		j.cancel(nil)
		return func() { n.launched(ctx, j, err) }
	})
}

// Launching is tried again: what refuses it (no process to be had, no space) may pass.
const launchTries = 3

// prepare runs the prolog and gives the step to a shim, unless err says that it cannot begin. It returns nil when the runner knows the step, if only as failed.
func (n *node) prepare(ctx context.Context, name string, l *pb.LaunchSpec, set *pb.NodeSettings, b *pb.Bundle, script []byte, err error) error {
	verdict := "launch_failed"
	if err == nil {
		err, verdict = n.prolog(ctx, name, l, set), "prolog_failed"
	}
	if err == nil {
		verdict = "launch_failed"
		err = n.launch(ctx, b, script)
	}
	if err == nil {
		return nil
	}
	exit := &pb.ExitRecord{Key: b.Key, Verdict: verdict, Detail: err.Error(), StartNs: l.StartNs, EndNs: time.Now().UnixNano()}
	if ctx.Err() != nil {
		if stop := (stopped{}); !errors.As(context.Cause(ctx), &stop) {
			return ctx.Err() // the daemon ends: the next one starts over
		}
		exit.Verdict, exit.Detail, exit.StoppedOnOrder = "cancelled", "ended by order before its script began", true
	}
	return n.steps.Fail(b, exit)
}

func (n *node) prolog(ctx context.Context, name string, l *pb.LaunchSpec, set *pb.NodeSettings) error {
	if set.GetProlog() == "" && set.GetEpilog() == "" {
		return ctx.Err()
	}
	if err := n.hooks.Remember(name, l); err != nil {
		return err
	}
	if set.GetProlog() == "" {
		return ctx.Err()
	}
	env := taskenv.Hook(taskenv.Prolog, l, nil, set.GetCluster(), n.bundler.daemonFor(set))
	return n.hooks.Prolog(ctx, name, set.GetProlog(), env, hookTimeout(set))
}

func hookTimeout(set *pb.NodeSettings) time.Duration {
	return time.Duration(set.GetPrologEpilogTimeoutS()) * time.Second
}

func (n *node) launch(ctx context.Context, b *pb.Bundle, script []byte) (err error) {
	failpoint.Hit("noded.launch")
	for try := range launchTries {
		if err = n.steps.Launch(ctx, b, script); err == nil {
			failpoint.Hit("noded.launched")
			return nil
		}
		if ctx.Err() != nil || try == launchTries-1 {
			return err
		}
		n.log.Warn("cannot launch a job: trying again", "job", b.Key.JobId, "err", err)
		pause(ctx, time.Duration(try+1)*200*time.Millisecond)
	}
	return err
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
	if err != nil && ctx.Err() == nil {
		n.log.Error("cannot start a job, nor note that it did not start", "job", j.key.Job, "err", err)
		j.rep = &pb.StepReport{Key: j.key.Proto(), Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Key: j.key.Proto(),
			Verdict: "launch_failed", Detail: err.Error(), EndNs: time.Now().UnixNano()}}
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
			j.cancel(stopped{a.Order})
		}
		return
	}
	if j.rep.GetPhase() == pb.StepPhase_STEP_ENDED { // its epilog runs
		j.applied = j.applied.After(a.Order)
		return
	}
	j.busy = true
	n.work(ctx, func() func() {
		err := n.steps.Control(ctx, a.Order)
		return func() {
			j.busy = false
			if err == nil {
				j.applied = j.applied.After(a.Order)
				n.changed = true
				return
			}
			n.log.Warn("cannot pass an order on to a step: trying again", "job", j.key.Job, "order", orderWord(a.Order), "err", err)
			n.later(ctx)
		}
	})
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
	hooked := j.hooked
	n.work(ctx, func() func() {
		failpoint.Hit("noded.forget")
		err := n.steps.Forget(j.key.Proto())
		if err == nil && hooked {
			n.hooks.Forget(j.name)
		}
		return func() {
			j.busy = false
			if err != nil {
				n.log.Warn("cannot delete what is left of a step: trying again", "job", j.key.Job, "err", err)
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
	j := &job{key: a.Key, name: step.Name(key), phase: pb.StepPhase_STEP_PREPARING, refused: true, launching: true, cancel: func(error) {}}
	n.jobs[a.Key] = j
	n.desired.Present(a.Key)
	exit := &pb.ExitRecord{Key: key, Verdict: a.Verdict, Detail: a.Detail, EndNs: time.Now().UnixNano(), StoppedOnOrder: a.Verdict == "cancelled"}
	n.work(ctx, func() func() {
		err := n.steps.Fail(refusal(key), exit)
		return func() { n.launched(ctx, j, err) }
	})
}

// startEpilog runs the epilog of a step that has ended, once; then the step has ended for the controller too.
func (n *node) startEpilog(ctx context.Context, j *job) {
	if j.epilog {
		return
	}
	j.epilog, j.hooked = true, true
	exit, set, spec, key := j.rep.GetExit(), n.settings, j.spec, j.key.Proto()
	n.work(ctx, func() func() {
		if spec == nil {
			spec = n.hooks.Recall(j.name)
		}
		if spec == nil {
			b, _ := n.steps.Bundle(key)
			spec = fromBundle(b, n.o.NodeName)
		}
		env := taskenv.Hook(taskenv.Epilog, spec, exit, set.GetCluster(), n.bundler.daemonFor(set))
		failed, err := n.hooks.Epilog(ctx, j.name, set.GetEpilog(), env, hookTimeout(set))
		return func() {
			if err != nil {
				return // the daemon ends: the next one runs the epilog again
			}
			j.epilogErr, j.phase = failed, pb.StepPhase_STEP_ENDED
			n.endUse(j)
			n.mark(j)
		}
	})
}
