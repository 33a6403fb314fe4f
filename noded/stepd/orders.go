package stepd

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/noded/cgroup"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// apply carries out an order. Orders are levels, not edges: the same one again changes nothing.
func (r *run) apply(o *pb.StepOrder) {
	now := time.Now()
	switch o.Want {
	case pb.StepWant_WANT_RUN:
		r.limit.lengthS = o.LimitS
		r.suspend(o.Suspended)
	case pb.StepWant_WANT_STOP:
		r.stop(cmp.Or(o.StopReason, pb.StopCancel), true, now)
	case pb.StepWant_WANT_KILL:
		r.stopNow(cmp.Or(o.StopReason, pb.StopCancel), true, now)
	}
	r.signals(o.Signals)
	if r.crew != nil && len(o.Watchers) > 0 {
		r.crew.watch(o.Watchers)
	}
	if r.phase != pb.StepPhase_STEP_ENDED && r.seen != r.board.get().SignalsSeen {
		r.publish(nil)
	}
}

func (r *run) suspend(want bool) {
	if want == r.frozen || !r.killAt.IsZero() || r.phase >= pb.StepPhase_STEP_COMPLETING {
		return
	}
	r.frozen = want
	if r.containing() { // it stands still already
	} else if want {
		r.limit.pause(clock.Boot())
	} else {
		r.limit.goOn(clock.Boot())
	}
	if r.phase == pb.StepPhase_STEP_RUNNING {
		r.must("suspend or resume the step", r.grp.Freeze(want))
	}
}

// stop begins the end: SIGCONT and SIGTERM to everything, SIGKILL after KillWait (man slurm.conf, KillWait).
func (r *run) stop(reason string, onOrder bool, now time.Time) {
	if r.phase >= pb.StepPhase_STEP_COMPLETING || r.f.stop != "" {
		r.hurry()
		return
	}
	r.f.stop, r.f.onOrder, r.f.atOnce = reason, onOrder, r.atOnce && r.crew != nil
	if r.crew != nil && r.task == nil { // srun has not been reached
		r.crew.cancel()
		r.gone()
		return
	}
	if r.phase == pb.StepPhase_STEP_PREPARING && r.task.abort() {
		r.stuck = true
		r.gone()
		return
	}
	if r.spareSteps(now); r.f.holdOnly {
		r.gone()
		return
	}
	r.killAt = now.Add(time.Duration(r.b.KillWaitS) * time.Second)
	if r.phase == pb.StepPhase_STEP_PREPARING {
		// The process is being made this moment: its start will find the signal waiting.
		first := unix.SIGTERM
		if r.f.atOnce { // as a step that runs already
			first = unix.SIGKILL
		}
		r.waiting = append(r.waiting, &pb.Signal{Signal: uint32(first), Target: targetAll})
		if r.containing() { // nothing of the user's own runs
			r.killAt = now
		}
		r.farewell(reason, now)
		return
	}
	if r.frozen {
		r.frozen = false
		r.must("resume the step", r.grp.Freeze(false))
	}
	r.farewell(reason, now)
	if r.atOnce && r.crew != nil {
		return
	}
	r.must("continue the step", r.grp.Signal(int(unix.SIGCONT)))
	r.must("end the step", r.grp.Signal(int(unix.SIGTERM)))
}

// stopNow ends everything with SIGKILL. The tasks of a step get nothing else before: they show what ended them.
func (r *run) stopNow(reason string, onOrder bool, now time.Time) {
	r.atOnce = true
	r.stop(reason, onOrder, now)
	r.allAt = time.Time{}
	r.kill(now)
}

// kill sends SIGKILL to everything; tick repeats it until nothing is left.
func (r *run) kill(now time.Time) {
	if r.phase == pb.StepPhase_STEP_PREPARING || r.phase == pb.StepPhase_STEP_ENDED || r.f.holdOnly && r.emptied == nil {
		r.killAt = now.Add(10 * time.Millisecond) // as soon as there is something to kill
		if r.phase == pb.StepPhase_STEP_PREPARING && r.f.stop != "" {
			// The user can stop a process that is being started, or give it an interpreter on a file system that hangs: it must not hold
			// up the end.
			_ = r.grp.Kill()
			r.beginKill(now)
			if now.Sub(r.killing) >= rekill {
				r.killAt = now.Add(rekill)
			}
		}
		return
	}
	r.beginKill(now)
	r.killAt = now.Add(rekill)
	if now.Before(r.allAt) {
		r.must("kill the script", r.grp.KillOwn())
		return
	}
	r.must("kill the step", r.grp.Kill())
	if now.Sub(r.killing) >= rekill {
		// Something has left the cgroup, which only root can do: it is still a descendant.
		r.must("kill what left the step's cgroup", cgroup.KillDescendants())
	}
}

// spareSteps gives the steps of an allocation that is about to end KillWait, in which they are ended by their own shims; and so the
// sessions that are in it, which are told to.
func (r *run) spareSteps(now time.Time) {
	if r.crew == nil && r.allAt.IsZero() {
		r.allAt = now.Add(time.Duration(r.b.KillWaitS) * time.Second)
		r.endAdopted()
	}
}

// beginKill notes when the end began that must not be survived.
func (r *run) beginKill(now time.Time) {
	if r.killing.IsZero() {
		r.killing = now
	}
}

const rekill = 500 * time.Millisecond

// Targets of a numbered signal.
const (
	targetSteps = 0 // the job's steps, not its batch shell
	targetBatch = 1 // the batch shell alone
	targetAll   = 2
)

// signals applies each numbered signal once: the shim outlives the node daemon, and so does its memory of them.
func (r *run) signals(list []*pb.Signal) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *pb.Signal) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, s := range list {
		if s.Seq <= r.seen {
			continue
		}
		r.seen = s.Seq
		if r.phase == pb.StepPhase_STEP_PREPARING {
			r.waiting = append(r.waiting, s)
			continue
		}
		r.deliver(s)
	}
}

// deliver writes a message into the batch script's standard error, and signals as scancel(1) says: without --batch or --full a signal goes
// to steps only, except SIGKILL, which ends the job.
func (r *run) deliver(s *pb.Signal) {
	if r.phase != pb.StepPhase_STEP_RUNNING || r.f.holdOnly || s.Step != "" && s.Step != stepName(r.b.Key) {
		return
	}
	batch := r.b.Key.GetStep() == pb.BatchStep
	if s.Text != "" {
		if batch {
			r.tell.say(s.Text)
		}
		return
	}
	sig := unix.Signal(s.Signal)
	switch {
	case sig == unix.SIGKILL && (s.Target != targetBatch || !batch):
		r.kill(time.Now())
	case s.Target == targetBatch && batch:
		r.announce(sig)
		r.must("signal the batch shell", r.signalFirst(sig))
	case s.Target == targetAll, s.Target == targetSteps && (!batch || s.Step != ""):
		r.announce(sig)
		r.must("signal the step", r.grp.Signal(int(sig)))
	}
}

// announce writes Slurm's line about a cancelled job before a signal that asks a process to end, whoever sent it and whether or not it
// will. Of signals for tasks of srun nothing is said.
func (r *run) announce(sig unix.Signal) {
	if r.crew == nil && (sig == unix.SIGTERM || sig == unix.SIGKILL) {
		r.farewell(pb.StopCancel, time.Now())
	}
}

// farewell writes the line about the end of the step. Signals that follow the first one say nothing new; a reason does.
func (r *run) farewell(reason string, now time.Time) {
	if r.announced && reason == pb.StopCancel || r.crew != nil && r.b.Step.NodeIndex != 0 { // the first node of a step says it for all
		return
	}
	r.announced = true
	r.tell.say(farewell(r.b, reason, now))
}

func stepName(k *pb.StepKey) string {
	switch k.GetStep() {
	case pb.BatchStep:
		return "batch"
	case pb.ExternStep:
		return "extern"
	}
	return number(k.GetStep())
}

// signalFirst uses the descriptor of the process: its number may be another's by now.
func (r *run) signalFirst(sig unix.Signal) error {
	if r.pidfd >= 0 {
		return ignoreGone(unix.PidfdSendSignal(r.pidfd, sig, nil, 0))
	}
	if r.f.hasStatus {
		return nil
	}
	return ignoreGone(unix.Kill(r.pid, sig))
}

func ignoreGone(err error) error {
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// next is the time until tick has something to do.
func (r *run) next() time.Duration {
	now := time.Now()
	at := now.Add(30 * time.Second) // timers do not count what the machine sleeps: look again
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	sooner(r.killAt)
	if r.phase == pb.StepPhase_STEP_RUNNING && (!r.f.holdOnly || r.adopted) {
		sooner(r.sampleAt)
	}
	if r.b.HoldOnly && r.containing() {
		sooner(now.Add(lookEvery))
	}
	if r.clockRuns() {
		up := clock.Boot()
		sooner(now.Add(time.Duration(r.timeout() - up)))
		if r.warnDue() {
			sooner(r.warnTime(now))
		}
	}
	return max(at.Sub(now), 0)
}

// clockRuns: the time limit counts, unless there is none, the step is suspended, or it is being stopped.
func (r *run) clockRuns() bool {
	return !r.limit.none() && !r.frozen && !r.containing() && r.f.stop == "" && r.phase < pb.StepPhase_STEP_COMPLETING
}

// timeout is when the step is ended, by CLOCK_BOOTTIME: OverTimeLimit after its time limit.
func (r *run) timeout() int64 { return r.limit.at() + int64(r.b.OverTimeS)*int64(time.Second) }

func (r *run) tick(now time.Time) {
	r.lookForContainer()
	up := clock.Boot()
	if r.clockRuns() && r.warnDue() && !now.Before(r.warnTime(now)) {
		r.warn(now)
	}
	if r.clockRuns() && up >= r.timeout() {
		r.stop(pb.StopTimeout, false, now)
	}
	if !r.killAt.IsZero() && !now.Before(r.killAt) && r.phase != pb.StepPhase_STEP_ENDED {
		r.kill(now)
		r.unkillable(now)
	}
	if !r.sampleAt.IsZero() && !now.Before(r.sampleAt) {
		rss, vm := r.grp.Memory()
		r.maxRSS, r.maxVM = max(r.maxRSS, rss), max(r.maxVM, vm)
		r.sampleIn = min(2*r.sampleIn, 30*time.Second)
		r.sampleAt = now.Add(r.sampleIn)
	}
}

// unkillable tells, once, of processes that SIGKILL does not end: they are stuck in the kernel (a dead NFS server, a driver).
func (r *run) unkillable(now time.Time) {
	limit := time.Duration(r.b.UnkillableTimeoutS) * time.Second
	since := r.killing
	if r.allAt.After(since) { // until then steps and sessions of an allocation have time to end by themselves
		since = r.allAt
	}
	if r.told || limit == 0 || r.killing.IsZero() || now.Sub(since) < limit {
		return
	}
	r.told = true
	words := "processes survive SIGKILL for " + limit.String() + ": Kill task failed"
	r.log.Error("cannot kill a step", "after", limit)
	r.publish(&pb.ExitRecord{Key: r.b.Key, Detail: words})
}
