package reactor

import (
	"fmt"
	"github.com/sluice-hpc/sluice/conf/jobid"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// mayRequeue reports whether the job may be started again after a failure that is not its own (--requeue, JobRequeue).
func mayRequeue(tx *state.Tx, j *pb.JobRecord) bool {
	switch j.Spec.Requeue {
	case pb.Yes:
		return true
	case pb.No:
		return false
	}
	return tx.Settings().JobRequeue
}

// requeue is scontrol requeue and requeuehold.
func requeue(tx *state.Tx, c Caller, j *pb.JobRecord, why string) *pb.Problem {
	switch {
	case !c.mayTouch(j):
		return c.Refused(pb.CodeAccessDenied, j)
	case state.Pending(j):
		return pb.NewProblem(pb.CodeJobPending, "job %s is pending already", jobName(j))
	case j.StopReason != "" && state.Active(j):
		return pb.NewProblem(pb.CodeTransition, "job %s is being stopped (%s)", jobName(j), j.StopReason)
	case j.Spec.Requeue == pb.No || (j.Spec.Requeue == pb.Unset && !tx.Settings().JobRequeue):
		return pb.NewProblem(pb.CodeDisabled, "job %s was submitted with --no-requeue, or JobRequeue=0 is set", jobName(j)).WithHint("scontrol update jobid=%d requeue=1", j.Id)
	case state.Live(j):
		order(tx, j, why, pb.JobState_JOB_PENDING, c.UID)
	default:
		n := state.CloneJob(j)
		n.StopReason = why
		backToQueue(tx, n)
	}
	return nil
}

// backToQueue makes a job pending again after its attempt has ended on every node.
func backToQueue(tx *state.Tx, j *pb.JobRecord) {
	n := state.CloneJob(j)
	why := j.StopReason
	n.State, n.StateFlags = pb.JobState_JOB_PENDING, 0
	n.Restarts++
	n.Alloc, n.NodeList, n.BatchHost, n.AllocTres = nil, "", "", ""
	n.StartNs, n.EndNs, n.SuspendNs, n.PreSuspendNs = 0, 0, 0, 0
	n.ExitStatus, n.DerivedStatus, n.StopReason, n.Signals = 0, 0, "", nil
	n.PreemptNs = 0
	n.Usage, n.BatchStartNs, n.BatchEndNs, n.BatchStatus, n.BatchVerdict, n.SuspendedNs = nil, 0, 0, 0, "", 0
	n.MaxRssKib, n.CpuUsecUser, n.CpuUsecSystem = 0, 0, 0
	n.Partition = firstPartition(tx, n.Spec)
	n.NumNodes, n.NumCpus, n.NumTasks = admit.Size(n.Spec)
	n.Reason, n.ReasonDetail = "BeginTime", fmt.Sprintf("requeued (%s), waits until everything of the last run is cleaned up", why)
	if why == "preempt" {
		n.ReasonDetail = "requeued: " + j.ReasonDetail
	}
	n.EligibleNs = tx.NowNS + int64(tx.Settings().RequeueDelayS)*1e9
	if why == cronWhy {
		runAgainAt(tx, n)
	}
	n.Spec = state.CloneSpec(n.Spec)
	n.Spec.BeginNs = n.EligibleNs
	switch p := submitPriority(tx, n); {
	case j.Priority == 0: // held while it ran
		n.Reason, n.ReasonDetail = "JobHeldUser", ""
		if n.HoldAdmin {
			n.Reason = "JobHeldAdmin"
		}
	case p > 1:
		n.Priority = p // where it is computed, what it was is nearer than nothing
	}
	switch {
	case why == "requeuehold", why == "specialexit":
		n.Priority, n.HoldAdmin, n.Reason, n.ReasonDetail = 0, true, "job requeued in held state", "" // Slurm's words, in the place of a reason
		if why == "specialexit" {
			n.StateFlags = pb.JobSpecialExit
		}
	case why == "prolog" && tx.Settings().HoldOnPrologFail:
		n.Priority, n.HoldAdmin, n.Reason = 0, true, "launch_failed_requeued_held"
		n.ReasonDetail = "the prolog failed on node " + j.FailedNode
	}
	waitAgain(tx, n)
	tx.Emit(state.JobRequeued{Job: n, Why: why})
}

// waitAgain looks anew at what a job waited for that had ended without having run: while it was no longer waiting nobody told it what
// became of that, which may be forgotten by now.
func waitAgain(tx *state.Tx, n *pb.JobRecord) {
	if n.Dependency == "" {
		return
	}
	d, p := readDependency(tx, n.Dependency)
	if p != nil {
		d = jobid.Dependency{}
	}
	n.Dependency = d.String()
	weigh(tx, n)
}
