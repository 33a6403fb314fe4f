package privsep

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// Brief returns the part of a bundle that is needed to resume a step, or to record that it never ran.
func Brief(b *pb.Bundle) *pb.Bundle {
	return &pb.Bundle{Key: b.Key, Uid: b.Uid, Gid: b.Gid, Cgroup: b.Cgroup, Devices: b.Devices, Cpus: b.Cpus, Partition: b.Partition,
		JobName: b.JobName, Dir: b.Dir, HoldOnly: b.HoldOnly, LimitS: b.LimitS, BegunBootNs: b.BegunBootNs, SuspendedNs: b.SuspendedNs,
		Job: b.Job}
}
