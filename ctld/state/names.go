package state

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/jobid"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// StateName returns a job's base state as Slurm spells it: "PENDING", "RUNNING", ….
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

// Pending reports whether a job waits to be started: it is pending, and nothing is left of an earlier attempt.
func Pending(j *pb.JobRecord) bool { return j.State == pb.JobState_JOB_PENDING && !Live(j) }

// Up reports whether jobs can start on a node.
func (n *Node) Up() bool {
	const unusable = pb.NodeDrain | pb.NodeFail | pb.NodeNoRespond | pb.NodeMaint |
		pb.NodeInvalidReg | PowerFlags | pb.NodeRebootIssued
	return n.State == pb.NodeState_NODE_IDLE && n.StateFlags&unusable == 0 && len(n.Strays) == 0 && !n.GoesDown()
}

// ScriptID returns the id of the job that was submitted with this job's script and environment: the tasks of an array share theirs.
func ScriptID(j *pb.JobRecord) uint32 {
	if j.ArrayJobId != 0 {
		return j.ArrayJobId
	}
	return j.Id
}

// JobName returns the job's name for users: "12", "12_3", "12_[4-9]".
func JobName(j *pb.JobRecord) string {
	n := func(v uint32) string { return strconv.FormatUint(uint64(v), 10) }
	switch {
	case j.ArrayTasks != "":
		return n(j.ArrayJobId) + "_[" + j.ArrayTasks + "]"
	case j.IsArrayTask:
		return n(j.ArrayJobId) + "_" + n(j.ArrayTaskId)
	}
	return n(j.Id)
}

// AllocOn returns a job's unfinished part on a node, or nil.
func AllocOn(j *pb.JobRecord, node string) *pb.NodeAlloc {
	for _, a := range j.GetAlloc() {
		if a.Node == node && !a.Ended {
			return a
		}
	}
	return nil
}

// HolderOn returns the step that holds a job's part of a node: its batch script, or the extern step.
func HolderOn(j *pb.JobRecord, node string) uint32 {
	if node == j.BatchHost && !j.Spec.GetInteractive() {
		return pb.BatchStep
	}
	return pb.ExternStep
}

// Named reports whether a request names a job: by its own id, by its array's id, or by a task that it stands for.
func Named(n *jobid.Names, j *pb.JobRecord) bool {
	if n.Whole(j.Id) {
		return true
	}
	if j.ArrayJobId == 0 {
		return false
	}
	if n.Whole(j.ArrayJobId) {
		return true
	}
	tasks := n.Tasks(j.ArrayJobId)
	switch {
	case tasks == nil:
		return false
	case j.IsArrayTask:
		return tasks.Has(j.ArrayTaskId)
	}
	return tasks.Meet(ArraySet(j))
}

// fewWords is the length up to which a list is searched linearly.
const fewWords = 8

// OneOf returns a test for membership in a list from a request; it takes as long for thousands of elements as for a few.
func OneOf[T comparable](list []T) func(T) bool {
	if len(list) <= fewWords {
		return func(x T) bool { return slices.Contains(list, x) }
	}
	set := make(map[T]struct{}, len(list))
	for _, x := range list {
		set[x] = struct{}{}
	}
	return func(x T) bool {
		_, ok := set[x]
		return ok
	}
}
