// Package squeue is the command that shows jobs and job steps. Its columns are in client/format (jobfields.go, jobnames.go).
package squeue

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// The default formats (squeue(1), --format).
const (
	defaultFormat = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
	longFormat    = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
	startFormat   = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
	defaultSort   = "P,t,-p"

	onlyStateFormat = "%.18i %.8T" // --only-job-state, since 24.05
)

// Main runs one squeue command line.
func Main(env *command.Env, args []string) int {
	o, err := parse(env, args)
	if err != nil {
		return env.Exit(err)
	}
	o.printOptions(env)
	return view.Repeat(env, o.iterateS, func(ctx context.Context) int { return once(ctx, env, o) })
}

// once queries the controller and prints the table.
func once(ctx context.Context, env *command.Env, o *options) int {
	if o.document.Wanted {
		return printDocument(ctx, env, o)
	}
	if o.steps {
		return printSteps(ctx, env, o)
	}
	layout := layout(env, o)
	order, bad := order(o)
	if bad != "" {
		env.Errorf("Invalid sort specification: %s", bad)
		return 1
	}
	table := &format.Sorter[format.Job]{Layout: layout, Order: order}
	fc, err := load(ctx, env, o, format.NeedsOfJobs(layout, order), table.Add)
	if err != nil {
		return env.Exit(err)
	}
	return view.PrintLines(env, fc, layout, o.head(env, table.Len()), table.Lines)
}

// head returns the lines above a table with the given number of rows.
func (o *options) head(env *command.Env, rows int) view.TableOptions {
	head := view.TableOptions{NoHeader: o.noHeader, Stamp: o.long || o.iterateS > 0 || o.given.Verbose() > 0, Cluster: o.clusterHeader(env)}
	if o.given.Verbose() > 0 {
		head.Note = fmt.Sprintf("last_update_time=%d records=%d", env.Now().Unix(), rows)
	}
	return head
}

// clusterHeader is the line above the table for -M.
func (o *options) clusterHeader(env *command.Env) string {
	if o.haveClusters {
		return env.ClusterName()
	}
	return ""
}

func layout(env *command.Env, o *options) (layout format.Layout[format.Job]) {
	var unknown []string
	switch {
	case o.haveFormat:
		layout, unknown = format.Jobs().ParseLetters(o.format)
	case o.haveLong:
		layout, unknown = format.Jobs().ParseNames(o.formatLong)
	case o.onlyState:
		layout, _ = format.Jobs().ParseLetters(onlyStateFormat)
	case o.start:
		layout, _ = format.Jobs().ParseLetters(startFormat)
	case o.long:
		layout, _ = format.Jobs().ParseLetters(longFormat)
	default:
		layout, _ = format.Jobs().ParseLetters(defaultFormat)
	}
	for _, word := range unknown {
		env.Errorf("Invalid job format specification: %s", format.Escape(word))
	}
	return layout
}

func order(o *options) (format.Order[format.Job], string) {
	spec := defaultSort
	switch {
	case o.haveSort:
		spec = o.sort
	case o.start:
		spec = "S"
	}
	return format.Jobs().ParseSort(spec)
}

// activeStates are the states that squeue shows by default: jobs that wait or run; those being cleaned up are added by flag.
var activeStates = []msg.JobState{msg.JobState_JOB_PENDING, msg.JobState_JOB_RUNNING, msg.JobState_JOB_SUSPENDED}

// request returns the selection that the controller can make, and the required fields.
func request(o *options, needs format.Needs) *msg.JobsRequest {
	r := &msg.JobsRequest{Uids: o.users, Partitions: o.partitions, Names: o.names, Accounts: o.accounts, Qos: o.qos,
		Reservations: o.reservations,
		Nodes:        o.nodes}
	needs.With(format.NeedsOfChoice()).AskJobs(r)
	// As in sinfo, ordinary users do not see hidden partitions unless they use -a or name them.
	r.ShownPartitions = !o.all && len(o.partitions) == 0 && !o.haveJobs && os.Getuid() != 0
	switch {
	case o.haveJobs:
		// All states, to distinguish an unknown id from a job that has ended.
		r.AllStates = true
		r.Ids = view.IDs(o.jobs)
	case o.haveStates && o.allStates:
		r.AllStates = true
	case o.haveStates:
		r.States, r.StateFlags = o.states, o.flags
		if len(o.states) > 0 {
			r.StateFlags |= msg.JobCompleting
		}
	case o.start:
		r.States = []msg.JobState{msg.JobState_JOB_PENDING}
	default:
		r.States, r.StateFlags = activeStates, ^uint32(0)
	}
	return r
}

// load fetches, selects and expands; add gets each row as it arrives, and its record is not needed afterwards. Errors have already
// been reported.
func load(ctx context.Context, env *command.Env, o *options, needs format.Needs, add addRow) (*format.Context, error) {
	fc, failed, err := fetch(ctx, env, o, needs, add)
	if failed != nil {
		return nil, view.LoadFailed(env, "slurm_load_jobs error", failed)
	}
	return fc, err
}

// fetch is load that leaves reporting a failed query to the caller (failed).
func fetch(ctx context.Context, env *command.Env, o *options, needs format.Needs, add addRow) (fc *format.Context, failed, err error) {
	fc = view.Context(env, 0)
	fc.NoConvert, fc.Expand = o.noConvert, o.expandPatterns
	if o.haveUsers && len(o.users) == 0 || o.haveJobs && len(o.jobs) == 0 || o.nothing {
		return fc, nil, nil
	}
	c, err := env.Dial(ctx)
	if err != nil {
		return fc, err, nil
	}
	defer func() { _ = c.Close() }()
	if err := findNodes(ctx, env, c, o); err != nil {
		return fc, nil, err
	}
	if o.document.Wanted {
		fc.Nodes = view.NodesByName(ctx, c)
	}
	single := !o.steps && o.haveJobs && len(o.jobs) == 1 && o.jobs[0].Tasks == nil
	found, fits := 0, true
	err = view.EachJob(ctx, c, request(o, needs), fc, func(r *msg.JobRecord) {
		found++
		if fits && o.selects(r) {
			fits = o.expand(r, func(j format.Job) bool { return add(fc, j) })
		}
	})
	if p := client.ProblemOf(err); p != nil && p.GetCode() == uint32(msg.CodeInvalidJobID) && !single {
		err = nil
	}
	switch {
	case err != nil:
		return fc, err, nil
	case !fits:
		return fc, nil, env.Failf("the view is too large; select jobs with -u, -j, -p or -t, or omit -r")
	case single && found == 0 && !known(ctx, c, o.jobs[0].Job):
		fmt.Fprintln(env.Stderr, "slurm_load_jobs error: Invalid job id specified")
		return fc, nil, command.ExitCode(1)
	}
	return fc, nil, nil
}

// known reports whether a job with that number exists, regardless of the other options.
func known(ctx context.Context, c *client.Client, job uint32) bool {
	found := false
	err := view.EachJob(ctx, c, &msg.JobsRequest{Ids: []string{strconv.FormatUint(uint64(job), 10)}, AllStates: true}, &format.Context{},
		func(*msg.JobRecord) { found = true })
	return err == nil && found
}

// addRow takes a row; it returns false if there is no room for more.
type addRow func(c *format.Context, j format.Job) bool

// findNodes rejects unknown names in -w, as Slurm does, and converts host names to node names.
func findNodes(ctx context.Context, env *command.Env, c *client.Client, o *options) error {
	if len(o.nodes) == 0 {
		return nil
	}
	names, hosts := map[string]bool{}, map[string][]string{}
	err := view.EachNode(ctx, c, &msg.NodesRequest{}, view.Context(env, 0), func(n *msg.NodeRecord) {
		names[n.GetName()] = true
		hosts[n.GetHostname()] = append(hosts[n.GetHostname()], n.GetName())
	})
	if err != nil {
		return view.LoadFailed(env, "slurm_load_node error", err)
	}
	var nodes []string
	for _, name := range o.nodes {
		switch {
		case names[name]:
			nodes = append(nodes, name)
		case len(hosts[name]) > 0:
			nodes = append(nodes, hosts[name]...)
		default:
			return env.Failf("Invalid node name %s", format.Escape(name))
		}
	}
	o.nodes = nodes
	return nil
}
