package sacct

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
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// options is a parsed command line of sacct.
type options struct {
	request msg.AccountingRequest

	allUsers, allocations, brief, long, noHeader, noConvert, parsable, trailing, truncate, verbose bool
	script, envVars, helpFields                                                                    bool

	fields     string // all -o joined
	delimiter  string
	units      byte
	haveJobs   bool
	steps      map[string][]string // steps requested by -j, by job; nil list = the whole job
	since      string
	until      string
	schedulers []string // -F
	reasons    []string // -R
	nothing    bool     // a selection that no job can match
	window     window
	document   view.DocumentKind
}

// window is the period of interest, in whole seconds; until is open if no end was given.
type window struct {
	since, until time.Time
	open         bool
}

// Options are the command line of sacct(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "accounts", Short: 'A', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs charged to these accounts"},
	{Name: opt.Name{Long: "account", Arg: opt.Required, Canon: "accounts"}},
	{Name: opt.Name{Long: "allclusters", Short: 'L'}, Group: "Which jobs", Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "allocations", Short: 'X'}, Group: "What is shown", Help: "show jobs without their steps"},
	{Name: opt.Name{Long: "allusers", Short: 'a'}, Group: "Which jobs", Help: "jobs of all users (always for root)"},
	{Name: opt.Name{Long: "array"}, Group: "What is shown", Help: "accepted, no effect"},
	{Name: opt.Name{Long: "associations", Short: 'x', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs of these association ids; the only id is 1"},
	{Name: opt.Name{Long: "batch-script", Short: 'B'}, Group: "What is shown", Help: "print the scripts of the jobs of -j"},
	{Name: opt.Name{Long: "brief", Short: 'b'}, Group: "What is shown", Help: "the fields jobid, state and exitcode"},
	{Name: opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Group: "Which jobs", Meta: "NAME", Help: "this cluster"},
	{Name: opt.Name{Long: "completion", Short: 'c'}, Group: "What is shown", Help: "refused: the job completion log is not read"},
	{Name: opt.Name{Long: "constraints", Short: 'C', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs that requested all these features"},
	{Name: opt.Name{Long: "delimiter", Arg: opt.Required}, Group: "What is shown", Meta: "TEXT",
		Help: "separator instead of | with -p and -P"},
	{Name: opt.Name{Long: "duplicates", Short: 'D'}, Group: "Which jobs",
		Help: "every attempt of a requeued job, not only the last"},
	{Name: opt.Name{Long: "endtime", Short: 'E', Arg: opt.Required}, Group: "Which jobs", Meta: "TIME",
		Help: "jobs until TIME (default: now; with -s and -S: the same as -S)"},
	{Name: opt.Name{Long: "env-vars"}, Group: "What is shown", Help: "print the environments of the jobs of -j"},
	{Name: opt.Name{Long: "expand-patterns"}, Group: "What is shown", Help: "accepted, no effect"},
	{Name: opt.Name{Long: "federation"}, Group: "Which jobs", Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "fields", Arg: opt.Required, Canon: "format"}},
	{Name: opt.Name{Long: "file", Short: 'f', Arg: opt.Required}, Group: "What is shown", Meta: "FILE",
		Help: "refused: the job completion log is not read"},
	{Name: opt.Name{Long: "flags", Short: 'F', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs started by SchedSubmit, SchedMain or SchedBackfill"},
	{Name: opt.Name{Long: "format", Short: 'o', Arg: opt.Required}, Group: "What is shown", Env: "SACCT_FORMAT", Meta: "FIELDS",
		Help: `FIELD[%[-]WIDTH],…; "all" for all fields`},
	{Name: opt.Name{Long: "gid", Arg: opt.Required, Canon: "group"}},
	{Name: opt.Name{Long: "group", Short: 'g', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST", Help: "jobs of these groups"},
	{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this help"},
	{Name: opt.Name{Long: "help-fields", Canon: "helpformat"}},
	{Name: opt.Name{Long: "helpformat", Short: 'e'}, Group: "What is shown", Help: "list the fields"},
	{Name: opt.Name{Long: "jobs", Short: 'j', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs and steps: 12, 12_3, 12_[1-3], 12.batch"},
	{Name: opt.Name{Long: "json", Arg: opt.Optional}, Group: "What is shown", Meta: "parser", Help: "print all data as JSON"},
	{Name: opt.Name{Long: "local"}, Group: "Which jobs", Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "long", Short: 'l'}, Group: "What is shown", Help: "show many fields"},
	{Name: opt.Name{Long: "name", Arg: opt.Required}, Group: "Which jobs", Meta: "LIST", Help: "jobs with these names"},
	{Name: opt.Name{Long: "ncpus", Short: 'I', Arg: opt.Required}, Group: "Which jobs", Meta: "N[-M]",
		Help: "jobs with this number of CPUs"},
	{Name: opt.Name{Long: "nnodes", Short: 'i', Arg: opt.Required}, Group: "Which jobs", Meta: "N[-M]",
		Help: "jobs with this number of nodes"},
	{Name: opt.Name{Long: "noconvert"}, Group: "What is shown", Help: "do not convert sizes to other units"},
	{Name: opt.Name{Long: "nodelist", Short: 'N', Arg: opt.Required}, Group: "Which jobs", Meta: "HOSTS",
		Help: "jobs that ran on one of the nodes"},
	{Name: opt.Name{Long: "noheader", Short: 'n'}, Group: "What is shown", Help: "no header"},
	{Name: opt.Name{Long: "parsable", Short: 'p'}, Group: "What is shown", Help: "end each field with |"},
	{Name: opt.Name{Long: "parsable2", Short: 'P'}, Group: "What is shown", Help: "separate fields with |"},
	{Name: opt.Name{Long: "partition", Short: 'r', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST", Help: "jobs in these partitions"},
	{Name: opt.Name{Long: "qos", Short: 'q', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs with these qualities of service"},
	{Name: opt.Name{Long: "reason", Short: 'R', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs that waited for one of these reasons"},
	{Name: opt.Name{Long: "starttime", Short: 'S', Arg: opt.Required}, Group: "Which jobs", Meta: "TIME",
		Help: "jobs from TIME on (default: midnight; with -s: now; with -j: any time)"},
	{Name: opt.Name{Long: "state", Short: 's', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs in one of these states in the period: R,PD,S,CD,CA,F,TO,OOM,NF,PR,DL,BF,RQ"},
	{Name: opt.Name{Long: "timelimit-max", Short: 'K', Arg: opt.Required}, Group: "Which jobs", Meta: "T",
		Help: "jobs with at most this time limit, together with -k"},
	{Name: opt.Name{Long: "timelimit-min", Short: 'k', Arg: opt.Required}, Group: "Which jobs", Meta: "T",
		Help: "jobs with this time limit; with -K: at least this one"},
	{Name: opt.Name{Long: "truncate", Short: 'T'}, Group: "What is shown", Help: "limit start and end to the period"},
	{Name: opt.Name{Long: "uid", Arg: opt.Required, Canon: "user"}},
	{Name: opt.Name{Long: "units", Arg: opt.Required}, Group: "What is shown", Meta: "KMGTP", Help: "show sizes in this unit"},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "use-local-uid", Short: 'U'}, Group: "Which jobs",
		Help: "accepted, no effect: user names are always those of this host"},
	{Name: opt.Name{Long: "user", Short: 'u', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST",
		Help: "jobs of these users, by name or number"},
	{Name: opt.Name{Long: "users", Arg: opt.Required, Canon: "user"}},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Group: "What is shown", Help: "print the period"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "wckeys", Short: 'W', Arg: opt.Required}, Group: "Which jobs", Meta: "LIST", Help: "jobs with these wckeys"},
	{Name: opt.Name{Long: "whole-hetjob", Arg: opt.Optional}, Group: "What is shown", Meta: "yes|no",
		Help: "accepted, no effect: there are no heterogeneous jobs"},
	{Name: opt.Name{Long: "yaml", Arg: opt.Optional}, Group: "What is shown", Meta: "parser", Help: "print all data as YAML"},
}

// parse reads environment and command line.
func parse(env *command.Env, argv []string) (*options, error) {
	o := &options{delimiter: "|", steps: map[string][]string{}}
	rest, err := env.Options(Options[:], argv, func(name string, h opt.Hit) error { return o.set(env, name, h) })
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		env.Errorf("Unknown arguments:")
		for _, word := range rest {
			env.Errorf(" %s", format.Escape(word))
		}
		return nil, command.ExitCode(1)
	}
	return o, o.finish(env)
}

func (o *options) set(env *command.Env, name string, h opt.Hit) error {
	r := &o.request
	switch name {
	case "accounts":
		r.Accounts = append(r.Accounts, command.List(h.Value)...)
	case "allocations":
		o.allocations = true
	case "allusers":
		o.allUsers = true
	case "associations":
		o.nothing = o.nothing || !slices.Contains(command.List(h.Value), "1") // the only association
	case "batch-script":
		o.script = true
	case "brief":
		o.brief = true
	case "clusters":
		o.nothing = o.nothing || !env.OwnCluster(h.Value)
	case "completion":
		fmt.Fprintln(env.Stderr, "Slurm job completion is disabled")
		return command.ExitCode(1)
	case "constraints":
		r.Features = append(r.Features, command.List(h.Value)...)
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
		return env.Print(Page().Help())
	case "helpformat":
		o.helpFields = true
	case "jobs":
		return o.jobs(env, h.Value)
	default:
		return o.setMore(env, name, h)
	}
	return nil
}

func (o *options) setMore(env *command.Env, name string, h opt.Hit) (err error) {
	r := &o.request
	switch name {
	case "json", "yaml":
		o.document, err = view.DocumentOption(env, name, h.Value)
	case "long":
		o.long = true
	case "name":
		r.Names = append(r.Names, command.List(h.Value)...)
	case "ncpus":
		r.MinCpus, r.MaxCpus, err = bounds(env, h.Value, "cpu")
	case "nnodes":
		r.MinNodes, r.MaxNodes, err = bounds(env, h.Value, "node")
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
		r.Partitions = append(r.Partitions, command.List(h.Value)...)
	case "qos":
		return o.qos(env, h.Value)
	case "reason":
		o.reasons = append(o.reasons, command.List(h.Value)...)
	case "starttime":
		o.since = h.Value
	case "state":
		return o.states(env, h.Value)
	case "timelimit-max":
		r.MaxLimitS, err = limit(env, h.Value)
	case "timelimit-min":
		r.MinLimitS, err = limit(env, h.Value)
	case "truncate":
		o.truncate = true
	case "user":
		return o.users(env, h.Value)
	case "units":
		return o.setUnits(env, h.Value)
	case "usage":
		return env.Print(usage)
	case "verbose":
		o.verbose = true
	case "version":
		return env.PrintVersion()
	case "wckeys":
		r.Wckeys = append(r.Wckeys, command.List(h.Value)...)
	case "whole-hetjob":
		if h.Given && h.Value != "yes" && h.Value != "no" {
			return env.Failf("Invalid --whole-hetjob value \"%s\". Valid values: [yes|no].", format.Escape(h.Value))
		}
	}
	return err
}

// advised adds the valid values to an error in Slurm's words.
func advised(env *command.Env, refusal error, hint string) error {
	env.Advise("%s", format.Escape(hint))
	return refusal
}

func (o *options) file(env *command.Env, path string) error {
	if _, err := os.Stat(path); err != nil {
		fmt.Fprintf(env.Stderr, "%s is not a valid file\n", format.Escape(path))
		env.Advise("-f reads a job completion log; select columns with -o or --format")
	} else {
		fmt.Fprintln(env.Stderr, "Slurm job completion is disabled")
	}
	return command.ExitCode(1)
}

func (o *options) setFlags(env *command.Env, value string) error {
	for _, word := range command.List(value) {
		i := slices.IndexFunc([]string{"SchedSubmit", "SchedMain", "SchedBackfill"},
			func(f string) bool { return strings.EqualFold(f, word) })
		if i < 0 {
			return advised(env, env.Failf("str_2_job_flags: Invalid job flag %s", format.Escape(word)),
				"flags are SchedSubmit, SchedMain and SchedBackfill")
		}
		o.schedulers = append(o.schedulers, [...]string{"Submit", "Main", "Backfill"}[i])
	}
	return nil
}

func (o *options) groups(env *command.Env, value string) error {
	for _, word := range command.List(value) {
		gid, ok := passwd.GID(word)
		if !ok {
			return advised(env, env.Failf("Invalid group id: %s", format.Escape(word)),
				"unknown group on this host; write the name or number of a group")
		}
		o.request.Gids = append(o.request.Gids, gid)
	}
	return nil
}

func (o *options) users(env *command.Env, value string) error {
	for _, word := range command.List(value) {
		uid, ok := passwd.UID(word)
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			uid, ok = uint32(n), true
		}
		if !ok {
			return advised(env, env.Failf("Invalid user id: %s", format.Escape(word)),
				"unknown user on this host; write the login name or number of a user")
		}
		o.request.Uids = append(o.request.Uids, uid)
	}
	o.allUsers = false // the last of -a and -u wins
	return nil
}

// nodes reads -N; an invalid host list is treated as the name of a node that does not exist.
func (o *options) nodes(value string) {
	names, err := hostlist.Expand(value)
	if err != nil || len(names) == 0 {
		names = []string{value}
	}
	o.request.Nodes = append(o.request.Nodes, names...)
}

func (o *options) qos(env *command.Env, value string) error {
	for _, word := range command.List(value) {
		if word = strings.TrimLeft(word, "+-"); !strings.EqualFold(word, "normal") && word != "1" {
			env.Errorf("You gave a bad qos '%s'. Valid QOS's are normal", format.Escape(word))
			return env.Fatalf("problem processing qos list")
		}
		o.request.Qos = append(o.request.Qos, "normal")
	}
	return nil
}

func (o *options) setUnits(env *command.Env, value string) error {
	unit := strings.ToUpper(value[:min(len(value), 1)])
	if unit == "" || !strings.Contains("KMGTP", unit) {
		env.Errorf("Invalid unit type '%s'. Possible options are 'KMGTP'", format.Escape(value[:min(len(value), 1)]))
		return env.Fatalf("Invalid unit type")
	}
	o.units = unit[0]
	return nil
}

// states reads -s. Accounting has no transient states such as COMPLETING.
func (o *options) states(env *command.Env, value string) error {
	for _, word := range command.List(value) {
		state, flag, ok := format.ParseJobState(word)
		switch {
		case !ok:
			return advised(env, env.Fatalf("unrecognized job state value '%s'", format.Escape(word)), "states are "+format.JobStateNames())
		case flag == msg.JobRequeued:
			o.request.StateFlags |= flag
		case flag == msg.JobResizing, flag == msg.JobRevoked:
			o.request.StateFlags |= flag // no job has it
		case flag != 0:
			return env.Fatalf("job state %s is not supported / accounted", format.Escape(word))
		default:
			o.request.States = append(o.request.States, state)
		}
	}
	return nil
}

// bounds reads "n" or "min-max".
func bounds(env *command.Env, value, what string) (low, high uint64, err error) {
	first, second, ranged := strings.Cut(value, "-")
	low, err = strconv.ParseUint(first, 10, 32)
	if high = low; err == nil && ranged {
		high, err = strconv.ParseUint(second, 10, 32)
	}
	if err != nil {
		return 0, 0, advised(env, env.Failf("Invalid numeric value \"%s\" for requested %s range.", format.Escape(value), what),
			"write a number, or two with a hyphen: 2-8")
	}
	return low, high, nil
}

func limit(env *command.Env, value string) (uint64, error) {
	minutes, err := timespec.ParseMinutes(value)
	switch {
	case err != nil:
		return 0, advised(env, env.Fatalf("Invalid time limit specification"), err.Error())
	case minutes == timespec.Unlimited:
		return uint64(msg.Unlimited), nil
	}
	return uint64(minutes) * 60, nil
}

// jobs reads -j.
func (o *options) jobs(env *command.Env, value string) error {
	ids, err := view.AttemptIDs(env, value, o.steps)
	o.request.Ids = append(o.request.Ids, ids...)
	o.nothing = o.nothing || len(o.request.Ids) == 0 && strings.Contains(value, "+")
	o.haveJobs = len(o.request.Ids) > 0 || o.nothing
	return err
}

// finish evaluates combinations of options: whose jobs, when, and in which format.
func (o *options) finish(env *command.Env) error {
	if o.long && o.fields != "" {
		return env.Fatalf("Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.")
	}
	if o.script && o.envVars {
		return env.Fatalf("Options --batch-script and --env-vars are mutually exclusive")
	}
	if !o.haveJobs && (o.script || o.envVars) {
		what := "scripts"
		if o.envVars {
			what = "environment"
		}
		return env.Fatalf("When requesting job %s you must also request specific jobs with the '-j' option.", what)
	}
	switch uid := passwd.Self().UID; {
	case o.allUsers:
		o.request.Uids = nil
	case len(o.request.Uids) == 0 && uid != 0 && !o.haveJobs && len(o.request.Nodes) == 0:
		o.request.Uids = []uint32{uid}
	}
	if o.request.MinLimitS == 0 {
		o.request.MaxLimitS = 0 // ignored on its own
	}
	return o.setWindow(env)
}

// setWindow applies sacct(1), "DEFAULT TIME WINDOW".
func (o *options) setWindow(env *command.Env) error {
	now := env.Now().Local().Truncate(time.Second)
	moment := func(text string) (time.Time, error) {
		t, err := timespec.ParseMoment(text, now, time.Local, timespec.Past)
		var bad *timespec.MomentError
		if errors.As(err, &bad) {
			fmt.Fprintf(env.Stderr, "Invalid time specification (pos=%d): %s\n", bad.Pos, format.Escape(text))
			return t, advised(env, command.ExitCode(1), bad.Msg)
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
		return env.Failf("Start time (%s) requested is after end time (%s).", w.since.Format(timespec.Layout),
			w.until.Format(timespec.Layout))
	}
	o.request.SinceNs = w.since.UnixNano()
	switch {
	case !w.open:
		o.request.UntilNs = w.until.UnixNano()
	case o.haveJobs && !byState && o.since == "":
		o.request.UntilNs = math.MaxInt64 // named jobs, whenever they start
	}
	return nil
}

// table returns the table to print, with options combined in the order of a real sacct.
func (o *options) table(env *command.Env) (*acct.Table, error) {
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
		hint := "sacct --helpformat lists the fields"
		if near := opt.Nearest(acct.FieldNames(), bad.Name); near != "" {
			hint = "did you mean " + near + "? " + hint
		}
		return nil, advised(env, env.Failf("Invalid field requested: \"%s\"", format.Escape(bad.Name)), hint)
	}
	t := &acct.Table{Columns: columns, Trailing: o.trailing}
	t.Parsable, t.Separator = o.parsable, o.delimiter
	return t, err
}
