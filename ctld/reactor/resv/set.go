package resv

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/admit"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// count parses NodeCnt: "4", or "4,2", which is their sum.
func (e *edit) count(value string) *pb.Problem {
	list, ok := counts(value)
	if !ok {
		return pb.NewProblem(pb.CodeNodeCount, "NodeCnt=%s is not a count", value)
	}
	e.pick = sum(list)
	return nil
}

// counts parses "4", "2k" and "4,2": none may be 0, and their sum is at most 2^24.
func counts(value string) ([]uint32, bool) {
	var out []uint32
	for _, part := range strings.Split(value, ",") {
		digits, times := part, uint64(1)
		if rest, kilo := strings.CutSuffix(strings.ToLower(part), "k"); kilo {
			digits, times = rest, 1024
		}
		n, err := strconv.ParseUint(digits, 10, 24)
		if n *= times; err != nil || n == 0 || n > maxCount || sum(out)+uint32(n) > maxCount {
			return nil, false
		}
		out = append(out, uint32(n))
	}
	return out, true
}

// maxCount bounds the request of one reservation.
const maxCount = 1 << 24

func sum(list []uint32) uint32 {
	n := uint32(0)
	for _, x := range list {
		n += x
	}
	return n
}

func (e *edit) coreCount(value string) *pb.Problem {
	list, ok := counts(value)
	if !ok {
		return pb.NewProblem(pb.CodeCoreCount, "CoreCnt=%s is not a count, nor a list of them", value)
	}
	e.cores, e.cpus = list, false
	return nil
}

// tres parses "cpu=2,2,1,node=4,license/name=3,gres/gpu:a100=2"; words without "=" continue the list before them.
func (e *edit) tres(value string) *pb.Problem {
	name, lists := "", map[string]string{}
	var order []string
	for _, word := range strings.Split(value, ",") {
		key, amount, said := strings.Cut(word, "=")
		switch {
		case said:
			name = strings.ToLower(key)
			if lists[name] == "" {
				order = append(order, name)
			}
			lists[name] = amount
		case name == "":
			return pb.NewProblem(pb.CodeInvalidSpec, "TRES=%s: %q has no name", value, word)
		default:
			lists[name] += "," + word
		}
	}
	for _, name := range order {
		if p := e.oneTRES(name, lists[name]); p != nil {
			return p
		}
	}
	return nil
}

func (e *edit) oneTRES(name, amount string) *pb.Problem {
	kind, what, _ := strings.Cut(name, "/")
	switch kind {
	case "cpu":
		p := e.coreCount(amount)
		e.cpus = true
		return p
	case "node":
		return e.count(amount)
	case "license":
		return e.licenses(strings.TrimPrefix(e.r.Licenses+","+what+":"+amount, ","))
	case "gres":
		g, typ, _ := strings.Cut(what, ":")
		n, ok := counts(amount)
		if !ok || len(n) != 1 || g != "gpu" {
			return pb.NewProblem(pb.CodeInvalidGres, "TRES=%s=%s", name, amount).WithHint("gres/gpu=4 or gres/gpu:type=4")
		}
		e.gres = append(e.gres, tres.Gres{Name: g, Type: typ, Count: uint64(n[0])})
		return nil
	}
	return pb.NewProblem(pb.CodeNotSupported, "TRES %s of a reservation",
		name).WithHint("cpu, node, license/NAME, gres/gpu and gres/gpu:TYPE")
}

// licenses checks that the cluster has that many; complete subtracts those of other reservations at that time.
func (e *edit) licenses(value string) *pb.Problem {
	if value != "" {
		if p := admit.Licenses(e.tx.View(), value); p != nil {
			return p
		}
	}
	e.r.Licenses = value
	return nil
}

func (e *edit) moment(dst *int64, key, value string) *pb.Problem {
	t, err := timespec.ParseUnix(value)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidTime, "%s=%s: %v", key, value, err)
	}
	*dst = t.UnixNano()
	return nil
}

func (e *edit) duration(value, op string) *pb.Problem {
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

func (e *edit) nodes(value, op string) *pb.Problem {
	if strings.EqualFold(value, "ALL") {
		var all []string
		for _, n := range e.tx.Nodes() {
			all = append(all, n.Name)
		}
		e.nodesSaid, e.r.AllNodes = true, true
		e.r.Nodes = hostlist.FoldSorted(all)
		return nil
	}
	if value == "" && op == "" && e.old != nil { // keep the number of nodes, but choose any (scontrol(1))
		e.pick, e.r.Nodes, e.r.AllNodes = e.old.NodeCount, "", false
		e.refill = true
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

// flagNames are the supported flags, in the order in which Slurm shows them. SPEC_NODES, ALL_NODES and PART_NODES tell how the nodes were
// given. PURGE_COMP is shown with its time.
var flagNames = []string{"MAINT", "FLEX", "OVERLAP", "IGNORE_JOBS", "HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY", "SPEC_NODES",
	"ALL_NODES",
	"ANY_NODES", "STATIC", "PART_NODES", "FIRST_CORES", "TIME_FLOAT", "REPLACE", "REPLACE_DOWN", "PURGE_COMP", "NO_HOLD_JOBS_AFTER",
	"MAGNETIC"}

// flagAliases are other names of flags.
var flagAliases = map[string]string{"STATIC_ALLOC": "STATIC", "LICENSE_ONLY": "ANY_NODES", "IGNORE_RUNNING": "IGNORE_JOBS",
	"NO_HOLD_JOBS": "NO_HOLD_JOBS_AFTER", "NO_HOLD_JOBS_AFTER_END": "NO_HOLD_JOBS_AFTER"}

// lasting are the flags that scontrol(1) does not allow to be removed.
var lasting = []string{"FIRST_CORES", "NO_HOLD_JOBS_AFTER", "OVERLAP", "REPLACE", "REPLACE_DOWN", "TIME_FLOAT"}

// defaultPurgeS is the time of PURGE_COMP without a value.
const defaultPurgeS = 300

func (e *edit) flags(value, op string) *pb.Problem {
	if op == "" {
		e.r.Flags = slices.DeleteFunc(slices.Clone(e.r.Flags), func(f string) bool { return !strings.HasSuffix(f, "_NODES") })
		e.r.PurgeCompS = 0
	}
	for _, word := range strings.Split(strings.ToUpper(value), ",") {
		f, arg, timed := strings.Cut(word, "=")
		if f == "" {
			continue
		}
		if other := flagAliases[f]; other != "" {
			f = other
		}
		switch {
		case !slices.Contains(flagNames, f) || timed && f != "PURGE_COMP":
			return pb.NewProblem(pb.CodeNotSupported, "flag %s of a reservation", word).WithHint("one of %s", strings.Join(flagNames, ", "))
		case op == "-" && slices.Contains(lasting, f) && e.has(f):
			return pb.NewProblem(pb.CodeNotSupported, "flag %s cannot be removed from a reservation", f)
		case f == "PURGE_COMP":
			if p := e.purgeAfter(arg, op); p != nil {
				return p
			}
		}
		e.flag(f, op != "-")
	}
	return nil
}

func (e *edit) purgeAfter(arg, op string) *pb.Problem {
	e.r.PurgeCompS, e.r.IdleNs = defaultPurgeS, 0
	if op == "-" {
		e.r.PurgeCompS = 0
	}
	if arg == "" || op == "-" {
		return nil
	}
	m, err := timespec.ParseMinutes(arg)
	if err != nil || m <= 0 || m > 365*24*60 {
		return pb.NewProblem(pb.CodeInvalidTime, "PURGE_COMP=%s", arg)
	}
	e.r.PurgeCompS = uint32(m * 60)
	return nil
}

// checkFlags refuses flags that contradict each other or the request.
func (e *edit) checkFlags() *pb.Problem {
	r, old := e.r, e.old
	times := 0
	for _, f := range r.Flags {
		if _, ok := periods[f]; ok {
			times++
		}
	}
	parts := len(e.cores)+len(e.gres)+len(r.Parts) > 0
	no := func(text string) *pb.Problem {
		return pb.NewProblem(pb.CodeNotSupported, "%s", text)
	}
	switch {
	case times > 1:
		return no("a reservation can recur in only one way: HOURLY, DAILY, WEEKDAY, WEEKEND or WEEKLY")
	case times > 0 && e.has("TIME_FLOAT"):
		return no("a floating reservation (TIME_FLOAT) cannot recur")
	case old != nil && e.has("TIME_FLOAT") != (old.FloatS != 0):
		return pb.NewProblem(pb.CodeInvalidTime, "TIME_FLOAT cannot be added to a reservation or removed")
	case old == nil && e.has("TIME_FLOAT") && r.StartNs < e.tx.NowNS+60e9:
		return no("a floating reservation must begin at least a minute from now").WithHint("StartTime=now+10minutes")
	case (e.has("REPLACE") || e.has("REPLACE_DOWN")) && e.nodesSaid && e.pick == 0:
		return pb.NewProblem(pb.CodeInvalidNodeName,
			"REPLACE and REPLACE_DOWN require a reservation of a number of nodes").WithHint("ask with NodeCnt=")
	case (e.has("REPLACE") || e.has("REPLACE_DOWN")) && (e.has("STATIC") || e.nodesSaid && e.pick == 0 || parts || recurs(r) != "" &&
		e.has("REPLACE")):
		return no("REPLACE and REPLACE_DOWN require a reservation of a number of whole nodes").WithHint(
			"ask with NodeCnt=, without STATIC_ALLOC")
	case parts && e.has("FLEX"):
		return no("FLEX requires a reservation of whole nodes: jobs in a reservation of cores use only those cores")
	}
	if old == nil && e.has("TIME_FLOAT") {
		r.FloatS = uint32((r.StartNs - e.tx.NowNS) / 1e9)
	}
	return nil
}

// flag sets or clears a flag, and keeps the flags in order.
func (e *edit) flag(f string, on bool) {
	list := slices.DeleteFunc(slices.Clone(e.r.Flags), func(x string) bool { return x == f })
	if on {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b string) int { return slices.Index(flagNames, a) - slices.Index(flagNames, b) })
	e.r.Flags = list
}

func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// list edits a list of users, accounts or groups: "+=" adds, "-=" removes. For a list of denials, and for a new reservation, "-=" denies
// (scontrol(1)).
func (e *edit) list(have, value, op string) string {
	denials := func() string {
		words := splitList(value)
		for i, w := range words {
			words[i] = "-" + strings.TrimPrefix(w, "-")
		}
		return strings.Join(words, ",")
	}
	switch {
	case have == "" && op == "-":
		return denials()
	case strings.HasPrefix(have, "-") && op != "":
		return editList(have, denials(), map[string]string{"+": "-", "-": "+"}[op])
	}
	return editList(have, value, op)
}

func editList(have, value, op string) string {
	switch op {
	case "+":
		return strings.Join(append(slices.DeleteFunc(splitList(have), func(s string) bool { return slices.Contains(splitList(value), s) }),
			splitList(value)...), ",")
	case "-":
		gone := splitList(value)
		return strings.Join(slices.DeleteFunc(splitList(have), func(s string) bool { return slices.Contains(gone, s) }), ",")
	}
	return value
}
