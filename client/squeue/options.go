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
	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// options is a parsed command line of squeue.
type options struct {
	all, array, arrayUnique, long, start, noHeader, hide, noConvert, perPartition, verbose bool

	steps         bool
	stepIDs       []view.Selector
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
	nothing        bool // an empty list of names was asked for: no job has one of them
}

// The options of squeue; the order is that of its help.
var Names = []opt.Name{
	{Long: "account", Short: 'A', Arg: opt.Required}, {Long: "accounts", Arg: opt.Required, Canon: "account"},
	{Long: "all", Short: 'a'}, {Long: "array", Short: 'r'}, {Long: "array-unique"},
	{Long: "clusters", Short: 'M', Arg: opt.Required}, {Long: "cluster", Arg: opt.Required, Canon: "clusters"},
	{Long: "expand-patterns"}, {Long: "federation"}, {Long: "format", Short: 'o', Arg: opt.Required},
	{Long: "Format", Short: 'O', Arg: opt.Required},
	{Long: "help"}, {Long: "hide"}, {Long: "iterate", Short: 'i', Arg: opt.Required},
	{Long: "jobs", Short: 'j', Arg: opt.Optional}, {Long: "job", Arg: opt.Optional, Canon: "jobs"}, {Long: "json", Arg: opt.Optional},
	{Long: "licenses", Short: 'L', Arg: opt.Required}, {Long: "local"}, {Long: "long", Short: 'l'}, {Long: "me"},
	{Long: "name", Short: 'n', Arg: opt.Required}, {Long: "names", Arg: opt.Required, Canon: "name"}, {Long: "noconvert"},
	{Long: "node", Short: 'w', Arg: opt.Required, Canon: "nodelist"}, {Long: "nodes", Arg: opt.Required, Canon: "nodelist"},
	{Long: "nodelist", Arg: opt.Required}, {Long: "noheader", Short: 'h'}, {Long: "notme"}, {Long: "only-job-state"},
	{Long: "partition", Short: 'p', Arg: opt.Required}, {Long: "partitions", Arg: opt.Required, Canon: "partition"},
	{Long: "priority", Short: 'P'}, {Long: "qos", Short: 'q', Arg: opt.Required},
	{Long: "reservation", Short: 'R', Arg: opt.Required}, {Long: "reservations", Arg: opt.Required, Canon: "reservation"},
	{Long: "sibling"}, {Long: "sort", Short: 'S', Arg: opt.Required}, {Long: "start"},
	{Long: "states", Short: 't', Arg: opt.Required}, {Long: "state", Arg: opt.Required, Canon: "states"},
	{Long: "steps", Short: 's', Arg: opt.Optional}, {Long: "step", Arg: opt.Optional, Canon: "steps"},
	{Long: "usage"}, {Long: "user", Short: 'u', Arg: opt.Required}, {Long: "users", Arg: opt.Required, Canon: "user"},
	{Long: "verbose", Short: 'v'}, {Long: "version", Short: 'V'}, {Long: "yaml", Arg: opt.Optional},
}

// parse reads environment and command line; the environment yields to the command line (squeue(1), ENVIRONMENT).
func parse(env *command.Env, argv []string) (*options, error) {
	o := &options{}
	hits, rest, err := env.Scan(Names, command.JoinOptional(Names, argv), true)
	if err != nil {
		return nil, err
	}
	given := map[string]bool{}
	for _, h := range hits {
		given[command.Canonical(&Names[h.Index])] = true
	}
	if err := o.environment(env, given); err != nil {
		return nil, err
	}
	for _, h := range hits {
		if err := o.set(env, command.Canonical(&Names[h.Index]), h); err != nil {
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

// environment applies the variables whose options were not given.
func (o *options) environment(env *command.Env, given map[string]bool) error {
	for _, v := range [...]struct{ name, option string }{
		{"SQUEUE_ACCOUNT", "account"}, {"SQUEUE_ALL", "all"}, {"SQUEUE_ARRAY", "array"}, {"SQUEUE_ARRAY_UNIQUE", "array-unique"},
		{"SQUEUE_NAMES", "name"}, {"SQUEUE_FORMAT", "format"}, {"SQUEUE_FORMAT2", "Format"}, {"SQUEUE_LICENSES", "licenses"},
		{"SQUEUE_PARTITION", "partition"}, {"SQUEUE_PRIORITY", "priority"}, {"SQUEUE_QOS", "qos"}, {"SQUEUE_SORT", "sort"},
		{"SQUEUE_STATES", "states"}, {"SQUEUE_USERS", "user"}, {"SLURM_CLUSTERS", "clusters"},
	} {
		value, ok := env.LookupEnv(v.name)
		if !ok || given[v.option] || v.option == "user" && given["me"] {
			continue
		}
		if v.option == "format" || v.option == "Format" {
			if given["format"] || given["Format"] || given["long"] || given["start"] || given["steps"] || o.layoutFromEnv {
				continue
			}
			o.layoutFromEnv = true
		}
		if err := o.set(env, v.option, opt.Hit{Value: value, Given: true}); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) set(env *command.Env, name string, h opt.Hit) error {
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
	case "verbose":
		o.verbose = true
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
		_, _ = io.WriteString(env.Stdout, help)
		return command.ExitCode(0)
	case "usage":
		_, _ = io.WriteString(env.Stdout, usage)
		return command.ExitCode(0)
	case "version":
		return env.PrintVersion()
	}
	return nil
}

// check refuses what cannot go together.
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

// list is a list of names to choose by; an empty one chooses nothing.
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

// setUsers reads names and numbers; those that nobody has are named and match nothing.
func (o *options) setUsers(env *command.Env, value string) error {
	o.users, o.haveUsers = nil, true
	for _, name := range command.List(value) {
		a, ok := accounts.User(name)
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

// parseSelectors reads -j and -s: ids by commas or blanks, "12", "12_3", "12_[1-3]"; with steps "12.0", "12_3.batch".
func parseSelectors(env *command.Env, value string, steps bool) ([]view.Selector, error) {
	var out []view.Selector
	for _, blank := range strings.Fields(value) {
		for _, word := range hostlist.Split(blank) {
			s, ok := view.ParseSelector(word, steps)
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
