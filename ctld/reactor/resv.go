package reactor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// UpdateReservation is scontrol create, update and delete of a reservation.
type UpdateReservation struct {
	Caller   Caller
	UserName string
	Name     string
	Set      []*pb.KeyValue
	Create   bool
	Delete   bool
}

// Reserved is the reply: the name, which may have been made up.
type Reserved struct {
	Name string
	Seq  uint64
}

// maxReservations bounds how many there can be.
const maxReservations = 10000

// Handle makes, changes or ends a reservation. The refusals are those of a real slurmctld, with the diagnosis behind.
func (c UpdateReservation) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeUserID, "only root and SlurmUser may reserve nodes")
	}
	old := tx.Reservation(c.Name)
	switch {
	case c.Delete:
		return c.end(tx, old)
	case !c.Create && old == nil:
		return pb.NewProblem(pb.CodeResvInvalid, "there is no reservation %q", c.Name)
	case c.Create && old != nil:
		return pb.NewProblem(pb.CodeResvDuplicate, "reservation %s exists already", c.Name)
	case c.Create && strings.ContainsAny(c.Name, ","):
		return pb.NewProblem(pb.CodeResvInvalid, "the name %q has a comma, which separates names", c.Name)
	case c.Create && len(tx.Reservations()) >= maxReservations:
		return pb.NewProblem(pb.CodeResvInvalid, "there are %d reservations, as many as there can be", maxReservations)
	}
	e := resvEdit{tx: tx, old: old, r: &pb.ReservationRecord{Name: c.Name, StartNs: tx.NowNS, Creator: c.UserName}}
	if old != nil {
		e.r = state.CloneReservation(old)
	}
	for _, kv := range c.Set {
		if p := e.set(kv.Key, kv.Value); p != nil {
			return p
		}
	}
	if p := e.complete(); p != nil {
		return p
	}
	tx.Emit(state.ReservationChanged{Reservation: e.r})
	return Reserved{Name: e.r.Name, Seq: tx.Seq}
}

// end deletes a reservation that no job runs in or waits for.
func (c UpdateReservation) end(tx *state.Tx, old *pb.ReservationRecord) any {
	if old == nil {
		return pb.NewProblem(pb.CodeResvInvalid, "there is no reservation %q", c.Name)
	}
	for j := range tx.Jobs().All() {
		if j.Spec.Reservation == c.Name && state.Active(j) {
			return pb.NewProblem(pb.CodeResvBusy, "job %s %s in reservation %s", jobName(j), inResv(j), c.Name).WithHint("cancel its jobs first, or take them out with scontrol update JobId=%d Reservation=", j.Id)
		}
	}
	tx.Emit(state.ReservationEnded{Name: c.Name, Why: "deleted"})
	return Reserved{Name: c.Name, Seq: tx.Seq}
}

func inResv(j *pb.JobRecord) string {
	if state.Live(j) {
		return "runs"
	}
	return "waits to run"
}

// resvEdit is a reservation under change.
type resvEdit struct {
	tx        *state.Tx
	old       *pb.ReservationRecord // nil for a new one
	r         *pb.ReservationRecord
	durationS int64 // 0 = not said
	startSaid bool
	endSaid   bool
	nodesSaid bool
	pick      uint32 // nodes to choose
}

func (e *resvEdit) set(key, value string) *pb.Problem {
	name, op := strings.TrimRight(key, "+-"), ""
	if name != key {
		op = key[len(name):]
	}
	switch strings.ToLower(name) {
	case "starttime":
		e.startSaid = true
		return e.moment(&e.r.StartNs, key, value)
	case "endtime":
		e.endSaid = true
		return e.moment(&e.r.EndNs, key, value)
	case "duration":
		return e.duration(value, op)
	case "nodes":
		return e.nodes(value, op)
	case "nodecnt", "nodecount":
		return e.count(value)
	case "users":
		e.r.Users = editList(e.r.Users, value, op)
	case "accounts":
		e.r.Accounts = editList(e.r.Accounts, value, op)
	case "groups":
		e.r.Groups = editList(e.r.Groups, value, op)
	case "flags":
		return e.flags(value, op)
	case "partitionname", "partition":
		if e.tx.Partition(value) == nil {
			return pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q", value)
		}
		e.r.Partition = value
	case "features":
		e.r.Features = value
	case "licenses":
		return e.licenses(value)
	case "maxstartdelay":
		m, err := timespec.ParseMinutes(value)
		if err != nil || m < 0 || m > 365*24*60 {
			return pb.NewProblem(pb.CodeInvalidTime, "MaxStartDelay=%s", value)
		}
		e.r.MaxStartDelayS = uint32(m * 60)
	case "comment":
		e.r.Comment = value
	default:
		return pb.NewProblem(pb.CodeNotSupported, "cannot set %s of a reservation", key).WithHint("what can be set: StartTime, EndTime, Duration, Nodes, NodeCnt, Users, Accounts, Groups, Flags, PartitionName, Features, Licenses, MaxStartDelay, Comment")
	}
	return nil
}

// count reads NodeCnt: "4", or "4,2", which is their sum.
func (e *resvEdit) count(value string) *pb.Problem {
	e.pick = 0
	for _, part := range strings.Split(value, ",") {
		n, err := strconv.ParseUint(part, 10, 24)
		if err != nil || n == 0 || e.pick+uint32(n) > 1<<24 {
			return pb.NewProblem(pb.CodeNodeCount, "NodeCnt=%s is not a count", value)
		}
		e.pick += uint32(n)
	}
	return nil
}

// licenses checks that there are as many; of what another reservation has at that time, complete does.
func (e *resvEdit) licenses(value string) *pb.Problem {
	if value != "" {
		if p := admit.Licenses(e.tx.View(), value); p != nil {
			return p
		}
	}
	e.r.Licenses = value
	return nil
}

func (e *resvEdit) moment(dst *int64, key, value string) *pb.Problem {
	t, err := parseMoment(value, e.tx.NowNS)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidTime, "%s=%s: %v", key, value, err)
	}
	*dst = t.UnixNano()
	return nil
}

func (e *resvEdit) duration(value, op string) *pb.Problem {
	m, err := timespec.ParseMinutes(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidTime, "Duration=%s: %v", value, err)
	}
	if m == timespec.Unlimited {
		m = 365 * 24 * 60
	}
	now := (e.r.EndNs - e.r.StartNs) / 1e9
	switch op {
	case "+":
		e.durationS = now + m*60
	case "-":
		e.durationS = now - m*60
	default:
		e.durationS = m * 60
	}
	if e.durationS <= 0 {
		return pb.NewProblem(pb.CodeInvalidTime, "a reservation of %d seconds", e.durationS)
	}
	return nil
}

func (e *resvEdit) nodes(value, op string) *pb.Problem {
	if strings.EqualFold(value, "ALL") {
		var all []string
		for _, n := range e.tx.Nodes() {
			all = append(all, n.Name)
		}
		e.nodesSaid, e.r.AllNodes = true, true
		e.r.Nodes = hostlist.FoldSorted(all)
		return nil
	}
	names, err := hostlist.Expand(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
	}
	for _, n := range names {
		if e.tx.Node(n) == nil {
			return pb.NewProblem(pb.CodeInvalidNodeName, "there is no node %s", n)
		}
	}
	have, _ := hostlist.Expand(e.r.Nodes)
	switch op {
	case "+":
		names = append(have, names...)
	case "-":
		names = slices.DeleteFunc(have, func(n string) bool { return slices.Contains(names, n) })
	}
	slices.SortFunc(names, hostlist.Compare)
	e.nodesSaid, e.r.AllNodes = true, false
	e.r.Nodes = hostlist.FoldSorted(slices.Compact(names))
	return nil
}

// resvFlags are those that mean something here, in the order in which Slurm shows them. SPEC_NODES, ALL_NODES and PART_NODES say how
// the nodes were named.
var resvFlags = []string{"MAINT", "FLEX", "OVERLAP", "IGNORE_JOBS", "HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY", "STATIC", "NO_HOLD_JOBS_AFTER",
	"ANY_NODES", "SPEC_NODES", "ALL_NODES", "PART_NODES"}

// flagAliases are other words for them. Nodes are never exchanged while a reservation lasts, which is what STATIC_ALLOC asks for.
var flagAliases = map[string]string{"STATIC_ALLOC": "STATIC", "LICENSE_ONLY": "ANY_NODES", "IGNORE_RUNNING": "IGNORE_JOBS", "NO_HOLD_JOBS": "NO_HOLD_JOBS_AFTER", "NO_HOLD_JOBS_AFTER_END": "NO_HOLD_JOBS_AFTER"}

func (e *resvEdit) flags(value, op string) *pb.Problem {
	if op == "" {
		e.r.Flags = slices.DeleteFunc(slices.Clone(e.r.Flags), func(f string) bool { return !strings.HasSuffix(f, "_NODES") })
	}
	for _, f := range strings.Split(strings.ToUpper(value), ",") {
		if f == "" {
			continue
		}
		if other := flagAliases[f]; other != "" {
			f = other
		}
		if !slices.Contains(resvFlags, f) {
			return pb.NewProblem(pb.CodeNotSupported, "flag %s of a reservation", f).WithHint("one of %s", strings.Join(resvFlags, ", "))
		}
		e.flag(f, op != "-")
	}
	return nil
}

// flag sets or clears one, and keeps them in order.
func (e *resvEdit) flag(f string, on bool) {
	list := slices.DeleteFunc(slices.Clone(e.r.Flags), func(x string) bool { return x == f })
	if on {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b string) int { return slices.Index(resvFlags, a) - slices.Index(resvFlags, b) })
	e.r.Flags = list
}

func editList(have, value, op string) string {
	split := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
	switch op {
	case "+":
		return strings.Join(append(split(have), split(value)...), ",")
	case "-":
		gone := split(value)
		return strings.Join(slices.DeleteFunc(split(have), func(s string) bool { return slices.Contains(gone, s) }), ",")
	}
	return value
}

// lateNS is how far back a start may lie: "now" as the command read it.
const lateNS = 60e9

// times works out start and end from what was said of them. A start that moves takes the end along.
func (e *resvEdit) times() *pb.Problem {
	r, old := e.r, e.old
	late := (old == nil || e.startSaid) && r.StartNs < e.tx.NowNS
	if late && r.StartNs >= e.tx.NowNS-lateNS {
		r.StartNs = e.tx.NowNS - e.tx.NowNS%1e9 // whole seconds, as it is shown
	}
	switch {
	case e.durationS > 0 && !e.endSaid:
		r.EndNs = r.StartNs + e.durationS*1e9
	case old != nil && e.startSaid && !e.endSaid:
		r.EndNs = r.StartNs + old.EndNs - old.StartNs
	}
	switch {
	case old != nil && e.startSaid && old.StartNs <= e.tx.NowNS:
		return pb.NewProblem(pb.CodeResvStarted, "reservation %s has started; its start cannot be moved", r.Name)
	case r.EndNs == 0:
		return pb.NewProblem(pb.CodeInvalidTime, "the reservation has no end").WithHint("add Duration= or EndTime=")
	case r.EndNs <= r.StartNs:
		return pb.NewProblem(pb.CodeInvalidTime, "the reservation would end before it begins")
	case r.EndNs <= e.tx.NowNS:
		return pb.NewProblem(pb.CodeInvalidTime, "the reservation would end in the past")
	case late && r.StartNs < e.tx.NowNS-lateNS:
		return pb.NewProblem(pb.CodeInvalidTime, "the reservation would begin in the past")
	}
	return nil
}

// complete checks the whole: a time in the future, somebody for whom, nodes that nobody else has.
func (e *resvEdit) complete() *pb.Problem {
	r := e.r
	if p := e.times(); p != nil {
		return p
	}
	if r.Users == "" && r.Accounts == "" && r.Groups == "" {
		return pb.NewProblem(pb.CodeResvEmpty, "the reservation is for nobody").WithHint("add Users=, Accounts= or Groups=")
	}
	for _, list := range []string{r.Users, r.Accounts, r.Groups} {
		if p := oneSided(list); p != nil {
			return p
		}
	}
	if p := e.chooseNodes(); p != nil {
		return p
	}
	if p := e.overlaps(); p != nil {
		return p
	}
	if p := e.licensesLeft(); p != nil {
		return p
	}
	names, _ := hostlist.Expand(r.Nodes)
	r.NodeCount, r.CoreCount, r.Tres = uint32(len(names)), 0, ""
	for _, n := range names {
		r.CoreCount += e.tx.Node(n).Cpus
	}
	if r.CoreCount > 0 {
		r.Tres = fmt.Sprintf("cpu=%d", r.CoreCount)
	}
	if r.Name == "" {
		r.Name = e.freeName()
	}
	return nil
}

// oneSided refuses a list that both names and excludes.
func oneSided(list string) *pb.Problem {
	words := strings.FieldsFunc(list, func(c rune) bool { return c == ',' })
	not := func(s string) bool { return strings.HasPrefix(s, "-") }
	if i := slices.IndexFunc(words, not); i >= 0 && slices.ContainsFunc(words, func(s string) bool { return !not(s) }) {
		return pb.NewProblem(pb.CodeUserID, "%q both names and excludes", list).WithHint("either name those who may, or exclude those who may not")
	}
	return nil
}

// chooseNodes picks nodes where a count was asked for, or a partition: those that it has, then free ones first.
func (e *resvEdit) chooseNodes() *pb.Problem {
	r := e.r
	if e.pick == 0 && !e.nodesSaid && r.Nodes == "" && r.Partition != "" {
		r.AllNodes = true
	}
	if e.pick == 0 {
		return e.namedNodes()
	}
	if e.old != nil && e.pick == e.old.NodeCount && !e.nodesSaid {
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
		return pb.NewProblem(pb.CodeNodesBusy, "%d nodes asked for, %d of partition %s%s are up, not reserved and free by then", e.pick, len(pool), r.Partition, what)
	}
	chosen := pool[:e.pick]
	slices.SortFunc(chosen, hostlist.Compare)
	r.Nodes, r.AllNodes = hostlist.FoldSorted(chosen), false
	e.howNamed(false, false)
	return nil
}

// pool are the nodes that a count may be taken from: those that the reservation has, those without jobs, those with.
func (e *resvEdit) pool() (kept, free, busy []string) {
	kept, _ = hostlist.Expand(e.r.Nodes)
	for _, name := range e.tx.PartitionNodes(e.r.Partition) {
		n := e.tx.Node(name)
		switch {
		case slices.Contains(kept, name) || !n.Up() || e.taken(name) || !hasFeatures(n, e.r.Features) || e.busy(n) != nil:
		case len(n.Jobs) == 0:
			free = append(free, name)
		default:
			busy = append(busy, name)
		}
	}
	return kept, free, busy
}

// checkFeatures refuses features that no node has, and a set of them that none of the partition has.
func (e *resvEdit) checkFeatures() *pb.Problem {
	any, all := false, false
	for _, n := range e.tx.Nodes() {
		any = any || hasFeatures(n, e.r.Features)
		all = all || hasFeatures(n, e.r.Features) && slices.Contains(e.tx.PartitionNodes(cmp.Or(e.r.Partition, e.tx.DefaultPartition())), n.Name)
	}
	switch {
	case !any:
		return pb.NewProblem(pb.CodeInvalidFeature, "no node has %s", e.r.Features)
	case !all:
		return pb.NewProblem(pb.CodeNodeConfig, "no node of partition %s has %s", cmp.Or(e.r.Partition, e.tx.DefaultPartition()), e.r.Features)
	}
	return nil
}

func hasFeatures(n *state.Node, want string) bool {
	have := strings.Split(n.ActiveFeatures, ",")
	for _, f := range strings.FieldsFunc(want, func(c rune) bool { return c == '&' || c == ',' }) {
		if !slices.Contains(have, f) {
			return false
		}
	}
	return true
}

// namedNodes completes a reservation whose nodes were named, or that has all of a partition or of the cluster.
func (e *resvEdit) namedNodes() *pb.Problem {
	r := e.r
	switch {
	case r.AllNodes && r.Partition != "":
		r.Nodes = hostlist.FoldSorted(e.tx.PartitionNodes(r.Partition))
	case r.Nodes == "" && (r.Licenses == "" || !e.has("ANY_NODES")):
		return pb.NewProblem(pb.CodeNodeCount, "the reservation has no nodes").WithHint("add Nodes=, NodeCnt= or PartitionName=; for licenses alone, Flags=ANY_NODES")
	}
	e.howNamed(r.Nodes != "", r.AllNodes)
	return nil
}

func (e *resvEdit) howNamed(named, all bool) {
	e.flag("SPEC_NODES", named)
	e.flag("ALL_NODES", all && e.r.Partition == "")
	e.flag("PART_NODES", all && e.r.Partition != "")
}

func (e *resvEdit) has(flag string) bool { return slices.Contains(e.r.Flags, flag) }

// sharing are the flags of reservations that may share nodes with others.
func sharing(r *pb.ReservationRecord) bool {
	return slices.Contains(r.Flags, "OVERLAP") || slices.Contains(r.Flags, "MAINT")
}

// atOnce yields the other reservations that are in force at some time of this one; of those that recur, the repetitions count.
func (e *resvEdit) atOnce(yield func(*pb.ReservationRecord) bool) {
	for _, o := range e.tx.Reservations() {
		if o.Name != e.r.Name && meets(o, e.r) && !yield(o) {
			return
		}
	}
}

// taken reports whether another reservation has the node during the time of this one.
func (e *resvEdit) taken(node string) bool { return e.holder(node) != "" }

func (e *resvEdit) holder(node string) string {
	if sharing(e.r) {
		return ""
	}
	for o := range e.atOnce {
		if names, err := hostlist.Expand(o.Nodes); err == nil && !sharing(o) && slices.Contains(names, node) {
			return o.Name
		}
	}
	return ""
}

// overlaps refuses nodes that another reservation has, or on which a job runs into this one, unless the flags allow it.
func (e *resvEdit) overlaps() *pb.Problem {
	names, err := hostlist.Expand(e.r.Nodes)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
	}
	had := map[string]bool{}
	if e.old != nil && !e.startSaid {
		list, _ := hostlist.Expand(e.old.Nodes)
		for _, n := range list {
			had[n] = true // what runs there was no obstacle, and is none
		}
	}
	if p := e.overlapsOther(names); p != nil {
		return p
	}
	for _, name := range names {
		if j := e.busy(e.tx.Node(name)); j != nil && !had[name] {
			return pb.NewProblem(pb.CodeNodesBusy, "job %s may run on node %s beyond the start of the reservation", jobName(j), name).WithHint("begin later, or add Flags=IGNORE_JOBS")
		}
	}
	return nil
}

func (e *resvEdit) overlapsOther(names []string) *pb.Problem {
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
			return pb.NewProblem(pb.CodeResvOverlap, "node %s is in reservation %s at that time", others[i], o.Name).WithHint("choose other nodes or another time, or add Flags=OVERLAP")
		}
	}
	return nil
}

// busy is a job that may run on a node when the reservation begins, nil when there is none or it does not matter.
func (e *resvEdit) busy(n *state.Node) *pb.JobRecord {
	if e.has("IGNORE_JOBS") {
		return nil
	}
	for _, id := range n.Jobs {
		if j := e.tx.Job(id); (e.r.Name == "" || j.Spec.Reservation != e.r.Name) && (j.EndNs == 0 || j.EndNs > e.r.StartNs) {
			return j
		}
	}
	return nil
}

// licensesLeft refuses more licenses than other reservations leave.
func (e *resvEdit) licensesLeft() *pb.Problem {
	want := map[string]uint64{}
	admit.CountLicenses(want, e.r.Licenses)
	others := map[string]uint64{}
	for o := range e.atOnce {
		admit.CountLicenses(others, o.Licenses)
	}
	for _, l := range e.tx.Settings().Licenses {
		if n := want[l.Name]; n > 0 && n+others[l.Name] > uint64(l.Count) {
			return pb.NewProblem(pb.CodeResvOverlap, "%d licenses %s asked for; there are %d, and other reservations have %d of them at that time", n, l.Name, l.Count, others[l.Name])
		}
	}
	return nil
}

// freeName is the first user or account and a number, as Slurm makes it.
func (e *resvEdit) freeName() string {
	base, _, _ := strings.Cut(e.r.Users, ",")
	if base == "" {
		base, _, _ = strings.Cut(e.r.Accounts+e.r.Groups, ",")
	}
	for i := 1; ; i++ {
		if name := fmt.Sprintf("%s_%d", strings.TrimLeft(base, "-"), i); e.tx.Reservation(name) == nil {
			return name
		}
	}
}
