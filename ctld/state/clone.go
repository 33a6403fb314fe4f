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
func CloneNode(n *pb.NodeRecord) *pb.NodeRecord { return n.Shallow() }

// ClonePartition copies a partition record.
func ClonePartition(p *pb.PartitionRecord) *pb.PartitionRecord { return shallow(p) }

// CloneSpec copies a job specification.
func CloneSpec(s *pb.JobSpec) *pb.JobSpec { return s.Shallow() }

// CloneAlloc copies a node allocation.
func CloneAlloc(a *pb.NodeAlloc) *pb.NodeAlloc { return a.Shallow() }

// CloneJob copies a job record; the specification and the lists are shared.
func CloneJob(j *pb.JobRecord) *pb.JobRecord { return j.Shallow() }
