package state

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// A field of a node's record belongs to slurm.conf, or is worth nothing after a restart of the controller, or is stored in the journal.
// The first two kinds are listed here, each in one place; whatever is not listed is stored. TestNodeFields names the kind of each.

// takeConfigured sets what slurm.conf decides, at each start and reconfigure. What scontrol changes of it lasts until then, as
// scontrol(1) has it. State and Reason are in slurm.conf, too, but only as they are to be at first: they are not set here.
func takeConfigured(n, cfg *pb.NodeRecord) {
	n.Addr, n.Hostname, n.Port, n.Weight = cfg.Addr, cfg.Hostname, cfg.Port, cfg.Weight
	n.Cpus, n.Boards, n.Sockets, n.Cores, n.Threads = cfg.Cpus, cfg.Boards, cfg.Sockets, cfg.Cores, cfg.Threads
	n.RealMemoryMib, n.TmpDiskMib, n.CoreSpec, n.MemSpecMib = cfg.RealMemoryMib, cfg.TmpDiskMib, cfg.CoreSpec, cfg.MemSpecMib
	n.Features, n.ActiveFeatures, n.Gres, n.CfgTres, n.Switches = cfg.Features, cfg.ActiveFeatures, cfg.Gres, cfg.CfgTres, cfg.Switches
	n.Partitions = cfg.Partitions // listPartitions fills them
	n.Origin, n.StateFlags = cfg.Origin, n.StateFlags&^pb.NodeDynamic|cfg.StateFlags&pb.NodeDynamic
	takeCloud(n, cfg)
}

// takeCloud sets whether slurm.conf says State=CLOUD. What is new there is powered down, and so is what has never been up.
func takeCloud(n, cfg *pb.NodeRecord) {
	if cfg.StateFlags&pb.NodeCloud == 0 {
		n.StateFlags &^= pb.NodeCloud
		return
	}
	if n.StateFlags |= pb.NodeCloud; n.State == pb.NodeState_NODE_UNKNOWN {
		n.State, n.StateFlags = pb.NodeState_NODE_IDLE, n.StateFlags|pb.NodePoweredDown
	}
}

// takePassing sets what follows from the jobs, or what the node says again when it registers.
func takePassing(n, now *pb.NodeRecord) {
	n.AllocCpus, n.AllocMemMib, n.AllocTres, n.GresUsed, n.RunningJobs = now.AllocCpus, now.AllocMemMib, now.AllocTres, now.GresUsed,
		now.RunningJobs
	n.CpuLoad, n.CpuLoadKnown, n.FreeMemMib = now.CpuLoad, now.CpuLoadKnown, now.FreeMemMib
	n.LastSeenNs, n.LastBusyNs, n.NodedStartNs = now.LastSeenNs, now.LastBusyNs, now.NodedStartNs
	n.GresDrain, n.Diagnosis, n.ClockOffNs = now.GresDrain, now.Diagnosis, now.ClockOffNs
	n.ConfHash, n.ConfFetched, n.ConfError = now.ConfHash, now.ConfFetched, now.ConfError
}

// storedNode is what of a node outlives a restart: what administrators set, which boot was seen, and what is under way.
func storedNode(n *Node) *pb.NodeRecord {
	s := CloneNode(n.NodeRecord)
	if !n.Dynamic() {
		takeConfigured(s, &pb.NodeRecord{})
	}
	s.Partitions, s.Switches = nil, nil
	takePassing(s, &pb.NodeRecord{})
	return s
}

// loadNode takes what was stored of a node that is still configured, or dynamic. Whether it is up is for the node itself to say.
func (tx *Tx) loadNode(s *pb.NodeRecord) {
	n := tx.Node(s.Name)
	switch {
	case n == nil && s.Origin != "":
		tx.addNode(s, false)
		return
	case n == nil:
		return
	}
	c := *n
	c.NodeRecord = CloneNode(s)
	takeConfigured(c.NodeRecord, n.NodeRecord)
	takePassing(c.NodeRecord, n.NodeRecord)
	c.Recount()
	tx.putNode(&c, false)
	tx.next.NextJobID = max(tx.next.NextJobID, c.HighestJob+1)
}

// merge makes the record of a configured node from its configuration and what is known of it.
func merge(cfg *pb.NodeRecord, old *Node) *Node {
	if old == nil {
		return &Node{NodeRecord: CloneNode(cfg)}
	}
	n := *old
	n.NodeRecord = CloneNode(old.NodeRecord)
	takeConfigured(n.NodeRecord, cfg)
	if n.State == pb.NodeState_NODE_FUTURE && cfg.State != pb.NodeState_NODE_FUTURE {
		n.State = cfg.State
	}
	return &n
}
