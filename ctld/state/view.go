package state

import (
	"slices"
	"sort"

	"github.com/sluice-hpc/sluice/ctld/journal"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// View is one consistent, immutable state. Any goroutine may read it for as long as it likes.
type View struct {
	Seq       uint64
	NowNS     int64 // wall clock time of the commit that made it; it may precede that of the previous commit
	ClusterID string
	// Restored is the last commit that the newest restore took over (journal.Store), 0 without a restore: an attempt started up to it may
	// have continued, or ended, in the time that was taken back.
	Restored uint64
	lost     []journal.Span // spans of commits that restores have taken back, the newest last
	awaited  int            // nodes that have not yet reported what they ran in the newest of these

	Jobs      *Jobs
	steps     *table[JobSteps]
	nodes     []*Node // by configuration order
	nodeIndex map[string]int
	parts     []*pb.PartitionRecord
	partIndex map[string]int
	partNodes map[string][]string // expanded node names of each partition
	partGIDs  map[string][]uint32
	gresOf    func(node string) GresConfig // of nodes that are not in slurm.conf
	resvs     []*pb.ReservationRecord      // by name
	crontabs  []*pb.CrontabRecord          // by uid
	tokens    []*pb.TokenRecord            // by id
	hosts     []*pb.HostRecord             // by name
	policy    *Policy                      // nil: nothing is defined
	assocUsed *table[Used]                 // by association
	qosUsed   *table[Used]                 // by QOS
	assocTime *table[TimeUse]              // by association
	qosTime   *table[TimeUse]              // by QOS
	past      *Past                        // before these two; nil: not known
	counting  uint64                       // the commit at which counting began
	Settings  *Settings
	NextJobID uint32
	Default   string // default partition
	writer    *writerIndex
	clock     *pb.ClockRecord
	// clockUnsaved lists the rows that have to be written together with the record of the clock; nil: nothing to write. No batch is refused
	// for lack of room for them: they are written with the next rows, which are the first that use that clock.
	clockUnsaved *clockRows
	// Layout is a number for the facts by which requests are judged: settings, hardware, partitions and reservations. Two views with the
	// same number agree on these; running jobs, and whether nodes are up, do not count.
	Layout uint64
	layout *layout

	// Outbox are the attempts that Load found in the outbox, StepOutbox the steps. Both are empty in later Views: a Change reports
	// additions.
	Outbox     []Attempt
	StepOutbox []StepKey
}

// Node is a node's record and the controller's own data about the node. Immutable like every record.
type Node struct {
	*pb.NodeRecord
	Jobs []uint32 // jobs with something left on this node, ascending
	Held Held     // cores in use, where cores are allocated by number
	// HeldCPUs counts the CPUs that jobs hold, a shared one for each of them; AllocCpus counts it once.
	HeldCPUs uint32
	// LinkUp says that a stream to the node is open; Stream is the one opened last; LinkNS is the time of the last change.
	LinkUp bool
	LinkNS int64
	Stream uint64
	// Inv lists the node's generic resources, from its configuration (GresConf beside Gres) and its own reports.
	Inv      *Inventory
	GresConf GresConfig
	Power    NodePower
}

// FromBackup reports whether a commit is one that the newest restore took over from its backup.
func (v *View) FromBackup(seq uint64) bool { return v.Restored != 0 && seq <= v.Restored }

// Lose notes that a restore has taken back the commits after one, up to another. The view is not published yet.
func (v *View) Lose(after, upTo uint64) {
	v.lost, v.Restored = append(slices.Clip(v.lost), journal.Span{After: after, UpTo: upTo}), upTo
	v.awaited = len(v.Awaited())
}

// TakenBack reports whether a restore has taken a commit back.
func (v *View) TakenBack(seq uint64) bool {
	return slices.ContainsFunc(v.lost, func(s journal.Span) bool { return s.After < seq && seq <= s.UpTo })
}

// Untold returns the last commit before the span for which a node has not yet reported what it ran; ok = false: it has reported all.
func (v *View) Untold(n *Node) (after uint64, ok bool) {
	for _, s := range v.lost {
		if s.UpTo > n.ToldSeq {
			return s.After, true
		}
	}
	return 0, false
}

// Awaited returns the nodes for which jobs from before a restore wait: any of those jobs may have run on them in the time that was taken
// back. Either the node reports what it ran, or an administrator sets it DOWN for good.
func (v *View) Awaited() (names []string) {
	for _, n := range v.nodes {
		if v.awaits(n) {
			names = append(names, n.Name)
		}
	}
	return names
}

func (v *View) awaits(n *Node) bool {
	return n.ToldSeq < v.Restored && n.State != pb.NodeState_NODE_FUTURE
}

// Uncertain reports whether a pending job must not start, because it may have run in the time that a restore has taken back.
func (v *View) Uncertain(j *pb.JobRecord) bool {
	return v.awaited > 0 && v.FromBackup(j.MadeSeq) || j.Lost != nil
}

// UncertainReason is the reason of a job that is Uncertain.
const UncertainReason = "Restored"

// Node returns a node, or nil.
func (v *View) Node(name string) *Node {
	if i, ok := v.nodeIndex[name]; ok {
		return v.nodes[i]
	}
	return nil
}

// Nodes returns all nodes in the order of the configuration. The slice must not be changed.
func (v *View) Nodes() []*Node { return v.nodes }

// Partition returns a partition, or nil.
func (v *View) Partition(name string) *pb.PartitionRecord {
	if i, ok := v.partIndex[name]; ok {
		return v.parts[i]
	}
	return nil
}

// OverTime returns by how many seconds the jobs of a partition may exceed their limit: its OverTimeLimit, or the cluster's.
func (v *View) OverTime(partition string) uint32 {
	if p := v.Partition(partition); p != nil && (p.OverTimeLimitS != 0 || p.NoOverTime) {
		return p.OverTimeLimitS
	}
	return v.Settings.OverTimeLimitS
}

// Partitions returns all partitions in the order of the configuration.
func (v *View) Partitions() []*pb.PartitionRecord { return v.parts }

// PartitionNodes returns the expanded node names of a partition, in configuration order.
func (v *View) PartitionNodes(name string) []string { return v.partNodes[name] }

// PartitionGIDs returns the groups that may use a partition (AllowGroups), nil = all.
func (v *View) PartitionGIDs(name string) []uint32 { return v.partGIDs[name] }

// Cores is a set of core numbers.
type Cores []uint64

// Overlaps reports whether two sets share a core.
func (c Cores) Overlaps(o Cores) bool {
	for i := 0; i < len(c) && i < len(o); i++ {
		if c[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// With returns the union, Without the difference; neither changes its operands.
func (c Cores) With(o Cores) Cores {
	r := make(Cores, max(len(c), len(o)))
	copy(r, c)
	for i, w := range o {
		r[i] |= w
	}
	return r
}

// Without returns c less the cores of o.
func (c Cores) Without(o Cores) Cores {
	r := make(Cores, len(c))
	copy(r, c)
	for i := 0; i < len(r) && i < len(o); i++ {
		r[i] &^= o[i]
	}
	return r
}

// insertID and removeID keep a sorted list of ids without changing the list they are given.
func insertID(ids []uint32, id uint32) []uint32 {
	i := sort.Search(len(ids), func(i int) bool { return ids[i] >= id })
	if i < len(ids) && ids[i] == id {
		return ids
	}
	out := make([]uint32, 0, len(ids)+1)
	return append(append(append(out, ids[:i]...), id), ids[i:]...)
}

func removeID(ids []uint32, id uint32) []uint32 {
	i := sort.Search(len(ids), func(i int) bool { return ids[i] >= id })
	if i == len(ids) || ids[i] != id {
		return ids
	}
	out := make([]uint32, 0, len(ids)-1)
	return append(append(out, ids[:i]...), ids[i+1:]...)
}
