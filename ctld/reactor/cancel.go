package reactor

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// Cancel ends jobs, or signals them when Signal is neither 0 nor SIGKILL (scancel(1)).
type Cancel struct {
	Caller Caller
	IDs    []string // as typed; each gets an outcome
	// Match, when set, is a filter on the IDs. Without IDs, Jobs are the jobs that it matched in an earlier View; since a job may have
	// changed, the filter is applied again.
	Match  func(*pb.JobRecord) bool
	Jobs   []uint32
	Signal uint32
	Batch  bool
	Full   bool

	walk *walk // the rest of an earlier slice
}

// Outcomes is the reply to verbs that act on several jobs.
type Outcomes struct {
	List []*pb.JobOutcome
	Seq  uint64
}

// Handle cancels or signals each job that the caller may touch.
func (c Cancel) Handle(tx *state.Tx) any {
	w := walk{ids: c.IDs}
	if c.walk != nil {
		w = *c.walk
	}
	w.out.Seq = tx.Seq
	if c.Match != nil && len(c.IDs) == 0 {
		return c.matched(tx, w)
	}
	f := newFinder(tx, c.Caller)
	done := w.each(tx, c.Caller, func(id string) (*application, []*pb.JobOutcome) { return c.begin(f, id) },
		func(a *application, j *pb.JobRecord) *pb.Problem {
			if c.Match != nil {
				return c.filtered(tx, a, j)
			}
			return c.one(tx, a, j)
		}, func(a *application) []*pb.JobOutcome { return c.finish(a) })
	if !done {
		c.walk = &w
		return More{c}
	}
	return w.done()
}

// begin looks up one id.
func (c Cancel) begin(f *finder, id string) (*application, []*pb.JobOutcome) {
	t, p := f.find(id)
	// do not split off a task for a step that cannot exist
	if p != nil || c.Match == nil && t.step != "" && slices.ContainsFunc(t.records, waiting) {
		return nil, []*pb.JobOutcome{outcome(id, p)}
	}
	if c.signals() && c.Match == nil {
		t.refuse = unsignalled
	}
	if c.ends(t.step) {
		t.drop = c.drop
	}
	return newApplication(f.tx, c.Caller, id, t), nil
}

// ends reports whether pending jobs are ended, regardless of running ones.
func (c Cancel) ends(step string) bool { return !c.signals() && step == "" }

// drop cancels some tasks of a pending record.
func (c Cancel) drop(tx *state.Tx, a *application, j *pb.JobRecord, part jobid.Set) {
	if c.Match != nil {
		if !c.sees(j) {
			return
		}
		a.taken = true
		if !c.Match(j) {
			return
		}
		a.chosen = append(a.chosen, outcome(fmt.Sprintf("%d_%s", j.ArrayJobId, part), nil))
	}
	dropTasks(tx, j, part, c.Caller.UID)
}

// filtered cancels or signals a job that an id names if the filter matches. A job that does not match is no error, but an id without an
// active job is one, as in Slurm.
func (c Cancel) filtered(tx *state.Tx, a *application, j *pb.JobRecord) *pb.Problem {
	tx.Spend(1 + len(j.Alloc)/16)
	if !c.sees(j) {
		return nil
	}
	a.taken = true
	if c.Match(j) {
		name := state.JobName(j)
		if a.step != "" || a.foreign && len(name) > maxShownName {
			name = a.text
		}
		a.ofStep = false
		o := outcome(name, c.one(tx, a, j))
		o.OfStep = a.ofStep
		a.chosen = append(a.chosen, o)
	}
	return nil
}

// finish makes the outcomes of an id.
func (c Cancel) finish(a *application) []*pb.JobOutcome {
	id := a.text
	if c.Match != nil {
		if !a.taken {
			return []*pb.JobOutcome{outcome(id, pb.NewProblem(pb.CodeInvalidJobID, "job %.80s has ended", id))}
		}
		return a.chosen
	}
	p := firstProblem(a.outcomes())
	if p.GetCode() == uint32(pb.CodeTransition) {
		if k := slices.IndexFunc(a.records, func(j *pb.JobRecord) bool { return j.ArrayTasks != "" && unsignalled(j) != nil }); k >= 0 {
			id = state.JobName(a.records[k]) // as Slurm names the job that it found
		}
	}
	o := outcome(id, p)
	o.OfStep = p != nil && a.ofStep
	return []*pb.JobOutcome{o}
}

// matched handles the jobs that the filter matched. Other users' jobs are refused one by one, as in Slurm.
func (c Cancel) matched(tx *state.Tx, w walk) any {
	for from := tx.Spent(); len(c.Jobs) > 0; c.Jobs = c.Jobs[1:] {
		if tx.Spent()-from >= SliceUnits {
			c.walk = &w
			return More{c}
		}
		j := tx.Job(c.Jobs[0])
		tx.Spend(2)
		if j == nil {
			continue
		}
		tx.Spend(len(j.Alloc) / 16)
		if c.sees(j) && c.Match(j) {
			w.add(outcome(state.JobName(j), c.one(tx, &application{}, j)))
		}
	}
	return w.done()
}

// sees reports whether a filter may match a job: an active one that the caller may see.
func (c Cancel) sees(j *pb.JobRecord) bool {
	return state.Active(j) && (!c.Caller.Private || c.Caller.mayTouch(j))
}

// signals reports whether a signal other than SIGKILL is requested.
func (c Cancel) signals() bool { return c.Signal != 0 && c.Signal != uint32(unix.SIGKILL) }

// unsignalled refuses to signal a job that does not run.
func unsignalled(j *pb.JobRecord) *pb.Problem {
	if j.State == pb.JobState_JOB_RUNNING || j.State == pb.JobState_JOB_SUSPENDED {
		return nil
	}
	return pb.NewProblem(pb.CodeTransition, "job %s is %s, only a running job can be signalled", state.JobName(j), state.StateName(j))
}

// waiting reports whether a job is pending, with nothing left of an earlier attempt.
func waiting(j *pb.JobRecord) bool { return j.State == pb.JobState_JOB_PENDING && !state.Live(j) }

func (c Cancel) one(tx *state.Tx, a *application, j *pb.JobRecord) *pb.Problem {
	step := a.step
	if c.Signal != 0 || step != "" { // Slurm looks for it among the existing jobs that the caller may see
		switch {
		case c.Caller.Private && !c.Caller.mayTouch(j):
			return pb.NewProblem(pb.CodeInvalidJobID, "there is no job %s of yours", state.JobName(j))
		case !state.Active(j):
			return pb.NewProblem(pb.CodeInvalidJobID, "job %s is %s", state.JobName(j), state.StateName(j))
		}
	}
	if !c.Caller.mayTouch(j) {
		if a.ofStep = step != ""; a.ofStep {
			return c.Caller.Refused(pb.CodeUserID, j)
		}
		return c.Caller.Refused(pb.CodeAccessDenied, j)
	}
	if !state.Active(j) {
		return pb.NewProblem(pb.CodeAlreadyDone, "job %s is %s", state.JobName(j), state.StateName(j))
	}
	if id, ok := stepNumber(step); ok && !waiting(j) {
		return c.cancelStep(tx, a, j, id)
	}
	waits := waiting(j) // there is no batch shell yet that -b could select
	if !c.ends(step) || c.Batch && c.Signal != 0 && !waits {
		if c.Batch && j.Spec.Interactive {
			return pb.NewProblem(pb.CodeScriptMissing, "job %s has no batch script", state.JobName(j))
		}
		return signal(tx, j, c.Signal, c.target(), step)
	}
	if waits {
		n := state.CloneJob(j)
		n.CancelledBy = c.Caller.UID
		endPending(tx, n, pb.JobState_JOB_CANCELLED, reasonOr(j, "None"))
		return nil
	}
	if j.StopReason == pb.StopCancel {
		return nil
	}
	if j.State.Terminal() { // its state is final, and only its cleanup is not: an epilog, or a node that has not reported
		return pb.NewProblem(pb.CodeAlreadyDone, "job %s is %s", state.JobName(j), state.StateName(j))
	}
	order(tx, j, pb.StopCancel, pb.JobState_JOB_CANCELLED, c.Caller.UID)
	return nil
}

func (c Cancel) target() uint32 {
	switch {
	case c.Full:
		return pb.SignalAll
	case c.Batch:
		return pb.SignalBatch
	}
	return pb.SignalSteps
}

// maxSignals bounds the numbered signals kept with a job: the nodes have long applied older ones.
const maxSignals = 16

func signal(tx *state.Tx, j *pb.JobRecord, sig, target uint32, step string) *pb.Problem {
	if step != "" && unsignalled(j) != nil {
		return nil // it has no steps
	}
	if p := unsignalled(j); p != nil {
		return p
	}
	if sig == 0 {
		sig = uint32(unix.SIGKILL)
	}
	n := state.CloneJob(j)
	tell(n, &pb.Signal{Signal: sig, Target: target, Step: step})
	switch { // STOPPED: it still has its CPUs (squeue(1))
	case step != "" || j.State != pb.JobState_JOB_RUNNING || j.StopReason != "":
	case sig == uint32(unix.SIGSTOP):
		n.StateFlags |= pb.JobStopped
	case sig == uint32(unix.SIGCONT):
		n.StateFlags &^= pb.JobStopped
	}
	tx.Emit(state.JobChanged{Job: n, What: "signalled"})
	if step == "" && target != pb.SignalBatch {
		signalSteps(tx, j, sig)
	}
	return nil
}

// tell numbers a signal or a message and adds it to those of a job; n is a copy of its record.
func tell(n *pb.JobRecord, s *pb.Signal) {
	n.Signals = numbered(n.Signals, s)
}

// order tells the nodes to stop a live attempt. The job shows its final state with COMPLETING until nothing is left of it.
func order(tx *state.Tx, j *pb.JobRecord, why string, final pb.JobState, by uint32) {
	n := state.CloneJob(j)
	n.StopReason, n.StopState = why, final
	n.StateFlags = n.StateFlags&^(pb.JobConfiguring|pb.JobPowerUp) | pb.JobCompleting
	if final != pb.JobState_JOB_PENDING {
		n.State = final
	}
	n.CancelledBy = by
	n.EndNs = max(tx.NowNS, n.StartNs)
	if j.State == pb.JobState_JOB_SUSPENDED {
		n.SuspendedNs += max(0, tx.NowNS-j.SuspendNs)
	}
	tx.Emit(state.JobChanged{Job: n, What: "stop: " + why})
	if j.StateFlags&pb.JobPowerUp != 0 {
		unlaunched(tx, n.Id, &pb.ExitRecord{Verdict: pb.VerdictCancelled, EndNs: tx.NowNS, StoppedOnOrder: true})
	}
}

// endPending ends a job that never started, or waits to start again.
func endPending(tx *state.Tx, j *pb.JobRecord, final pb.JobState, reason string) {
	n := state.CloneJob(j)
	n.State, n.StateFlags, n.Reason = final, 0, reason
	n.StartNs, n.EndNs = tx.NowNS, tx.NowNS
	n.ExpectedStartNs, n.ExpectedNodes, n.FirstStep = 0, "", nil
	if n.ArrayTasks != "" {
		n.ArrayTasks = state.FormatTasks(state.ArraySet(n), 0) // the throttle only applies to pending tasks
	}
	tx.Emit(state.JobEnded{Job: n})
}

func reasonOr(j *pb.JobRecord, def string) string {
	if j.Reason != "" {
		return j.Reason
	}
	return def
}
