package noded

import (
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stepsLeft: steps of the allocation have not ended here.
func (n *node) stepsLeft(k agent.Key) bool {
	if !k.Holder() {
		return false
	}
	for other, j := range n.jobs { // also those that nobody orders any more
		if !other.Holder() && other.Job == k.Job && other.Attempt == k.Attempt && j.phase != pb.StepPhase_STEP_ENDED {
			return true
		}
	}
	return n.desired.StepsLeft(k, func(k agent.Key) (pb.StepPhase, bool) {
		j := n.jobs[k]
		if j == nil {
			return 0, false
		}
		return j.phase, true
	})
}

// holder is what holds the allocation of a step here.
func (n *node) holder(k agent.Key) *job {
	for _, s := range []uint32{pb.BatchStep, pb.ExternStep} {
		if j := n.jobs[agent.Key{Job: k.Job, Attempt: k.Attempt, Epoch: k.Epoch, Step: s}]; j != nil {
			return j
		}
	}
	return nil
}

// advanceHolder looks again at an allocation that has waited for the end of a step.
func (n *node) advanceHolder(ctx context.Context, k agent.Key) {
	if h := n.holder(k); h != nil && h.phase != pb.StepPhase_STEP_ENDED && h.rep.GetPhase() == pb.StepPhase_STEP_ENDED {
		n.advance(ctx, h)
	}
}

// withHolders gives a step's launch what its allocation knows here: the devices as they have been made ready, and when its time is over.
func (n *node) withHolders(j *job, l *pb.LaunchSpec) *pb.LaunchSpec {
	h := n.holder(j.key)
	if h == nil {
		return l
	}
	l = proto.CloneOf(l)
	have := h.brief.GetDevices()
	if h.spec != nil {
		have = devicesOf(h.spec)
	}
	if s := stepNode(l); s != nil {
		for _, d := range s.Devices {
			for _, of := range have {
				if of.Name == d.Name && of.Index == d.Index && of.Parent == d.Parent && of.MigStart == d.MigStart && of.Id != "" {
					d.Id = of.Id
				}
			}
		}
	}
	l.LimitS = n.limitWith(j, h, l.LimitS)
	j.applied.LimitS = l.LimitS
	return l
}

// withLimit gives an order about a step the limit of its allocation, unless its own is reached before.
func (n *node) withLimit(k agent.Key, o *pb.StepOrder) *pb.StepOrder {
	j, h := n.jobs[k], n.holder(k)
	if k.Holder() || j == nil || h == nil || o.Want != pb.StepWant_WANT_RUN {
		return o
	}
	o.LimitS = n.limitWith(j, h, o.LimitS)
	return o
}

// limitWith is a step's time limit from when it began here: its own, or what is left of its allocation's.
func (n *node) limitWith(j, h *job, own uint32) uint32 {
	limit := h.applied.LimitS
	if limit == 0 {
		limit = h.brief.GetLimitS()
	}
	began, begun := h.brief.GetBegunBootNs(), j.begun
	if h.begun != 0 {
		began = h.begun
	}
	if begun == 0 {
		begun = j.brief.GetBegunBootNs()
	}
	if limit == 0 || limit == pb.Unlimited || began == 0 || begun == 0 {
		return own
	}
	left := began + int64(limit)*int64(time.Second) - begun
	of := uint32(min(max((left+int64(time.Second)-1)/int64(time.Second), 1), math.MaxUint32-1))
	if own == 0 || own == pb.Unlimited {
		return of
	}
	return min(own, of)
}

// stepNode is a step's share of this node.
func stepNode(l *pb.LaunchSpec) *pb.StepNode {
	for _, s := range l.GetStep().GetNodes() {
		if s.Node == l.Node {
			return s
		}
	}
	return nil
}

// stepBundle builds the bundle of a step that srun has made, as far as the node knows it.
func (b *bundler) stepBundle(l *pb.LaunchSpec, s *pb.NodeSettings) *pb.Bundle {
	spec, of, here := l.GetSpec(), l.Step, stepNode(l)
	out := &pb.Bundle{
		Key: l.Key, Uid: spec.GetUid(), Gid: spec.GetGid(), Groups: spec.GetGroups(), EndNs: l.EndNs, LimitS: limitOf(l),
		OverTimeS: l.OverTimeS, KillWaitS: s.GetKillWaitS(), UnkillableTimeoutS: s.GetUnkillableTimeoutS(), JobName: spec.GetName(),
		Partition: l.Partition, Limits: b.stepLimits(l, here, s), Cgroup: step.Group(l.Key), Devices: here.GetDevices(),
		Cpus: here.GetCpus(), TaskEpilog: s.GetTaskEpilog(),
	}
	if p := s.GetTaskProlog(); p != "" {
		out.TaskProlog = []string{p}
	}
	for name := range propagated(s.GetPropagateLimits()) { // which limits of srun's propagate; the values it says itself
		out.Rlimits = append(out.Rlimits, &pb.Rlimit{Resource: name, Soft: b.hard(int(name)), Hard: b.hard(int(name))})
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
	d := b.daemonFor(s)
	out.Env = taskenv.Step(l, here, out.Step.NodeIndex, s.GetCluster(), d)
	bound := b.bindings(l, here, s, out.Limits.CpusetCpus)
	for i, rank := range here.GetTasks() {
		t := &pb.StepTask{Rank: rank, Env: taskenv.Task(l, here, i, d)}
		bound.task(t, i)
		out.Step.Tasks = append(out.Step.Tasks, t)
	}
	return out
}

// stepLimits of a step's cgroup, which lies in that of its allocation and has only what is narrower.
func (b *bundler) stepLimits(l *pb.LaunchSpec, here *pb.StepNode, s *pb.NodeSettings) *pb.Limits {
	out := &pb.Limits{}
	if s.GetConstrainCores() && here.GetCpuIds() != "" {
		out.CpusetCpus = b.cpuset(l, &pb.NodeAlloc{CpuIds: here.CpuIds}, s)
	}
	if s.GetConstrainRam() && here.GetMemMib() > 0 {
		out.MemoryMib, out.MemorySwapMib = memoryLimits(here.MemMib, s)
	}
	return out
}
