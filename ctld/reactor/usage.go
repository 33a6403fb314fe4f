package reactor

import (
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// charge stores in n, the caller's own copy, the attempt's use on a node and how its batch script ended.
func charge(n *pb.JobRecord, node string, x *pb.ExitRecord) {
	if node == n.BatchHost && !n.Spec.GetInteractive() {
		n.BatchStartNs, n.BatchEndNs, n.BatchStatus, n.BatchVerdict = x.StartNs, x.EndNs, x.WaitStatus, x.Verdict
	}
	u := &pb.StepUsage{CpuUsecUser: x.CpuUsecUser, CpuUsecSystem: x.CpuUsecSystem, MaxRssKib: x.MaxRssKib}
	if x.Usage != nil {
		u = proto.Clone(x.Usage).(*pb.StepUsage)
	}
	if node != n.BatchHost && u.CpuUsecUser+u.CpuUsecSystem+u.MaxRssKib == 0 && len(u.Devices) == 0 {
		return // it only held the allocation
	}
	u.Key, u.Node, u.RssKib, u.VmKib, u.PidList = nil, node, 0, 0, nil
	n.Usage = append(slices.Clip(n.Usage), u)
}

// waitReason returns the last reason for waiting other than the job's turn, which sacct shows permanently.
func waitReason(j *pb.JobRecord) string {
	switch j.Reason {
	case "", "None", "Priority", "Resources":
		return j.WaitReason
	}
	return j.Reason
}
