package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// sacctOptions is a parsed command line of sacct.
type sacctOptions struct {
	request pb.AccountingRequest

	allUsers, haveUsers, allocations, brief, long, noHeader, noConvert, parsable, trailing, truncate, verbose bool
	script, envVars, helpFields                                                                               bool

	fields     string // of all -o together
	delimiter  string
	units      byte
	haveJobs   bool
	steps      map[string][]string // of -j: steps that are asked for, by job; nil list = the whole job
	since      string
	until      string
	schedulers []string // -F
	reasons    []string // -R
	nothing    bool     // a selection that no job here meets
	window     sacctWindow
	document   documentKind
}

// sacctWindow is the time that is looked at, in whole seconds; until is open when nobody said when it ends.
type sacctWindow struct {
	since, until time.Time
	open         bool
}

var sacctNames = []opt.Name{
	{Long: "accounts", Short: 'A', Arg: opt.Required}, {Long: "account", Arg: opt.Required, Canon: "accounts"},
	{Long: "allclusters", Short: 'L'}, {Long: "allocations", Short: 'X'}, {Long: "allusers", Short: 'a'}, {Long: "array"},
	{Long: "associations", Short: 'x', Arg: opt.Required}, {Long: "batch-script", Short: 'B'}, {Long: "brief", Short: 'b'},
	{Long: "cluster", Arg: opt.Required, Canon: "clusters"}, {Long: "clusters", Short: 'M', Arg: opt.Required},
	{Long: "completion", Short: 'c'}, {Long: "constraints", Short: 'C', Arg: opt.Required}, {Long: "delimiter", Arg: opt.Required},
	{Long: "duplicates", Short: 'D'}, {Long: "endtime", Short: 'E', Arg: opt.Required}, {Long: "env-vars"}, {Long: "expand-patterns"},
	{Long: "federation"}, {Long: "fields", Arg: opt.Required, Canon: "format"}, {Long: "file", Short: 'f', Arg: opt.Required}, {Long: "flags", Short: 'F', Arg: opt.Required},
	{Long: "format", Short: 'o', Arg: opt.Required}, {Long: "gid", Short: 'g', Arg: opt.Required, Canon: "group"},
	{Long: "group", Arg: opt.Required}, {Long: "help", Short: 'h'}, {Long: "help-fields", Canon: "helpformat"}, {Long: "helpformat", Short: 'e'},
	{Long: "jobs", Short: 'j', Arg: opt.Required}, {Long: "json", Arg: opt.Optional}, {Long: "local"}, {Long: "long", Short: 'l'},
	{Long: "name", Arg: opt.Required}, {Long: "ncpus", Short: 'I', Arg: opt.Required}, {Long: "nnodes", Short: 'i', Arg: opt.Required},
	{Long: "noconvert"}, {Long: "nodelist", Short: 'N', Arg: opt.Required}, {Long: "noheader", Short: 'n'}, {Long: "parsable", Short: 'p'},
	{Long: "parsable2", Short: 'P'}, {Long: "partition", Short: 'r', Arg: opt.Required}, {Long: "qos", Short: 'q', Arg: opt.Required},
	{Long: "reason", Short: 'R', Arg: opt.Required}, {Long: "starttime", Short: 'S', Arg: opt.Required}, {Long: "state", Short: 's', Arg: opt.Required},
	{Long: "timelimit-max", Short: 'K', Arg: opt.Required}, {Long: "timelimit-min", Short: 'k', Arg: opt.Required}, {Long: "truncate", Short: 'T'},
	{Long: "uid", Short: 'u', Arg: opt.Required, Canon: "user"}, {Long: "units", Arg: opt.Required}, {Long: "usage"},
	{Long: "use-local-uid", Short: 'U'}, {Long: "user", Arg: opt.Required}, {Long: "users", Arg: opt.Required, Canon: "user"},
	{Long: "verbose", Short: 'v'}, {Long: "version", Short: 'V'}, {Long: "wckeys", Short: 'W', Arg: opt.Required},
	{Long: "whole-hetjob", Arg: opt.Optional}, {Long: "yaml", Arg: opt.Optional},
}

// fatal is a refusal as Slurm prints one that ends a command.
func (e *Env) fatal(text string, args ...any) error {
	fmt.Fprintf(e.Stderr, "%s: fatal: %s\n", e.Name, fmt.Sprintf(text, args...))
	return exitEarly(1)
}

// sacctParse reads environment and command line.
func sacctParse(env *Env, argv []string) (*sacctOptions, error) {
	hits, rest, err := opt.Scan(sacctNames, argv, true)
	if err != nil {
		return nil, err
	}
	o := &sacctOptions{delimiter: "|", steps: map[string][]string{}}
	for _, h := range hits {
		if err := o.set(env, canonical(&sacctNames[h.Index]), h); err != nil {
			return nil, err
		}
	}
	if len(rest) > 0 {
		env.Errorf("Unknown arguments:")
		for _, word := range rest {
			env.Errorf(" %s", format.Escape(word))
		}
		return nil, exitEarly(1)
	}
	return o, o.finish(env)
}

func (o *sacctOptions) set(env *Env, name string, h opt.Hit) error {
	r := &o.request
	switch name {
	case "accounts":
		r.Accounts = append(r.Accounts, list(h.Value)...)
	case "allocations":
		o.allocations = true
	case "allusers":
		o.allUsers = true
	case "associations":
		o.nothing = o.nothing || !slices.Contains(list(h.Value), "1") // there is one association
	case "batch-script":
		o.script = true
	case "brief":
		o.brief = true
	case "clusters":
		o.nothing = o.nothing || !ownCluster(env, h.Value)
	case "completion":
		fmt.Fprintln(env.Stderr, "Slurm job completion is disabled")
		return exitEarly(1)
	case "constraints":
		r.Features = append(r.Features, list(h.Value)...)
	case "delimiter":
		o.delimiter = h.Value
	case "duplicates":
		r.Duplicates = true
	case "endtime":
		o.until = h.Value
	case "env-vars":
		o.envVars = true
	case "file":
		return o.file(env, h.Value)
	case "flags":
		return o.setFlags(env, h.Value)
	case "format":
		o.fields += h.Value + ","
	case "group":
		return o.groups(env, h.Value)
	case "help":
		fmt.Fprint(env.Stdout, sacctHelp)
		return exitEarly(0)
	case "helpformat":
		o.helpFields = true
	case "jobs":
		return o.jobs(env, h.Value)
	default:
		return o.setMore(env, name, h)
	}
	return nil
}

func (o *sacctOptions) setMore(env *Env, name string, h opt.Hit) (err error) {
	r := &o.request
	switch name {
	case "json", "yaml":
		o.document, err = env.documentOption(name, h.Value)
	case "long":
		o.long = true
	case "name":
		r.Names = append(r.Names, list(h.Value)...)
	case "ncpus":
		r.MinCpus, r.MaxCpus, err = sacctRange(env, h.Value, "cpu")
	case "nnodes":
		r.MinNodes, r.MaxNodes, err = sacctRange(env, h.Value, "node")
	case "noconvert":
		o.noConvert = true
	case "nodelist":
		o.nodes(h.Value)
	case "noheader":
		o.noHeader = true
	case "parsable":
		o.parsable, o.trailing = true, true
	case "parsable2":
		o.parsable, o.trailing = true, false
	case "partition":
		r.Partitions = append(r.Partitions, list(h.Value)...)
	case "qos":
		return o.qos(env, h.Value)
	case "reason":
		o.reasons = append(o.reasons, list(h.Value)...)
	case "starttime":
		o.since = h.Value
	case "state":
		return o.states(env, h.Value)
	case "timelimit-max":
		r.MaxLimitS, err = sacctLimit(env, h.Value)
	case "timelimit-min":
		r.MinLimitS, err = sacctLimit(env, h.Value)
	case "truncate":
		o.truncate = true
	case "user":
		return o.users(env, h.Value)
	case "units":
		return o.setUnits(env, h.Value)
	case "usage":
		fmt.Fprint(env.Stdout, sacctUsage)
		return exitEarly(0)
	case "verbose":
		o.verbose = true
	case "version":
		return env.printVersion()
	case "wckeys":
		r.Wckeys = append(r.Wckeys, list(h.Value)...)
	case "whole-hetjob":
		if h.Given && h.Value != "yes" && h.Value != "no" {
			return env.fail("Invalid --whole-hetjob value \"%s\". Valid values: [yes|no].", format.Escape(h.Value))
		}
	}
	return err
}

// ownCluster reports whether -M names this cluster; another one has no jobs here.
func ownCluster(env *Env, names string) bool {
	own := env.clusterName()
	return slices.ContainsFunc(list(names), func(s string) bool { return strings.EqualFold(s, own) || strings.EqualFold(s, "all") })
}

func (o *sacctOptions) file(env *Env, path string) error {
	if _, err := os.Stat(path); err != nil {
		fmt.Fprintf(env.Stderr, "%s is not a valid file\n", format.Escape(path))
	} else {
		fmt.Fprintln(env.Stderr, "Slurm job completion is disabled")
	}
	return exitEarly(1)
}

func (o *sacctOptions) setFlags(env *Env, value string) error {
	for _, word := range list(value) {
		i := slices.IndexFunc([]string{"SchedSubmit", "SchedMain", "SchedBackfill"}, func(f string) bool { return strings.EqualFold(f, word) })
		if i < 0 {
			return env.fail("str_2_job_flags: Invalid job flag %s", format.Escape(word))
		}
		o.schedulers = append(o.schedulers, [...]string{"Submit", "Main", "Backfill"}[i])
	}
	return nil
}

func (o *sacctOptions) groups(env *Env, value string) error {
	for _, word := range list(value) {
		gid, ok := accounts.GID(word)
		if !ok {
			return env.fail("Invalid group id: %s", format.Escape(word))
		}
		o.request.Gids = append(o.request.Gids, gid)
	}
	return nil
}

func (o *sacctOptions) users(env *Env, value string) error {
	for _, word := range list(value) {
		uid, ok := lookupUID(word)
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			uid, ok = uint32(n), true
		}
		if !ok {
			return env.fail("Invalid user id: %s", format.Escape(word))
		}
		o.haveUsers, o.request.Uids = true, append(o.request.Uids, uid)
	}
	return nil
}

// nodes reads -N; what is no list of hosts is the name of a node that does not exist.
func (o *sacctOptions) nodes(value string) {
	names, err := hostlist.Expand(value)
	if err != nil || len(names) == 0 {
		names = []string{value}
	}
	o.request.Nodes = append(o.request.Nodes, names...)
}

func (o *sacctOptions) qos(env *Env, value string) error {
	for _, word := range list(value) {
		if word = strings.TrimLeft(word, "+-"); !strings.EqualFold(word, "normal") && word != "1" {
			env.Errorf("You gave a bad qos '%s'. Valid QOS's are normal", format.Escape(word))
			return env.fatal("problem processing qos list")
		}
		o.request.Qos = append(o.request.Qos, "normal")
	}
	return nil
}

func (o *sacctOptions) setUnits(env *Env, value string) error {
	unit := strings.ToUpper(value[:min(len(value), 1)])
	if unit == "" || !strings.Contains("KMGTP", unit) {
		env.Errorf("Invalid unit type '%s'. Possible options are 'KMGTP'", format.Escape(value[:min(len(value), 1)]))
		return env.fatal("Invalid unit type")
	}
	o.units = unit[0]
	return nil
}

// states reads -s. Accounting has no states that pass, such as COMPLETING.
func (o *sacctOptions) states(env *Env, value string) error {
	for _, word := range list(value) {
		state, flag, ok := format.ParseJobState(word)
		switch {
		case !ok:
			return env.fatal("unrecognized job state value '%s'", format.Escape(word))
		case flag == pb.JobRequeued:
			o.request.StateFlags |= flag
		case flag == pb.JobResizing, flag == pb.JobRevoked:
			o.request.StateFlags |= flag // none here ever was
		case flag != 0:
			return env.fatal("job state %s is not supported / accounted", format.Escape(word))
		default:
			o.request.States = append(o.request.States, state)
		}
	}
	return nil
}

// sacctRange reads "n" or "min-max".
func sacctRange(env *Env, value, what string) (low, high uint64, err error) {
	first, second, ranged := strings.Cut(value, "-")
	low, err = strconv.ParseUint(first, 10, 32)
	if high = low; err == nil && ranged {
		high, err = strconv.ParseUint(second, 10, 32)
	}
	if err != nil {
		return 0, 0, env.fail("Invalid numeric value \"%s\" for requested %s range.", format.Escape(value), what)
	}
	return low, high, nil
}

func sacctLimit(env *Env, value string) (uint64, error) {
	minutes, err := timespec.ParseMinutes(value)
	switch {
	case err != nil:
		return 0, env.fatal("Invalid time limit specification")
	case minutes == timespec.Unlimited:
		return uint64(pb.Unlimited), nil
	}
	return uint64(minutes) * 60, nil
}

// jobs reads -j: "12", "12_3", "12_[1-3]", each with a step behind it, "12.batch".
func (o *sacctOptions) jobs(env *Env, value string) error {
	o.haveJobs = true
	for _, word := range hostlist.Split(value) {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		id, step, hasStep := strings.Cut(word, ".")
		number, _, hasTask := strings.Cut(id, "_")
		number, offset, isHet := strings.Cut(number, "+")
		if isHet && offset == "" {
			return env.fatal("Bad hetjob offset specified: %s", format.Escape(number))
		}
		if n, err := strconv.ParseUint(number, 10, 32); err != nil || n == 0 {
			return env.fatal("Bad job/step specified: %s", format.Escape(word))
		}
		if s, ok := parseSelector(id, false); hasTask && (!ok || len(s.tasks) == 0 && s.tasks != nil) {
			return env.fatal("Bad job array element specified: %s", format.Escape(number))
		}
		if _, err := strconv.ParseUint(step, 10, 32); hasStep && err != nil && step != "batch" && step != "extern" && step != "interactive" {
			return env.fatal("Bad step specified: %s", format.Escape(number))
		}
		if isHet {
			continue // there are no components
		}
		old, known := o.steps[id]
		switch {
		case !hasStep, known && old == nil:
			o.steps[id] = nil
		default:
			o.steps[id] = append(old, step)
		}
		o.request.Ids = append(o.request.Ids, id)
	}
	o.nothing = o.nothing || len(o.request.Ids) == 0 && strings.Contains(value, "+")
	o.haveJobs = len(o.request.Ids) > 0 || o.nothing
	return nil
}

// finish settles what depends on several options: whose jobs, when, and in which form.
func (o *sacctOptions) finish(env *Env) error {
	if o.long && o.fields != "" {
		return env.fatal("Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.")
	}
	if o.script && o.envVars {
		return env.fatal("Options --batch-script and --env-vars are mutually exclusive")
	}
	if !o.haveJobs && (o.script || o.envVars) {
		what := "scripts"
		if o.envVars {
			what = "environment"
		}
		return env.fatal("When requesting job %s you must also request specific jobs with the '-j' option.", what)
	}
	switch uid := self().UID; {
	case o.allUsers:
		o.request.Uids = nil
	case !o.haveUsers && uid != 0 && !o.haveJobs && len(o.request.Nodes) == 0:
		o.request.Uids = []uint32{uid}
	}
	if o.request.MinLimitS == 0 {
		o.request.MaxLimitS = 0 // ignored by itself
	}
	return o.setWindow(env)
}

// setWindow applies sacct(1), "DEFAULT TIME WINDOW".
func (o *sacctOptions) setWindow(env *Env) error {
	now := env.Now().Local().Truncate(time.Second)
	moment := func(text string) (time.Time, error) {
		t, err := timespec.ParseMoment(text, now, time.Local, timespec.Past)
		var bad *timespec.MomentError
		if errors.As(err, &bad) {
			fmt.Fprintf(env.Stderr, "Invalid time specification (pos=%d): %s\n", bad.Pos, format.Escape(text))
			return t, exitEarly(1)
		}
		return t, err
	}
	byState := len(o.request.States) > 0 || o.request.StateFlags != 0
	w := &o.window
	var err error
	switch {
	case o.since != "":
		w.since, err = moment(o.since)
	case o.haveJobs:
		w.since = time.Unix(0, 0)
	case byState:
		w.since = now
	default:
		w.since = time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.Local)
	}
	if err != nil {
		return err
	}
	switch {
	case o.until != "":
		w.until, err = moment(o.until)
	case byState && o.since != "":
		w.until = w.since
	default:
		w.until, w.open = now, true
	}
	if err != nil {
		return err
	}
	if w.since.After(w.until) {
		return env.fail("Start time (%s) requested is after end time (%s).", w.since.Format(timespec.Layout), w.until.Format(timespec.Layout))
	}
	o.request.SinceNs = w.since.UnixNano()
	switch {
	case !w.open:
		o.request.UntilNs = w.until.UnixNano()
	case o.haveJobs && !byState && o.since == "":
		o.request.UntilNs = math.MaxInt64 // those named, whenever they may start
	}
	return nil
}

// table is what is printed, in the order in which a real sacct puts its options together.
func (o *sacctOptions) table(env *Env) (*acct.Table, error) {
	spec := o.fields
	if spec == "" && !o.brief && !o.long {
		if spec = env.Getenv("SACCT_FORMAT"); spec == "" {
			spec = acct.DefaultFormat
		}
	}
	if o.brief {
		spec += acct.BriefFormat + ","
	}
	if o.long {
		spec += acct.LongFormat
	}
	columns, err := acct.Parse(spec)
	var bad *acct.FieldError
	if errors.As(err, &bad) {
		return nil, env.fail("Invalid field requested: \"%s\"", format.Escape(bad.Name))
	}
	t := &acct.Table{Columns: columns, Trailing: o.trailing}
	t.Parsable, t.Separator = o.parsable, o.delimiter
	return t, err
}
