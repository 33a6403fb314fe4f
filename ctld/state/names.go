package state

import (
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// StateName is a job's base state as Slurm spells it: "PENDING", "RUNNING", ….
func StateName(j *pb.JobRecord) string { return strings.TrimPrefix(j.State.String(), "JOB_") }

// Active reports whether a job is neither finished nor forgotten: pending, running, suspended or completing.
func Active(j *pb.JobRecord) bool { return !j.State.Terminal() || j.StateFlags&pb.JobCompleting != 0 }

// Live reports whether an attempt of the job may exist on some node.
func Live(j *pb.JobRecord) bool {
	for _, a := range j.Alloc {
		if !a.Ended {
			return true
		}
	}
	return false
}

// Pending reports whether a job waits to be started: pending and nothing left of an earlier attempt.
func Pending(j *pb.JobRecord) bool { return j.State == pb.JobState_JOB_PENDING && !Live(j) }

// Up reports whether jobs can start on a node.
func (n *Node) Up() bool {
	const unusable = pb.NodeDrain | pb.NodeFail | pb.NodeNoRespond | pb.NodeMaint | pb.NodeInvalidReg | pb.NodePoweredDown | pb.NodeRebootIssued
	return n.State == pb.NodeState_NODE_IDLE && n.StateFlags&unusable == 0 && len(n.Strays) == 0
}

// ScriptID is the id under which a job's script and environment are stored: the tasks of an array share theirs.
func ScriptID(j *pb.JobRecord) uint32 {
	if j.ArrayJobId != 0 {
		return j.ArrayJobId
	}
	return j.Id
}
