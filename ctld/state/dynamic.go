package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Dynamic nodes are not in slurm.conf: scontrol create made them, or their daemon joined (NodeRecord.origin says which). Their whole record
// is stored, including what other nodes have from slurm.conf. They stay until they are deleted, or until slurm.conf names them. They come
// after the nodes of slurm.conf, and belong to the partitions with Nodes=ALL, or with a NodeSet that has one of their features.

// Dynamic reports whether the node is missing from slurm.conf.
func (n *Node) Dynamic() bool { return n.Origin != "" }

// NodesAdded: new nodes exist.
type NodesAdded struct{ Nodes []*pb.NodeRecord }

func (e NodesAdded) apply(tx *Tx) {
	tx.must = true
	for _, r := range e.Nodes {
		tx.addNode(r, true)
	}
	tx.roster = true
	tx.relayout()
}

// Attrs implements Event.
func (e NodesAdded) Attrs() []any {
	return []any{"nodes", foldNames(e.Nodes), "origin", e.Nodes[0].Origin}
}

// NodeRedefined: a dynamic node registered with another definition. Nothing runs on it.
type NodeRedefined struct{ Node *pb.NodeRecord }

func (e NodeRedefined) apply(tx *Tx) {
	n := *tx.Node(e.Node.Name)
	for _, name := range n.Partitions {
		tx.regroup(name)
		if p := tx.Partition(name); len(p.SetFeatures) > 0 {
			tx.next.partNodes = maps.Clone(tx.next.partNodes)
			tx.next.partNodes[name] = slices.DeleteFunc(slices.Clone(tx.next.partNodes[name]), func(m string) bool { return m == n.Name })
		}
	}
	n.NodeRecord = n.defined(e.Node)
	n.Recount()
	tx.group(&n)
	tx.must = true
	tx.putNode(&n, true)
	tx.wakeNode(n.Name)
	tx.roster = true
	tx.relayout()
}

// Attrs implements Event.
func (e NodeRedefined) Attrs() []any { return []any{"node", e.Node.Name} }

// Is reports whether a node already has this definition.
func (n *Node) Is(cfg *pb.NodeRecord) bool { return proto.Equal(n.defined(cfg), n.NodeRecord) }

// defined returns the record of a dynamic node with another definition.
func (n *Node) defined(cfg *pb.NodeRecord) *pb.NodeRecord {
	r := CloneNode(n.NodeRecord)
	takeConfigured(r, cfg)
	r.Partitions, r.Switches, r.StateFlags = n.Partitions, n.Switches, r.StateFlags|pb.NodeDynamic
	return r
}

// NodesRemoved: dynamic nodes were removed. Nothing runs on them.
type NodesRemoved struct{ Names []string }

func (e NodesRemoved) apply(tx *Tx) {
	gone := make(map[string]bool, len(e.Names))
	for _, name := range e.Names {
		gone[name] = true
		tx.nodes[name] = true
		tx.wakeNode(name)
		for _, p := range tx.Node(name).Partitions {
			tx.regroup(p)
		}
	}
	tx.next.nodes = slices.DeleteFunc(slices.Clone(tx.next.nodes), func(n *Node) bool { return gone[n.Name] })
	tx.next.nodeIndex = make(map[string]int, len(tx.next.nodes))
	for i, n := range tx.next.nodes {
		tx.next.nodeIndex[n.Name] = i
	}
	tx.copied.nodes, tx.copied.index = true, true
	tx.next.partNodes = maps.Clone(tx.next.partNodes)
	for p := range tx.grouped {
		tx.next.partNodes[p] = slices.DeleteFunc(slices.Clone(tx.next.partNodes[p]), func(n string) bool { return gone[n] })
	}
	tx.roster = true
	tx.relayout()
}

// Attrs implements Event.
func (e NodesRemoved) Attrs() []any { return []any{"nodes", hostlist.Fold(slices.Clone(e.Names))} }

func foldNames(nodes []*pb.NodeRecord) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return hostlist.Fold(names)
}

// addNode adds a dynamic node behind the others, or replaces the one of its name, and puts it into its partitions.
func (tx *Tx) addNode(r *pb.NodeRecord, durable bool) {
	r = CloneNode(r)
	r.StateFlags |= pb.NodeDynamic
	n := &Node{NodeRecord: r, GresConf: tx.gresOf(r.Name)}
	n.Recount()
	if !tx.copied.nodes {
		tx.next.nodes = slices.Clone(tx.next.nodes)
		tx.copied.nodes = true
	}
	if !tx.copied.index {
		tx.next.nodeIndex = maps.Clone(tx.next.nodeIndex)
		tx.copied.index = true
	}
	tx.next.nodeIndex[r.Name] = len(tx.next.nodes)
	tx.next.nodes = append(tx.next.nodes, n)
	tx.nodes[r.Name] = tx.nodes[r.Name] || durable
	tx.wakeNode(r.Name)
	tx.group(n)
}

func (tx *Tx) gresOf(name string) GresConfig {
	if tx.next.gresOf == nil {
		return GresConfig{}
	}
	return tx.next.gresOf(name)
}

// takes reports whether a partition includes a node that its Nodes= does not name one by one.
func takes(p *pb.PartitionRecord, n *Node) bool {
	if p.AllNodes {
		return true
	}
	return n.Dynamic() && slices.ContainsFunc(p.SetFeatures, func(f string) bool {
		return slices.Contains(strings.Split(n.Features, ","), f)
	})
}

// group puts a dynamic node, which is not published yet, into the partitions that include it.
func (tx *Tx) group(n *Node) {
	n.Partitions = nil
	for _, p := range tx.next.parts {
		if !takes(p, n) && !slices.Contains(tx.next.partNodes[p.Name], n.Name) {
			continue
		}
		n.Partitions = append(n.Partitions, p.Name)
		if slices.Contains(tx.next.partNodes[p.Name], n.Name) {
			continue
		}
		tx.next.partNodes = cloneMap(tx.next.partNodes)
		tx.next.partNodes[p.Name] = append(slices.Clip(tx.next.partNodes[p.Name]), n.Name)
		tx.regroup(p.Name)
	}
	n.Power = tx.next.Settings.powerOf(n.Name, n.Partitions)
}

// regroup notes that values derived from a partition's nodes must be computed again, once per commit.
func (tx *Tx) regroup(partition string) {
	if tx.grouped == nil {
		tx.grouped = map[string]bool{}
	}
	tx.grouped[partition] = true
}

// measureGrouped computes the values that regroup noted.
func (tx *Tx) measureGrouped() {
	for name := range tx.grouped {
		at, ok := tx.next.partIndex[name]
		if !ok {
			continue
		}
		if !tx.copied.parts {
			tx.next.parts = slices.Clone(tx.next.parts)
			tx.copied.parts = true
		}
		p := ClonePartition(tx.next.parts[at])
		p.Nodes, p.TotalNodes, p.TotalCpus, p.Tres = hostlist.FoldSorted(tx.next.partNodes[name]), 0, 0, ""
		mem := uint64(0)
		for _, name := range tx.next.partNodes[name] {
			if n := tx.Node(name); n != nil {
				p.TotalNodes++
				p.TotalCpus += n.Cpus
				mem += n.RealMemoryMib
			}
		}
		if p.TotalNodes > 0 {
			p.Tres = fmt.Sprintf("cpu=%d,mem=%s,node=%d,billing=%d", p.TotalCpus, tres.FormatMiB(mem), p.TotalNodes, p.TotalCpus)
		}
		tx.next.parts[at] = p
	}
	tx.grouped = nil
}

// keepDynamic appends the dynamic nodes of the previous view to those of slurm.conf, except nodes that slurm.conf now names. It also marks
// the stored rows of nodes that left slurm.conf, or entered it, to be written again.
func (tx *Tx) keepDynamic(old *View) {
	for _, n := range old.nodes {
		now := tx.Node(n.Name)
		switch {
		case now == nil && n.Dynamic():
			c := *n
			c.NodeRecord, c.GresConf = CloneNode(n.NodeRecord), tx.gresOf(n.Name)
			c.Recount()
			tx.next.nodeIndex[n.Name] = len(tx.next.nodes)
			tx.next.nodes = append(tx.next.nodes, &c)
			tx.wakeNode(n.Name)
		case now == nil || n.Dynamic():
			tx.nodes[n.Name] = true
		}
	}
}

// groupDynamic puts the dynamic nodes into the partitions, after these have been read. listPartitions has to follow.
func (tx *Tx) groupDynamic() {
	for _, n := range tx.next.nodes {
		if n.Dynamic() {
			c := *n
			c.NodeRecord = CloneNode(n.NodeRecord)
			tx.next.nodes[tx.next.nodeIndex[n.Name]] = &c
			tx.group(&c)
		}
	}
	for _, p := range tx.next.parts { // partitions made by scontrol with Nodes=ALL: nodes of slurm.conf may be new
		if p.Made && p.AllNodes {
			tx.makePartition(p, namesOf(tx.next.nodes), tx.next.partGIDs[p.Name])
			tx.regroup(p.Name)
		}
	}
}

func namesOf(nodes []*Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}
