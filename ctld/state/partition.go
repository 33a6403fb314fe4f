package state

import (
	"maps"
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Partitions come from slurm.conf or from scontrol create. Changes by scontrol to the former last until the next reconfigure or restart,
// except State, as in Slurm; the latter stay until they are deleted.

// PartitionChanged: an administrator made or changed a partition. Nil Nodes or GIDs stay as they are; an empty non-nil GIDs closes the
// partition to all groups, AllGroups opens it.
type PartitionChanged struct {
	Partition *pb.PartitionRecord
	Nodes     []string
	GIDs      []uint32
	AllGroups bool
}

func (e PartitionChanged) apply(tx *Tx) {
	p := e.Partition
	before := tx.next.PartitionQOSes()
	wasDefault := tx.Partition(p.Name).GetIsDefault()
	gids := tx.next.partGIDs[p.Name]
	if e.AllGroups || e.GIDs != nil {
		gids = e.GIDs
	}
	if tx.Partition(p.Name) == nil || e.Nodes != nil || e.AllGroups || e.GIDs != nil {
		nodes := e.Nodes
		if nodes == nil {
			nodes = tx.next.partNodes[p.Name]
		}
		tx.makePartition(p, nodes, gids)
		tx.listPartitions()
	}
	tx.putPartition(p)
	switch {
	case p.IsDefault:
		tx.next.Default = p.Name
	case wasDefault && tx.next.Default == p.Name:
		tx.next.Default = ""
	}
	tx.recountFor(before)
}

// Attrs implements Event.
func (e PartitionChanged) Attrs() []any {
	return []any{"partition", e.Partition.Name, "state", e.Partition.State}
}

// PartitionDeleted: an administrator deleted a partition.
type PartitionDeleted struct{ Name string }

func (e PartitionDeleted) apply(tx *Tx) {
	i, ok := tx.next.partIndex[e.Name]
	if !ok {
		return
	}
	tx.next.parts = slices.Delete(slices.Clone(tx.next.parts), i, i+1)
	tx.copied.parts = true
	tx.next.partIndex = make(map[string]int, len(tx.next.parts))
	for i, p := range tx.next.parts {
		tx.next.partIndex[p.Name] = i
	}
	tx.next.partNodes, tx.next.partGIDs = maps.Clone(tx.next.partNodes), maps.Clone(tx.next.partGIDs)
	delete(tx.next.partNodes, e.Name)
	delete(tx.next.partGIDs, e.Name)
	if tx.next.Default == e.Name {
		tx.next.Default = ""
	}
	tx.listPartitions()
	tx.parts[e.Name] = true
	tx.restructure()
}

// Attrs implements Event.
func (e PartitionDeleted) Attrs() []any { return []any{"partition", e.Name} }

// putPartition replaces the record of an existing partition.
func (tx *Tx) putPartition(p *pb.PartitionRecord) {
	if !tx.copied.parts {
		tx.next.parts = slices.Clone(tx.next.parts)
		tx.copied.parts = true
	}
	tx.next.parts[tx.next.partIndex[p.Name]] = p
	tx.parts[p.Name] = true
	tx.restructure()
}

// makePartition gives a partition its nodes and groups, and appends it to the list when it is new. Nodes that no longer exist are left out.
// listPartitions has to follow.
func (tx *Tx) makePartition(p *pb.PartitionRecord, nodes []string, gids []uint32) {
	var there []string
	for _, n := range tx.next.nodes { // in the order of the configuration
		if slices.Contains(nodes, n.Name) {
			there = append(there, n.Name)
		}
	}
	tx.next.partNodes, tx.next.partGIDs, tx.next.partIndex = cloneMap(tx.next.partNodes), cloneMap(tx.next.partGIDs),
		cloneMap(tx.next.partIndex)
	tx.next.partNodes[p.Name] = there
	if delete(tx.next.partGIDs, p.Name); gids != nil {
		tx.next.partGIDs[p.Name] = gids
	}
	if _, ok := tx.next.partIndex[p.Name]; !ok {
		tx.next.parts = append(slices.Clone(tx.next.parts), p)
		tx.copied.parts = true
		tx.next.partIndex[p.Name] = len(tx.next.parts) - 1
	}
}

func cloneMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// loadPartition applies a stored record: for a partition of slurm.conf its state only, for another all of it.
func (tx *Tx) loadPartition(s *pb.PartitionRecord) {
	if p := tx.Partition(s.Name); p != nil {
		c := ClonePartition(p)
		c.State = s.State
		tx.putPartition(c)
		return
	}
	if !s.Made {
		return
	}
	nodes, _ := hostlist.Expand(s.Nodes) // cannot fail: FoldSorted wrote it
	tx.makePartition(s, nodes, s.AllowGids)
	tx.listPartitions()
	if s.IsDefault && tx.next.Default == "" {
		tx.next.Default = s.Name
	}
}
