package bundle

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// DevicesOf returns the devices of this node that a launch gives to its job.
func DevicesOf(l *pb.LaunchSpec) (all []*pb.GresDevice) {
	for _, a := range l.GetAlloc() {
		if a.GetNode() == l.GetNode() {
			all = append(all, a.GetDevices()...)
		}
	}
	return all
}

// JobOf describes the job of a launch to a controller that has forgotten it.
func JobOf(l *pb.LaunchSpec) *pb.StepJob {
	spec := l.GetSpec()
	o := &pb.StepJob{Uid: spec.GetUid(), Gid: spec.GetGid(), User: spec.GetUser(), Name: spec.GetName(), Interactive: spec.GetInteractive(),
		Account: l.Account, Partition: l.Partition, Qos: l.Qos, NodeList: l.NodeList, Restarts: l.Restarts, ArrayJobId: l.ArrayJobId,
		ArrayTaskId: l.ArrayTaskId}
	for _, a := range l.Alloc {
		o.NumCpus += a.Cpus
	}
	return o
}
