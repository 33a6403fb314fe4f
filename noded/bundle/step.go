package bundle

import (
	"github.com/sluice-hpc/sluice/noded/step/folder"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// StepNode returns this node's share of an srun step; nil: none.
func StepNode(l *pb.LaunchSpec) *pb.StepNode {
	for _, s := range l.GetStep().GetNodes() {
		if s.Node == l.Node {
			return s
		}
	}
	return nil
}

// stepBundle builds the bundle of an srun step, as far as the node knows it.
func (b *Builder) stepBundle(l *pb.LaunchSpec, s *pb.NodeSettings) *pb.Bundle {
	spec, of, here := l.GetSpec(), l.Step, StepNode(l)
	out := &pb.Bundle{
		Key: l.Key, Uid: spec.GetUid(), Gid: spec.GetGid(), Groups: spec.GetGroups(), LimitS: l.LimitS,
		OverTimeS: l.OverTimeS, KillWaitS: s.GetKillWaitS(), UnkillableTimeoutS: s.GetUnkillableTimeoutS(), JobName: spec.GetName(),
		Partition: l.Partition, Limits: b.stepLimits(l, here, s), Cgroup: folder.Group(l.Key), Devices: here.GetDevices(),
		Cpus: here.GetCpus(), TaskEpilog: s.GetTaskEpilog(),
	}
	if p := s.GetTaskProlog(); p != "" {
		out.TaskProlog = []string{p}
	}
	for name := range propagated(s.GetPropagateLimits()) { // names of srun's limits that propagate; srun sends the values
		out.Rlimits = append(out.Rlimits, &pb.Rlimit{Resource: name, Soft: b.Hard(int(name)), Hard: b.Hard(int(name))})
	}
	if spec.GetWarnSignal() != 0 && !spec.GetWarnBatch() {
		out.WarnSignal, out.WarnSeconds = spec.GetWarnSignal(), spec.GetWarnSeconds()
		if out.WarnSeconds == 0 {
			out.WarnSeconds = defaultWarnSeconds
		}
	}
	out.Step = &pb.StepTasks{Addresses: of.GetSpec().GetAddresses(), Certificate: of.Certificate, Key: of.Key, Pty: of.GetSpec().GetPty(),
		NoKill: of.GetSpec().GetNoKill(), Watchers: of.Watchers, Spec: of.Spec}
	for i, node := range of.Nodes {
		if node == here {
			out.Step.NodeIndex = uint32(i)
		}
	}
	out.Container = containerOf(of.GetSpec().GetRunIn(), of.GetSpec().GetContainer(), s)
	d := b.Environ(s)
	out.Env = taskenv.Step(l, here, out.Step.NodeIndex, s.GetCluster(), d)
	bound := b.bindings(l, here, s, out.Limits.CpusetCpus)
	for i, rank := range here.GetTasks() {
		t := &pb.StepTask{Rank: rank, Env: taskenv.Task(l, here, i, d)}
		bound.task(t, i)
		out.Step.Tasks = append(out.Step.Tasks, t)
	}
	return out
}

// stepLimits returns the limits of an srun step's cgroup. It is inside that of its allocation and only has tighter limits.
func (b *Builder) stepLimits(l *pb.LaunchSpec, here *pb.StepNode, s *pb.NodeSettings) *pb.Limits {
	out := &pb.Limits{}
	if s.GetConstrainCores() && here.GetCpuIds() != "" {
		out.CpusetCpus = b.cpuset(l, &pb.NodeAlloc{CpuIds: here.CpuIds}, s)
	}
	if s.GetConstrainRam() && here.GetMemMib() > 0 {
		out.MemoryMib, out.MemorySwapMib = memoryLimits(here.MemMib, s)
	}
	return out
}
