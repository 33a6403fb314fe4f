package resv

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// chooseNodes picks nodes where a count or a partition was given: the reservation's present nodes first, then free ones.
func (e *edit) chooseNodes() *pb.Problem {
	r := e.r
	if e.pick == 0 && !e.nodesSaid && r.Nodes == "" && r.Partition != "" {
		r.AllNodes = true
	}
	if e.pick == 0 {
		return e.namedNodes()
	}
	if e.old != nil && e.pick == e.old.NodeCount && !e.nodesSaid && !e.refill {
		return nil
	}
	if p := e.checkFeatures(); p != nil {
		return p
	}
	if r.Partition == "" {
		r.Partition = e.tx.DefaultPartition() // as Slurm does
	}
	kept, free, busy := e.pool()
	pool := slices.Concat(kept, free, busy)
	if len(pool) < int(e.pick) {
		what := ""
		if r.Features != "" {
			what = " with feature " + r.Features
		}
		return pb.NewProblem(pb.CodeNodesBusy, "%d nodes requested, %d of partition %s%s are up, not reserved and free by then", e.pick,
			len(pool), r.Partition, what)
	}
	chosen := pool[:e.pick]
	slices.SortFunc(chosen, hostlist.Compare)
	r.Nodes, r.AllNodes = hostlist.FoldSorted(chosen), false
	e.howNamed(false, false)
	return nil
}

// pool returns the nodes that a count may be taken from: those that the reservation has, those without jobs, those with jobs. None belongs
// to another reservation, not even to one that shares its nodes: MAINT and OVERLAP only apply to nodes given by name.
func (e *edit) pool() (kept, free, busy []string) {
	any := func(*pb.ReservationRecord) bool { return true }
	return e.poolOf(func(n *state.Node) bool { return e.holder(n.Name, any) == "" && e.busy(n) == nil })
}

func (e *edit) poolOf(ok func(*state.Node) bool) (kept, free, busy []string) {
	kept, _ = hostlist.Expand(e.r.Nodes)
	for _, name := range e.tx.PartitionNodes(e.r.Partition) {
		n := e.tx.Node(name)
		switch {
		case slices.Contains(kept, name) || !n.Up() || !hasFeatures(n, e.r.Features) || !ok(n):
		case len(n.Jobs) == 0:
			free = append(free, name)
		default:
			busy = append(busy, name)
		}
	}
	return kept, free, busy
}

// checkFeatures refuses features that no node has, and a set of them that none of the partition has.
func (e *edit) checkFeatures() *pb.Problem {
	if strings.ContainsAny(e.r.Features, "[]()*") {
		return pb.NewProblem(pb.CodeNotSupported, "Features=%s: counts and brackets are not supported for reservations",
			e.r.Features).WithHint("a&b or a|b")
	}
	any, all := false, false
	for _, n := range e.tx.Nodes() {
		any = any || hasFeatures(n, e.r.Features)
		all = all || hasFeatures(n, e.r.Features) && slices.Contains(e.tx.PartitionNodes(cmp.Or(e.r.Partition, e.tx.DefaultPartition())),
			n.Name)
	}
	switch {
	case !any:
		return pb.NewProblem(pb.CodeInvalidFeature, "no node has %s", e.r.Features)
	case !all:
		return pb.NewProblem(pb.CodeNodeConfig, "no node of partition %s has %s", cmp.Or(e.r.Partition, e.tx.DefaultPartition()),
			e.r.Features)
	}
	return nil
}

// hasFeatures reports whether a node has all features of a&b, or one of a|b.
func hasFeatures(n *state.Node, want string) bool {
	if strings.Contains(want, "|") {
		return slices.ContainsFunc(strings.Split(want, "|"), func(one string) bool { return hasFeatures(n, one) })
	}
	have := strings.Split(n.ActiveFeatures, ",")
	for _, f := range strings.FieldsFunc(want, func(c rune) bool { return c == '&' || c == ',' }) {
		if !slices.Contains(have, f) {
			return false
		}
	}
	return true
}

// namedNodes completes a reservation of named nodes, or of a whole partition or the cluster.
func (e *edit) namedNodes() *pb.Problem {
	r := e.r
	switch {
	case r.AllNodes && r.Partition != "":
		r.Nodes = hostlist.FoldSorted(e.tx.PartitionNodes(r.Partition))
	case r.Nodes == "" && (r.Licenses == "" || !e.has("ANY_NODES")):
		return pb.NewProblem(pb.CodeInvalidNodeName,
			"the reservation has no nodes").WithHint("add Nodes=, NodeCnt= or PartitionName=; for licenses alone, Flags=ANY_NODES")
	}
	e.howNamed(r.Nodes != "", r.AllNodes)
	return nil
}

func (e *edit) howNamed(named, all bool) {
	e.flag("SPEC_NODES", named)
	e.flag("ALL_NODES", all && e.r.Partition == "")
	e.flag("PART_NODES", all && e.r.Partition != "")
}

func (e *edit) has(flag string) bool { return slices.Contains(e.r.Flags, flag) }

// sharing reports whether a reservation may share nodes with others.
func sharing(r *pb.ReservationRecord) bool {
	return slices.Contains(r.Flags, "OVERLAP") || slices.Contains(r.Flags, "MAINT")
}

// atOnce yields the other reservations that are active at some time of this one, including repetitions.
func (e *edit) atOnce(yield func(*pb.ReservationRecord) bool) {
	for _, o := range e.tx.Reservations() {
		if o.Name != e.r.Name && meets(o, e.r, e.tx.Settings().Location()) && !yield(o) {
			return
		}
	}
}

// holder returns another reservation that has a node during the time of this one and satisfies meant, "" when none does.
func (e *edit) holder(node string, meant func(*pb.ReservationRecord) bool) string {
	if sharing(e.r) {
		return ""
	}
	for o := range e.atOnce {
		if names, err := hostlist.Expand(o.Nodes); err == nil && meant(o) && slices.Contains(names, node) {
			return o.Name
		}
	}
	return ""
}

// overlaps refuses nodes that another reservation has, or on which a running job reaches into this one, unless the flags allow it.
func (e *edit) overlaps() *pb.Problem {
	names, err := hostlist.Expand(e.r.Nodes)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
	}
	had := map[string]bool{}
	if e.old != nil && !e.startSaid {
		list, _ := hostlist.Expand(e.old.Nodes)
		for _, n := range list {
			had[n] = true // its running jobs were no obstacle before
		}
	}
	if p := e.overlapsOther(names); p != nil {
		return p
	}
	for _, name := range names {
		if j := e.busy(e.tx.Node(name)); j != nil && !had[name] {
			return pb.NewProblem(pb.CodeNodesBusy, "job %s may run on node %s beyond the start of the reservation", state.JobName(j),
				name).WithHint("choose a later start, or add Flags=IGNORE_JOBS")
		}
	}
	return nil
}

func (e *edit) overlapsOther(names []string) *pb.Problem {
	if sharing(e.r) {
		return nil
	}
	mine := make(map[string]bool, len(names))
	for _, n := range names {
		mine[n] = true
	}
	for o := range e.atOnce {
		others, _ := hostlist.Expand(o.Nodes)
		if i := slices.IndexFunc(others, func(n string) bool { return mine[n] }); i >= 0 && !sharing(o) {
			return pb.NewProblem(pb.CodeResvOverlap, "node %s is in reservation %s at that time", others[i],
				o.Name).WithHint("choose other nodes or another time, or add Flags=OVERLAP")
		}
	}
	return nil
}

// busy returns a job that may run on a node when the reservation begins; nil when there is none or jobs are ignored.
func (e *edit) busy(n *state.Node) *pb.JobRecord {
	if e.has("IGNORE_JOBS") {
		return nil
	}
	if n == nil {
		return nil // removed from slurm.conf since
	}
	for _, id := range n.Jobs {
		if j := e.tx.Job(id); (e.r.Name == "" || j.Spec.Reservation != e.r.Name) && (j.EndNs == 0 || j.EndNs > e.r.StartNs) {
			return j
		}
	}
	return nil
}
