package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

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
		return nil // already done
	case !stop && j.State == pb.JobState_JOB_RUNNING:
		return pb.NewProblem(pb.CodeNotSuspended, "job %s is %s", state.JobName(j), state.StateName(j))
	case j.State != want:
		return pb.NewProblem(pb.CodeTransition, "job %s is %s", state.JobName(j), state.StateName(j))
	}
	if stop {
		pause(tx, state.CloneJob(j), verb)
	} else {
		n := state.CloneJob(j)
		if n.PreemptedBy != "" { // an operator decided: it waits for no other job any more, and can be preempted again
			n.PreemptedBy, n.ReasonDetail = "", ""
		}
		goOn(tx, n, verb)
	}
	return nil
}

// pause suspends a job; n is a copy of its record. Other jobs may use its CPUs (squeue(1), SUSPENDED), but not its memory and devices.
func pause(tx *state.Tx, n *pb.JobRecord, why string) {
	n.State = pb.JobState_JOB_SUSPENDED
	n.PreSuspendNs += max(0, tx.NowNS-max(n.SuspendNs, n.StartNs))
	n.SuspendNs = tx.NowNS
	n.Alloc = freeCPUs(n.Alloc, true)
	tx.Emit(state.JobSuspended{Job: n, Why: why})
}

// goOn resumes a suspended job; n is a copy of its record.
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
