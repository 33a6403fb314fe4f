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
	Names  []string // jobs by name, instead of ids
	// Special: requeuehold state=SpecialExit (scontrol(1)), shown as SPECIAL_EXIT.
	Special bool
	// Incomplete: requeue passes over jobs that wait or have ended (scontrol(1)).
	Incomplete bool
	Text       string // of notify
}

// Handle applies the verb to each job.
func (c Control) Handle(tx *state.Tx) any {
	out := Outcomes{Seq: tx.Seq}
	for _, id := range c.IDs {
		t, p := find(tx, id)
		if p != nil {
			out.List = append(out.List, outcome(unbracketed(id), p))
			continue
		}
		if strings.HasPrefix(c.Verb, "requeue") {
			t.named = true // tasks that have ended are meant, too
			t.refuse = func(j *pb.JobRecord) *pb.Problem {
				if state.Pending(j) && !c.Incomplete {
					return pb.NewProblem(pb.CodeJobPending, "job %s is pending already", jobName(j))
				}
				return nil
			}
		}
		out.List = append(out.List, t.each(tx, c.Caller, id, func(j *pb.JobRecord) *pb.Problem { return c.one(tx, j) })...)
	}
	for _, name := range c.Names {
		found := false
		for j := range tx.Jobs().All() {
			if j.Spec.Name == name && state.Active(j) && c.Caller.mayTouch(j) {
				found = true
				out.List = append(out.List, outcome(jobName(j), c.one(tx, j)))
			}
		}
		if !found {
			out.List = append(out.List, outcome(name, pb.NewProblem(pb.CodeInvalidJobID, "no job of yours is called %q", name)))
		}
	}
	return out
}

func (c Control) one(tx *state.Tx, j *pb.JobRecord) *pb.Problem {
	switch c.Verb {
	case "hold", "uhold", "release":
		return setHold(tx, c.Caller, j, c.Verb)
	case "requeue", "requeuehold":
		if c.Incomplete && c.Caller.mayTouch(j) && !state.Live(j) {
			return nil
		}
		return requeue(tx, c.Caller, j, c.requeueKind())
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
		return "specialexit"
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
		return pb.NewProblem(pb.CodeFinished, "job %s is %s", jobName(j), state.StateName(j))
	}
	n := state.CloneJob(j)
	if verb == "release" {
		if j.HoldAdmin && !c.Operator {
			return pb.NewProblem(pb.CodeAccessDenied, "job %s was held by an administrator", jobName(j))
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
		n.Reason, n.ReasonDetail = "JobHeldUser", ""
		if n.HoldAdmin {
			n.Reason = "JobHeldAdmin"
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
		return pb.NewProblem(pb.CodeJobPending, "job %s is pending", jobName(j))
	case !state.Active(j) || j.StopReason != "":
		return pb.NewProblem(pb.CodeAlreadyDone, "job %s is %s", jobName(j), state.StateName(j))
	case stop && j.State == pb.JobState_JOB_SUSPENDED:
		return nil // it is what was asked for
	case !stop && j.State == pb.JobState_JOB_RUNNING:
		return pb.NewProblem(pb.CodeNotSuspended, "job %s is %s", jobName(j), state.StateName(j))
	case j.State != want:
		return pb.NewProblem(pb.CodeTransition, "job %s is %s", jobName(j), state.StateName(j))
	}
	if stop {
		pause(tx, state.CloneJob(j), verb)
	} else {
		goOn(tx, state.CloneJob(j), verb)
	}
	return nil
}

// pause suspends a job, n being a copy of its record: its CPUs are others' to have (squeue(1), SUSPENDED), its memory and devices are
// not.
func pause(tx *state.Tx, n *pb.JobRecord, why string) {
	n.State = pb.JobState_JOB_SUSPENDED
	n.PreSuspendNs += tx.NowNS - max(n.SuspendNs, n.StartNs)
	n.SuspendNs = tx.NowNS
	n.Alloc = freeCPUs(n.Alloc, true)
	tx.Emit(state.JobSuspended{Job: n, Why: why})
}

// goOn resumes a suspended job, n being a copy of its record.
func goOn(tx *state.Tx, n *pb.JobRecord, why string) {
	n.State = pb.JobState_JOB_RUNNING
	if n.EndNs != 0 {
		n.EndNs += tx.NowNS - n.SuspendNs
	}
	n.SuspendedNs += tx.NowNS - n.SuspendNs
	n.SuspendNs = tx.NowNS
	n.Alloc = freeCPUs(n.Alloc, false)
	tx.Emit(state.JobResumed{Job: n, Why: why})
}

func freeCPUs(list []*pb.NodeAlloc, free bool) []*pb.NodeAlloc {
	out := make([]*pb.NodeAlloc, len(list))
	for i, a := range list {
		out[i] = state.CloneAlloc(a)
		out[i].CpusFree = free
	}
	return out
}
