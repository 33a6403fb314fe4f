package squeue

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// options is a parsed command line of squeue.
type options struct {
	all, array, arrayUnique, long, start, noHeader, hide, noConvert, perPartition bool

	steps         bool
	stepIDs       []view.Selector
	stepNames     []string // -n, for -s
	jobs          []view.Selector
	haveJobs      bool
	format        string // -o
	haveFormat    bool
	formatLong    string // -O
	haveLong      bool
	sort          string
	haveSort      bool
	clusters      string
	haveClusters  bool
	iterateS      int
	users         []uint32
	haveUsers     bool
	partitions    []string
	names         []string
	accounts      []string
	qos           []string
	licenses      []string
	reservations  []string
	nodes         []string
	states        []msg.JobState
	flags         uint32
	haveStates    bool
	allStates     bool
	layoutFromEnv bool
	document      view.DocumentKind
	notMe         bool // --notme
	onlyState     bool // --only-job-state

	expandPatterns bool
	nothing        bool // a list of names was empty, so no job matches

	given view.Given
}

// Options are the command line of squeue(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "account", Short: 'A', Arg: opt.Required}, Group: "Which jobs", Env: "SQUEUE_ACCOUNT", Meta: "LIST",
		Help: "jobs charged to these accounts"},
	{Name: opt.Name{Long: "accounts", Arg: opt.Required, Canon: "account"}},
	{Name: opt.Name{Long: "all", Short: 'a'}, Group: "Which jobs", Env: "SQUEUE_ALL", Help: "show hidden partitions too"},
	{Name: opt.Name{Long: "array", Short: 'r'}, Group: "What is shown", Env: "SQUEUE_ARRAY", Help: "a row for each task of an array"},
	{Name: opt.Name{Long: "array-unique"}, Group: "What is shown", Env: "SQUEUE_ARRAY_UNIQUE",
		Help: "accepted, no effect: pending tasks of an array share a row without -r"},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Group: "Which jobs", Env: "SLURM_CLUSTERS", Meta: "NAME",
		Help: `this cluster, or "all"`},
	{Name: opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}},
	{Name: opt.Name{Long: "expand-patterns"}, Group: "What is shown", Help: "replace patterns such as %j in file names"},
	{Name: opt.Name{Long: "federation"}, Group: "Which jobs", Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "format", Short: 'o', Arg: opt.Required}, Group: "What is shown", Env: "SQUEUE_FORMAT", Meta: "FORMAT",
		Help: `"%.18i %9P …": letters with [.][width], "." aligns right; %all for all`},
	{Name: opt.Name{Long: "Format", Short: 'O', Arg: opt.Required}, Group: "What is shown", Env: "SQUEUE_FORMAT2", Meta: "FIELDS",
		Help: "JobID:10,Name:.20,State:|,…: names of fields with the width"},
	{Name: opt.Name{Long: "help"}, Help: "show this help"},
	{Name: opt.Name{Long: "hide"}, Group: "Which jobs", Help: "do not show hidden partitions (the default)"},
	{Name: opt.Name{Long: "iterate", Short: 'i', Arg: opt.Required}, Group: "What is shown", Meta: "SECONDS",
		Help: "refresh every SECONDS"},
	{Name: opt.Name{Long: "jobs", Short: 'j', Arg: opt.Optional}, Group: "Which jobs", Meta: "LIST",
		Help: "these jobs: 12, 12_3, 12_[1-3]"},
	{Name: opt.Name{Long: "job", Arg: opt.Optional, Canon: "jobs"}},
	{Name: opt.Name{Long: "json", Arg: opt.Optional}, Group: "What is shown", Meta: "parser",
		Help: "print JSON (data_parser v0.0.42); SLURM_JSON=compact omits blanks"},
	{Name: opt.Name{Long: "licenses", Short: 'L', Arg: opt.Required}, Group: "Which jobs", Env: "SQUEUE_LICENSES", Meta: "LIST",
		Help: "jobs that request one of these licenses"},
	{Name: opt.Name{Long: "local"}, Group: "Which jobs", Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "long", Short: 'l'}, Group: "What is shown", Help: "show states in full, and the time limit"},
	{Name: opt.Name{Long: "me"}, Group: "Which jobs", Help: "your own jobs"},
	{Name: opt.Name{Long: "name", Short: 'n', Arg: opt.Required}, Group: "Which jobs", Env: "SQUEUE_NAMES", Meta: "LIST",
		Help: "jobs with these names"},
	{Name: opt.Name{Long: "names", Arg: opt.Required, Canon: "name"}},
	{Name: opt.Name{Long: "noconvert"}, Group: "What is shown", Help: "do not convert sizes: 2048M stays 2048M"},
	{Name: opt.Name{Long: "node", Arg: opt.Required, Canon: "nodelist"}},
	{Name: opt.Name{Long: "nodes", Arg: opt.Required, Canon: "nodelist"}},
	{Name: opt.Name{Long: "nodelist", Short: 'w', Arg: opt.Required}, Group: "Which jobs", Meta: "HOSTS",
		Help: "jobs that hold one of the nodes"},
	{Name: opt.Name{Long: "noheader", Short: 'h'}, Group: "What is shown", Help: "no header"},
	{Name: opt.Name{Long: "notme"}, Group: "Which jobs", Help: "jobs of other users"},
	{Name: opt.Name{Long: "only-job-state"}, Group: "What is shown", Help: "show only ids and states"},
	{Name: opt.Name{Long: "partition", Short: 'p', Arg: opt.Required}, Group: "Which jobs", Env: "SQUEUE_PARTITION", Meta: "LIST",
		Help: "jobs in these partitions"},
	{Name: opt.Name{Long: "partitions", Arg: opt.Required, Canon: "partition"}},
	{Name: opt.Name{Long: "priority", Short: 'P'}, Group: "What is shown", Env: "SQUEUE_PRIORITY",
		Help: "a row for each partition that a pending job names"},
	{Name: opt.Name{Long: "qos", Short: 'q', Arg: opt.Required}, Group: "Which jobs", Env: "SQUEUE_QOS", Meta: "LIST",
		Help: "jobs with these qualities of service"},
	{Name: opt.Name{Long: "reservation", Short: 'R', Arg: opt.Required}, Group: "Which jobs", Meta: "NAME",
		Help: "jobs in a reservation"},
	{Name: opt.Name{Long: "reservations", Arg: opt.Required, Canon: "reservation"}},
	{Name: opt.Name{Long: "sibling"}, Group: "Which jobs", Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "sort", Short: 'S', Arg: opt.Required}, Group: "What is shown", Env: "SQUEUE_SORT", Meta: "LETTERS",
		Help: `"P,-p,i": letters of -o, "-" for descending (default P,t,-p)`},
	{Name: opt.Name{Long: "start"}, Group: "What is shown", Help: "when and where pending jobs are expected to start"},
	{Name: opt.Name{Long: "states", Short: 't', Arg: opt.Required}, Group: "Which jobs", Env: "SQUEUE_STATES", Meta: "LIST",
		Help: `PD,R,CG,…; "all" for ended jobs too`},
	{Name: opt.Name{Long: "state", Arg: opt.Required, Canon: "states"}},
	{Name: opt.Name{Long: "steps", Short: 's', Arg: opt.Optional}, Group: "Which jobs", Meta: "LIST", Help: "show steps instead of jobs"},
	{Name: opt.Name{Long: "step", Arg: opt.Optional, Canon: "steps"}},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "user", Short: 'u', Arg: opt.Required}, Group: "Which jobs", Env: "SQUEUE_USERS", Meta: "LIST",
		Help: "jobs of these users, by name or number"},
	{Name: opt.Name{Long: "users", Arg: opt.Required, Canon: "user"}},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Group: "What is shown", Help: "print the options first; -vv: more of them"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "yaml", Arg: opt.Optional}, Group: "What is shown", Meta: "parser", Help: "print YAML"},
}

// parse reads environment and command line, which takes precedence (squeue(1), ENVIRONMENT).
func parse(env *command.Env, argv []string) (*options, error) {
	o := &options{given: view.Given{}}
	names := command.NamesOf(Options[:])
	hits, rest, err := env.Scan(names, command.JoinOptional(names, argv), true)
	if err != nil {
		return nil, err
	}
	given := map[string]bool{}
	for _, h := range hits {
		given[command.Canonical(&names[h.Index])] = true
	}
	if err := o.environment(env, given); err != nil {
		return nil, err
	}
	for _, h := range hits {
		if err := o.set(env, command.Canonical(&names[h.Index]), h); err != nil {
			return nil, err
		}
	}
	if len(rest) > 0 {
		env.Errorf("Unrecognized option: %s", format.Escape(rest[0]))
		_, _ = io.WriteString(env.Stdout, usage)
		return nil, command.ExitCode(1)
	}
	return o, o.check(env, given)
}

// environment applies the variables of options that were not given.
func (o *options) environment(env *command.Env, given map[string]bool) error {
	for i := range Options {
		option := Options[i].Long
		value, ok := env.LookupEnv(Options[i].Env)
		if Options[i].Env == "" || !ok || given[option] || option == "user" && given["me"] {
			continue
		}
		if option == "format" || option == "Format" {
			if given["format"] || given["Format"] || given["long"] || given["start"] || given["steps"] || o.layoutFromEnv {
				continue
			}
			o.layoutFromEnv = true
		}
		if err := o.set(env, option, opt.Hit{Value: value, Given: true}); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) set(env *command.Env, name string, h opt.Hit) error {
	o.given.Add(name, h)
	switch name {
	case "account":
		o.accounts = command.List(h.Value)
	case "all":
		o.all = true
	case "array":
		o.array = true
	case "array-unique":
		o.arrayUnique = true
	case "clusters":
		o.clusters, o.haveClusters = h.Value, true
	case "format":
		if o.haveLong {
			return env.Failf("-o (--format) is incompatible with -O (--Format)")
		}
		o.format, o.haveFormat = h.Value, true
	case "Format":
		if o.haveFormat {
			return env.Failf("-O (--Format) is incompatible with -o (--format)")
		}
		o.formatLong, o.haveLong = h.Value, true
	case "hide":
		o.hide = true
	case "licenses":
		o.licenses = o.list(h.Value)
	case "long":
		o.long = true
	case "me":
		o.users, o.haveUsers = []uint32{uint32(os.Getuid())}, true
	case "name":
		o.names = o.list(h.Value)
	case "noconvert":
		o.noConvert = true
	case "nodelist":
		return o.setNodes(env, h.Value)
	case "noheader":
		o.noHeader = true
	case "partition":
		o.partitions = o.list(h.Value)
	case "priority":
		o.perPartition = true
	case "qos":
		o.qos = command.List(h.Value)
	case "reservation":
		o.reservations = command.List(h.Value)
	case "sort":
		o.sort, o.haveSort = h.Value, true
	case "start":
		o.start = true
	case "expand-patterns":
		o.expandPatterns = true
	case "only-job-state":
		o.onlyState = true
	case "notme":
		o.notMe = true
	default:
		return o.setMore(env, name, h)
	}
	return nil
}

func (o *options) setMore(env *command.Env, name string, h opt.Hit) error {
	switch name {
	case "iterate":
		n, err := strconv.Atoi(h.Value)
		if err != nil || n <= 0 {
			return env.Failf("--iterate=%s\n\nsqueue: error: expected seconds, 1 or more", format.Escape(h.Value))
		}
		o.iterateS = n
	case "jobs":
		if !h.Given {
			return nil
		}
		o.haveJobs = true
		jobs, err := parseSelectors(env, h.Value, false)
		o.jobs = jobs
		return err
	case "steps":
		o.steps = true
		steps, err := parseSelectors(env, h.Value, true)
		o.stepIDs = steps
		return err
	case "states":
		return o.setStates(env, h.Value)
	case "user":
		return o.setUsers(env, h.Value)
	case "json", "yaml":
		kind, err := view.DocumentOption(env, name, h.Value)
		o.document = kind
		return err
	case "help":
		return env.Print(Page().Help())
	case "usage":
		return env.Print(usage)
	case "version":
		return env.PrintVersion()
	}
	return nil
}

// check rejects options that exclude each other.
func (o *options) check(env *command.Env, given map[string]bool) error {
	switch {
	case o.long && given["format"]:
		fmt.Fprintf(env.Stderr, "%s: fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.\n",
			env.Name)
		return command.ExitCode(1)
	case o.haveClusters:
		return env.CheckClusters(o.clusters)
	}
	return nil
}

// list reads a list of names to filter by; an empty one matches nothing.
func (o *options) list(value string) []string {
	names := command.List(value)
	o.nothing = o.nothing || len(names) == 0
	return names
}

func (o *options) setStates(env *command.Env, value string) error {
	o.haveStates, o.states, o.flags, o.allStates = true, nil, 0, false
	if strings.EqualFold(value, "all") {
		o.allStates = true
		return nil
	}
	for _, name := range command.List(value) {
		state, flag, ok := format.ParseJobState(name)
		switch {
		case !ok:
			env.Errorf("Invalid job state specified: %s", format.Escape(name))
			env.Errorf("Valid job states include: %s\n", format.JobStateNames())
			return command.ExitCode(1)
		case flag != 0:
			o.flags |= flag
		default:
			o.states = append(o.states, state)
		}
	}
	return nil
}

// setUsers reads names and numbers; it reports unknown ones, which match nothing.
func (o *options) setUsers(env *command.Env, value string) error {
	o.users, o.haveUsers = nil, true
	for _, name := range command.List(value) {
		a, ok := passwd.User(name)
		if !ok {
			env.Errorf("Invalid user: %s\n", format.Escape(name))
			continue
		}
		o.users = append(o.users, a.UID)
	}
	return nil
}

func (o *options) setNodes(env *command.Env, value string) error {
	names, err := hostlist.Expand(value)
	if err != nil {
		return env.Failf("Invalid node name %s: %v", format.Escape(value), err)
	}
	for i, name := range names {
		if name == "localhost" {
			names[i] = command.ShortHostname()
		}
	}
	o.nodes, o.nothing = names, o.nothing || len(names) == 0
	return nil
}

// parseSelectors reads -j and -s: ids separated by commas or blanks, "12", "12_3", "12_[1-3]"; with steps "12.0", "12_3.batch".
func parseSelectors(env *command.Env, value string, steps bool) ([]view.Selector, error) {
	var out []view.Selector
	for _, blank := range strings.Fields(value) {
		for _, word := range hostlist.Split(blank) {
			s, ok := view.ParseSelector(word, steps)
			if !ok && steps && !strings.Contains(word, ".") {
				return nil, env.Failf("Invalid job_step id: %s.??", format.Escape(word))
			}
			if !ok && steps {
				return nil, env.Failf("Invalid job_id %s", format.Escape(word))
			}
			if !ok {
				return nil, env.Failf("Invalid job id: %s", format.Escape(word))
			}
			out = append(out, s)
		}
	}
	return out, nil
}
