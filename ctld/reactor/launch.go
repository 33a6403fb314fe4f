package reactor

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// When a node cannot start a job (its spool is full, it cannot fork), the node is at fault, not the job, of which nothing has run. The job
// is requeued, and held after maxLaunchFailures failures in a row: then the job itself may be unstartable. Slurm 22.05 holds it the first
// time, and drains only a node with a full spool; the next jobs go to the other broken nodes and are held too.
//
// The node is drained at once when its daemon has found the cause, otherwise after maxNodeFailures different jobs in a row. A single job
// that no node can start drains none.
const (
	maxLaunchFailures = 3
	maxNodeFailures   = 3
)

// jobFailure is Slurm's reason for a node that does not start batch jobs. It stands for causes that the node daemon does not find.
const jobFailure = "batch job complete failure"

// notLaunched notes that a node could not start its part of a job.
func notLaunched(tx *state.Tx, n *pb.JobRecord, node string, x *pb.ExitRecord) {
	n.FailedNode = node
	if x.NodeFault != "" {
		nodeFault(tx, node, x.NodeFault)
		return
	}
	old := tx.Node(node)
	if old == nil {
		return
	}
	failed := slices.DeleteFunc(slices.Clone(old.LaunchFailures), func(k *pb.StepKey) bool { return k.JobId == n.Id })
	failed = append(failed, &pb.StepKey{JobId: n.Id, Attempt: n.Attempt, Epoch: n.Epoch})
	if len(failed) >= maxNodeFailures {
		nodeFault(tx, node, fmt.Sprintf("%s (%d jobs in a row: %s)", jobFailure, len(failed), x.Detail))
		return
	}
	changed := change(old)
	changed.LaunchFailures = failed
	tx.Emit(state.NodeChanged{Node: changed, What: "could not start a job", Durable: true})
}

// nodeFault drains a node that cannot start jobs. A node that is drained already keeps its reason.
func nodeFault(tx *state.Tx, node, why string) {
	old := tx.Node(node)
	if old == nil || old.StateFlags&pb.NodeDrain != 0 {
		return
	}
	if len(old.LaunchFailures) > 0 {
		n := change(old)
		n.LaunchFailures = nil
		tx.Emit(state.NodeChanged{Node: n, Durable: true})
	}
	drain(tx, node, why)
}

// launched clears the failures of a node that came before the start of this attempt.
func launched(tx *state.Tx, j *pb.JobRecord, node string, r *pb.StepReport) {
	old := tx.Node(node)
	if old == nil || len(old.LaunchFailures) == 0 || !began(r) || old.LaunchFailures[len(old.LaunchFailures)-1].Epoch > j.Epoch {
		return
	}
	n := change(old)
	n.LaunchFailures = nil
	tx.Emit(state.NodeChanged{Node: n, What: "starts jobs again", Durable: true})
}

// began reports whether a node was able to start a step, even if the step then failed by itself.
func began(r *pb.StepReport) bool {
	switch r.GetExit().GetVerdict() {
	case pb.VerdictExited, pb.VerdictSignaled, pb.VerdictTimeout, pb.VerdictOOM, pb.VerdictOutputFailed:
		return true
	case "":
		return r.Phase == pb.StepPhase_STEP_RUNNING
	}
	return false
}

// judgeLaunch returns the verdict on a job that a node could not start.
func judgeLaunch(tx *state.Tx, j *pb.JobRecord) verdict {
	if mayRequeue(tx, j) {
		return verdict{pb.JobState_JOB_PENDING, pb.StopLaunch, "", 0}
	}
	return verdict{pb.JobState_JOB_NODE_FAIL, pb.StopDone, pb.ReasonLaunchFailure, 0}
}

// holdUnstartable holds a job that is requeued because no node has been able to start it. As in Slurm, its user may release it.
func holdUnstartable(n, attempt *pb.JobRecord) {
	n.ReasonDetail = fmt.Sprintf("requeued: node %s could not start it: %s", attempt.FailedNode, attempt.ReasonDetail)
	if n.LaunchFailures++; n.LaunchFailures < maxLaunchFailures || n.Priority == 0 {
		return
	}
	n.ReasonDetail = fmt.Sprintf("%d nodes in a row could not start it, the last one was %s: %s", n.LaunchFailures, attempt.FailedNode,
		attempt.ReasonDetail)
	n.Priority, n.HoldAdmin, n.Reason, n.LaunchFailures = 0, false, pb.ReasonLaunchFailedHeld, 0
}
