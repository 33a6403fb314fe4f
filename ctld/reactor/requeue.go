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
	if j.Spec.Interactive { // whoever waits for it would not know what to do with a second start
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

// exitCode is the code in the wait status of a process that has exited.
func exitCode(status uint32) uint8 { return uint8(status >> 8) }

// requeueOfExit is why a job whose script has exited is requeued, "" when it is not (slurm.conf(5), RequeueExit). --no-requeue does not
// keep it from that, nor does JobRequeue=0: Slurm 22.05 asks for neither here.
func requeueOfExit(tx *state.Tx, status uint32) string {
	switch s := tx.Settings(); {
	case slices.Contains(s.RequeueExit, exitCode(status)):
		return pb.StopRequeueExit
	case slices.Contains(s.RequeueExitHold, exitCode(status)):
		return pb.StopRequeueExitHold
	}
	return ""
}

// requeue is scontrol requeue and requeuehold.
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
	if !state.Active(j) { // it takes a place again
		if p := roomFor(tx, j.Spec.Uid, j.Spec.User, 1, c.Operator); p != nil {
			return p
		}
	}
	if _, p := admit.Feasible(tx.View(), j.Spec, why != pb.StopRequeue); p != nil { // it would be ended for nothing
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
		n.ExitStatus = j.ExitStatus // it is shown while the job waits, as by Slurm
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
		n.Priority = p // where it is computed, what it was is nearer than nothing
	}
	switch {
	case why == pb.StopRequeueHold, why == pb.StopSpecialExit:
		// Slurm's words, in the place of a reason. Its user can release it, also when root has requeued it; the hold of an administrator
		// from before stays one.
		n.Priority, n.HoldAdmin, n.Reason, n.ReasonDetail = 0, j.HoldAdmin && j.Priority == 0, pb.ReasonRequeuedHeld, ""
		if why == pb.StopSpecialExit {
			n.StateFlags = pb.JobSpecialExit
		}
	case why == pb.StopRequeueExitHold: // held as if by its user, who can release it
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
	if n.Dependency != "" { // of one that had not run: while it did not wait, nobody told it what became of others
		weigh(tx, n)
	}
	var ended *pb.JobRecord
	if old := tx.Job(j.Id); old != nil && !old.State.Terminal() {
		ended = state.EndedAttempt(old, why, tx.NowNS)
	}
	tx.Emit(state.JobRequeued{Job: n, Why: why, Ended: ended})
}

// forgetAttempt clears what belongs to the attempt that has ended; accounting has it. Why and where it failed stays in sight until the
// next start.
func forgetAttempt(n *pb.JobRecord) {
	n.State, n.StateFlags, n.StopReason, n.StopState, n.CancelledBy = pb.JobState_JOB_PENDING, 0, "", 0, 0
	n.Alloc, n.NodeList, n.BatchHost, n.AllocTres, n.ResvName, n.Oversubscribe = nil, "", "", "", "", ""
	n.StartNs, n.EndNs, n.SuspendNs, n.PreSuspendNs, n.SuspendedNs, n.TimeLimitS = 0, 0, 0, 0, 0, 0
	n.ExitStatus, n.DerivedStatus, n.Signals, n.Usage, n.MaxRssKib = 0, 0, nil, nil, 0
	n.BatchStartNs, n.BatchEndNs, n.BatchStatus, n.BatchVerdict = 0, 0, 0, ""
	n.PreemptNs, n.PreemptedBy, n.Scheduler, n.WaitReason = 0, "", "", ""
	n.ExpectedStartNs, n.ExpectedNodes, n.Promised = 0, "", false
}
