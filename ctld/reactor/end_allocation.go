package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// EndAllocation: salloc or srun no longer needs an allocation that has no batch script.
type EndAllocation struct {
	Caller Caller
	Job    uint32
	Status uint32 // wait status of the command
	// Inactive is set when the client that owns the allocation has vanished (InactiveLimit).
	Inactive string
}

// Handle ends the job with the outcome of the command.
func (c EndAllocation) Handle(tx *state.Tx) any {
	j := tx.Job(c.Job)
	switch {
	case j == nil || c.Caller.Private && !c.Caller.mayTouch(j):
		return pb.NewProblem(pb.CodeInvalidJobID, "there is no job %d", c.Job)
	case !c.Caller.mayTouch(j):
		return c.Caller.Refused(pb.CodeAccessDenied, j)
	case !j.Spec.Interactive:
		return pb.NewProblem(pb.CodeNotSupported, "job %s has a batch script, which ends it", state.JobName(j)).WithHint("use scancel")
	case !state.Active(j) || j.StopReason != "":
		return Outcomes{Seq: tx.Seq} // already done
	case waiting(j):
		n := state.CloneJob(j)
		n.CancelledBy = c.Caller.UID
		endPending(tx, n, pb.JobState_JOB_CANCELLED, reasonOr(j, "None"))
		return Outcomes{Seq: tx.Seq}
	}
	n := state.CloneJob(j)
	final := pb.JobState_JOB_COMPLETED
	n.ExitStatus, n.Reason = c.Status, "None"
	switch {
	case c.Inactive != "":
		final, n.Reason, n.ReasonDetail = pb.JobState_JOB_TIMEOUT, pb.ReasonInactiveLimit, c.Inactive
	case j.EndNs != 0 && tx.NowNS >= j.EndNs: // the nodes have ended it at its time limit, and srun learned of that first
		final, n.Reason, n.ExitStatus = pb.JobState_JOB_TIMEOUT, "TimeLimit", 0
	case c.Status != 0:
		final, n.Reason = pb.JobState_JOB_FAILED, "NonZeroExitCode"
	}
	order(tx, n, pb.StopDone, final, 0)
	return Outcomes{Seq: tx.Seq}
}
