package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

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
			if n.AccrueNs == 0 && n.EligibleNs != 0 {
				n.AccrueNs = accrueFrom(tx, n, n.EligibleNs)
			}
		}
		tx.Emit(state.JobChanged{Job: n, What: "released"})
		return nil
	}
	if j.HoldAdmin && j.Priority == 0 && !c.Operator {
		return nil // the administrator's hold stays
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
