package index

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Index mirrors the cluster of the last snapshot: nodes with their free resources over time, partitions, reservations, licenses and running
// jobs. A pass adds its starts and promises to it, and removes them when it ends.
type Index struct {
	params *record.Params

	Now          int64
	Nodes        Table[record.Node, *node.Node] // vals by name, followed by the parts of nodes that reservations set aside
	Runs         Table[record.Run, *node.Run]
	ends         runHeap
	Parts        []*Partition // by name; nil: nothing has been read yet
	partRecs     []*record.Partition
	Reservations Reservations
	resvRecs     []*record.Reservation
	Licenses     *licenses
	licRecs      []record.License
	QOS          []*record.QOS

	Epoch    uint64 // of node states, partitions and reservations, for faults
	byName   map[string]int32
	configs  map[string]*node.Config
	capped   []*Partition // partitions that limit CPUs per node
	LowTier  uint16       // lowest tier of a partition
	Scale    int64        // units per CPU: see shareScale
	Switches int          // 0: unknown
	away     []*node.Node // nodes that are unavailable until a known time

	ByUser bool // some jobs share nodes with no other user: users have to be distinguished
	redo   bool // ByUser was set: the index so far is useless

	// the nodes that changed, in order, and the number of earlier entries that were dropped
	log     []int32
	logBase int
}

// Partition is a partition.
type Partition struct {
	Rec   *record.Partition
	Index int32
	Cap   int // index in Index.capped plus one; 0: no limit of CPUs per node
	Nodes []int32
}

// New returns an empty Index; byUser: users have to be distinguished.
func New(params *record.Params, byUser bool) *Index {
	return &Index{params: params, ByUser: byUser, byName: map[string]int32{}, configs: map[string]*node.Config{}}
}

// Follow brings the index up to the snapshot, and returns how many records differed.
func (ix *Index) Follow(in *record.Snapshot) int {
	last, changed := ix.Now, 0
	ix.Now = in.Now
	if ix.Parts == nil {
		ix.build(in)
		last = in.Now
		changed += len(ix.Nodes.Recs)
	} else {
		changed += ix.nodeStates(in.Nodes)
	}
	for _, n := range ix.Nodes.Vals { // the profiles begin now, whatever the path here
		n.Prof.Advance(ix.Now)
	}
	ix.Licenses.Prof.Advance(ix.Now)
	ix.crossWindows(last)
	changed += ix.Runs.Update(
		in.Running,
		&TableOps[record.Run, *node.Run]{Cmp: record.CompareRuns, Add: ix.AddRun, Change: ix.changeRun, Remove: ix.RemoveRun},
	)
	ix.extendLate()
	ix.extendAway()
	return changed
}

// Empty reports whether nothing has been read yet.
func (ix *Index) Empty() bool { return ix.Parts == nil }

// Stale reports whether users have to be distinguished from now on, so that everything derived from the index is useless.
func (ix *Index) Stale() bool { return ix.redo }

// Restructured reports whether the index has to be built anew: something other than running jobs and the state of nodes differs.
func (ix *Index) Restructured(in *record.Snapshot) bool {
	return !slices.Equal(ix.partRecs, in.Partitions) || !slices.Equal(ix.resvRecs, in.Reservations) ||
		!slices.Equal(ix.licRecs, in.Licenses) || !slices.Equal(ix.QOS, in.QOS) || ix.nodesReplaced(in.Nodes)
}

// build makes the structures for nodes, partitions and reservations.
func (ix *Index) build(in *record.Snapshot) {
	ix.partRecs, ix.resvRecs = slices.Clone(in.Partitions), slices.Clone(in.Reservations)
	ix.licRecs, ix.QOS = slices.Clone(in.Licenses), slices.Clone(in.QOS)
	recs := slices.Clone(in.Partitions)
	slices.SortFunc(recs, func(a, b *record.Partition) int { return strings.Compare(a.Name, b.Name) })
	ix.Parts, ix.Scale = make([]*Partition, 0, len(recs)), 1
	for _, rec := range recs {
		p := &Partition{Rec: rec, Index: int32(len(ix.Parts))}
		if ix.Parts = append(ix.Parts, p); p.Index == 0 || rec.PriorityTier < ix.LowTier {
			ix.LowTier = rec.PriorityTier
		}
		if rec.Depth(&record.Request{Oversubscribe: true}) > 1 {
			ix.Scale = shareScale
		}
		ix.ByUser = ix.ByUser || rec.ExclusiveUser
		if rec.MaxCPUsPerNode > 0 {
			ix.capped = append(ix.capped, p)
			p.Cap = len(ix.capped)
		}
	}
	ix.buildNodes(in.Nodes)
	for _, p := range ix.Parts {
		p.Nodes = ix.NodeList(p.Rec.Nodes)
	}
	ix.buildReservations(in.Reservations)
	for i := range in.Nodes {
		ix.keepAway(ix.Nodes.Vals[i]) // including the parts that reservations have of it
	}
	ix.Licenses = newLicenses(in.Licenses, ix.Reservations)
	ix.Epoch++
}

// Partition returns a partition by name; nil when there is none.
func (ix *Index) Partition(name string) *Partition {
	i, ok := slices.BinarySearchFunc(ix.Parts, name, func(p *Partition, name string) int { return strings.Compare(p.Rec.Name, name) })
	if !ok {
		return nil
	}
	return ix.Parts[i]
}

// NoteUser notices a request that makes users differ for the scheduler.
func (ix *Index) NoteUser(r *record.Request) {
	if r != nil && r.ExclusiveUser && !ix.ByUser {
		ix.ByUser, ix.redo = true, true
	}
}

// Promise takes use from a node for a promise; Release gives it back.
func (ix *Index) Promise(n *node.Node, from, to int64, use []int64) {
	n.Prof.Use(from, to, use)
	n.Planned++
	ix.touch(n)
}

// Release gives back what Promise took.
func (ix *Index) Release(n *node.Node, from, to int64, use []int64) {
	n.Prof.Free(from, to, use)
	n.Planned--
	ix.touch(n)
}

// Renew begins a new epoch: faults have to be found anew.
func (ix *Index) Renew() { ix.Epoch++ }

// ChangedSince returns the numbers of the nodes that have changed since a position in the log, possibly repeated, and the end of the log;
// false when the log does not reach back that far.
func (ix *Index) ChangedSince(at int) (nodes []int32, end int, known bool) {
	end = ix.logBase + len(ix.log)
	if at < ix.logBase {
		return nil, end, false
	}
	return ix.log[at-ix.logBase:], end, true
}

// TrimLog forgets the oldest changes; shapes that missed them look at all nodes.
func (ix *Index) TrimLog() {
	if limit := 4*len(ix.Nodes.Vals) + 1024; len(ix.log) > limit {
		drop := len(ix.log) - limit/2
		ix.logBase += drop
		ix.log = append(ix.log[:0], ix.log[drop:]...)
	}
}

// CPUsOf counts the CPUs of a partition's nodes.
func (ix *Index) CPUsOf(part *Partition) int64 {
	var cpus int64
	for _, i := range part.Nodes {
		cpus += ix.Nodes.Vals[i].Config.CPUs
	}
	return cpus
}
