package state

import (
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// PowerSettings are the power saving settings of slurm.conf; nil where SuspendProgram or ResumeProgram is missing. Times are seconds.
type PowerSettings struct {
	SuspendTimeS    uint32 // idle time until a node is powered down; pb.Unlimited = never
	SuspendTimeoutS uint32 // time that a host may need to go down after SuspendProgram
	ResumeTimeoutS  uint32 // time that a node may take to register after ResumeProgram
	SuspendRate     uint32 // nodes a minute, 0 = no bound
	ResumeRate      uint32
	FailProgram     bool // there is a ResumeFailProgram
	RequeueOnFail   bool // SchedulerParameters=requeue_on_resume_failure
	IdleOnSuspend   bool // SlurmctldParameters=idle_on_node_suspend
	Except          []PowerExcept
	ExceptParts     []string
	ExceptFlags     uint32 // flags of nodes that stay up (SuspendExcStates)
	ExceptDown      bool
	Partitions      map[string]PartitionPower // partitions with settings of their own
}

// PowerExcept lists nodes that are not powered down for being idle: all of them, or Count of the usable ones.
type PowerExcept struct {
	Nodes []string
	Count int // 0 = all
}

// PartitionPower holds a partition's own settings; nil = the cluster's.
type PartitionPower struct{ SuspendTimeS, SuspendTimeoutS, ResumeTimeoutS *uint32 }

// NodePower holds the power saving settings of one node: for each, the largest value of its partitions, or the cluster's if none of them
// has one (slurm.conf(5), SuspendTime). The zero value means no power saving.
type NodePower struct {
	On                bool
	IdleS, DownS, UpS uint32 // SuspendTime, SuspendTimeout, ResumeTimeout
	Stays             bool   // named by SuspendExcNodes without a count, or by SuspendExcParts
}

func (s *Settings) powerOf(node string, partitions []string) NodePower {
	if s == nil || s.Power == nil {
		return NodePower{}
	}
	p := s.Power
	out := NodePower{On: true}
	largest := func(cluster uint32, of func(PartitionPower) *uint32) uint32 {
		var most *uint32
		for _, name := range partitions {
			if v := of(p.Partitions[name]); v != nil && (most == nil || *v > *most) {
				most = v
			}
		}
		if most != nil {
			return *most
		}
		return cluster
	}
	out.IdleS = largest(p.SuspendTimeS, func(q PartitionPower) *uint32 { return q.SuspendTimeS })
	out.DownS = largest(p.SuspendTimeoutS, func(q PartitionPower) *uint32 { return q.SuspendTimeoutS })
	out.UpS = largest(p.ResumeTimeoutS, func(q PartitionPower) *uint32 { return q.ResumeTimeoutS })
	out.Stays = slices.ContainsFunc(p.Except, func(x PowerExcept) bool { return x.Count == 0 && slices.Contains(x.Nodes, node) }) ||
		slices.ContainsFunc(p.ExceptParts, func(name string) bool { return slices.Contains(partitions, name) })
	return out
}

// PowerFlags are the flags of a node whose host is off or on its way there or back.
const PowerFlags = pb.NodePoweredDown | pb.NodePoweringUp | pb.NodePoweringDown

// unusable are the flags of a node that must not be given jobs, asleep or not.
const unusable = pb.NodeDrain | pb.NodeFail | pb.NodeMaint | pb.NodeInvalidReg | pb.NodeRebootIssued

// Asleep reports whether jobs can start on a node once it has been powered up, which they cause. Strays on it do not matter: they ended
// with the host, or will be ended when it is back.
func (n *Node) Asleep() bool {
	return n.Power.On && n.State == pb.NodeState_NODE_IDLE && n.StateFlags&(pb.NodePoweredDown|pb.NodePoweringUp) != 0 &&
		n.StateFlags&(unusable|pb.NodePoweringDown) == 0 && !n.GoesDown()
}

// AsleepAt returns the time when a node that is being powered down will be asleep (nanoseconds); false: it is not being powered down, or
// jobs will not be able to start on it then either.
func (n *Node) AsleepAt() (int64, bool) {
	if !n.Power.On || n.State != pb.NodeState_NODE_IDLE || n.StateFlags&pb.NodePoweringDown == 0 || n.StateFlags&unusable != 0 ||
		n.Power.DownS == pb.Unlimited || n.GoesDown() {
		return 0, false
	}
	return n.PowerNs + int64(n.Power.DownS)*1e9, true
}

// GoesDown reports whether a node is about to be powered down and no job delays that.
func (n *Node) GoesDown() bool { return n.StateFlags&pb.NodePowerDownPending != 0 && len(n.Jobs) == 0 }
