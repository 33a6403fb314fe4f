package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// sprioOptions is a parsed command line of sprio.
type sprioOptions struct {
	noHeader, long, norm, weights, byUser, named bool
	format, sort                                 string
	haveFormat                                   bool
	filter                                       pb.JobsRequest
	nobody                                       bool // users were given, and there is none of them
}

var sprioNames = []opt.Name{
	{Long: "cluster", Arg: opt.Required, Canon: "clusters"}, {Long: "clusters", Short: 'M', Arg: opt.Required}, {Long: "federation"},
	{Long: "format", Short: 'o', Arg: opt.Required}, {Long: "help"}, {Long: "jobs", Short: 'j', Arg: opt.Optional}, {Long: "job", Arg: opt.Optional, Canon: "jobs"},
	{Long: "local"}, {Long: "long", Short: 'l'}, {Long: "noheader", Short: 'h'}, {Long: "norm", Short: 'n'},
	{Long: "partition", Short: 'p', Arg: opt.Required}, {Long: "partitions", Arg: opt.Required, Canon: "partition"}, {Long: "sibling"},
	{Long: "sort", Short: 'S', Arg: opt.Required}, {Long: "usage"}, {Long: "user", Short: 'u', Arg: opt.Required}, {Long: "users", Arg: opt.Required, Canon: "user"},
	{Long: "verbose", Short: 'v'}, {Long: "version", Short: 'V'}, {Long: "weights", Short: 'w'},
}

const sprioUsage = `Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]
   [--federation] [--local] [--sibling] [--usage] [-hlnvVw]
`

const sprioHelp = `Usage: sprio [OPTIONS...]

Shows what the priorities of waiting jobs are made of, a row for each partition that a job may run in. Held jobs, and jobs whose
time or dependency has not come, have no priority yet and are left out.

  -j, --jobs=LIST          these jobs                       -u, --user=LIST       users, by name or number
  -p, --partition=LIST     partitions                       -M, --clusters=NAME   this cluster
  -w, --weights            the weights, not the jobs        -n, --norm            terms before they are weighted, 0 to 1
  -l, --long               all terms                        -h, --noheader        no header
  -o, --format=FORMAT      "%.15i %9r %.10Y …": letters with [.][width]
  -S, --sort=LETTERS       letters of -o, "-" for descending (default i)
  -v, --verbose            accepted                         -V, --version         versions
      --help, --usage      this text, or the short one

Letters: i job, u user, r partition, c cluster, Y priority, y as a part of the largest there is, S site, A age, B association,
F fair share, J job size, P partition, Q QOS, T resources; small letters for the terms before they are weighted; N nice.

Environment: SPRIO_FORMAT, SLURM_CLUSTERS.
`

// sprio runs one sprio command line. What it prints and returns follows a real sprio, except that -M with this cluster's name works.
func sprio(env *Env, args []string) int {
	o, err := sprioParse(env, args)
	if err != nil {
		return env.viewExit(err)
	}
	c, err := env.Dial(context.Background())
	if err != nil {
		return sprioFailed(env, err)
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Priorities(context.Background(), &pb.PrioritiesRequest{Filter: &o.filter})
	switch {
	case err != nil:
		return sprioFailed(env, err)
	case reply.GetWeights()["basic"] != 0:
		fmt.Fprintln(env.Stderr, "You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor' is supported.")
		return 1
	case o.named && len(reply.GetJobs()) == 0 && !o.weights:
		fmt.Fprintln(env.Stdout, "Unable to find jobs matching user/id(s) specified")
		return 0
	}
	return sprioPrint(env, o, reply)
}

// sprioFailure is the exit code of a real sprio that cannot ask.
const sprioFailure = 255

func sprioFailed(env *Env, err error) int {
	text, more := phrase(err)
	fmt.Fprintf(env.Stderr, "Couldn't get priority factors from controller: %s\n", format.Escape(text))
	if more != "" {
		env.Errorf("%s", format.Escape(more))
	}
	return sprioFailure
}

func sprioPrint(env *Env, o *sprioOptions, reply *pb.PrioritiesReply) int {
	spec := o.format
	if !o.haveFormat {
		spec = format.PriorityFormat(reply.GetWeights(), o.long, o.norm, o.byUser)
	}
	layout, unknown := format.Priorities().ParseLetters(spec)
	for _, word := range unknown {
		env.Errorf("Invalid job format specification: %s", format.Escape(word))
	}
	layout = slices.DeleteFunc(layout, func(c format.Column[format.Priority]) bool { return c.Field == nil && strings.HasPrefix(c.Suffix, "%") })
	var rows []format.Priority
	if o.weights {
		rows = []format.Priority{{Weights: reply.GetWeights()}}
	} else if !o.nobody {
		for _, r := range reply.GetJobs() {
			rows = append(rows, format.Priority{PriorityRecord: r})
		}
	}
	order, bad := format.Priorities().ParseSort(o.sort)
	fc := env.formatContext(0)
	fc.Cluster = "" // only a federation names its clusters here
	if bad != "" {
		code := printTable(env, fc, layout, nil, nil, tableOptions{noHeader: o.noHeader})
		env.Errorf("Invalid sort specification: %s", bad)
		return max(code, 1)
	}
	if o.weights {
		order = nil
	}
	return printTable(env, fc, layout, order, rows, tableOptions{noHeader: o.noHeader})
}

func sprioParse(env *Env, args []string) (*sprioOptions, error) {
	hits, rest, err := opt.Scan(sprioNames, joinOptional(sprioNames, args), true)
	if err != nil {
		return nil, err
	}
	o := &sprioOptions{sort: "i", filter: pb.JobsRequest{States: []pb.JobState{pb.JobState_JOB_PENDING}}}
	o.format, o.haveFormat = env.LookupEnv("SPRIO_FORMAT")
	if list, ok := env.LookupEnv("SLURM_CLUSTERS"); ok {
		if err := env.checkClusters(list); err != nil {
			return nil, err
		}
	}
	for _, h := range hits {
		if err := o.set(env, canonical(&sprioNames[h.Index]), h.Value); err != nil {
			return nil, err
		}
	}
	if len(rest) > 0 {
		env.Errorf("Unrecognized option: %s", format.Escape(rest[0]))
		fmt.Fprint(env.Stdout, sprioUsage)
		return nil, exitEarly(1)
	}
	return o, nil
}

func (o *sprioOptions) set(env *Env, name, value string) error {
	switch name {
	case "help":
		fmt.Fprint(env.Stdout, sprioHelp)
		return exitEarly(0)
	case "usage":
		fmt.Fprint(env.Stdout, sprioUsage)
		return exitEarly(0)
	case "version":
		return env.printVersion()
	case "clusters":
		return env.checkClusters(value)
	case "format":
		o.format, o.haveFormat = value, true
	case "sort":
		o.sort = value
	case "partition":
		o.filter.Partitions = list(value)
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

// users reads -u; names that do not exist are complained of and select nobody.
func (o *sprioOptions) users(env *Env, value string) {
	o.byUser = true
	for _, name := range list(value) {
		uid, ok := lookupUID(name)
		if !ok {
			env.Errorf("Invalid user: %s\n", format.Escape(name))
			continue
		}
		o.filter.Uids = append(o.filter.Uids, uid)
	}
	o.nobody = len(o.filter.Uids) == 0
}

func (o *sprioOptions) jobs(env *Env, value string) error {
	for _, word := range list(value) {
		id, err := jobid.Parse(word)
		if err != nil {
			env.Errorf("Invalid job id: %s", format.Escape(word))
			return exitEarly(1)
		}
		o.named = true
		o.filter.Ids = append(o.filter.Ids, strconv.FormatUint(uint64(id.Job), 10))
	}
	return nil
}
