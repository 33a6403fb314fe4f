package reactor

import (
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Control is hold, uhold, release, requeue, requeuehold, top, suspend, resume and notify (scontrol(1)).
type Control struct {
	Caller Caller
	Verb   string
	IDs    []string
	Named  []NamedJobs // jobs by name, instead of ids
	// Special: requeuehold state=SpecialExit (scontrol(1)), shown as SPECIAL_EXIT.
	Special bool
	// Incomplete: requeue passes over jobs that wait or have ended (scontrol(1)).
	Incomplete bool
	Text       string // of notify
	Ends       Ends   // of jobs that those to requeue wait for

	walk *walk // of an earlier slice
}

// Handle applies the verb to each job.
func (c Control) Handle(tx *state.Tx) any {
	w := walk{ids: c.IDs}
	if c.walk != nil {
		w = *c.walk
	}
	w.out.Seq = tx.Seq
	f := newFinder(tx, c.Caller)
	done := w.each(tx, c.Caller, func(id string) (*application, []*pb.JobOutcome) { return c.begin(f, id) },
		func(_ *application, j *pb.JobRecord) *pb.Problem { return c.one(tx, j) }, (*application).outcomes)
	if !done || !c.named(tx, &w) {
		c.walk = &w
		return More{c}
	}
	return w.done()
}

// begin reads one id.
func (c Control) begin(f *finder, id string) (*application, []*pb.JobOutcome) {
	t, p := f.find(id)
	if p != nil {
		return nil, []*pb.JobOutcome{outcome(unbracketed(id), p)}
	}
	if strings.HasPrefix(c.Verb, "requeue") {
		t.named = true // tasks that have ended are meant, too
		t.refuse = func(j *pb.JobRecord) *pb.Problem {
			if state.Pending(j) && !c.Incomplete {
				return pb.NewProblem(pb.CodeJobPending, "job %s is already pending", state.JobName(j))
			}
			return nil
		}
	}
	return newApplication(f.tx, c.Caller, id, t), nil
}

// NamedJobs are the jobs that had a name when the state was looked through, so that the writer need not look through it.
type NamedJobs struct {
	Name string
	Jobs []uint32

	found bool // some were dealt with
}

// named deals with jobs by their names, and reports whether it came to the end of its share of the turn before theirs.
func (c *Control) named(tx *state.Tx, w *walk) bool {
	for from := tx.Spent(); len(c.Named) > 0; {
		n := c.Named[0]
		for ; len(n.Jobs) > 0; n.Jobs = n.Jobs[1:] {
			if tx.Spent()-from >= SliceUnits {
				c.Named = append([]NamedJobs{n}, c.Named[1:]...)
				return false
			}
			j := tx.Job(n.Jobs[0])
			tx.Spend(2)
			if j != nil && j.Spec.Name == n.Name && state.Active(j) && c.Caller.mayTouch(j) {
				n.found = true
				w.add(outcome(state.JobName(j), c.one(tx, j)))
			}
		}
		if !n.found {
			w.add(outcome(n.Name, pb.NewProblem(pb.CodeInvalidJobID, "you have no job named %q", n.Name)))
		}
		c.Named = c.Named[1:]
	}
	return true
}

func (c Control) one(tx *state.Tx, j *pb.JobRecord) *pb.Problem {
	switch c.Verb {
	case "hold", "uhold", "release":
		return setHold(tx, c.Caller, j, c.Verb)
	case "requeue", "requeuehold":
		if c.Incomplete && c.Caller.mayTouch(j) && !state.Live(j) {
			return nil
		}
		return requeue(tx, c.Caller, j, c.requeueKind(), c.Ends)
	case "top":
		return top(tx, c.Caller, j)
	case "suspend", "resume":
		return suspend(tx, c.Caller, j, c.Verb == "suspend")
	case "notify":
		return notify(tx, c.Caller, j, c.Text)
	}
	return pb.NewProblem(pb.CodeNotSupported, "no such verb %q", c.Verb)
}

// requeueKind is what the attempt is stopped for.
func (c Control) requeueKind() string {
	if c.Verb == "requeuehold" && c.Special {
		return pb.StopSpecialExit
	}
	return c.Verb
}

// setHold holds or releases a job. A hold by root or SlurmUser is an admin hold that the user cannot release, unless it is
// uhold; a hold of a running job only zeroes its priority, so that it stays held if it is requeued.
func setHold(tx *state.Tx, c Caller, j *pb.JobRecord, verb string) *pb.Problem {
	if !c.mayTouch(j) {
		return c.Refused(pb.CodeUserID, j)
	}
	if !state.Active(j) {
		return pb.NewProblem(pb.CodeFinished, "job %s is %s", state.JobName(j), state.StateName(j))
	}
	n := state.CloneJob(j)
	if verb == "release" {
		if j.HoldAdmin && !c.Operator {
			return pb.NewProblem(pb.CodeAccessDenied, "job %s was held by an administrator", state.JobName(j))
		}
		if j.Priority != 0 {
			return nil
		}
		n.HoldAdmin = false
		n.Priority = submitPriority(tx, n)
		n.StateFlags &^= pb.JobRequeueHold | pb.JobSpecialExit | pb.JobResvDelHold
		if state.Pending(j) {
			n.WaitReason = waitReason(n)
			n.Reason, n.ReasonDetail = "None", ""
			n.EligibleNs = max(tx.NowNS, n.Spec.BeginNs)
			waitForDependency(n)
		}
		tx.Emit(state.JobChanged{Job: n, What: "released"})
		return nil
	}
	if j.HoldAdmin && j.Priority == 0 && !c.Operator {
		return nil // the administrator's hold stays what it is
	}
	n.Priority = 0
	n.HoldAdmin = c.Operator && verb == "hold"
	if state.Pending(j) {
		n.Reason, n.ReasonDetail = pb.ReasonHeldUser, ""
		if n.HoldAdmin {
			n.Reason = pb.ReasonHeldAdmin
		}
	}
	tx.Emit(state.JobChanged{Job: n, What: "held"})
	return nil
}

// suspend stops and continues a running job (operators only, as in Slurm).
func suspend(tx *state.Tx, c Caller, j *pb.JobRecord, stop bool) *pb.Problem {
	want, verb := pb.JobState_JOB_RUNNING, "suspend"
	if !stop {
		want, verb = pb.JobState_JOB_SUSPENDED, "resume"
	}
	switch {
	case !c.Operator:
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may %s jobs", verb)
	case j.State == pb.JobState_JOB_PENDING:
		return pb.NewProblem(pb.CodeJobPending, "job %s is pending", state.JobName(j))
	case !state.Active(j) || j.StopReason != "":
		return pb.NewProblem(pb.CodeAlreadyDone, "job %s is %s", state.JobName(j), state.StateName(j))
	case stop && j.State == pb.JobState_JOB_SUSPENDED:
		return nil // it is what was asked for
	case !stop && j.State == pb.JobState_JOB_RUNNING:
		return pb.NewProblem(pb.CodeNotSuspended, "job %s is %s", state.JobName(j), state.StateName(j))
	case j.State != want:
		return pb.NewProblem(pb.CodeTransition, "job %s is %s", state.JobName(j), state.StateName(j))
	}
	if stop {
		pause(tx, state.CloneJob(j), verb)
	} else {
		n := state.CloneJob(j)
		if n.PreemptedBy != "" { // an operator's word: it waits for nobody any more, and can be preempted again
			n.PreemptedBy, n.ReasonDetail = "", ""
		}
		goOn(tx, n, verb)
	}
	return nil
}

// pause suspends a job, n being a copy of its record: its CPUs are others' to have (squeue(1), SUSPENDED), its memory and devices are
// not.
func pause(tx *state.Tx, n *pb.JobRecord, why string) {
	n.State = pb.JobState_JOB_SUSPENDED
	n.PreSuspendNs += max(0, tx.NowNS-max(n.SuspendNs, n.StartNs))
	n.SuspendNs = tx.NowNS
	n.Alloc = freeCPUs(n.Alloc, true)
	tx.Emit(state.JobSuspended{Job: n, Why: why})
}

// goOn resumes a suspended job, n being a copy of its record.
func goOn(tx *state.Tx, n *pb.JobRecord, why string) {
	n.State = pb.JobState_JOB_RUNNING
	slept := max(0, tx.NowNS-n.SuspendNs)
	if n.EndNs != 0 {
		n.EndNs += slept
	}
	n.SuspendedNs += slept
	n.SuspendNs = tx.NowNS
	n.Alloc = freeCPUs(n.Alloc, false)
	tx.Emit(state.JobResumed{Job: n, Why: why})
	stepsResumed(tx, n, slept)
}

func freeCPUs(list []*pb.NodeAlloc, free bool) []*pb.NodeAlloc {
	out := make([]*pb.NodeAlloc, len(list))
	for i, a := range list {
		out[i] = state.CloneAlloc(a)
		out[i].CpusFree = free
	}
	return out
}
