// Package gpus is `sluice gpus`: the state of every GPU, and its job.
package gpus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/jsonout"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// Verb is `sluice gpus`.
func Verb() *command.Verb {
	return &command.Verb{
		Name: "gpus", Line: "show every GPU: its state, use, job and user",
		Page: command.Page{
			About: `Shows every GPU: its type, state, use and job. For more than ` + strconv.Itoa(screenful) + ` GPUs it shows a
line for each node, unless nodes are named. n/a means that the driver does not report the figure. For nodes
without GPUs it gives the reason, if there are no GPUs at all (not with -n or --json).`,
			Options: []command.Option{
				{Name: opt.Name{Long: "nodes", Short: 'w', Arg: opt.Required}, Meta: "LIST", Help: "only these nodes, as in g[1-4]"},
				{Name: opt.Name{Long: "nodelist", Arg: opt.Required, Canon: "nodes"}},
				{Name: opt.Name{Long: "partition", Short: 'p', Arg: opt.Required}, Meta: "LIST", Help: "only nodes of these partitions"},
				{Name: opt.Name{Long: "free"}, Help: "only GPUs that a job could get now, whole or in part"},
				{Name: opt.Name{Long: "idle"}, Help: "only GPUs that are allocated and idle"},
				{Name: opt.Name{Long: "all", Short: 'a'}, Help: "a line for each GPU, however many there are"},
				{Name: opt.Name{Long: "json"}, Help: "as JSON, with all figures and the names that DCGM and NVML use"},
				{Name: opt.Name{Long: "watch", Arg: opt.Optional}, Meta: "SECONDS", Help: "refresh every SECONDS, 2 by default"},
				{Name: opt.Name{Long: "noheader", Short: 'n'}, Help: "without headings and summary, and a line for each GPU"},
			},
			Blocks: []command.Block{{Title: "STATE",
				Text: "  idle, alloc, mixed (a part is free), fault, foreign (a process outside of any job uses it), drain or down.\n"}},
		},
		Run: run,
	}
}

// screenful is the maximum number of GPUs listed individually by default.
const screenful = 40

// options is a parsed command line.
type options struct {
	request    msg.GpusRequest
	free, idle bool
	all        bool
	json       bool
	bare       bool
	every      time.Duration // 0: once
}

func run(call *command.Call) error {
	o := &options{}
	if err := call.Each(o.set); err != nil {
		return err
	}
	c, err := call.Dial(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for {
		seen, err := askGPUs(c, &o.request)
		if err != nil {
			return err
		}
		if o.print(call.Stdout, seen) != nil { // reported by standard output
			return command.ExitCode(1)
		}
		if o.every == 0 {
			return nil
		}
		call.Sleep(o.every)
	}
}

func (o *options) set(name, value string) error {
	switch name {
	case "nodes":
		o.request.Nodes = append(o.request.Nodes, value)
	case "partition":
		o.request.Partitions = append(o.request.Partitions, command.List(value)...)
	case "free":
		o.free = true
	case "idle":
		o.idle = true
	case "all":
		o.all = true
	case "json":
		o.json = true
	case "noheader":
		o.bare = true
	case "watch":
		s, err := strconv.ParseFloat(cmp.Or(value, "2"), 64)
		if err != nil || !(s >= 0.1 && s <= 86400) {
			return fmt.Errorf("--watch=%s: give seconds from 0.1 to 86400", format.Escape(value))
		}
		o.every = time.Duration(s * float64(time.Second))
	}
	return nil
}

// answer is the controller's answer.
type answer struct {
	list  []*msg.GpuRecord
	none  []*msg.NoGpus // reasons for having no GPUs
	nowNS int64
}

func askGPUs(c *client.Client, r *msg.GpusRequest) (a answer, err error) {
	stream, err := c.Gpus(context.Background(), r)
	if err != nil {
		return a, err
	}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		a.list, a.none, a.nowNS = append(a.list, reply.GetGpus()...), append(a.none, reply.GetNone()...), reply.GetNowNs()
	}
}

// wanted applies --free and --idle.
func (o *options) wanted(g *msg.GpuRecord, nowNS int64) bool {
	switch {
	case o.free:
		return g.GetState() == "idle" || g.GetState() == "mixed"
	case o.idle:
		since := idleSince(g)
		return since != 0 && nowNS-since >= idleShown
	}
	return true
}

func (o *options) print(out io.Writer, a answer) error {
	list, nowNS := a.list, a.nowNS
	var kept []*msg.GpuRecord
	for _, g := range list {
		if o.wanted(g, nowNS) {
			kept = append(kept, g)
		}
	}
	if o.json {
		return printGPUsJSON(out, kept, nowNS)
	}
	var b strings.Builder
	if o.every > 0 && command.IsTerminal(out) {
		b.WriteString("\x1b[H\x1b[2J") // clear the screen
	}
	rows := [][]string{{"NODE", "GPU", "TYPE", "MEMORY", "UTIL", "TEMP", "POWER", "STATE", "JOB", "USER", "NOTE"}}
	byNode := len(kept) > screenful && !o.all && !o.bare && len(o.request.Nodes) == 0
	switch {
	case byNode:
		rows = nodeRows(kept, nowNS)
	case o.bare:
		rows = nil
		fallthrough
	default:
		for _, g := range kept {
			rows = append(rows, gpuRow(g, nowNS))
		}
	}
	if len(kept) > 0 || !o.bare {
		align(&b, rows)
	}
	if !o.bare {
		b.WriteString(gpuSummary(kept, nowNS))
		if byNode {
			b.WriteString("each GPU: sluice gpus -w NODE, or --all\n")
		}
		for _, n := range a.none {
			fmt.Fprintf(&b, "%s: %s\n", hostlist.Fold(n.GetNodes()), format.Escape(n.GetWhy()))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// gpuRow is one line of the table.
func gpuRow(g *msg.GpuRecord, nowNS int64) []string {
	d, s := g.GetDevice(), g.GetSample()
	figure := func(v int64, unit string) string {
		if s == nil || v < 0 {
			return "n/a"
		}
		return strconv.FormatInt(v, 10) + unit
	}
	power := figure(s.GetPowerMw()/1000, "W")
	if s.GetPowerMw() < 0 {
		power = "n/a"
	}
	memory := "n/a"
	if s != nil && s.GetMemoryUsedMib() >= 0 {
		memory = gib(uint64(s.GetMemoryUsedMib()))
	}
	if d.GetMemoryMib() > 0 {
		memory += "/" + gib(d.GetMemoryMib()) + "G"
	}
	jobs, users := ownersOf(g)
	return []string{g.GetNode(), strconv.FormatUint(uint64(d.GetIndex()), 10), dash(d.GetType()), memory, figure(s.GetUtilPercent(), "%"),
		figure(s.GetTemperatureC(), "C"), power, g.GetState(), dash(jobs), dash(users), gpuNote(g, nowNS)}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// gib writes MiB as GiB with one decimal.
func gib(mib uint64) string { return strconv.FormatFloat(float64(mib)/1024, 'f', 1, 64) }

// ownersOf returns the jobs on a GPU and their users, each user once: "12,13(shard:2),14(3g.20gb)".
func ownersOf(g *msg.GpuRecord) (jobs, users string) {
	var ids, names []string
	seen := map[string]bool{}
	for _, o := range g.GetOwners() {
		id := o.GetId()
		switch {
		case o.GetShare() > 0:
			id += fmt.Sprintf("(%s:%d)", g.GetDevice().GetSharedAs(), o.GetShare())
		case o.GetType() != "":
			id += "(" + o.GetType() + ")"
		}
		ids = append(ids, id)
		if !seen[o.GetUser()] {
			seen[o.GetUser()] = true
			names = append(names, o.GetUser())
		}
	}
	return strings.Join(ids, ","), strings.Join(names, ",")
}

// gpuNote returns further information: why the GPU is not allocated, and how long a job has left it idle.
func gpuNote(g *msg.GpuRecord, nowNS int64) string {
	var parts []string
	if g.GetWhy() != "" {
		parts = append(parts, g.GetWhy())
	} else if f := g.GetDevice().GetForeign(); f != "" {
		parts = append(parts, "also used by "+f)
	}
	if since := idleSince(g); since != 0 && nowNS-since >= idleShown {
		parts = append(parts, "idle for "+(time.Duration(nowNS-since)).Truncate(time.Second).String())
	}
	if g.GetDiagnosis() != "" {
		parts = append(parts, g.GetDiagnosis())
	}
	switch ecc := g.GetSample().GetEccUncorrected(); {
	case strings.Contains(g.GetWhy(), "uncorrectable ECC"): // already in Why
	case ecc == 1:
		parts = append(parts, "1 uncorrectable ECC error")
	case ecc > 1:
		parts = append(parts, fmt.Sprintf("%d uncorrectable ECC errors", ecc))
	}
	if t := throttled(g.GetSample()); t != "" {
		parts = append(parts, "throttled: "+t)
	}
	return strings.Join(parts, "; ")
}

// harmless are reasons for low clocks that require no action: a busy GPU is at its power cap.
var harmless = []string{"n/a", "power cap", "sync boost"}

// throttled returns the reasons for low clocks that require action.
func throttled(s *msg.DeviceSample) string {
	reasons := slices.DeleteFunc(strings.Split(s.GetThrottle(), ", "), func(t string) bool { return slices.Contains(harmless, t) })
	return strings.Join(reasons, ", ")
}

// idleShown is how long a GPU must be idle to be reported: programs read data and compile between two kernels.
const idleShown = int64(time.Minute)

// idleSince is when the jobs of a GPU left it idle, 0 = they have not.
func idleSince(g *msg.GpuRecord) int64 {
	if g.GetIdleSinceNs() == 0 || len(g.GetOwners()) == 0 {
		return 0
	}
	since := g.GetIdleSinceNs()
	for _, o := range g.GetOwners() {
		since = max(since, o.GetStartNs())
	}
	return since
}

// align writes rows with aligned columns; names given by others are escaped.
func align(b *strings.Builder, rows [][]string) {
	width := map[int]int{}
	for _, r := range rows {
		for i := range r {
			r[i] = format.Escape(r[i])
			width[i] = max(width[i], len(r[i]))
		}
	}
	for _, r := range rows {
		line := ""
		for i, cell := range r {
			line += cell + strings.Repeat(" ", width[i]-len(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " "))
		b.WriteByte('\n')
	}
}

// tally formats the number of GPUs per state: "5 alloc, 2 idle".
func tally(count map[string]int) string {
	var parts []string
	for _, state := range []string{"alloc", "mixed", "idle", "foreign", "fault", "drain", "down"} {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	return strings.Join(parts, ", ")
}

// gpuSummary counts the states: "8 GPUs: 5 alloc, 2 idle, 1 fault".
func gpuSummary(list []*msg.GpuRecord, nowNS int64) string {
	count := map[string]int{}
	wasted := 0
	total := 0
	whole := map[string]bool{}
	for _, g := range list {
		whole[g.GetDevice().GetId()] = true
	}
	for _, g := range list {
		if p := g.GetDevice().GetParent(); p != "" && whole[p] {
			continue // a part of a GPU that has been counted
		}
		total++
		count[g.GetState()]++
		if since := idleSince(g); since != 0 && nowNS-since >= idleShown {
			wasted++
		}
	}
	text := fmt.Sprintf("%d GPUs", total)
	if total == 1 {
		text = "1 GPU"
	}
	if total > 0 {
		text += ": " + tally(count)
	}
	if wasted > 0 {
		text += fmt.Sprintf("; %d allocated to jobs that leave them idle", wasted)
	}
	return text + "\n"
}

// printGPUsJSON prints all fields; unknown ones are null.
func printGPUsJSON(out io.Writer, list []*msg.GpuRecord, nowNS int64) error {
	w := jsonout.New(out, false, false)
	w.List("gpus")
	for _, g := range list {
		gpuJSON(w, g)
	}
	w.End()
	w.Int("now", nowNS/1e9)
	return w.Close()
}

func gpuJSON(w *jsonout.Writer, g *msg.GpuRecord) {
	d, s := g.GetDevice(), g.GetSample()
	w.Object("")
	w.Str("node", g.GetNode())
	w.Int("index", int64(d.GetIndex()))
	for _, kv := range [][2]string{{"type", d.GetType()}, {"model", d.GetModel()}, {"uuid", d.GetId()}, {"pci", d.GetPci()},
		{"mig_mode", d.GetMigMode()}, {"parent", d.GetParent()},
		{"ecc", d.GetEcc()}, {"state", g.GetState()}, {"reason", g.GetWhy()}, {"fault", d.GetFault()}, {"foreign", d.GetForeign()},
		{"diagnosis", g.GetDiagnosis()}} {
		w.Str(kv[0], kv[1])
	}
	w.Int("memory_mib", int64(d.GetMemoryMib()))
	for _, f := range []struct {
		name  string
		value int64
	}{{"memory_used_mib", s.GetMemoryUsedMib()}, {"utilization_percent", s.GetUtilPercent()}, {"temperature_c", s.GetTemperatureC()},
		{"power_mw", s.GetPowerMw()},
		{"energy_mj", s.GetEnergyMj()}, {"sm_clock_mhz", s.GetSmClockMhz()}, {"memory_clock_mhz", s.GetMemoryClockMhz()},
		{"ecc_uncorrected", s.GetEccUncorrected()}} {
		if s != nil && f.value >= 0 {
			w.Int(f.name, f.value)
		} else {
			w.Null(f.name)
		}
	}
	w.Str("throttle", s.GetThrottle())
	if since := idleSince(g); since != 0 {
		w.Int("idle_since", since/1e9)
	} else {
		w.Null("idle_since")
	}
	w.List("jobs")
	for _, o := range g.GetOwners() {
		w.Object("")
		w.Str("id", o.GetId())
		w.Int("job_id", int64(o.GetJobId()))
		w.Str("name", o.GetName())
		w.Str("user", o.GetUser())
		w.Int("shares", int64(o.GetShare()))
		w.Str("instance", o.GetType())
		w.End()
	}
	w.End()
	w.End()
}
