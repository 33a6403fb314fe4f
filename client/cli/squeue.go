package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/version"
)

// The default views (squeue(1), --format).
const (
	squeueDefault = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
	squeueLong    = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
	squeueStart   = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
	squeueSort    = "P,t,-p"

	squeueOnlyState = "%.18i %.8T" // --only-job-state, since 24.05
)

// squeue runs one squeue command line.
func squeue(env *Env, args []string) int {
	o, err := squeueParse(env, args)
	if err != nil {
		return env.viewExit(err)
	}
	return env.repeat(o.iterateS, func(ctx context.Context) int { return squeueOnce(ctx, env, o) })
}

// viewExit turns what stopped a view before it asked the controller into an exit code.
func (e *Env) viewExit(err error) int {
	var early exitEarly
	var usage *opt.UsageError
	var value *opt.ValueError
	switch {
	case errors.As(err, &early):
		return int(early)
	case errors.As(err, &usage):
		return e.usageError(err, 1)
	case errors.As(err, &value):
		e.lines(value.Lines, value.Hint, value.Fatal)
		return 1
	}
	e.Errorf("%v", err)
	return 1
}

func (e *Env) printVersion() error {
	fmt.Fprint(e.Stdout, version.Interface())
	return exitEarly(0)
}

// repeat runs a view once, or every so many seconds (-i) with a blank line between, until it is killed or its reader goes away. A view
// that fails the first time ends it; a controller that goes away later may come back.
func (e *Env) repeat(everyS int, once func(ctx context.Context) int) int {
	if everyS == 0 {
		return once(context.Background())
	}
	out := &tracked{Writer: e.Stdout}
	e.Stdout = out
	for first := true; ; first = false {
		code := once(context.Background())
		if code != 0 && first {
			return code
		}
		if _, err := io.WriteString(out, "\n"); err != nil || out.failed {
			return 1
		}
		e.Sleep(time.Duration(everyS) * time.Second)
	}
}

// tracked remembers that a write failed.
type tracked struct {
	io.Writer
	failed bool
}

func (t *tracked) Write(b []byte) (int, error) {
	n, err := t.Writer.Write(b)
	t.failed = t.failed || err != nil
	return n, err
}

// squeueOnce asks the controller and prints the table.
func squeueOnce(ctx context.Context, env *Env, o *squeueOptions) int {
	if o.document.wanted {
		return squeueDocument(ctx, env, o)
	}
	if o.steps {
		return squeueSteps(ctx, env, o)
	}
	layout, err := squeueLayout(env, o)
	if err != nil {
		return env.viewExit(err)
	}
	order, bad := squeueOrder(o)
	if bad != "" {
		env.Errorf("Invalid sort specification: %s", bad)
		return 1
	}
	table := &format.Sorter[format.Job]{Layout: layout, Order: order}
	fc, err := squeueRows(ctx, env, o, format.NeedsOfJobs(layout, order), table.Add)
	if err != nil {
		return env.viewExit(err)
	}
	head := tableOptions{noHeader: o.noHeader, stamp: o.long || o.iterateS > 0, cluster: o.clusterHeader(env)}
	return printLines(env, fc, layout, head, table.Lines)
}

// clusterHeader is the line above a view asked for with -M.
func (o *squeueOptions) clusterHeader(env *Env) string {
	if o.haveClusters {
		return env.clusterName()
	}
	return ""
}

func squeueLayout(env *Env, o *squeueOptions) (layout format.Layout[format.Job], err error) {
	var unknown []string
	switch {
	case o.haveFormat:
		layout, unknown = format.Jobs().ParseLetters(o.format)
	case o.haveLong:
		layout, unknown = format.Jobs().ParseNames(o.formatLong)
	case o.onlyState:
		layout, _ = format.Jobs().ParseLetters(squeueOnlyState)
	case o.start:
		layout, _ = format.Jobs().ParseLetters(squeueStart)
	case o.long:
		layout, _ = format.Jobs().ParseLetters(squeueLong)
	default:
		layout, _ = format.Jobs().ParseLetters(squeueDefault)
	}
	for _, word := range unknown {
		env.Errorf("Invalid job format specification: %s", format.Escape(word))
	}
	return layout, nil
}

func squeueOrder(o *squeueOptions) (format.Order[format.Job], string) {
	spec := squeueSort
	switch {
	case o.haveSort:
		spec = o.sort
	case o.start:
		spec = "S"
	}
	return format.Jobs().ParseSort(spec)
}

// activeStates are what squeue shows when nobody says which: jobs that wait, run or are being cleaned up.
var activeStates = []pb.JobState{pb.JobState_JOB_PENDING, pb.JobState_JOB_RUNNING, pb.JobState_JOB_SUSPENDED}

// squeueRequest is the selection that the controller can make, and what is needed of each job.
func squeueRequest(o *squeueOptions, needs format.Needs) *pb.JobsRequest {
	r := &pb.JobsRequest{Uids: o.users, Partitions: o.partitions, Names: o.names, Accounts: o.accounts, Qos: o.qos, Reservations: o.reservations,
		Nodes: o.nodes}
	needs.With(format.NeedsOfChoice()).AskJobs(r)
	// Hidden partitions are hidden from ordinary users who did not ask for them by -a or by name, as sinfo has it.
	r.ShownPartitions = !o.all && len(o.partitions) == 0 && !o.haveJobs && os.Getuid() != 0
	switch {
	case o.haveJobs:
		// All states: an id that does not exist must be told from one whose job has ended.
		r.AllStates = true
		r.Ids = plainIDs(o.jobs)
	case o.haveStates && o.allStates:
		r.AllStates = true
	case o.haveStates:
		r.States, r.StateFlags = o.states, o.flags
		if len(o.states) > 0 {
			r.StateFlags |= pb.JobCompleting
		}
	case o.start:
		r.States = []pb.JobState{pb.JobState_JOB_PENDING}
	default:
		r.States, r.StateFlags = activeStates, ^uint32(0)
	}
	return r
}

// plainIDs are the ids to ask for; of tasks their array's, all of whose records the controller then answers.
func plainIDs(jobs []jobSelector) []string {
	var ids []string
	for _, j := range jobs {
		ids = append(ids, strconv.FormatUint(uint64(j.job), 10))
	}
	return ids
}

// squeueRows fetches, selects and expands; add gets each row as it comes, and its record is not needed afterwards. What went wrong
// has been said when it returns an error.
func squeueRows(ctx context.Context, env *Env, o *squeueOptions, needs format.Needs, add addRow) (*format.Context, error) {
	fc, failed, err := squeueFetch(ctx, env, o, needs, add)
	if failed != nil {
		return nil, env.loadFailed("slurm_load_jobs", failed)
	}
	return fc, err
}

// squeueFetch is squeueRows that leaves it to the caller to say why the controller did not answer (failed).
func squeueFetch(ctx context.Context, env *Env, o *squeueOptions, needs format.Needs, add addRow) (fc *format.Context, failed, err error) {
	fc = env.formatContext(0)
	fc.NoConvert, fc.Expand = o.noConvert, o.expandPatterns
	if o.haveUsers && len(o.users) == 0 || o.haveJobs && len(o.jobs) == 0 || o.nothing {
		return fc, nil, nil
	}
	c, err := env.Dial(ctx)
	if err != nil {
		return fc, err, nil
	}
	defer func() { _ = c.Close() }()
	if err := squeueNodes(ctx, env, c, o); err != nil {
		return fc, nil, err
	}
	if o.document.wanted {
		fc.Nodes = nodesByName(ctx, c)
	}
	single := o.haveJobs && len(o.jobs) == 1 && o.jobs[0].tasks == nil
	found, fits := 0, true
	err = eachJob(ctx, c, squeueRequest(o, needs), fc, func(r *pb.JobRecord) {
		found++
		if fits && o.selects(r) {
			fits = o.expand(r, func(j format.Job) bool { return add(fc, j) })
		}
	})
	if p := client.ProblemOf(err); p != nil && p.GetCode() == uint32(pb.CodeInvalidJobID) && !single {
		err = nil
	}
	switch {
	case err != nil:
		return fc, err, nil
	case !fits:
		return fc, nil, env.fail("the view is too large; choose jobs with -u, -j, -p or -t, or leave out -r")
	case single && found == 0 && !known(ctx, c, o.jobs[0].job):
		fmt.Fprintln(env.Stderr, "slurm_load_jobs error: Invalid job id specified")
		return fc, nil, exitEarly(1)
	}
	return fc, nil, nil
}

// known tells whether there is a job of that number, whatever the other options leave of it.
func known(ctx context.Context, c *client.Client, job uint32) bool {
	found := false
	err := eachJob(ctx, c, &pb.JobsRequest{Ids: []string{strconv.FormatUint(uint64(job), 10)}, AllStates: true}, &format.Context{}, func(*pb.JobRecord) { found = true })
	return err == nil && found
}

// addRow takes a row; false means that there is no room for more.
type addRow func(c *format.Context, j format.Job) bool

// loadFailed prints Slurm's message for a query that failed, and the diagnosis after it.
func (e *Env) loadFailed(call string, err error) error {
	text, more := phrase(err)
	fmt.Fprintf(e.Stderr, "%s error: %s\n", call, format.Escape(text))
	if more != "" {
		e.Errorf("%s", format.Escape(more))
	}
	return exitEarly(e.errorExit())
}

// squeueNodes refuses names of -w that are no node, as Slurm does, and turns host names into node names.
func squeueNodes(ctx context.Context, env *Env, c *client.Client, o *squeueOptions) error {
	if len(o.nodes) == 0 {
		return nil
	}
	names, hosts := map[string]bool{}, map[string][]string{}
	err := eachNode(ctx, c, &pb.NodesRequest{}, env.formatContext(0), func(n *pb.NodeRecord) {
		names[n.GetName()] = true
		hosts[n.GetHostname()] = append(hosts[n.GetHostname()], n.GetName())
	})
	if err != nil {
		return env.loadFailed("slurm_load_node", err)
	}
	var nodes []string
	for _, name := range o.nodes {
		switch {
		case names[name]:
			nodes = append(nodes, name)
		case len(hosts[name]) > 0:
			nodes = append(nodes, hosts[name]...)
		default:
			return env.fail("Invalid node name %s", format.Escape(name))
		}
	}
	o.nodes = nodes
	return nil
}

// formatContext is what formats need to know; nowNS is the controller's clock, 0 when it was not asked.
func (e *Env) formatContext(nowNS int64) *format.Context {
	c := &format.Context{Now: e.Now(), TimeFormat: e.Getenv("SLURM_TIME_FORMAT"), BitstrLen: format.DefaultBitstrLen, Cluster: e.clusterName()}
	setClock(c, nowNS)
	if n, err := strconv.Atoi(e.Getenv("SLURM_BITSTR_LEN")); err == nil && n >= 0 {
		c.BitstrLen = n
	}
	names := map[uint32]string{}
	c.UserName = func(uid uint32) string {
		name, ok := names[uid]
		if !ok {
			if a, found := lookupUser(strconv.FormatUint(uint64(uid), 10)); found && a.UID == uid {
				name = a.Name
			}
			names[uid] = name
		}
		return name
	}
	return c
}
