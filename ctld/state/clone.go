package state

import (
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// shallow copies the set fields of a message into a new one: lists and messages inside are shared, as immutable records allow.
func shallow[M proto.Message](src M) M {
	dst := src.ProtoReflect().New()
	src.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		dst.Set(fd, v)
		return true
	})
	return dst.Interface().(M)
}

// CloneNode copies a node record; what it points to is shared.
func CloneNode(n *pb.NodeRecord) *pb.NodeRecord { return shallow(n) }

// ClonePartition copies a partition record.
func ClonePartition(p *pb.PartitionRecord) *pb.PartitionRecord { return shallow(p) }

// CloneSpec copies a job specification.
func CloneSpec(s *pb.JobSpec) *pb.JobSpec { return shallow(s) }

// CloneAlloc copies a node allocation.
func CloneAlloc(a *pb.NodeAlloc) *pb.NodeAlloc { return shallow(a) }

// CloneJob copies a job record; the specification and the lists are shared. Written out because it runs several times for
// every job: reflection costs ten times as much. TestCloneJobCopiesEveryField fails when a field is missing here.
func CloneJob(j *pb.JobRecord) *pb.JobRecord {
	return &pb.JobRecord{
		Id:              j.Id,
		Spec:            j.Spec,
		State:           j.State,
		StateFlags:      j.StateFlags,
		Reason:          j.Reason,
		ReasonDetail:    j.ReasonDetail,
		Partition:       j.Partition,
		Priority:        j.Priority,
		Attempt:         j.Attempt,
		Epoch:           j.Epoch,
		Restarts:        j.Restarts,
		SubmitNs:        j.SubmitNs,
		EligibleNs:      j.EligibleNs,
		AccrueNs:        j.AccrueNs,
		StartNs:         j.StartNs,
		EndNs:           j.EndNs,
		SuspendNs:       j.SuspendNs,
		PreSuspendNs:    j.PreSuspendNs,
		LastSchedNs:     j.LastSchedNs,
		ExpectedStartNs: j.ExpectedStartNs,
		ExpectedNodes:   j.ExpectedNodes,
		TimeLimitS:      j.TimeLimitS,
		ExitStatus:      j.ExitStatus,
		DerivedStatus:   j.DerivedStatus,
		Alloc:           j.Alloc,
		NodeList:        j.NodeList,
		BatchHost:       j.BatchHost,
		NumNodes:        j.NumNodes,
		NumCpus:         j.NumCpus,
		NumTasks:        j.NumTasks,
		ReqTres:         j.ReqTres,
		AllocTres:       j.AllocTres,
		ArrayJobId:      j.ArrayJobId,
		ArrayTaskId:     j.ArrayTaskId,
		ArrayTasks:      j.ArrayTasks,
		ArrayThrottle:   j.ArrayThrottle,
		Scheduler:       j.Scheduler,
		CancelledBy:     j.CancelledBy,
		FailedNode:      j.FailedNode,
		MaxRssKib:       j.MaxRssKib,
		CpuUsecUser:     j.CpuUsecUser,
		CpuUsecSystem:   j.CpuUsecSystem,
		HoldAdmin:       j.HoldAdmin,
		ExpiresNs:       j.ExpiresNs,
		RequestId:       j.RequestId,
		StopReason:      j.StopReason,
		Signals:         j.Signals,
		ResvEndNs:       j.ResvEndNs,
		StopState:       j.StopState,
		NodesEnded:      j.NodesEnded,
		IsArrayTask:     j.IsArrayTask,
		ArraySpecDone:   j.ArraySpecDone,
		SystemComment:   j.SystemComment,
		Dependency:      j.Dependency,
		DependencyNever: j.DependencyNever,
		ArraySpec:       j.ArraySpec,
		PreemptedBy:     j.PreemptedBy,
		PreemptNs:       j.PreemptNs, DependencyShown: j.DependencyShown,
	}
}
