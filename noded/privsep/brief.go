package privsep

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// Brief is what is needed of a bundle to go on with a step, or to record that it never ran.
func Brief(b *pb.Bundle) *pb.Bundle {
	return &pb.Bundle{Key: b.Key, Uid: b.Uid, Gid: b.Gid, Cgroup: b.Cgroup, Devices: b.Devices, Cpus: b.Cpus, Partition: b.Partition,
		JobName: b.JobName, Dir: b.Dir, HoldOnly: b.HoldOnly, LimitS: b.LimitS, BegunBootNs: b.BegunBootNs, Job: b.Job}
}
