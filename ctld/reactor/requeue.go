package reactor

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// mayRequeue reports whether the job may be started again after a failure that is not its own (--requeue, JobRequeue).
func mayRequeue(tx *state.Tx, j *pb.JobRecord) bool {
	if j.Spec.Interactive { // the client that waits for it could not use a second start
		return false
	}
	switch j.Spec.Requeue {
	case pb.Yes:
		return true
	case pb.No:
		return false
	}
	return tx.Settings().JobRequeue
}

// exitCode returns the exit code in the wait status of a process that has exited.
func exitCode(status uint32) uint8 { return uint8(status >> 8) }

// requeueOfExit returns the reason for which a job whose script has exited is requeued, "" when it is not (slurm.conf(5), RequeueExit).
// --no-requeue and JobRequeue=0 do not prevent that, as in Slurm 22.05.
func requeueOfExit(tx *state.Tx, status uint32) string {
	switch s := tx.Settings(); {
	case slices.Contains(s.RequeueExit, exitCode(status)):
		return pb.StopRequeueExit
	case slices.Contains(s.RequeueExitHold, exitCode(status)):
		return pb.StopRequeueExitHold
	}
	return ""
}

// requeue implements scontrol requeue and requeuehold.
func requeue(tx *state.Tx, c Caller, j *pb.JobRecord, why string, ends Ends) *pb.Problem {
	switch {
	case !c.mayTouch(j):
		return c.Refused(pb.CodeAccessDenied, j)
	case j.Spec.Interactive:
		return pb.NewProblem(pb.CodeBatchOnly, "job %s has no batch script", state.JobName(j))
	case state.Pending(j):
		return pb.NewProblem(pb.CodeJobPending, "job %s is already pending", state.JobName(j))
	case j.StopReason != "" && state.Active(j):
		return pb.NewProblem(pb.CodeTransition, "job %s is being stopped (%s)", state.JobName(j), j.StopReason)
	case j.Spec.Requeue == pb.No || (j.Spec.Requeue == pb.Unset && !tx.Settings().JobRequeue):
		return pb.NewProblem(pb.CodeDisabled, "job %s was submitted with --no-requeue, or JobRequeue=0 is set",
			state.JobName(j)).WithHint("scontrol update jobid=%d requeue=1", j.Id)
	}
	if !state.Active(j) { // it counts towards MaxJobCount again
		if p := roomFor(tx, j.Spec.Uid, j.Spec.User, 1, c.Operator); p != nil {
			return p
		}
	}
	if _, p := admit.Feasible(tx.View(), j.Spec, why != pb.StopRequeue); p != nil { // its attempt would be ended for nothing
		return p.WithHint("use scontrol requeuehold, then scontrol update, to change its request")
	}
	switch {
	case state.Live(j):
		order(tx, j, why, pb.JobState_JOB_PENDING, c.UID)
	default:
		d, p := readDependency(tx, j.Dependency, ends)
		if p != nil {
			return p
		}
		n := state.CloneJob(j)
		n.StopReason, n.Dependency = why, d.String()
		backToQueue(tx, n)
	}
	return nil
}

// backToQueue makes a job pending again after its attempt has ended on every node.
func backToQueue(tx *state.Tx, j *pb.JobRecord) {
	n := state.CloneJob(j)
	why := j.StopReason
	forgetAttempt(n)
	n.Restarts++
	if why == pb.StopRequeueExit || why == pb.StopRequeueExitHold {
		n.ExitStatus = j.ExitStatus // shown while the job waits, as by Slurm
	}
	n.Partition = firstPartition(tx, n.Spec)
	if p := tx.Partition(n.Partition); p != nil {
		n.TimeLimitS, n.Oversubscribe = admit.Limit(p, n.Spec), state.Oversubscribed(p)
	}
	admit.Size(tx.View(), n)
	n.Reason, n.ReasonDetail = "BeginTime", fmt.Sprintf("requeued (%s)", why)
	if why == pb.StopPreempt {
		n.ReasonDetail = "requeued: " + j.ReasonDetail
	}
	n.EligibleNs = tx.NowNS + int64(tx.Settings().RequeueDelayS)*1e9
	if why == pb.StopCron {
		runAgainAt(tx, n)
	}
	n.AccrueNs = accrueFrom(tx, n, n.EligibleNs)
	n.Spec = state.CloneSpec(n.Spec)
	n.Spec.BeginNs, n.BeginDelayed = n.EligibleNs, why != pb.StopCron
	switch p := submitPriority(tx, n); {
	case j.Priority == 0: // held while it ran
		n.Reason, n.ReasonDetail = pb.ReasonHeldUser, ""
		if n.HoldAdmin {
			n.Reason = pb.ReasonHeldAdmin
		}
	case p > 1:
		n.Priority = p // a computed priority is better approximated by the old one than by none
	}
	switch {
	case why == pb.StopRequeueHold, why == pb.StopSpecialExit:
		// Slurm's words, instead of a reason. The user can release it, even if root has requeued it; an earlier hold by an administrator
		// stays one.
		n.Priority, n.HoldAdmin, n.Reason, n.ReasonDetail = 0, j.HoldAdmin && j.Priority == 0, pb.ReasonRequeuedHeld, ""
		if why == pb.StopSpecialExit {
			n.StateFlags = pb.JobSpecialExit
		}
	case why == pb.StopRequeueExitHold: // held like a user's hold: the user can release it
		n.Priority, n.HoldAdmin, n.Reason, n.StateFlags = 0, false, pb.ReasonHeldUser, pb.JobSpecialExit
		n.ReasonDetail = fmt.Sprintf("its script ended with exit code %d, one of RequeueExitHold", exitCode(n.ExitStatus))
	case why == pb.StopRequeueExit && n.Priority != 0:
		n.ReasonDetail = fmt.Sprintf("requeued: its script ended with exit code %d, one of RequeueExit", exitCode(n.ExitStatus))
	case why == pb.StopLaunch:
		holdUnstartable(n, j)
	case why == pb.StopProlog && tx.Settings().HoldOnPrologFail:
		n.Priority, n.HoldAdmin, n.Reason = 0, true, pb.ReasonLaunchFailedHeld
		n.ReasonDetail = "the prolog failed on node " + j.FailedNode
	}
	if n.Dependency != "" { // while it did not wait, changes of other jobs were not applied to its dependency
		weigh(tx, n)
	}
	var ended *pb.JobRecord
	if old := tx.Job(j.Id); old != nil && !old.State.Terminal() {
		ended = state.EndedAttempt(old, why, tx.NowNS)
	}
	tx.Emit(state.JobRequeued{Job: n, Why: why, Ended: ended})
}

// forgetAttempt clears the fields of the attempt that has ended; accounting has them. The place and cause of a failure stay visible until
// the next start.
func forgetAttempt(n *pb.JobRecord) {
	n.State, n.StateFlags, n.StopReason, n.StopState, n.CancelledBy = pb.JobState_JOB_PENDING, 0, "", 0, 0
	n.Alloc, n.NodeList, n.BatchHost, n.AllocTres, n.ResvName, n.Oversubscribe = nil, "", "", "", "", ""
	n.StartNs, n.EndNs, n.SuspendNs, n.PreSuspendNs, n.SuspendedNs, n.TimeLimitS = 0, 0, 0, 0, 0, 0
	n.ExitStatus, n.DerivedStatus, n.Signals, n.Usage, n.MaxRssKib = 0, 0, nil, nil, 0
	n.BatchStartNs, n.BatchEndNs, n.BatchStatus, n.BatchVerdict = 0, 0, 0, ""
	n.PreemptNs, n.PreemptedBy, n.Scheduler, n.WaitReason = 0, "", "", ""
	n.ExpectedStartNs, n.ExpectedNodes, n.Promised = 0, "", false
}
