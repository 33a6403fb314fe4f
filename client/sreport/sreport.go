// Package sreport is the command that sums up allocated time: of the cluster, and by account and user.
package sreport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/shares"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Options are the command line of sreport(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "all_clusters", Short: 'a'}, Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "noheader", Short: 'n'}, Help: "no header"},
	{Name: opt.Name{Long: "parsable", Short: 'p'}, Help: "end each field with |"},
	{Name: opt.Name{Long: "parsable2", Short: 'P'}, Help: "separate fields with |"},
	{Name: opt.Name{Short: 't', Arg: opt.Required, Long: "time_format"}, Meta: "FORMAT",
		Help: "Seconds, Minutes (default), Hours, Percent, SecPer, MinPer or HourPer"},
	{Name: opt.Name{Long: "tres", Short: 'T', Arg: opt.Required}, Meta: "LIST", Help: `resources, "cpu,gres/gpu", or ALL (default cpu)`},
	{Name: opt.Name{Long: "quiet", Short: 'Q'}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "local"}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "federation"}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this text"},
	{Name: opt.Name{Long: "usage"}, Help: "show this text"},
}

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage:   "Usage: sreport [<OPTION>...] <COMMAND> [<REPORT OPTION>...]",
		About:   `Sums up allocations from the accounting records, by default of yesterday (start=, end=).`,
		Title:   "    Valid <OPTION> values are:",
		Options: Options[:],
		Blocks: []command.Block{
			{Title: "    Valid <COMMAND> values are", Text: `     cluster Utilization               the whole cluster: allocated, down and idle
     cluster AccountUtilizationByUser  accounts, and their users
     cluster UserUtilizationByAccount  users, and their accounts
     user TopUsage                     the users with the largest use
     version, help                     the version; this text
`},
			{Title: "Report options", Text: `  start=TIME end=TIME format=LIST (each field with %WIDTH if wanted) users=LIST accounts=LIST clusters=NAME
  topcount=N group tree
`},
			{Title: "Downtime", Text: `  Past downtime is not recorded. Down is the downtime of nodes that are down now.
`},
		},
		Examples: `  sreport cluster utilization start=2026-01-01 end=now -t percent -T cpu,gres/gpu
  sreport -P -n user top start=now-7days end=now -t hours --tres gres/gpu

`,
	}
}

// report is a parsed command line.
type report struct {
	env                          *command.Env
	noHeader, parsable, trailing bool
	units                        units
	tres                         []string // nil: cpu
	since, until                 time.Time
	format                       string
	users, accounts              []string
	top                          int
	group, tree                  bool
}

// Main runs one sreport command line.
func Main(env *command.Env, args []string) int {
	names := command.NamesOf(Options[:])
	hits, words, err := opt.Scan(names, args, true)
	if err != nil {
		return env.Exit(err)
	}
	r := &report{env: env, top: 10, units: units{word: "Minutes", seconds: 60}}
	for _, h := range hits {
		if err := r.set(command.Canonical(&names[h.Index]), h.Value); err != nil {
			return env.Exit(err)
		}
	}
	if len(words) == 0 {
		env.Errorf("there is no interactive mode; name a report, for instance: sreport user top")
		return 1
	}
	return r.command(words)
}

func (r *report) set(name, value string) error {
	switch name {
	case "help", "usage":
		return r.env.Print(Page().Help())
	case "version":
		return r.env.PrintVersion()
	case "noheader":
		r.noHeader = true
	case "parsable":
		r.parsable, r.trailing = true, true
	case "parsable2":
		r.parsable, r.trailing = true, false
	case "time_format":
		u, ok := unitsOf(value)
		if !ok {
			fmt.Fprintf(r.env.Stderr, "unknown time format %s; use Seconds, Minutes, Hours, Percent, SecPer, MinPer or HourPer\n",
				format.Escape(value))
			return command.ExitCode(1)
		}
		r.units = u
	case "tres":
		if r.tres = command.List(strings.ToLower(value)); len(r.tres) == 0 {
			r.tres = nil // as if not given
		}
	}
	return nil
}

// called reports whether a word is a keyword or an abbreviation of it, in any case.
func called(word, keyword string) bool {
	return word != "" && len(word) <= len(keyword) && strings.EqualFold(keyword[:len(word)], word)
}

func (r *report) command(words []string) int {
	switch first := words[0]; {
	case called(first, "cluster"):
		return r.of(words, "cluster", clusterReports)
	case called(first, "user"):
		return r.of(words, "user", userReports)
	case called(first, "job"), called(first, "reservation"):
		r.env.Errorf("%s reports are not supported; use sacct: sacct -a -X -S START -E END -o jobid,account,alloccpus,elapsedraw",
			format.Escape(first))
		return 1
	case called(first, "version"):
		_ = r.env.PrintVersion()
		return 0
	case called(first, "help"):
		fmt.Fprint(r.env.Stdout, Page().Help())
		return 0
	case called(first, "exit"), called(first, "quit"):
		return 0
	default:
		fmt.Fprintf(r.env.Stderr, "invalid keyword: %s\n", format.Escape(first))
		return 1
	}
}

type kind struct {
	name string
	run  func(r *report, reply *msg.AccountUsageReply) int
	spec string // the columns
}

var (
	clusterReports = []kind{
		{"AccountUtilizationByUser", (*report).byAccount, "cluster,account,login,proper,used,energy"},
		{"UserUtilizationByAccount", (*report).byUser, "cluster,login,proper,account,used,energy"},
		{"Utilization", (*report).utilization, "cluster,allocated,down,planneddown,idle,planned,reported"},
	}
	userReports = []kind{{"TopUsage", (*report).topUsage, "cluster,login,proper,account,used,energy"}}
)

func (r *report) of(words []string, what string, kinds []kind) int {
	if len(words) < 2 {
		fmt.Fprintf(r.env.Stderr, "too few arguments for keyword:%s\n", what)
		return 1
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return called(words[1], k.name) })
	if i < 0 {
		fmt.Fprintf(r.env.Stderr, "Not valid report %s\nValid %s reports are, %s\n", format.Escape(words[1]), what, reportNames(kinds))
		return 1
	}
	if err := r.conditions(words[2:]); err != nil {
		return r.env.Exit(err)
	}
	if r.format == "" {
		if r.format = kinds[i].spec; r.tres != nil {
			r.format = strings.TrimSuffix(r.format, ",energy")
		}
	}
	ctx := context.Background()
	c, err := r.env.Dial(ctx)
	if err != nil {
		return view.AccountingFailed(r.env, err)
	}
	defer func() { _ = c.Close() }()
	reply, err := c.AccountUsage(ctx, &msg.AccountUsageRequest{SinceNs: r.since.UnixNano(), UntilNs: r.until.UnixNano()})
	if err != nil {
		return view.AccountingFailed(r.env, err)
	}
	if reply.GetWarning() != "" {
		r.env.Errorf("%s", reply.GetWarning())
	}
	if r.tres == nil {
		r.tres = []string{"cpu"}
	} else if slices.Contains(r.tres, "all") {
		r.tres = shares.Resources(reply)
	}
	return kinds[i].run(r, reply)
}

func reportNames(kinds []kind) string {
	var quoted []string
	for _, k := range kinds {
		quoted = append(quoted, strconv.Quote(strings.TrimSuffix(k.name, "Usage")))
	}
	if n := len(quoted); n > 1 {
		quoted[n-1] = "and " + quoted[n-1]
	}
	return strings.Join(quoted, ", ")
}

// conditions reads the words after the report. The default window is yesterday; it never ends later than now.
func (r *report) conditions(words []string) error {
	now := r.env.Now()
	day := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	r.since, r.until = day.AddDate(0, 0, -1), day
	for _, word := range words {
		key, value, has := strings.Cut(word, "=")
		value = strings.Trim(value, `"'`)
		switch {
		case !has && called(key, "tree") && len(key) > 1:
			r.tree = true
		case !has && called(key, "group"):
			r.group = true
		case !has && called(key, "all_clusters"):
		case has && called(key, "start"):
			if err := r.moment(value, now, &r.since); err != nil {
				return err
			}
		case has && called(key, "end"):
			if err := r.moment(value, now, &r.until); err != nil {
				return err
			}
		case has && called(key, "format"):
			r.format = value
		case has && called(key, "users"):
			r.users = append(r.users, command.List(value)...)
		case has && len(key) > 1 && (called(key, "accounts") || called(key, "acct")):
			r.accounts = append(r.accounts, command.List(value)...)
		case has && called(key, "clusters"):
			if err := r.env.CheckClusters(value); err != nil {
				return err
			}
		case has && called(key, "topcount") && len(key) > 1:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return r.env.Failf("topcount=%s is not a number of users", format.Escape(value))
			}
			r.top = n
		default:
			fmt.Fprintf(r.env.Stderr, " Unknown condition: %s\n", format.Escape(word))
			return command.ExitCode(1)
		}
	}
	if r.until.After(now) {
		r.until = now.Truncate(time.Second)
	}
	if !r.since.Before(r.until) {
		return r.env.Failf("start=%s is not before end=%s", r.since.Format(timespec.Layout), r.until.Format(timespec.Layout))
	}
	return nil
}

func (r *report) moment(text string, now time.Time, into *time.Time) error {
	t, err := timespec.ParseMoment(text, now, time.Local, timespec.Past)
	var bad *timespec.MomentError
	switch {
	case errors.As(err, &bad):
		fmt.Fprintln(r.env.Stderr, bad.Error())
		return command.ExitCode(1)
	case err != nil:
		return r.env.Failf("%v", err)
	}
	*into = t
	return nil
}

// rule is the line above and below a report's title.
var rule = strings.Repeat("-", 80)

// title prints the lines above a report.
func (r *report) title(name string, length bool) {
	if r.noHeader {
		return
	}
	window := fmt.Sprintf("%s - %s", r.since.Format(timespec.Layout), r.until.Add(-time.Second).Format(timespec.Layout))
	if length {
		window += fmt.Sprintf(" (%d secs)", int64(r.until.Sub(r.since).Seconds()))
	}
	what := "CPU "
	if len(r.tres) != 1 || r.tres[0] != "cpu" {
		what = "TRES "
	}
	if r.units.percent && r.units.seconds == 0 {
		what = ""
	}
	fmt.Fprintf(r.env.Stdout, "%s\n%s %s\nUsage reported in %s%s\n%s\n", rule, name, window, what, r.units.word, rule)
}

// print prints rows of texts by field name.
func (r *report) print(rows []map[string]string) int {
	heads, bad := columns(r.format, len(r.tres) > 1 || r.tres[0] != "cpu", r.tree, r.units)
	if bad != "" {
		fmt.Fprintf(r.env.Stderr, " Unknown field '%s'\n", format.Escape(bad))
		return 1
	}
	t := &acct.Table{Parsable: r.parsable, Trailing: r.trailing, Separator: "|"}
	var b []byte
	if !r.noHeader {
		b = t.AppendHeads(b, heads)
	}
	for _, row := range rows {
		texts := make([]string, len(heads))
		for i, h := range heads {
			texts[i] = row[h.Key]
		}
		b = t.AppendTexts(b, heads, texts)
	}
	if _, err := r.env.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}
