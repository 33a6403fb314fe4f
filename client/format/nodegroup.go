package format

import (
	"github.com/sluice-hpc/sluice/client/msg"
)

// Fold is how a field affects which nodes share a row of sinfo.
type Fold uint8

const (
	// FoldSame: nodes share a row only if the field is equal.
	FoldSame Fold = iota
	// FoldRange: the field is shown as a range, or as its smallest value with a "+"; only --exact separates nodes by it.
	FoldRange
	// FoldSum: the field counts the nodes of a row.
	FoldSum
)

// NodeGroup is one row of sinfo: nodes of one or several partitions that have equal fields.
type NodeGroup struct {
	Partition *msg.PartitionRecord
	Nodes     []*msg.NodeRecord // each once
	first     *msg.NodeRecord
	seen      map[*msg.NodeRecord]bool // nil while all nodes are of one partition, which has no duplicates
	index     int                      // of the partition in slurm.conf
	last      int                      // partition of the last node added

	Allocated, Idle, Other                    uint32 // numbers of nodes
	CpusAlloc, CpusIdle, CpusOther, CpusTotal uint64
	folded                                    string
}

// Node returns a representative node of the row; nil, which is safe to read, for a partition without nodes.
func (g *NodeGroup) Node() *msg.NodeRecord { return g.first }

// add adds a node of the partition with that index. Nodes of a partition must be added consecutively.
func (g *NodeGroup) add(n *msg.NodeRecord, partition int) {
	if g.first == nil {
		g.first, g.last = n, partition
	}
	if partition != g.last && g.seen == nil {
		g.seen = make(map[*msg.NodeRecord]bool, 2*len(g.Nodes))
		for _, other := range g.Nodes {
			g.seen[other] = true
		}
	}
	g.last = partition
	if g.seen[n] {
		return
	}
	if g.seen != nil {
		g.seen[n] = true
	}
	g.Nodes = append(g.Nodes, n)
	base, flags := nodeBase(n), n.GetStateFlags()
	if flags&msg.NodePoweringUp != 0 { // it is not expected to respond
		flags &^= msg.NodeNoRespond
	}
	switch {
	case busy(base, flags):
		g.Allocated++
	case base == msg.NodeState_NODE_IDLE && flags&(msg.NodeDrain|msg.NodeFail|msg.NodeNoRespond|msg.NodeInvalidReg) == 0:
		g.Idle++
	default:
		g.Other++
	}
	total, alloc := uint64(n.GetCpus()), uint64(min(n.GetAllocCpus(), n.GetCpus()))
	g.CpusTotal += total
	g.CpusAlloc += alloc
	if base == msg.NodeState_NODE_DOWN || base == msg.NodeState_NODE_UNKNOWN || flags&(msg.NodeDrain|msg.NodeInvalidReg) != 0 {
		g.CpusOther += total - alloc
	} else {
		g.CpusIdle += total - alloc
	}
}

// names returns the folded list of the row's nodes.
func (g *NodeGroup) names() string {
	if g.folded == "" && len(g.Nodes) > 0 {
		names := make([]string, len(g.Nodes))
		for i, n := range g.Nodes {
			names[i] = n.GetName()
		}
		g.folded = foldNodes(names)
	}
	return g.folded
}

// FoldOptions select how nodes are grouped into rows.
type FoldOptions struct {
	Exact   bool // -e
	PerNode bool // -N: a row per node and partition
	Empty   bool // add a row for partitions without matching nodes
}

// FoldNodes builds the rows of sinfo. parts are the partitions to show, members the filtered nodes of each.
func FoldNodes(c *Context, layout Layout[*NodeGroup], parts []*msg.PartitionRecord, members [][]*msg.NodeRecord,
	o FoldOptions) []*NodeGroup {
	var rows []*NodeGroup
	byKey := map[string]*NodeGroup{}
	probe, one := &NodeGroup{}, make([]*msg.NodeRecord, 1)
	var key []byte
	for i, part := range parts {
		if len(members[i]) == 0 && o.Empty && !o.PerNode {
			rows = append(rows, &NodeGroup{Partition: part, index: i})
		}
		for _, n := range members[i] {
			if o.PerNode {
				g := newGroup(part, i)
				g.add(n, i)
				rows = append(rows, g)
				continue
			}
			one[0] = n
			*probe = NodeGroup{Partition: part, Nodes: one, first: n, index: i}
			key = groupKey(key[:0], c, layout, probe, o.Exact)
			g := byKey[string(key)]
			if g == nil {
				g = newGroup(part, i)
				byKey[string(key)] = g
				rows = append(rows, g)
			}
			g.add(n, i)
		}
	}
	return rows
}

func newGroup(part *msg.PartitionRecord, index int) *NodeGroup {
	return &NodeGroup{Partition: part, index: index}
}

// groupKey is the text of the fields that are equal for all nodes of a row.
func groupKey(b []byte, c *Context, layout Layout[*NodeGroup], g *NodeGroup, exact bool) []byte {
	for i := range layout {
		f := layout[i].Field
		if f == nil || f.Fold == FoldSum || f.Fold == FoldRange && !exact {
			continue
		}
		b = append(f.Text(b, c, g), 0)
	}
	return b
}

// PartitionNodes returns the nodes of each partition, sorted by name.
func PartitionNodes(parts []*msg.PartitionRecord, nodes []*msg.NodeRecord) [][]*msg.NodeRecord {
	members := make([][]*msg.NodeRecord, len(parts))
	index := make(map[string]int, len(parts))
	for i, p := range parts {
		index[p.GetName()] = i
	}
	for _, n := range nodes {
		for _, name := range n.GetPartitions() {
			i, ok := index[name]
			if !ok || len(members[i]) > 0 && members[i][len(members[i])-1] == n { // once, even if listed repeatedly
				continue
			}
			if members[i] == nil {
				members[i] = make([]*msg.NodeRecord, 0, min(len(nodes), int(parts[i].GetTotalNodes())))
			}
			members[i] = append(members[i], n)
		}
	}
	return members
}
