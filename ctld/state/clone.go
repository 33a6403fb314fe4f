package state

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// CloneNode copies a node record; the values that it points to are shared.
func CloneNode(n *pb.NodeRecord) *pb.NodeRecord { return n.Shallow() }

// ClonePartition copies a partition record.
func ClonePartition(p *pb.PartitionRecord) *pb.PartitionRecord { return pb.ShallowCopy(p) }

// CloneSpec copies a job specification.
func CloneSpec(s *pb.JobSpec) *pb.JobSpec { return s.Shallow() }

// CloneAlloc copies a node allocation.
func CloneAlloc(a *pb.NodeAlloc) *pb.NodeAlloc { return a.Shallow() }

// CloneJob copies a job record; the specification and the lists are shared.
func CloneJob(j *pb.JobRecord) *pb.JobRecord { return j.Shallow() }
