// Package reactor turns commands into events, one file for each verb. A command carries everything that its decision
// depends on besides the state (who asks, ids, times), so the same commands on the same state give the same events.
//
// The life of a job:
//
//	submit.go   PENDING
//	plan.go     PENDING -> RUNNING: attempt+1, epoch = number of the commit; nodes hear of it after the commit
//	steps.go    a node reports the end of its part: its share is free; the batch node's report decides the state
//	suspend.go  RUNNING -> SUSPENDED and back
//	cancel.go   PENDING -> CANCELLED; RUNNING -> CANCELLED+COMPLETING until every node has reported the end
//	requeue.go  RUNNING -> stop, and PENDING again once nothing is left of the attempt
//	node.go     a node that is DOWN or was rebooted: its jobs NODE_FAIL or requeued
//	drain.go    DRAIN, by an administrator or because the node is faulty
//	tick.go     timers: node timeouts, MinJobAge
//
// A command on many jobs works in slices (slice.go). The consequences of an event for waiting jobs, such as dependents,
// are carried out in the same turn while its budget lasts (Follow). Later turns do the rest (FollowUp), which is not
// stored because it can be derived again.
//
// # Allocations and steps
//
// An allocation is a job's share of a node. One shim on the node holds its cgroup: the batch script, or an extern step
// that runs nothing (other nodes, salloc, srun). Its end frees that share. A step of srun is a row of its own
// (StepRecord), with a shim of its own on each node and a cgroup inside the allocation's. Its end frees its part of the
// allocation and leaves the job alone (step_report.go). A step ends with its job without a row being written: the order
// to stop follows from the job. A node reports the end of an allocation after those of its steps. A step ends with the
// first node that is lost, unless it has --no-kill; a job with --no-kill continues without that node (no_kill.go).
//
// # Whose fault it is
//
// The verdict of an exit record separates faults of the job (exited, output_failed) from faults of the node
// (node_failed: nothing of the step has run). The shim decides it so that no user can cause the second; the reactor
// requeues the job and drains the node (launch.go).
//
// # After a restore
//
// Attempts that the restored state shows as started may have ended since, so none is launched again: the dispatcher asks
// the nodes about them. A node reports the attempt, or that it does not know it; an unknown one is requeued or becomes
// NODE_FAIL.
// A node that remembers only part of that time answers "forgotten", which is NODE_FAIL and never requeued, because the
// attempt has most likely ended.
//
// Attempts started between the backup and the restore are lost (restored.go). Until every node of the configuration has
// reported its lost attempts, no job from before the restore starts, because any node may have run it (reason
// "Restored"). A report from a node that has forgotten part of that time does not count. An administrator answers for a
// node by setting it DOWN or, where it has forgotten, by resuming it with a reason. SlurmdTimeout does not answer: a dead node may have run
// the job to its end. Rejected: remembering more ends, because no number covers every backup; adopting a lost attempt
// that still runs, because one node does not know its allocation and steps.
package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Command is a request to change the state. Handle emits events into tx and returns the reply; a *pb.Problem is a refusal, with nothing
// emitted.
type Command interface {
	Handle(tx *state.Tx) any
}

// Caller is the sender of a command, as identified by the kernel or a certificate. Operator: root or SlurmUser.
type Caller struct {
	UID      uint32
	Operator bool
	Private  bool // PrivateData=jobs: the caller must not learn who owns other users' jobs
}

// mayTouch reports whether the caller may act on a job: its owner, root, SlurmUser.
func (c Caller) mayTouch(j *pb.JobRecord) bool { return c.Operator || c.UID == j.Spec.Uid }

// maxShownName bounds the name of a job in a refusal: the rest of an array can have thousands of pieces.
const maxShownName = 80

// Refused is the refusal to act on another user's job. It names the owner where the caller may see the job. The job's existence is no
// secret in Slurm either.
func (c Caller) Refused(code pb.Code, j *pb.JobRecord) *pb.Problem {
	name := state.JobName(j)
	if len(name) > maxShownName {
		name = name[:maxShownName-3] + "..."
	}
	if c.Private {
		return pb.NewProblem(code, "job %s belongs to another user", name)
	}
	return pb.NewProblem(code, "job %s belongs to %s", name, j.Spec.User)
}
