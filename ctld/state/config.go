package state

import (
	"maps"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Config is the part of the state that comes from slurm.conf: read at start and on reconfigure, never changed by commands.
type Config struct {
	Settings       *Settings
	Nodes          []*pb.NodeRecord      // as configured, without anything observed
	Partitions     []*pb.PartitionRecord // as configured
	PartitionNodes map[string][]string   // expanded
	PartitionGIDs  map[string][]uint32   // AllowGroups, resolved; no entry = all
	Default        string                // default partition, "" = none
	Gres           map[string]GresConfig // by node: the configuration beside Gres=
	// GresOf returns the configuration of a node that is not in slurm.conf; a nil function: there is none. Pure.
	GresOf func(node string) GresConfig
}

// New makes the first View: the configuration and nothing else. firstID is the first job id to hand out.
func New(cfg *Config, clusterID string, firstID uint32) *View {
	v := &View{ClusterID: clusterID, Jobs: &Jobs{}, steps: &table[JobSteps]{}, assocUsed: &table[Used]{}, qosUsed: &table[Used]{},
		assocTime: &table[TimeUse]{}, qosTime: &table[TimeUse]{}, NextJobID: max(firstID, 1),
		writer: newIndex(), layout: &layout{}}
	tx := Begin(v, 0)
	tx.reconfigure(cfg)
	next, _ := tx.Freeze()
	next.Seq = 0
	return next
}

// reconfigure replaces nodes, partitions and settings. Observed facts about nodes that stay are kept.
func (tx *Tx) reconfigure(cfg *Config) {
	old := tx.next
	before := old.PartitionQOSes()
	tx.restructure()
	tx.next.Settings, tx.next.Default, tx.next.partNodes = cfg.Settings, cfg.Default, maps.Clone(cfg.PartitionNodes)
	tx.next.partGIDs, tx.next.gresOf = maps.Clone(cfg.PartitionGIDs), cfg.GresOf
	tx.next.nodes, tx.next.nodeIndex = make([]*Node, len(cfg.Nodes)), make(map[string]int, len(cfg.Nodes))
	tx.copied.nodes, tx.copied.parts, tx.copied.index = true, true, true
	for i, n := range cfg.Nodes {
		tx.next.nodes[i] = merge(n, old.Node(n.Name))
		tx.next.nodes[i].GresConf = cfg.Gres[n.Name]
		tx.next.nodes[i].Recount()
		tx.next.nodeIndex[n.Name] = i
		tx.wakeNode(n.Name)
	}
	tx.keepDynamic(&old)
	tx.next.parts, tx.next.partIndex = slices.Clone(cfg.Partitions), make(map[string]int, len(cfg.Partitions))
	for i, p := range tx.next.parts {
		tx.next.partIndex[p.Name] = i
	}
	for _, p := range old.parts {
		if p.Made && tx.Partition(p.Name) == nil {
			tx.makePartition(p, old.partNodes[p.Name], old.partGIDs[p.Name])
		}
	}
	tx.groupDynamic()
	tx.listPartitions()
	if old.Settings != nil && old.Settings.EnforceLimits != cfg.Settings.EnforceLimits {
		tx.recount()
	}
	tx.recountFor(before)
}

// listPartitions fills Partitions of every node.
func (tx *Tx) listPartitions() {
	if !tx.copied.nodes {
		tx.next.nodes = slices.Clone(tx.next.nodes)
		tx.copied.nodes = true
	}
	of := map[string][]string{}
	for _, p := range tx.next.parts {
		for _, n := range tx.next.partNodes[p.Name] {
			of[n] = append(of[n], p.Name)
		}
	}
	for i, n := range tx.next.nodes {
		c := *n
		c.NodeRecord = CloneNode(n.NodeRecord)
		c.Partitions = of[n.Name]
		c.Power = tx.next.Settings.powerOf(n.Name, c.Partitions)
		tx.next.nodes[i] = &c
	}
}
