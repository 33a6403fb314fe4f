package state

import pb "github.com/sluice-hpc/sluice/proto/sluice/v1"

// A field of a node's record comes from slurm.conf, or is not kept over a restart of the controller, or is stored in the journal. The first
// two kinds are listed here, each in one place; all others are stored. TestNodeFields names the kind of each.

// takeConfigured sets the fields that slurm.conf decides, at each start and reconfigure. Changes by scontrol last until then, as in
// scontrol(1). State and Reason are in slurm.conf too, but only as initial values: they are not set here.
func takeConfigured(n, cfg *pb.NodeRecord) {
	n.Addr, n.Hostname, n.Port, n.Weight = cfg.Addr, cfg.Hostname, cfg.Port, cfg.Weight
	n.Cpus, n.Boards, n.Sockets, n.Cores, n.Threads = cfg.Cpus, cfg.Boards, cfg.Sockets, cfg.Cores, cfg.Threads
	n.RealMemoryMib, n.TmpDiskMib, n.CoreSpec, n.MemSpecMib = cfg.RealMemoryMib, cfg.TmpDiskMib, cfg.CoreSpec, cfg.MemSpecMib
	n.Features, n.ActiveFeatures, n.Gres, n.CfgTres, n.Switches = cfg.Features, cfg.ActiveFeatures, cfg.Gres, cfg.CfgTres, cfg.Switches
	n.Partitions = cfg.Partitions // listPartitions fills them
	n.Origin, n.StateFlags = cfg.Origin, n.StateFlags&^pb.NodeDynamic|cfg.StateFlags&pb.NodeDynamic
	takeCloud(n, cfg)
}

// takeCloud sets or clears the flag of State=CLOUD. A node that is new to it, or has never been up, is powered down.
func takeCloud(n, cfg *pb.NodeRecord) {
	if cfg.StateFlags&pb.NodeCloud == 0 {
		n.StateFlags &^= pb.NodeCloud
		return
	}
	if n.StateFlags |= pb.NodeCloud; n.State == pb.NodeState_NODE_UNKNOWN {
		n.State, n.StateFlags = pb.NodeState_NODE_IDLE, n.StateFlags|pb.NodePoweredDown
	}
}

// takePassing sets the fields that follow from the jobs, or that the node reports again when it registers.
func takePassing(n, now *pb.NodeRecord) {
	n.AllocCpus, n.AllocMemMib, n.AllocTres, n.GresUsed, n.RunningJobs = now.AllocCpus, now.AllocMemMib, now.AllocTres, now.GresUsed,
		now.RunningJobs
	n.CpuLoad, n.CpuLoadKnown, n.FreeMemMib = now.CpuLoad, now.CpuLoadKnown, now.FreeMemMib
	n.LastSeenNs, n.LastBusyNs, n.NodedStartNs = now.LastSeenNs, now.LastBusyNs, now.NodedStartNs
	n.GresDrain, n.Diagnosis, n.ClockOffNs = now.GresDrain, now.Diagnosis, now.ClockOffNs
	n.ConfHash, n.ConfFetched, n.ConfError = now.ConfHash, now.ConfFetched, now.ConfError
}

// storedNode returns the part of a node's record that outlives a restart: settings by administrators, the boot id, and operations under
// way.
func storedNode(n *Node) *pb.NodeRecord {
	s := CloneNode(n.NodeRecord)
	if !n.Dynamic() {
		takeConfigured(s, &pb.NodeRecord{})
	}
	s.Partitions, s.Switches = nil, nil
	takePassing(s, &pb.NodeRecord{})
	return s
}

// loadNode applies the stored record of a node that is still configured, or dynamic. The node itself will say whether it is up.
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

// merge makes the record of a configured node from its configuration and its previous record.
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
