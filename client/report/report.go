// Package report is `sluice report`: GPU-hours used, wasted and queued by user, account, partition or node, and the state of the
// cluster's GPUs hour by hour; as a table, for programs, and as a chart.
package report

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// Verb is `sluice report`.
func Verb() *command.Verb {
	return &command.Verb{
		Name: "report", Line: "show GPU-hours used, left idle and queued, by user and account, with a chart",
		Page: command.Page{
			About: `Shows the resources that jobs used over a period, by default the last seven days: GPU-hours held, used, left idle, lost
to fragmentation and queued; waiting times, CPU-hours, CPU and memory efficiency, and the energy of GPUs. On a terminal it also draws
an hourly chart of the GPUs.`,
			Options: []command.Option{
				{Name: opt.Name{Long: "starttime", Short: 'S', Arg: opt.Required}, Meta: "TIME", Help: "from TIME on (default now-7days)"},
				{Name: opt.Name{Long: "start", Arg: opt.Required, Canon: "starttime"}},
				{Name: opt.Name{Long: "endtime", Short: 'E', Arg: opt.Required}, Meta: "TIME", Help: "until TIME (default now)"},
				{Name: opt.Name{Long: "end", Arg: opt.Required, Canon: "endtime"}},
				{Name: opt.Name{Long: "by", Arg: opt.Required}, Meta: "WHAT",
					Help: "a row for each user and account (user, the default), account, partition or node"},
				{Name: opt.Name{Long: "users", Short: 'u', Arg: opt.Required}, Meta: "LIST", Help: "only jobs of these users"},
				{Name: opt.Name{Long: "user", Arg: opt.Required, Canon: "users"}},
				{Name: opt.Name{Long: "accounts", Short: 'A', Arg: opt.Required}, Meta: "LIST", Help: "only jobs of these accounts"},
				{Name: opt.Name{Long: "account", Arg: opt.Required, Canon: "accounts"}},
				{Name: opt.Name{Long: "partition", Short: 'r', Arg: opt.Required}, Meta: "LIST",
					Help: "only jobs in these partitions; with one, the chart covers its GPUs"},
				{Name: opt.Name{Long: "partitions", Arg: opt.Required, Canon: "partition"}},
				{Name: opt.Name{Short: 'p', Arg: opt.Required, Canon: "partition"}},
				{Name: opt.Name{Long: "svg", Arg: opt.Required}, Meta: "FILE",
					Help: "write the chart to FILE as SVG; - is standard output"},
				{Name: opt.Name{Long: "chart"}, Help: "draw the chart below the table even if the output is not a terminal"},
				{Name: opt.Name{Long: "no-chart"}, Help: "do not draw the chart on a terminal"},
				{Name: opt.Name{Long: "no-color"}, Help: "no colours; the variable NO_COLOR does the same"},
				{Name: opt.Name{Long: "parsable2", Short: 'P'}, Help: "all figures, separated by |"},
				{Name: opt.Name{Long: "noheader", Short: 'n'}, Help: "no headings and no total"},
				{Name: opt.Name{Long: "json"}, Help: "as JSON, with hourly figures"},
			},
			Blocks: []command.Block{
				{Title: "TIME", Text: "  as for sacct: YYYY-MM-DD[THH:MM[:SS]], MMDD[YY], HH:MM, today, midnight, now-3days.\n"},
				{Title: "Columns", Text: `  JOBS            jobs that ran or waited in the period
  GPU-H           GPU-hours held
  USED            GPU-hours held, times utilization
  IDLE            GPU-hours held but not used
  N/A             GPU-hours without utilization figures
  LOST            GPU-hours lost to fragmentation: enough GPUs were free for waiting jobs, but not in places where they could run
  WAITED          GPU-hours queued: requested GPUs times hours of waiting
  WAIT50, WAIT90  the longest wait of 50 % and of 90 % of the jobs that started or waited in the period
  CPU-H           CPU-hours held
  CPU%, MEM%      share of the CPUs and memory that was used
  ENERGY          energy of the GPUs
`}},
			Examples: `  sluice report                                     the last seven days, by user and account
  sluice report -S 2026-11-01 -E 2026-12-01 --by account
  sluice report --by node -r gpu                    nodes whose GPUs are left idle
  sluice report --svg week.svg -n >/dev/null        the chart only
  sluice report -P -S now-1day | column -t -s '|'   for programs
`,
		},
		Run: run,
	}
}

// options is a parsed command line.
type options struct {
	request                  msg.ReportRequest
	since, until             time.Time
	svg                      string
	chart, noChart, plain    bool
	parsable, noHeader, json bool
}

func run(call *command.Call) error {
	o, err := optionsOf(call)
	if err != nil {
		return err
	}
	reply, err := ask(call.Env, &o.request)
	if err != nil {
		return err
	}
	if reply.GetWarning() != "" {
		call.Errorf("%s", format.Escape(reply.GetWarning()))
	}
	if o.show(call.Env, reply) != nil {
		return command.ExitCode(1) // the failed write has been reported
	}
	return nil
}

func ask(env *command.Env, r *msg.ReportRequest) (*msg.ReportReply, error) {
	ctx := context.Background()
	c, err := env.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.Report(ctx, r)
}

func optionsOf(call *command.Call) (*options, error) {
	now := call.Now()
	o := &options{since: now.AddDate(0, 0, -7), until: now, plain: call.Getenv("NO_COLOR") != ""}
	o.request.By = "user"
	if err := call.Each(func(name, value string) error { return o.set(now, name, value) }); err != nil {
		return nil, err
	}
	if o.until.After(now) {
		o.until = now
	}
	if !o.since.Before(o.until) {
		return nil, fmt.Errorf("-S %s is not before -E %s", o.since.Format(timespec.Layout), o.until.Format(timespec.Layout))
	}
	o.request.SinceNs, o.request.UntilNs = o.since.UnixNano(), o.until.UnixNano()
	return o, nil
}

func (o *options) set(now time.Time, name, value string) (err error) {
	switch name {
	case "starttime":
		o.since, err = timespec.ParseMoment(value, now, time.Local, timespec.Past)
	case "endtime":
		o.until, err = timespec.ParseMoment(value, now, time.Local, timespec.Past)
	case "by":
		by := strings.ToLower(value)
		if !slices.Contains([]string{"user", "account", "partition", "node"}, by) {
			return fmt.Errorf("--by takes user, account, partition or node, not %s", format.Escape(value))
		}
		o.request.By = by
	case "users":
		for _, who := range command.List(value) {
			uid, ok := passwd.UID(who)
			if !ok {
				return fmt.Errorf("there is no user %s", format.Escape(who))
			}
			o.request.Uids = append(o.request.Uids, uid)
		}
	case "accounts":
		o.request.Accounts = append(o.request.Accounts, command.List(value)...)
	case "partition":
		o.request.Partitions = append(o.request.Partitions, command.List(value)...)
	case "svg":
		o.svg = value
	case "chart":
		o.chart, o.noChart = true, false
	case "no-chart":
		o.chart, o.noChart = false, true
	case "no-color":
		o.plain = true
	case "parsable2":
		o.parsable = true
	case "noheader":
		o.noHeader = true
	case "json":
		o.json = true
	}
	return err
}

// show writes the requested output: the picture to its file, and the table, followed on a terminal by the chart.
func (o *options) show(env *command.Env, r *msg.ReportReply) error {
	s := seriesOf(r, o.since, o.until)
	s.cluster = env.ClusterName()
	if len(o.request.Partitions) == 1 {
		s.partition = o.request.Partitions[0]
	}
	if o.svg != "" {
		if err := o.draw(env, s); err != nil || o.svg == "-" {
			return err
		}
	}
	var b []byte
	switch {
	case o.json:
		return writeJSON(env.Stdout, r)
	case o.parsable:
		b = o.appendParsable(b, r)
	default:
		b = o.appendTable(b, r)
		terminal := command.IsTerminal(env.Stdout)
		if !o.noHeader {
			b = s.appendSummary(b)
		}
		if o.chart || terminal && !o.noChart {
			b = append(b, '\n')
			color := terminal && !o.plain && env.Getenv("TERM") != "dumb"
			b = s.appendChart(b, screen{width: width(env), color: color, wide: utf8Terminal(env)})
		}
	}
	_, err := env.Stdout.Write(b)
	return err
}

func (o *options) draw(env *command.Env, s *series) error {
	if o.svg == "-" {
		_, err := env.Stdout.Write(s.appendSVG(nil))
		return err
	}
	if err := os.WriteFile(o.svg, s.appendSVG(nil), 0o666); err != nil {
		env.Errorf("cannot write the chart: %v", err)
		return err
	}
	return nil
}

// width is the maximum line length: COLUMNS, else the terminal's, else 80.
func width(env *command.Env) int {
	if n, err := strconv.Atoi(env.Getenv("COLUMNS")); err == nil && n > 0 {
		return min(max(n, 40), 400)
	}
	if n := command.Columns(env.Stdout); n > 0 {
		return min(max(n, 40), 400)
	}
	return 80
}

// utf8Terminal reports whether the locale uses UTF-8.
func utf8Terminal(env *command.Env) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := env.Getenv(name); v != "" {
			v = strings.ToUpper(v)
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}
