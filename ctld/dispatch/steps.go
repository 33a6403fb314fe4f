package dispatch

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stepOrder returns the order for a step of srun, nil when the node has it already or has no part in it. A step is launched after its
// allocation; before says that the allocation has no room in this message. A step ends with its job: the order says so, and no row of the
// step has to be written for that.
func (l *Link) stepOrder(j *pb.JobRecord, s *pb.StepRecord, want map[stepID]bool, room *int, before bool) (o *pb.StepOrder, later bool) {
	if s.Attempt != j.Attempt || state.StepOn(s, l.node) == nil {
		return nil, before
	}
	key := stepID{job: s.JobId, attempt: s.Attempt, epoch: s.Epoch, step: s.StepId}
	want[key] = true
	now := sent{want: pb.StepWant_WANT_RUN, limitS: stepLimit(s), suspended: j.State == pb.JobState_JOB_SUSPENDED}
	if k := len(s.Signals); k > 0 {
		now.signal = s.Signals[k-1].Seq
	}
	if k := len(s.Watchers); k > 0 {
		now.watcher = s.Watchers[k-1].Seq
	}
	why := s.StopReason
	if why == "" {
		why = j.StopReason
	}
	if why != "" {
		now.want, now.limitS = pb.StepWant_WANT_STOP, 0
	}
	if s.StopReason == pb.StopCancel { // scancel of one step is SIGKILL at once (observed); scancel of its job leaves the step KillWait
		now.want = pb.StepWant_WANT_KILL
	}
	told, has := l.sent[key]
	if has && told == now && !l.full {
		return nil, before
	}
	o = &pb.StepOrder{Key: key.key(), Want: now.want, Signals: s.Signals, StopReason: why, Suspended: now.suspended,
		LimitS: now.limitS, Watchers: s.Watchers}
	if _, known := l.known[key]; !known && !has && now.want == pb.StepWant_WANT_RUN {
		if l.d.view().FromBackup(s.MadeSeq) {
			o.Want = pb.StepWant_WANT_TELL
			l.sent[key] = now
			return o, before
		}
		switch later = before || l.addLaunch(o, l.d.launchStep(j, s, l.node), room); {
		case later && l.full:
			return o, true // without a launch, so that the node keeps it in mind
		case later:
			return nil, true
		}
	}
	l.sent[key] = now
	return o, before
}

// launchStep returns everything that a node needs to run its part of a step, except what srun sends itself.
func (d *Dispatcher) launchStep(j *pb.JobRecord, s *pb.StepRecord, node string) *pb.LaunchSpec {
	l := d.allocation(j, node)
	l.Key.Step, l.Batch, l.Step = s.StepId, false, s
	l.LimitS, l.SuspendedNs = stepLimit(s), j.SuspendedNs-s.SuspendedNs
	return l
}

// stepLimit is limitOf of a step.
func stepLimit(s *pb.StepRecord) uint32 {
	if s.LimitNs == 0 {
		return 0
	}
	return max(1, s.TimeLimitS)
}
