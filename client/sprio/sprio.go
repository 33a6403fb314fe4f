// Package sprio is the command that shows the parts of the priorities of pending jobs.
package sprio

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/internal/passwd"
)

// options is a parsed command line of sprio.
type options struct {
	noHeader, long, norm, weights, byUser, named bool
	formatGiven                                  bool // by -o
	format, sort                                 string
	haveFormat                                   bool
	filter                                       msg.JobsRequest
	nobody                                       bool // users were given, but none of them exists
	given                                        view.Given
}

// Options are the command line of sprio(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "cluster", Arg: opt.Required, Canon: "clusters"}},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Env: "SLURM_CLUSTERS", Meta: "NAME", Help: "this cluster"},
	{Name: opt.Name{Long: "federation"}, Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "format", Short: 'o', Arg: opt.Required}, Env: "SPRIO_FORMAT", Meta: "FORMAT",
		Help: `"%.15i %9r %.10Y …": letters with [.][width]`},
	{Name: opt.Name{Long: "help"}, Help: "show this help"},
	{Name: opt.Name{Long: "jobs", Short: 'j', Arg: opt.Optional}, Meta: "LIST", Help: "only these jobs"},
	{Name: opt.Name{Long: "job", Arg: opt.Optional, Canon: "jobs"}},
	{Name: opt.Name{Long: "local"}, Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "long", Short: 'l'}, Help: "show all terms"},
	{Name: opt.Name{Long: "noheader", Short: 'h'}, Help: "no header"},
	{Name: opt.Name{Long: "norm", Short: 'n'}, Help: "show unweighted terms, 0 to 1"},
	{Name: opt.Name{Long: "partition", Short: 'p', Arg: opt.Required}, Meta: "LIST", Help: "jobs in these partitions"},
	{Name: opt.Name{Long: "partitions", Arg: opt.Required, Canon: "partition"}},
	{Name: opt.Name{Long: "sibling"}, Help: "accepted, no effect: there is one cluster"},
	{Name: opt.Name{Long: "sort", Short: 'S', Arg: opt.Required}, Meta: "LETTERS",
		Help: `letters of -o, "-" for descending (default i)`},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "user", Short: 'u', Arg: opt.Required}, Meta: "LIST", Help: "jobs of these users, by name or number"},
	{Name: opt.Name{Long: "users", Arg: opt.Required, Canon: "user"}},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "print the options first; -vv: more of them"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
	{Name: opt.Name{Long: "weights", Short: 'w'}, Help: "show the weights, not the jobs"},
}

const usage = `Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]
   [--federation] [--local] [--sibling] [--usage] [-hlnvVw]
`

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage: "Usage: sprio [OPTIONS]",
		About: `Shows the components of the priorities of pending jobs, a row for each partition of a job. Held jobs, and jobs that wait for their
begin time or a dependency, have no priority yet and are left out.`,
		Options: Options[:],
		Blocks: []command.Block{
			{Title: "Letters", Text: `  i job, u user, r partition, c cluster, Y priority, y relative to the largest possible, S site, A age, B association,
  F fair share, J job size, P partition, Q QOS, T resources; small letters for unweighted terms; N nice.
`},
			{Title: "Environment", Text: `  SPRIO_FORMAT, SLURM_CLUSTERS.
`},
		},
	}
}

// Main runs one sprio command line. Output and exit code follow a real sprio, except that -M with this cluster's name works.
func Main(env *command.Env, args []string) int {
	o, err := parse(env, args)
	if err != nil {
		return env.Exit(err)
	}
	o.printOptions(env)
	c, err := env.Dial(context.Background())
	if err != nil {
		return failed(env, err)
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Priorities(context.Background(), &msg.PrioritiesRequest{Filter: &o.filter})
	switch {
	case err != nil:
		return failed(env, err)
	case reply.GetWeights()["basic"] != 0:
		fmt.Fprintln(env.Stderr,
			"You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor' is supported.")
		return 1
	case o.named && len(reply.GetJobs()) == 0:
		fmt.Fprintln(env.Stdout, "Unable to find jobs matching user/id(s) specified")
		return 0
	}
	return print(env, o, reply)
}

// failure is the exit code of a real sprio whose query fails.
const failure = 255

func failed(env *command.Env, err error) int {
	text, more := command.Phrase(err)
	fmt.Fprintf(env.Stderr, "Couldn't get priority factors from controller: %s\n", format.Escape(text))
	if more != "" {
		env.Errorf("%s", format.Escape(more))
	}
	return failure
}

func print(env *command.Env, o *options, reply *msg.PrioritiesReply) int {
	spec := o.format
	if !o.haveFormat {
		spec = format.PriorityFormat(reply.GetWeights(), o.long, o.norm, o.byUser)
	}
	layout, unknown := format.Priorities().ParseLetters(spec)
	for _, word := range unknown {
		env.Errorf("Invalid job format specification: %s", format.Escape(word))
	}
	layout = slices.DeleteFunc(layout, func(c format.Column[format.Priority]) bool {
		return c.Field == nil &&
			strings.HasPrefix(c.Suffix, "%")
	})
	var rows []format.Priority
	if o.weights {
		rows = []format.Priority{{Weights: reply.GetWeights()}}
	} else if !o.nobody {
		for _, r := range reply.GetJobs() {
			rows = append(rows, format.Priority{PriorityRecord: r})
		}
	}
	order, bad := format.Priorities().ParseSort(o.sort)
	fc := view.Context(env, 0)
	fc.Cluster = "" // only a federation names its clusters here
	if bad != "" {
		code := view.PrintTable(env, fc, layout, nil, nil, view.TableOptions{NoHeader: o.noHeader})
		env.Errorf("Invalid sort specification: %s", bad)
		return max(code, 1)
	}
	if o.weights {
		order = nil
	}
	return view.PrintTable(env, fc, layout, order, rows, view.TableOptions{NoHeader: o.noHeader})
}

func parse(env *command.Env, args []string) (*options, error) {
	names := command.NamesOf(Options[:])
	hits, rest, err := env.Scan(names, command.JoinOptional(names, args), true)
	if err != nil {
		return nil, err
	}
	o := &options{sort: "i", given: view.Given{}, filter: msg.JobsRequest{States: []msg.JobState{msg.JobState_JOB_PENDING}}}
	o.format, o.haveFormat = env.LookupEnv("SPRIO_FORMAT")
	if list, ok := env.LookupEnv("SLURM_CLUSTERS"); ok {
		if err := env.CheckClusters(list); err != nil {
			return nil, err
		}
	}
	for _, h := range hits {
		if err := o.set(env, command.Canonical(&names[h.Index]), h); err != nil {
			return nil, err
		}
	}
	if o.long && o.formatGiven {
		fmt.Fprintf(env.Stderr, "%s: fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.\n",
			env.Name)
		return nil, command.ExitCode(1)
	}
	o.haveFormat = o.haveFormat && !o.long // -l takes precedence over the variable
	if len(rest) > 0 {
		env.Errorf("Unrecognized option: %s", format.Escape(rest[0]))
		fmt.Fprint(env.Stdout, usage)
		return nil, command.ExitCode(1)
	}
	return o, nil
}

// printOptions prints the first block of -v, in the format of a real sprio.
func (o *options) printOptions(env *command.Env) {
	g := o.given
	if g.Verbose() == 0 {
		return
	}
	spec := view.Null
	if o.haveFormat {
		spec = o.format
	}
	pairs := []string{
		"format     = ", spec,
		"job_flag   = ", g.Flag("jobs"),
		"jobs       = ", g.Or(view.Null, "jobs"),
		"partition  = ", g.Or(view.Null, "partition"),
		"users      = ", g.Or(view.Null, "user"),
		"verbose    = ", strconv.Itoa(g.Verbose()),
	}
	if g.Verbose() > 1 {
		pairs = append(pairs, view.Listed("job_list", o.filter.Ids)...)
		pairs = append(pairs, view.Listed("user_list", o.filter.Uids)...)
	}
	view.PrintOptions(env, pairs...)
	view.EndOptions(env, "\n\n")
}

func (o *options) set(env *command.Env, name string, h opt.Hit) error {
	o.given.Add(name, h)
	value := h.Value
	switch name {
	case "help":
		return env.Print(Page().Help())
	case "usage":
		return env.Print(usage)
	case "version":
		return env.PrintVersion()
	case "clusters":
		return env.CheckClusters(value)
	case "format":
		o.format, o.haveFormat = value, true
		o.formatGiven = true
	case "sort":
		o.sort = value
	case "partition":
		o.filter.Partitions = command.List(value)
	case "user":
		o.users(env, value)
	case "jobs":
		return o.jobs(env, value)
	case "noheader":
		o.noHeader = true
	case "long":
		o.long = true
	case "norm":
		o.norm = true
	case "weights":
		o.weights = true
	}
	return nil
}

// users reads -u; it reports unknown names, which match nobody.
func (o *options) users(env *command.Env, value string) {
	o.byUser = true
	for _, name := range command.List(value) {
		uid, ok := passwd.UID(name)
		if !ok {
			env.Errorf("Invalid user: %s\n", format.Escape(name))
			continue
		}
		o.filter.Uids = append(o.filter.Uids, uid)
	}
	o.nobody = len(o.filter.Uids) == 0
}

func (o *options) jobs(env *command.Env, value string) error {
	for _, word := range command.List(value) {
		id, err := jobid.Parse(word)
		if err != nil {
			env.Errorf("Invalid job id: %s", format.Escape(word))
			return command.ExitCode(1)
		}
		o.named = true
		o.filter.Ids = append(o.filter.Ids, strconv.FormatUint(uint64(id.Job), 10))
	}
	return nil
}
