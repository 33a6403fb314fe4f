package index

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/profile"
	"github.com/sluice-hpc/sluice/sched/record"
)

// nodesReplaced reports whether anything but nodes' states differs.
func (ix *Index) nodesReplaced(in []*record.Node) bool {
	if len(in) != len(ix.Nodes.Recs) {
		return true
	}
	for i, n := range in {
		if n == ix.Nodes.Recs[i] {
			continue
		}
		at, ok := ix.byName[n.Name]
		if !ok {
			return true
		}
		old := ix.Nodes.Vals[at].Rec
		if old != n && (node.ConfigKey(old) != node.ConfigKey(n) || (old.State == record.NodeFuture) != (n.State == record.NodeFuture)) {
			return true
		}
	}
	return false
}

// nodeStates applies changed states of nodes.
func (ix *Index) nodeStates(in []*record.Node) int {
	changed := 0
	for i, n := range in {
		if n == ix.Nodes.Recs[i] {
			continue
		}
		v := ix.Nodes.Vals[ix.byName[n.Name]]
		if v.Rec != n {
			v.Rec = n
			ix.touch(v)
			for _, part := range v.Subs {
				part.Rec = n
				ix.touch(part)
			}
			ix.keepAway(v)
			ix.Epoch++
			changed++
		}
	}
	copy(ix.Nodes.Recs, in)
	return changed
}

// buildNodes numbers the nodes by name. The record slice keeps the caller's
// order, for comparison by pointer.
func (ix *Index) buildNodes(in []*record.Node) {
	sorted := slices.Clone(in)
	slices.SortFunc(sorted, func(a, b *record.Node) int { return compareNames(a.Name, b.Name) })
	for i, rec := range sorted {
		n := ix.newNode(rec)
		n.Index = int32(i)
		ix.byName[rec.Name] = n.Index
		ix.Nodes.Vals = append(ix.Nodes.Vals, n)
	}
	ix.Nodes.Recs = slices.Clone(in)
	ix.connect()
}

// NodeList returns the numbers of the named nodes, ascending. Unknown names are left out.
func (ix *Index) NodeList(names []string) []int32 {
	out := make([]int32, 0, len(names))
	for _, name := range names {
		if i, ok := ix.byName[name]; ok {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// NodeSet is NodeList as a set.
func (ix *Index) NodeSet(names []string) map[int32]bool {
	out := make(map[int32]bool, len(names))
	for _, i := range ix.NodeList(names) {
		out[i] = true
	}
	return out
}

// Intersect returns the elements of both lists, which ascend.
func Intersect(a, b []int32) []int32 {
	var out []int32
	for _, i := range a {
		if _, ok := slices.BinarySearch(b, i); ok {
			out = append(out, i)
		}
	}
	return out
}

func (ix *Index) configOf(n *record.Node) *node.Config {
	key := node.ConfigKey(n)
	if c := ix.configs[key]; c != nil {
		return c
	}
	c := &node.Config{Rec: n, Num: len(ix.configs), Scale: ix.Scale, Threads: int64(max(1, n.Threads))}
	c.LayoutCPUs(n, ix.params.WholeCores)
	c.Full = []int64{c.CPUs * c.Scale, max(0, n.MemMiB-n.SpecMemMiB)}
	for i := range n.Gres {
		c.AddGroup(&n.Gres[i])
	}
	c.Caps = len(c.Full)
	for range ix.capped {
		c.Full = append(c.Full, profile.Forever)
	}
	for i, p := range ix.capped {
		c.Full[c.Caps+i] = int64(p.Rec.MaxCPUsPerNode)
	}
	c.Dims = len(c.Full)
	ix.configs[key] = c
	return c
}

func (ix *Index) newNode(rec *record.Node) *node.Node {
	n := &node.Node{Rec: rec, Config: ix.configOf(rec)}
	n.Prof = profile.New(n.Config.Full)
	for _, g := range n.Config.Groups {
		n.Used = append(n.Used, make([]int64, g.Devices))
	}
	for _, k := range rec.SpecCores.List() {
		n.Units = n.Units.Set(k)
	}
	return n
}

// touch notes that the node changed, so that shapes look at it again.
func (ix *Index) touch(n *node.Node) {
	n.Version++
	ix.log = append(ix.log, n.Index)
}

// useOf returns an allocation in the dimensions of its node.
func (ix *Index) useOf(n *node.Node, a *record.Alloc, rec *record.Run) []int64 {
	use := make([]int64, n.Config.Dims)
	if !rec.Suspended {
		depth, _ := ix.depthOf(rec)
		use[node.DimCPU] = int64(a.CPUs) * ix.Scale / depth
		for i, p := range ix.capped {
			if p.Rec.Name == rec.Partition {
				use[n.Config.Caps+i] = int64(a.CPUs)
			}
		}
	}
	if !ix.params.NoMemory {
		use[node.DimMem] = a.MemMiB
	}
	for i := range a.Gres {
		n.GresUse(&a.Gres[i], use)
	}
	return use
}

// addPart makes the part of a node that r sets aside.
func (ix *Index) addPart(r *node.Reservation, a *record.Alloc) {
	at, ok := ix.byName[a.Node]
	if !ok || ix.Nodes.Vals[at].Config.Cores == 0 {
		return
	}
	n := ix.Nodes.Vals[at]
	part := &node.Node{Rec: n.Rec, Index: int32(len(ix.Nodes.Vals)), Whole: n, Above: n.Above, Resv: r, Share: a}
	part.Config = n.Config.PartOf(n, a)
	part.Prof = profile.New(part.Config.Full)
	part.Mark(a)
	ix.Nodes.Vals = append(ix.Nodes.Vals, part)
	r.Parts[at] = part
	n.Subs = append(n.Subs, part)
	use := ix.useOf(n, &record.Alloc{CPUs: a.CPUs, Gres: a.Gres}, &record.Run{})
	for _, w := range r.Spans() {
		n.Prof.Use(w.Start, w.End, use)
	}
}

// shareScale is the number of units per CPU in a cluster where jobs share CPUs: a job that shares a CPU d deep takes shareScale/d of them.
// It is divisible by every number up to 16. Where CPUs are not shared, a CPU is one unit.
const shareScale = 720720

// connect numbers the switches and sets each node's switches, from the top down. Where others have a switch, a node without one is a fabric
// of its own.
func (ix *Index) connect() {
	ix.Switches = 0
	if !slices.ContainsFunc(ix.Nodes.Vals, func(n *node.Node) bool { return n.Rec.Switch != "" }) {
		return
	}
	numbers := map[string]int32{}
	for _, n := range ix.Nodes.Vals {
		name := n.Rec.Switch
		if name == "" {
			name = "//" + n.Rec.Name
		}
		n.Above = nil
		for at := range len(name) + 1 {
			if n.Rec.Switch != "" && at < len(name) && name[at] != '/' || n.Rec.Switch == "" && at < len(name) {
				continue
			}
			if _, known := numbers[name[:at]]; !known {
				numbers[name[:at]] = int32(len(numbers))
			}
			n.Above = append(n.Above, numbers[name[:at]])
		}
	}
	ix.Switches = len(numbers)
}
