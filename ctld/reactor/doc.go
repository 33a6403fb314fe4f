// Package reactor turns commands into events: one file per verb. A command carries everything its decision depends on besides the
// state (who asks, ids, stamps), so that the same sequence of commands on the same state gives the same events.
//
// A job's way:
//
//	submit.go   PENDING
//	plan.go     PENDING -> RUNNING: attempt+1, epoch = sequence number of the commit; nodes hear of it after the commit
//	steps.go    a node reports the end of its part -> its share is free; the batch node's report decides the state
//	cancel.go   PENDING -> CANCELLED; RUNNING -> CANCELLED+COMPLETING until every node has reported the end
//	requeue.go  RUNNING -> stop, and PENDING again once nothing is left of the attempt
//	node.go     a node that is down or was rebooted: its jobs NODE_FAIL or requeued
//	tick.go     what time alone does: node timeouts, MinJobAge
package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Command is a request to change the state. Handle emits events into tx and returns the reply; a *pb.Problem is a refusal,
// with nothing emitted.
type Command interface {
	Handle(tx *state.Tx) any
}

// Caller is who asks, as the kernel or a certificate says. Operator: root or SlurmUser.
type Caller struct {
	UID      uint32
	Operator bool
	Private  bool // PrivateData=jobs: whose the jobs of others are is none of the caller's business
}

// mayTouch reports whether the caller may act on a job: its owner, root, SlurmUser.
func (c Caller) mayTouch(j *pb.JobRecord) bool { return c.Operator || c.UID == j.Spec.Uid }

// maxShownName bounds the name of a job in a refusal: what is left of an array can be thousands of pieces.
const maxShownName = 80

// Refused is the refusal to act on a job of somebody else, whom it names where the caller may see that job. That there is one is no secret
// in Slurm either.
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
