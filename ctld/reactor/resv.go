package reactor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
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

// Handle makes, changes or ends a reservation.
func (c UpdateReservation) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may reserve nodes")
	}
	old := tx.Reservation(c.Name)
	switch {
	case c.Delete:
		return c.end(tx, old)
	case !c.Create && old == nil:
		return pb.NewProblem(pb.CodeResvInvalid, "there is no reservation %q", c.Name)
	case c.Create && old != nil:
		return pb.NewProblem(pb.CodeResvInvalid, "reservation %s exists already", c.Name)
	case c.Create && len(tx.Reservations()) >= maxReservations:
		return pb.NewProblem(pb.CodeResvInvalid, "there are %d reservations, as many as there can be", maxReservations)
	}
	r := &pb.ReservationRecord{Name: c.Name, StartNs: tx.NowNS, Creator: c.UserName}
	if old != nil {
		r = state.CloneReservation(old)
	}
	e := resvEdit{tx: tx, r: r}
	for _, kv := range c.Set {
		if p := e.set(kv.Key, kv.Value); p != nil {
			return p
		}
	}
	if p := e.complete(old); p != nil {
		return p
	}
	tx.Emit(state.ReservationChanged{Reservation: e.r})
	return Reserved{Name: e.r.Name, Seq: tx.Seq}
}

func (c UpdateReservation) end(tx *state.Tx, old *pb.ReservationRecord) any {
	if old == nil {
		return pb.NewProblem(pb.CodeResvInvalid, "there is no reservation %q", c.Name)
	}
	for j := range tx.Jobs().All() {
		if j.Spec.Reservation == c.Name && state.Live(j) {
			return pb.NewProblem(pb.CodeNodesBusy, "job %s runs in reservation %s", jobName(j), c.Name).WithHint("cancel its jobs first")
		}
	}
	tx.Emit(state.ReservationEnded{Name: c.Name, Why: "deleted"})
	return Reserved{Name: c.Name, Seq: tx.Seq}
}

// resvEdit is a reservation under change.
type resvEdit struct {
	tx        *state.Tx
	r         *pb.ReservationRecord
	durationS int64 // 0 = not said
	endSaid   bool
	pick      uint32 // nodes to choose
}

func (e *resvEdit) set(key, value string) *pb.Problem {
	name, op := strings.TrimRight(key, "+-"), ""
	if name != key {
		op = key[len(name):]
	}
	switch strings.ToLower(name) {
	case "starttime":
		return e.moment(&e.r.StartNs, key, value)
	case "endtime":
		e.endSaid = true
		return e.moment(&e.r.EndNs, key, value)
	case "duration":
		return e.duration(value, op)
	case "nodes":
		return e.nodes(value, op)
	case "nodecnt", "nodecount":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n == 0 {
			return pb.NewProblem(pb.CodeNodeCount, "NodeCnt=%s is not a count", value)
		}
		e.pick = uint32(n)
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
		e.r.Licenses = value
	case "comment":
		e.r.Comment = value
	default:
		return pb.NewProblem(pb.CodeNotSupported, "cannot set %s of a reservation", key).WithHint("what can be set: StartTime, EndTime, Duration, Nodes, NodeCnt, Users, Accounts, Groups, Flags, PartitionName, Features, Licenses, Comment")
	}
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
		e.r.Nodes, e.r.AllNodes = hostlist.FoldSorted(all), true
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
	e.r.Nodes, e.r.AllNodes = hostlist.FoldSorted(slices.Compact(names)), false
	return nil
}

// knownFlags are those that mean something here.
var knownFlags = []string{"MAINT", "FLEX", "IGNORE_JOBS", "OVERLAP", "ANY_NODES", "SPEC_NODES", "STATIC", "STATIC_ALLOC", "ALL_NODES", "PART_NODES"}

func (e *resvEdit) flags(value, op string) *pb.Problem {
	for _, f := range strings.Split(strings.ToUpper(value), ",") {
		if f == "" {
			continue
		}
		if !slices.Contains(knownFlags, f) {
			return pb.NewProblem(pb.CodeResvInvalid, "flag %s of a reservation", f).WithHint("one of %s", strings.Join(knownFlags, ", "))
		}
		has := slices.Contains(e.r.Flags, f)
		switch {
		case op == "-":
			e.r.Flags = slices.DeleteFunc(slices.Clone(e.r.Flags), func(x string) bool { return x == f })
		case !has:
			e.r.Flags = append(slices.Clone(e.r.Flags), f)
		}
	}
	return nil
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

// complete checks the whole: a time in the future, somebody for whom, nodes that nobody else has.
func (e *resvEdit) complete(old *pb.ReservationRecord) *pb.Problem {
	r := e.r
	if e.durationS > 0 && !e.endSaid {
		r.EndNs = r.StartNs + e.durationS*1e9
	}
	switch {
	case r.EndNs == 0:
		return pb.NewProblem(pb.CodeInvalidTime, "the reservation has no end").WithHint("add Duration= or EndTime=")
	case r.EndNs <= r.StartNs:
		return pb.NewProblem(pb.CodeInvalidTime, "the reservation would end before it begins")
	case r.EndNs <= e.tx.NowNS:
		return pb.NewProblem(pb.CodeInvalidTime, "the reservation would end in the past")
	case r.Users == "" && r.Accounts == "" && r.Groups == "":
		return pb.NewProblem(pb.CodeUserID, "the reservation is for nobody").WithHint("add Users=, Accounts= or Groups=")
	}
	if old == nil && r.StartNs < e.tx.NowNS {
		r.StartNs = e.tx.NowNS
	}
	if p := e.chooseNodes(); p != nil {
		return p
	}
	if p := e.overlaps(); p != nil {
		return p
	}
	names, _ := hostlist.Expand(r.Nodes)
	r.NodeCount, r.CoreCount = uint32(len(names)), 0
	for _, n := range names {
		r.CoreCount += e.tx.Node(n).Cpus
	}
	r.Tres = fmt.Sprintf("cpu=%d", r.CoreCount)
	if r.Name == "" {
		r.Name = e.freeName()
	}
	return nil
}

// chooseNodes picks nodes where a count was asked for, or a partition: free ones first.
func (e *resvEdit) chooseNodes() *pb.Problem {
	r := e.r
	if r.Nodes == "" && e.pick == 0 && r.Partition != "" {
		r.Nodes = hostlist.FoldSorted(e.tx.PartitionNodes(r.Partition))
	}
	if e.pick == 0 {
		if r.Nodes == "" && r.Licenses == "" {
			return pb.NewProblem(pb.CodeNodeCount, "the reservation has no nodes").WithHint("add Nodes=, NodeCnt= or PartitionName=")
		}
		return nil
	}
	pool := e.tx.PartitionNodes(r.Partition)
	if r.Partition == "" {
		for _, n := range e.tx.Nodes() {
			pool = append(pool, n.Name)
		}
	}
	var free, busy []string
	for _, name := range pool {
		n := e.tx.Node(name)
		if !n.Up() || e.taken(name) {
			continue
		}
		if len(n.Jobs) == 0 {
			free = append(free, name)
		} else {
			busy = append(busy, name)
		}
	}
	free = append(free, busy...)
	if len(free) < int(e.pick) {
		return pb.NewProblem(pb.CodeNodesBusy, "%d nodes asked for, %d are up and not reserved", e.pick, len(free))
	}
	chosen := free[:e.pick]
	slices.SortFunc(chosen, hostlist.Compare)
	r.Nodes = hostlist.FoldSorted(chosen)
	return nil
}

func (e *resvEdit) has(flag string) bool { return slices.Contains(e.r.Flags, flag) }

// taken reports whether another reservation has the node during the time of this one.
func (e *resvEdit) taken(node string) bool {
	for _, o := range e.tx.Reservations() {
		if o.Name == e.r.Name || o.EndNs <= e.r.StartNs || o.StartNs >= e.r.EndNs {
			continue
		}
		if names, err := hostlist.Expand(o.Nodes); err == nil && slices.Contains(names, node) {
			return true
		}
	}
	return false
}

// overlaps refuses nodes that another reservation has, or on which a job runs into this one, unless the flags allow it.
func (e *resvEdit) overlaps() *pb.Problem {
	names, err := hostlist.Expand(e.r.Nodes)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
	}
	for _, name := range names {
		if !e.has("OVERLAP") && !e.has("MAINT") && e.taken(name) {
			return pb.NewProblem(pb.CodeNodesBusy, "node %s is in another reservation at that time", name).WithHint("choose other nodes or another time, or add Flags=OVERLAP")
		}
		if e.has("IGNORE_JOBS") || e.has("MAINT") {
			continue
		}
		for _, id := range e.tx.Node(name).Jobs {
			if j := e.tx.Job(id); j.Spec.Reservation != e.r.Name && (j.EndNs == 0 || j.EndNs > e.r.StartNs) {
				return pb.NewProblem(pb.CodeNodesBusy, "job %s may run on node %s beyond the start of the reservation", jobName(j), name).WithHint("begin later, or add Flags=IGNORE_JOBS")
			}
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

// endReservations drops those whose time is over.
func endReservations(tx *state.Tx) {
	for _, r := range tx.Reservations() {
		if r.EndNs <= tx.NowNS {
			tx.Emit(state.ReservationEnded{Name: r.Name, Why: "its time is over"})
		}
	}
}
