package lifecycle

import (
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// bare returns a launch without the parts that only the start needs, to be kept while the job runs.
func bare(l *pb.LaunchSpec) *pb.LaunchSpec {
	c := pb.ShallowCopy(l)
	c.Script, c.Env = nil, nil
	return c
}

// fromBundle describes a job whose launch is unknown (the epilog was configured after its start).
func fromBundle(b *pb.Bundle, node string) *pb.LaunchSpec {
	return &pb.LaunchSpec{Key: b.GetKey(), Node: node, Partition: b.GetPartition(), Spec: &pb.JobSpec{
		Name: b.GetJobName(), Uid: b.GetUid(), Gid: b.GetGid(), WorkDir: b.GetDir()}}
}

// refusal returns the bundle of a step that never began here: it has no cgroup, and no epilog runs for it.
func refusal(k *pb.StepKey) *pb.Bundle { return &pb.Bundle{Key: k, HoldOnly: true} }

func isRefusal(b *pb.Bundle) bool { return b.GetCgroup() == "" }
