// Package sdiag is the command that shows statistics of the controller and its scheduler.
package sdiag

import (
	"cmp"
	"context"
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
	"github.com/sluice-hpc/sluice/client/view"
)

var Options = [...]command.Option{
	{Name: opt.Name{Long: "all", Short: 'a'}, Help: "show the counters (the default)"},
	{Name: opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Env: "SLURM_CLUSTERS", Meta: "name",
		Help: "cluster to query: the name of this one"},
	{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this help"},
	{Name: opt.Name{Long: "json", Arg: opt.Optional}, Meta: "parser", Help: "print JSON (data_parser v0.0.42)"},
	{Name: opt.Name{Long: "reset", Short: 'r'}, Help: "set the counters to 0 (root and SlurmUser)"},
	{Name: opt.Name{Long: "sort-by-id", Short: 'i'}, Help: "sort the calls by type and user id"},
	{Name: opt.Name{Long: "sort-by-time", Short: 't'}, Help: "sort the calls by total time"},
	{Name: opt.Name{Long: "sort-by-time2", Short: 'T'}, Help: "sort the calls by average time"},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "yaml", Arg: opt.Optional}, Meta: "parser", Help: "print YAML"},
}

const usage = "Usage: sdiag [-M cluster] [-aritT] [--json] [--yaml]\n"

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage:   "Usage: sdiag [OPTIONS]",
		About:   `Shows statistics of the controller and its scheduler since midnight UTC.`,
		Options: Options[:],
		Examples: `  sdiag                       all counters
  sdiag | grep 'Mean cycle'   how long a scheduling pass takes, in microseconds
  sdiag -t                    calls by total time, with their users
  sdiag --json | jq .statistics.jobs_pending

`,
	}
}

// run is a parsed command line of sdiag.
type run struct {
	reset    bool
	sort     byte // 'i', 't', 'T', or 0: by count
	document view.DocumentKind
	clusters string
}

// Main runs one sdiag command line.
func Main(env *command.Env, args []string) int {
	o, err := parse(env, args)
	if err != nil {
		return env.Exit(err)
	}
	c, err := env.Dial(context.Background())
	var r *msg.StatsReply
	if err == nil {
		defer func() { _ = c.Close() }()
		r, err = c.Stats(context.Background(), &msg.StatsRequest{Reset_: o.reset})
	}
	switch {
	case client.ProblemOf(err).GetCode() == uint32(msg.CodeAccessDenied) && o.reset:
		text, more := command.Phrase(err)
		fmt.Fprintf(env.Stderr, "slurm_reset_statistics: %s\n", text)
		env.Errorf("%s", format.Escape(more))
		return 255 // as a real sdiag
	case err != nil && o.reset:
		return env.Exit(view.LoadFailed(env, "slurm_reset_statistics error", err))
	case err != nil:
		return env.Exit(view.LoadFailed(env, "slurm_get_statistics", err))
	case o.reset:
		_, _ = io.WriteString(env.Stdout, "Reset scheduling statistics\n")
		return 0
	}
	o.order(r)
	if o.document.Wanted {
		return printDocument(env, o.document, r)
	}
	fc := view.Context(env, r.GetNowNs())
	b := text(fc, r)
	if _, err := env.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}

func parse(env *command.Env, args []string) (*run, error) {
	o := &run{clusters: env.Getenv("SLURM_CLUSTERS")}
	_, err := env.Options(Options[:], args, func(name string, h opt.Hit) (err error) {
		switch name {
		case "clusters":
			o.clusters = h.Value
		case "help":
			return env.Print(Page().Help())
		case "usage":
			return env.Print(usage)
		case "version":
			return env.PrintVersion()
		case "reset":
			o.reset = true
		case "sort-by-id":
			o.sort = 'i'
		case "sort-by-time":
			o.sort = 't'
		case "sort-by-time2":
			o.sort = 'T'
		case "json", "yaml":
			o.document, err = view.DocumentOption(env, name, h.Value)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, env.CheckClusters(o.clusters)
}

// order sorts the counters of calls; the controller sends them by count.
func (o *run) order(r *msg.StatsReply) {
	by := func(id func(*msg.CallStats) uint64) func(a, b *msg.CallStats) int {
		return func(a, b *msg.CallStats) int {
			switch o.sort {
			case 'i':
				return cmp.Compare(id(a), id(b))
			case 't':
				return cmp.Compare(b.GetTotalUs(), a.GetTotalUs())
			case 'T':
				return cmp.Compare(average(b), average(a))
			}
			return 0
		}
	}
	slices.SortStableFunc(r.Methods, by(func(c *msg.CallStats) uint64 { _, n := callName(c.GetName()); return uint64(n) }))
	slices.SortStableFunc(r.Users, by(func(c *msg.CallStats) uint64 { return uint64(c.GetUid()) }))
}

func average(c *msg.CallStats) uint64 { return c.GetTotalUs() / max(c.GetCount(), 1) }

// callName returns Slurm's name and number for a method, as in sdiag; methods that only Sluice has get a name in the same style and
// the number 0.
func callName(method string) (name string, number int) {
	for _, m := range [...]struct {
		method, name string
		number       int
	}{
		{"Ping", "REQUEST_PING", 1008}, {"Submit", "REQUEST_SUBMIT_BATCH_JOB", 4003}, {"SubmitLarge", "REQUEST_SUBMIT_BATCH_JOB_LARGE", 0},
		{"Jobs", "REQUEST_JOB_INFO", 2003}, {"Nodes", "REQUEST_NODE_INFO", 2007}, {"Partitions", "REQUEST_PARTITION_INFO", 2009},
		{"Config", "REQUEST_BUILD_INFO", 2001}, {"BatchScript", "REQUEST_BATCH_SCRIPT", 2051}, {"CancelJobs", "REQUEST_KILL_JOB", 5032},
		{"ControlJobs", "REQUEST_SUSPEND", 5014}, {"UpdateJob", "REQUEST_UPDATE_JOB", 3001}, {"UpdateNode", "REQUEST_UPDATE_NODE", 3002},
		{"CreateNodes", "REQUEST_CREATE_NODE", 3015}, {"DeleteNodes", "REQUEST_DELETE_NODE", 3014},
		{"UpdatePartition", "REQUEST_UPDATE_PARTITION", 3005}, {"Reconfigure", "REQUEST_RECONFIGURE", 1003},
		{"Shutdown", "REQUEST_SHUTDOWN", 1005},
		{"Stats", "REQUEST_STATS_INFO", 2035}, {"Reservations", "REQUEST_RESERVATION_INFO", 2024},
		{"UpdateReservation", "REQUEST_UPDATE_RESERVATION", 3009},
		{"Licenses", "REQUEST_LICENSE_INFO", 1017}, {"Priorities", "REQUEST_PRIORITY_FACTORS", 2026},
		{"Topology", "REQUEST_TOPO_INFO", 2018},
	} {
		if m.method == method {
			return m.name, m.number
		}
	}
	var b strings.Builder
	b.WriteString("REQUEST")
	for _, c := range method {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return strings.ToUpper(b.String()), 0
}

const stars = "*******************************************************\n"

// clockText formats a moment as sdiag does: "Fri Nov 20 18:26:16 2026 (1795199176)".
func clockText(seconds int64) string {
	if seconds == 0 {
		return "N/A"
	}
	return time.Unix(seconds, 0).Format("Mon Jan _2 15:04:05 2006") + " (" + strconv.FormatInt(seconds, 10) + ")"
}

// text returns the report that exporters parse line by line; every label, blank and order is Slurm's.
func text(fc *format.Context, r *msg.StatsReply) []byte {
	v := figuresOf(r)
	now := fc.Now.Unix()
	b := []byte(stars)
	b = fmt.Appendf(b, "sdiag output at %s\nData since      %s\n%s", clockText(now), clockText(r.GetSinceNs()/1e9), stars)
	b = fmt.Appendf(b,
		"Server thread count:  %d\nAgent queue size:     %d\nAgent count:          %d\nAgent thread count:   %d\nDBD Agent queue "+
			"size: %d\n\n",
		v.n("active_calls"), 0, v.n("links"), v.n("links"), v.n("accounting_waiting"))
	b = fmt.Appendf(b, "Jobs submitted: %d\nJobs started:   %d\nJobs completed: %d\nJobs canceled:  %d\nJobs failed:    %d\n\n",
		v.n("jobs_submitted"), v.n("jobs_started"), v.n("jobs_completed"), v.n("jobs_canceled"), v.n("jobs_failed"))
	b = fmt.Appendf(b, "Job states ts:  %s\nJobs pending:   %d\nJobs running:   %d\n\n", clockText(now), v.n("pending"), v.n("running"))
	b = mainText(b, v, max(now-r.GetSinceNs()/1e9, 1))
	b = backfill(b, v)
	b = fmt.Appendf(b, "\nLatency for 1000 calls to gettimeofday(): %d microseconds\n", v.n("latency_us"))
	b = append(b, "\nRemote Procedure Call statistics by message type\n"...)
	for _, c := range r.GetMethods() {
		name, number := callName(c.GetName())
		b = fmt.Appendf(b, "\t%-40s(%5d) count:%-6d ave_time:%-6d total_time:%d\n", name, number, c.GetCount(), average(c), c.GetTotalUs())
	}
	b = append(b, "\nRemote Procedure Call statistics by user\n"...)
	for _, c := range r.GetUsers() {
		b = fmt.Appendf(b, "\t%-16s(%8d) count:%-6d ave_time:%-6d total_time:%d\n", format.Escape(c.GetName()), c.GetUid(), c.GetCount(),
			average(c), c.GetTotalUs())
	}
	return append(b, "\nPending RPC statistics\n\tNo pending RPCs\n"...)
}

// figures are the counters by name.
type figures map[string]float64

func figuresOf(r *msg.StatsReply) figures { return r.GetValues() }

func (v figures) n(name string) int64 { return int64(v[name]) }

// us returns a duration in microseconds.
func (v figures) us(name string) int64 { return int64(v[name] / 1e3) }

// mean returns a sum divided by the number of passes.
func (v figures) mean(name string) int64 { return int64(v[name] / max(v["passes"], 1)) }

// ended is the number of passes that covered the whole queue.
func (v figures) ended() int64 { return v.n("passes") - v.n("truncated") }

func mainText(b []byte, v figures, seconds int64) []byte {
	b = fmt.Appendf(b, "Main schedule statistics (microseconds):\n\tLast cycle:   %d\n\tMax cycle:    %d\n\tTotal cycles: %d\n",
		v.us("pass_last_ns"), v.us("pass_max_ns"), v.n("passes"))
	if v.n("passes") > 0 {
		b = fmt.Appendf(b, "\tMean cycle:   %d\n\tMean depth cycle:  %d\n", v.mean("pass_total_ns")/1e3, v.mean("tried"))
	}
	b = fmt.Appendf(b, "\tCycles per minute: %d\n\tLast queue length: %d\n\n", v.n("passes")*60/seconds, v.n("queue"))
	return fmt.Appendf(b,
		"Main scheduler exit:\n\tEnd of job queue:%3d\n\tHit default_queue_depth:%3d\n\tHit sched_max_job_start:%3d\n\tBlocked on "+
			"licenses:%3d\n\tHit max_rpc_cnt:%3d\n\tTimeout (max_sched_time):%3d\n\n",
		v.ended(), 0, 0, 0, 0, v.n("truncated"))
}

func backfill(b []byte, v figures) []byte {
	b = fmt.Appendf(b,
		"Backfilling stats\n\tTotal backfilled jobs (since last slurm start): %d\n\tTotal backfilled jobs (since last stats cycle "+
			"start): %d\n"+
			"\tTotal backfilled heterogeneous job components: 0\n\tTotal cycles: %d\n\tLast cycle when: %s\n\tLast cycle: %d\n\tMax "+
			"cycle:  %d\n",
		v.n("backfilled_ever"), v.n("backfilled"), v.n("passes"), clockText(v.n("pass_last_s")), v.us("pass_last_ns"), v.us("pass_max_ns"))
	some := v.n("passes") > 0
	if some {
		b = fmt.Appendf(b, "\tMean cycle: %d\n", v.mean("pass_total_ns")/1e3)
	}
	b = fmt.Appendf(b, "\tLast depth cycle: %d\n\tLast depth cycle (try sched): %d\n", v.n("last_tried"), v.n("last_tried"))
	if some {
		b = fmt.Appendf(b, "\tDepth Mean: %d\n\tDepth Mean (try depth): %d\n", v.mean("tried"), v.mean("tried"))
	}
	b = fmt.Appendf(b, "\tLast queue length: %d\n", v.n("queue"))
	if some {
		b = fmt.Appendf(b, "\tQueue length mean: %d\n", v.mean("queued"))
	}
	b = fmt.Appendf(b, "\tLast table size: %d\n", v.n("last_tried"))
	if some {
		b = fmt.Appendf(b, "\tMean table size: %d\n", v.mean("tried"))
	}
	return fmt.Appendf(b,
		"\nBackfill exit\n\tEnd of job queue:%3d\n\tHit bf_max_job_start:%3d\n\tHit bf_max_job_test:%3d\n\tSystem state "+
			"changed:%3d\n\tHit table size limit (bf_node_space_size):%3d\n\tTimeout (bf_max_time):%3d\n",
		v.ended(), 0, 0, 0, 0, v.n("truncated"))
}

// printDocument prints the report as JSON or YAML (data_parser v0.0.42, stats_msg).
func printDocument(env *command.Env, kind view.DocumentKind, r *msg.StatsReply) int {
	v := figuresOf(r)
	w := jsonout.New(env.Stdout, kind.Yaml, strings.EqualFold(env.Getenv("SLURM_JSON"), "compact"))
	w.Object("statistics")
	w.Int("parts_packed", 1)
	w.Seconds("req_time", r.GetNowNs())
	w.Seconds("req_time_start", r.GetSinceNs())
	ints := func(pairs ...any) {
		for i := 0; i < len(pairs); i += 2 {
			w.Int(pairs[i].(string), pairs[i+1].(int64))
		}
	}
	ints("server_thread_count", v.n("active_calls"), "agent_queue_size", int64(0), "agent_count", v.n("links"), "agent_thread_count",
		v.n("links"),
		"dbd_agent_queue_size", v.n("accounting_waiting"), "gettimeofday_latency", v.n("latency_us"), "schedule_cycle_max",
		v.us("pass_max_ns"),
		"schedule_cycle_last", v.us("pass_last_ns"), "schedule_cycle_sum", v.us("pass_total_ns"), "schedule_cycle_total", v.n("passes"),
		"schedule_cycle_mean", v.mean("pass_total_ns")/1e3, "schedule_cycle_mean_depth", v.mean("tried"),
		"schedule_cycle_per_minute", v.n("passes")/max((r.GetNowNs()-r.GetSinceNs())/6e10, 1), "schedule_cycle_depth", v.n("tried"))
	w.Object("schedule_exit")
	ints("end_job_queue", v.ended(), "default_queue_depth", int64(0), "max_job_start", int64(0), "max_rpc_cnt", int64(0), "max_sched_time",
		v.n("truncated"), "licenses", int64(0))
	w.End()
	ints("schedule_queue_length", v.n("queue"), "jobs_submitted", v.n("jobs_submitted"), "jobs_started", v.n("jobs_started"),
		"jobs_completed", v.n("jobs_completed"),
		"jobs_canceled", v.n("jobs_canceled"), "jobs_failed", v.n("jobs_failed"), "jobs_pending", v.n("pending"), "jobs_running",
		v.n("running"))
	w.Seconds("job_states_ts", r.GetNowNs())
	ints("bf_backfilled_jobs", v.n("backfilled_ever"), "bf_last_backfilled_jobs", v.n("backfilled"), "bf_backfilled_het_jobs", int64(0),
		"bf_cycle_counter", v.n("passes"),
		"bf_cycle_mean", v.mean("pass_total_ns")/1e3, "bf_depth_mean", v.mean("tried"), "bf_depth_mean_try", v.mean("tried"),
		"bf_cycle_sum", v.us("pass_total_ns"),
		"bf_cycle_last", v.us("pass_last_ns"), "bf_cycle_max", v.us("pass_max_ns"), "bf_last_depth", v.n("last_tried"),
		"bf_last_depth_try", v.n("last_tried"),
		"bf_depth_sum", v.n("tried"), "bf_depth_try_sum", v.n("tried"), "bf_queue_len", v.n("queue"), "bf_queue_len_mean",
		v.mean("queued"), "bf_queue_len_sum", v.n("queued"),
		"bf_table_size", v.n("last_tried"), "bf_table_size_sum", v.n("tried"), "bf_table_size_mean", v.mean("tried"))
	w.Number("bf_when_last_cycle", uint64(v.n("pass_last_s")))
	w.Bool("bf_active", false)
	w.Object("bf_exit")
	ints("end_job_queue", v.ended(), "bf_max_job_start", int64(0), "bf_max_job_test", int64(0), "bf_max_time", v.n("truncated"),
		"bf_node_space_size", int64(0), "state_changed", int64(0))
	w.End()
	calls(w, r)
	w.End()
	w.Tail(view.Meta(env), nil, nil)
	if w.Close() != nil {
		return 1
	}
	return 0
}

func calls(w *jsonout.Writer, r *msg.StatsReply) {
	w.List("rpcs_by_message_type")
	for _, c := range r.GetMethods() {
		name, number := callName(c.GetName())
		w.Object("")
		w.Str("message_type", name)
		w.Int("type_id", int64(number))
		w.Int("count", int64(c.GetCount()))
		w.Int("queued", 0)
		w.Int("dropped", 0)
		w.Int("cycle_last", 0)
		w.Int("cycle_max", 0)
		w.Int("total_time", int64(c.GetTotalUs()))
		w.Number("average_time", average(c))
		w.End()
	}
	w.End()
	w.List("rpcs_by_user")
	for _, c := range r.GetUsers() {
		w.Object("")
		w.Str("user", c.GetName())
		w.Int("user_id", int64(c.GetUid()))
		w.Int("count", int64(c.GetCount()))
		w.Int("total_time", int64(c.GetTotalUs()))
		w.Number("average_time", average(c))
		w.End()
	}
	w.End()
	w.Strs("pending_rpcs")
	w.Strs("pending_rpcs_by_hostlist")
}
