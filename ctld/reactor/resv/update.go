// Package resv decides about reservations: scontrol's create, update and delete (Update), and changes by the passing of time (Tick).
// Package reactor forwards both, and handles jobs in reservations. Pure.
//
//	update.go  the verbs, and the check of the whole
//	set.go     the keys of scontrol, one by one
//	nodes.go   the choice of nodes: named, counted, or all of a partition
//	parts.go   cores and devices of nodes (CoreCnt=, TRES=)
//	time.go    recurrence, and reservations at the same time
//	upkeep.go  changes by the passing of time
package resv

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Update is scontrol create, update and delete of a reservation; a reactor.Command.
type Update struct {
	Operator bool // root or SlurmUser; no other caller may
	Name     string
	Set      []*pb.KeyValue
	Create   bool
	Delete   bool
	Groups   map[string]uint32 // ids of the groups in Set
}

// Reserved is the reply: the name, which may be generated.
type Reserved struct {
	Name string
	Seq  uint64
}

// maxReservations bounds the number of reservations.
const maxReservations = 10000

// Handle makes, changes or ends a reservation. Its refusals are those of a real slurmctld, followed by the diagnosis.
func (c Update) Handle(tx *state.Tx) any {
	if !c.Operator {
		return pb.NewProblem(pb.CodeUserID, "only root and SlurmUser may reserve nodes")
	}
	old := tx.Reservation(c.Name)
	switch {
	case c.Delete:
		return c.end(tx, old)
	case !c.Create && old == nil:
		return pb.NewProblem(pb.CodeResvInvalid, "there is no reservation %q", c.Name)
	case c.Create && old != nil:
		return pb.NewProblem(pb.CodeResvDuplicate, "reservation %s already exists", c.Name)
	case c.Create && strings.ContainsAny(c.Name, ","):
		return pb.NewProblem(pb.CodeResvInvalid, "the name %q has a comma, which separates names", c.Name)
	case c.Create && len(tx.Reservations()) >= maxReservations:
		return pb.NewProblem(pb.CodeResvInvalid, "there are already %d reservations, the maximum", maxReservations)
	}
	e := edit{tx: tx, old: old, r: &pb.ReservationRecord{Name: c.Name, StartNs: tx.NowNS}}
	if old != nil {
		e.r = state.CloneReservation(old)
	}
	e.groups = c.Groups
	for _, kv := range c.Set {
		if p := e.set(kv.Key, kv.Value); p != nil {
			return p
		}
	}
	if e.skip {
		return c.skip(tx, old)
	}
	if p := e.complete(); p != nil {
		return p
	}
	tx.Emit(state.ReservationChanged{Reservation: e.r})
	return Reserved{Name: e.r.Name, Seq: tx.Seq}
}

// end deletes a reservation that no job uses.
func (c Update) end(tx *state.Tx, old *pb.ReservationRecord) any {
	if old == nil {
		return pb.NewProblem(pb.CodeResvInvalid, "there is no reservation %q", c.Name)
	}
	for j := range tx.Jobs().All() {
		if ofJob(j) == c.Name && state.Active(j) {
			return pb.NewProblem(pb.CodeResvBusy, "job %s %s in reservation %s", state.JobName(j), doing(j),
				c.Name).WithHint("cancel its jobs first, or move them out with scontrol update JobId=%d Reservation=", j.Id)
		}
	}
	tx.Emit(state.ReservationEnded{Name: c.Name, Why: "deleted"})
	return Reserved{Name: c.Name, Seq: tx.Seq}
}

func doing(j *pb.JobRecord) string {
	if state.Live(j) {
		return "runs"
	}
	return "waits to run"
}

// edit is a reservation under change.
type edit struct {
	tx        *state.Tx
	old       *pb.ReservationRecord // nil for a new one
	r         *pb.ReservationRecord
	durationS int64 // 0 = not given
	startSaid bool
	endSaid   bool
	nodesSaid bool
	pick      uint32   // nodes to choose
	refill    bool     // empty Nodes=: choose others
	cores     []uint32 // CoreCnt=: in total, or for each node
	cpus      bool     // cores are CPUs (TRES=cpu=)
	gres      []tres.Gres
	skip      bool
	groups    map[string]uint32
}

func (e *edit) set(key, value string) *pb.Problem {
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
	case "corecnt", "corecount":
		return e.coreCount(value)
	case "tres":
		return e.tres(value)
	case "skip":
		e.skip = true
	case "users":
		e.r.Users = e.list(e.r.Users, value, op)
	case "accounts":
		e.r.Accounts = e.list(e.r.Accounts, value, op)
	case "groups":
		e.r.Groups = e.list(e.r.Groups, value, op)
	case "flags":
		return e.flags(value, op)
	case "partitionname", "partition":
		if e.tx.Partition(value) == nil {
			return pb.NewProblem(pb.CodeInvalidPartition, "there is no partition %q", value)
		}
		e.r.Partition = value
	case "features":
		if e.old != nil && value != "" {
			return pb.NewProblem(pb.CodeNotSupported, "the features by which the nodes of reservation %s were chosen cannot be changed",
				e.r.Name).WithHint(
				"give it other nodes (Nodes=), or delete it and create it again")
		}
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
		return pb.NewProblem(pb.CodeNotSupported, "cannot set %s of a reservation",
			key).WithHint(
			"can be set: StartTime, EndTime, Duration, Nodes, NodeCnt, CoreCnt, TRES, Users, Accounts, Groups, Flags, " +
				"PartitionName, Features, Licenses, MaxStartDelay, Skip, Comment")
	}
	return nil
}

// lateNS is how far in the past a start may lie: it may be the command's "now".
const lateNS = 60e9

// times computes start and end. A start that moves takes the end along.
func (e *edit) times() *pb.Problem {
	r, old := e.r, e.old
	late := (old == nil || e.startSaid) && r.StartNs < e.tx.NowNS
	if late && r.StartNs >= e.tx.NowNS-lateNS {
		r.StartNs = e.tx.NowNS - e.tx.NowNS%1e9 // whole seconds, as displayed
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

// complete checks the result: it must lie in the future, be for somebody, and have nodes that no other reservation has.
func (e *edit) complete() *pb.Problem {
	r := e.r
	if p := e.times(); p != nil {
		return p
	}
	if r.Users == "" && r.Accounts == "" && r.Groups == "" {
		return pb.NewProblem(pb.CodeResvEmpty, "nobody may use the reservation").WithHint("add Users=, Accounts= or Groups=")
	}
	for _, check := range []func() *pb.Problem{e.whoFor, e.checkFlags, e.place, e.licensesLeft} {
		if p := check(); p != nil {
			return p
		}
	}
	e.measure()
	if r.Name == "" {
		r.Name = e.freeName()
	}
	return nil
}

// place finds the nodes, or the cores and devices of nodes.
func (e *edit) place() *pb.Problem {
	if len(e.cores) > 0 || len(e.gres) > 0 {
		return e.chooseParts()
	}
	if e.old != nil && len(e.old.Parts) > 0 {
		if e.nodesSaid || e.pick > 0 {
			return pb.NewProblem(pb.CodeCoreResvUpdate, "reservation %s holds cores of its nodes",
				e.r.Name).WithHint("delete it and create it again")
		}
		return e.partsStillFree()
	}
	if p := e.chooseNodes(); p != nil {
		return p
	}
	return e.overlaps()
}

// measure fills in the displayed size.
func (e *edit) measure() {
	r := e.r
	names, _ := hostlist.Expand(r.Nodes)
	r.NodeCount, r.CoreCount, r.Tres = uint32(len(names)), 0, ""
	cpus, devices := uint32(0), map[string]int{}
	for _, name := range names {
		n := e.tx.Node(name)
		if n == nil {
			continue // removed from slurm.conf since
		}
		h := hardwareOf(n)
		r.CoreCount, cpus = r.CoreCount+h.cores, cpus+n.Cpus
	}
	if len(r.Parts) > 0 {
		r.CoreCount, cpus = 0, 0
	}
	for _, p := range r.Parts {
		c, _ := state.ParseCores(p.CpuIds) // cannot fail: this package wrote it
		r.CoreCount, cpus = r.CoreCount+uint32(c.Count()), cpus+p.Cpus
		for _, d := range p.Devices {
			devices["gres/"+d.Name]++
		}
	}
	if cpus > 0 {
		r.Tres = fmt.Sprintf("cpu=%d", cpus)
	}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		r.Tres += fmt.Sprintf(",%s=%d", name, devices[name])
	}
}

// whoFor checks the lists of users, groups and accounts.
func (e *edit) whoFor() *pb.Problem {
	r := e.r
	for _, list := range []string{r.Users, r.Accounts, r.Groups} {
		if p := oneSided(list); p != nil {
			return p
		}
	}
	switch {
	case r.Users != "" && r.Groups != "":
		return pb.NewProblem(pb.CodeResvUserGroup, "Users=%s and Groups=%s", r.Users,
			r.Groups).WithHint("set one of them to nothing: Users= or Groups=")
	case strings.HasPrefix(r.Groups, "-"):
		return pb.NewProblem(pb.CodeInvalidGroup, "%q: groups cannot be denied, users and accounts can", r.Groups)
	}
	have := map[string]uint32{}
	if e.old != nil {
		for i, name := range splitList(e.old.Groups) {
			if i < len(e.old.GroupIds) {
				have[name] = e.old.GroupIds[i]
			}
		}
	}
	r.GroupIds = nil
	for _, name := range splitList(r.Groups) {
		id, known := e.groups[name]
		if !known {
			id = have[name]
		}
		r.GroupIds = append(r.GroupIds, id)
	}
	return nil
}

// oneSided refuses a list with both names and denials.
func oneSided(list string) *pb.Problem {
	words := strings.FieldsFunc(list, func(c rune) bool { return c == ',' })
	not := func(s string) bool { return strings.HasPrefix(s, "-") }
	if i := slices.IndexFunc(words, not); i >= 0 && slices.ContainsFunc(words, func(s string) bool { return !not(s) }) {
		return pb.NewProblem(pb.CodeUserID, "%q both names and excludes",
			list).WithHint("name either those allowed or those excluded")
	}
	return nil
}

// licensesLeft refuses more licenses than other reservations leave.
func (e *edit) licensesLeft() *pb.Problem {
	want := map[string]uint64{}
	admit.CountLicenses(want, e.r.Licenses)
	others := map[string]uint64{}
	for o := range e.atOnce {
		admit.CountLicenses(others, o.Licenses)
	}
	for _, l := range e.tx.Settings().Licenses {
		if n := want[l.Name]; n > 0 && n+others[l.Name] > uint64(l.Count) {
			return pb.NewProblem(pb.CodeResvOverlap,
				"%d licenses %s requested; there are %d, and other reservations have %d of them at that time", n, l.Name, l.Count,
				others[l.Name])
		}
	}
	return nil
}

// freeName generates a name: the first user or account and a number, as Slurm does.
func (e *edit) freeName() string {
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
