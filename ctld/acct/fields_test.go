package acct

import (
	"testing"

	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestSlimRecords: accounting keeps every field of a job except those listed here.
func TestSlimRecords(t *testing.T) {
	controller := "only the controller needs it"
	fieldtest.Copies(t, func(j *pb.JobRecord) *pb.JobRecord {
		n := slim(j)
		n.Spec, n.Alloc = j.Spec, j.Alloc
		return n
	}, fieldtest.LeftOut{"RequestId": controller, "Signals": controller, "Epoch": controller, "StopReason": controller,
		"ScriptKey": controller, "EnvKey": controller, "MadeSeq": controller, "Lost": controller, "FirstStep": controller,
		"DependencyShown": "a job that has ended depends on nothing"})
	fieldtest.Copies(t, func(s *pb.StepRecord) *pb.StepRecord {
		n := slimStep(s)
		n.Spec = s.Spec
		return n
	}, fieldtest.LeftOut{"RequestId": controller, "Signals": controller, "Epoch": controller, "ClockNs": controller,
		"ClockBoot": controller, "Watchers": controller,
		"Certificate": "for the nodes and srun alone", "Key": "for the nodes and srun alone"})
	fieldtest.Copies(t, func(s *pb.StepSpec) *pb.StepSpec { return slimStep(&pb.StepRecord{Spec: s}).Spec }, fieldtest.LeftOut{
		"Addresses": "srun listens no more", "Hosts": "the nodes and their tasks are in the record"})
	fieldtest.Copies(t, func(s *pb.JobSpec) *pb.JobSpec { return slim(&pb.JobRecord{Spec: s}).Spec }, fieldtest.LeftOut{
		"Groups": "large, and nothing shows it of an ended job", "Rlimits": "large, and nothing shows it",
		"ExportEnv": "the variables are kept, where they are"})
	fieldtest.Copies(t, func(a *pb.NodeAlloc) *pb.NodeAlloc { return slim(&pb.JobRecord{Alloc: []*pb.NodeAlloc{a}}).Alloc[0] },
		fieldtest.LeftOut{
			"CpuIds": controller, "Ended": controller, "BootId": controller, "Shared": controller, "CpusFree": controller,
			"Tasks": "sacct shows the tasks of the job alone", "Topology": "sacct does not show it"})
}
