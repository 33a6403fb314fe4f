package state

import (
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// PowerSettings are what slurm.conf says of power saving; nil where SuspendProgram or ResumeProgram is missing. Times are seconds.
type PowerSettings struct {
	SuspendTimeS    uint32 // idle for so long, a node is powered down; pb.Unlimited = never
	SuspendTimeoutS uint32 // how long after SuspendProgram a node may still be used by its host going down
	ResumeTimeoutS  uint32 // how long after ResumeProgram a node may take to register
	SuspendRate     uint32 // nodes a minute, 0 = no bound
	ResumeRate      uint32
	FailProgram     bool // there is a ResumeFailProgram
	RequeueOnFail   bool // SchedulerParameters=requeue_on_resume_failure
	IdleOnSuspend   bool // SlurmctldParameters=idle_on_node_suspend
	Except          []PowerExcept
	ExceptParts     []string
	ExceptFlags     uint32 // of nodes that stay (SuspendExcStates)
	ExceptDown      bool
	Partitions      map[string]PartitionPower // those that say something else
}

// PowerExcept are nodes that are not powered down for being idle: all of them, or of those that can be used so many.
type PowerExcept struct {
	Nodes []string
	Count int // 0 = all
}

// PartitionPower is what a partition says of its nodes; nil = what the cluster says.
type PartitionPower struct{ SuspendTimeS, SuspendTimeoutS, ResumeTimeoutS *uint32 }

// NodePower is what slurm.conf says of power saving for one node: of the partitions that it is in the largest value of each counts, where
// none says any that of the cluster (slurm.conf(5), SuspendTime). The zero value: there is no power saving.
type NodePower struct {
	On                bool
	IdleS, DownS, UpS uint32 // SuspendTime, SuspendTimeout, ResumeTimeout
	Stays             bool   // SuspendExcNodes without a count, or SuspendExcParts, names it
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

// PowerFlags are those of a node of which the host is off, or on its way there or back.
const PowerFlags = pb.NodePoweredDown | pb.NodePoweringUp | pb.NodePoweringDown

// unusable are the flags of a node that jobs must not be given, asleep or not.
const unusable = pb.NodeDrain | pb.NodeFail | pb.NodeMaint | pb.NodeInvalidReg | pb.NodeRebootIssued

// Asleep reports whether jobs can start on a node once it has been powered up, which they cause. What it may still have run when it was
// given up (Strays) is waited for then: it ended with the host, or will be ended.
func (n *Node) Asleep() bool {
	return n.Power.On && n.State == pb.NodeState_NODE_IDLE && n.StateFlags&(pb.NodePoweredDown|pb.NodePoweringUp) != 0 &&
		n.StateFlags&(unusable|pb.NodePoweringDown) == 0 && !n.GoesDown()
}

// AsleepAt is when a node that is being powered down will be asleep (nanoseconds); false: it is not, or jobs will not be able to start on
// it then either.
func (n *Node) AsleepAt() (int64, bool) {
	if !n.Power.On || n.State != pb.NodeState_NODE_IDLE || n.StateFlags&pb.NodePoweringDown == 0 || n.StateFlags&unusable != 0 ||
		n.Power.DownS == pb.Unlimited || n.GoesDown() {
		return 0, false
	}
	return n.PowerNs + int64(n.Power.DownS)*1e9, true
}

// GoesDown reports whether a node is about to be powered down, and nothing runs on it that this waits for.
func (n *Node) GoesDown() bool { return n.StateFlags&pb.NodePowerDownPending != 0 && len(n.Jobs) == 0 }
