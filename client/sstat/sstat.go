// Package sstat is the command that shows the resource use of running steps.
package sstat

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// options is a parsed command line of sstat.
type options struct {
	ids                                               []string
	steps                                             map[string][]string // by job id; nil: not given
	allSteps, noHeader, noConvert, parsable, trailing bool
	byNode                                            bool
	fields                                            string
}

// Options are the command line of sstat(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "allsteps", Short: 'a'}, Help: "show all steps of each job"},
	{Name: opt.Name{Long: "helpformat", Short: 'e'}, Help: "list the fields"},
	{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this help"},
	{Name: opt.Name{Long: "pidformat", Short: 'i'}, Help: "JobID, Nodelist, Pids"},
	{Name: opt.Name{Long: "jobs", Short: 'j', Arg: opt.Required}, Meta: "LIST", Help: "12, 12.batch, 12_3.batch"},
	{Name: opt.Name{Long: "noheader", Short: 'n'}, Help: "no header"},
	{Name: opt.Name{Long: "noconvert"}, Help: "do not convert sizes to larger units"},
	{Name: opt.Name{Long: "format", Short: 'o', Arg: opt.Required}, Meta: "FIELDS", Help: "FIELD[%[-]WIDTH],…"},
	{Name: opt.Name{Long: "fields", Arg: opt.Required, Canon: "format"}},
	{Name: opt.Name{Long: "parsable", Short: 'p'}, Help: "end each field with |"},
	{Name: opt.Name{Long: "parsable2", Short: 'P'}, Help: "separate fields with |"},
	{Name: opt.Name{Long: "usage"}, Help: "show a short help"},
	{Name: opt.Name{Long: "verbose", Short: 'v'}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "version", Short: 'V'}, Help: "show the version"},
}

const usage = "Usage: sstat [options] -j <job(.stepid)>\n\tUse --help for help\n"

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage:   "Usage: sstat [OPTIONS] -j JOB[.STEP],…",
		About:   `Shows the resource use of running steps, as last reported by their nodes (at most ten seconds ago). Users see their own jobs.`,
		Title:   "    Valid <OPTION> values are:",
		Options: Options[:],
		Blocks: []command.Block{
			{Title: "GPUs", Text: `  TRESUsageIn contains gres/gpuutil (average percent of all GPUs together), gres/gpumem and energy (joules), if the driver reports
  them.
`},
		},
		Examples: `  sstat -j 12.batch -o jobid,averss,maxrss,avecpu,tresusageinave%60

`,
	}
}

// Main runs one sstat command line.
func Main(env *command.Env, args []string) int {
	o, err := parse(env, args)
	if err != nil {
		return env.Exit(err)
	}
	columns, err := acct.ParseLive(o.fields)
	var bad *acct.FieldError
	if errors.As(err, &bad) {
		env.Errorf("Invalid field requested: \"%s\"", format.Escape(bad.Name))
		return 1
	}
	table := &acct.Table{Columns: columns, Parsable: o.parsable, Trailing: o.trailing, Separator: "|"}
	var b []byte
	if !o.noHeader {
		b = table.AppendHeader(b)
	}
	c, err := env.Dial(context.Background())
	if err != nil {
		return view.AccountingFailed(env, err)
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Usage(context.Background(), &msg.UsageRequest{Ids: o.ids})
	if err != nil {
		return view.AccountingFailed(env, err)
	}
	ac := &acct.Context{Context: *view.Context(env, 0)}
	ac.NoConvert = o.noConvert
	made, err := view.StepsOf(context.Background(), c, &msg.JobsRequest{AllStates: true, Ids: o.ids})
	if err != nil {
		return view.AccountingFailed(env, err)
	}
	usage, err := withUnmeasured(c, o.ids, reply.GetUsage(), made)
	if err != nil {
		return view.AccountingFailed(env, err)
	}
	rows := acct.LiveRows(usage, made)
	shown := rows
	if o.byNode {
		shown = acct.LiveRowsByNode(usage)
	}
	for _, r := range shown {
		if o.wants(r, rows) {
			b = table.AppendRow(b, ac, r)
		}
	}
	if _, err := env.Stdout.Write(b); err != nil {
		return 1
	}
	o.sayMissing(env, rows, reply.GetOutcomes())
	return 0
}

// withUnmeasured adds running steps whose nodes have not reported usage yet. It skips jobs whose usage the user may not see, which
// the controller has already rejected.
func withUnmeasured(c *client.Client, ids []string, usage []*msg.StepUsage, made map[uint32][]*msg.StepRecord) ([]*msg.StepUsage, error) {
	list := usage
	err := view.EachJob(context.Background(), c, &msg.JobsRequest{AllStates: true, Ids: ids}, &format.Context{}, func(j *msg.JobRecord) {
		if uid := uint32(os.Getuid()); uid != 0 && uid != j.GetSpec().GetUid() {
			return
		}
		for _, s := range format.StepsOf(j, made[j.GetId()]) {
			nodes, _ := hostlist.Expand(s.NodeList())
			for _, n := range nodes {
				if !slices.ContainsFunc(usage, func(u *msg.StepUsage) bool {
					return u.GetKey().GetJobId() == j.GetId() && u.GetKey().GetStep() == s.ID && u.GetNode() == n
				}) {
					list = append(list, &msg.StepUsage{Key: &msg.StepKey{JobId: j.GetId(), Attempt: j.GetAttempt(), Step: s.ID}, Node: n})
				}
			}
		}
	})
	if p := client.ProblemOf(err); p != nil && p.GetCode() == uint32(msg.CodeInvalidJobID) {
		err = nil
	}
	// the script first, then the steps by number
	order := func(u *msg.StepUsage) int64 {
		if step := u.GetKey().GetStep(); step < jobid.StepInteractive {
			return int64(step) + 3
		}
		return int64(u.GetKey().GetStep()) - int64(jobid.StepExtern) // batch before extern
	}
	slices.SortStableFunc(list, func(a, b *msg.StepUsage) int {
		return cmp.Or(cmp.Compare(a.GetKey().GetJobId(), b.GetKey().GetJobId()), cmp.Compare(order(a), order(b)))
	})
	return list, err
}

// sayMissing reports requested items that do not exist, in Slurm's words: jobs that are unknown or not running, and steps.
func (o *options) sayMissing(env *command.Env, rows []acct.Row, outcomes []*msg.JobOutcome) {
	for _, out := range outcomes {
		if out.GetProblem().GetCode() == uint32(msg.CodeNotRunning) {
			if len(o.steps[out.GetId()]) == 0 {
				env.Errorf("No steps running for job %s", format.Escape(out.GetId()))
			}
			continue
		}
		env.Errorf("couldn't get steps for job %s", format.Escape(out.GetId()))
		if text := command.Diagnosis(out.GetProblem()); text != "" {
			env.Errorf("%s", format.Escape(text))
		}
	}
	for _, id := range o.ids {
		if slices.ContainsFunc(outcomes, func(out *msg.JobOutcome) bool {
			return out.GetId() == id && out.GetProblem().GetCode() != uint32(msg.CodeNotRunning)
		}) {
			continue
		}
		for _, step := range o.steps[id] {
			if !slices.ContainsFunc(rows, func(r acct.Row) bool {
				return strconv.FormatUint(uint64(r.GetId()), 10) == id &&
					r.Step == step
			}) {
				env.Errorf("StepId=%s.%s not found running.", format.Escape(id), format.Escape(step))
			}
		}
	}
}

// wants reports whether to show a step: one that was named, or of a named job all with -a, else the lowest created by srun, or any.
func (o *options) wants(r acct.Row, all []acct.Row) bool {
	steps, named := o.steps[strconv.FormatUint(uint64(r.GetId()), 10)]
	switch {
	case named && len(steps) > 0:
		return slices.Contains(steps, r.Step)
	case o.allSteps:
		return true
	}
	lowest, any := uint64(0), false
	for _, other := range all {
		if n, err := strconv.ParseUint(other.Step, 10, 32); err == nil && other.GetId() == r.GetId() && (!any || n < lowest) {
			lowest, any = n, true
		}
	}
	return !any || r.Step == strconv.FormatUint(lowest, 10)
}

func parse(env *command.Env, args []string) (*options, error) {
	o := &options{fields: acct.LiveFormat, steps: map[string][]string{}}
	rest, err := env.Options(Options[:], args, func(name string, h opt.Hit) error { return o.set(env, name, h.Value) })
	if err != nil {
		return nil, err
	}
	for _, word := range rest { // -j may be omitted
		if err := o.jobs(env, word); err != nil {
			return nil, err
		}
	}
	if len(o.ids) == 0 {
		return nil, env.Failf("You didn't give me any jobs to stat.")
	}
	return o, nil
}

func (o *options) set(env *command.Env, name, value string) error {
	switch name {
	case "allsteps":
		o.allSteps = true
	case "helpformat":
		view.PrintNames(env, acct.LiveNames(), 19)
		return command.ExitCode(0)
	case "help":
		return env.Print(Page().Help())
	case "usage":
		return env.Print(usage)
	case "version":
		return env.PrintVersion()
	case "pidformat":
		o.fields, o.byNode = "jobid,nodelist,pids", true
	case "jobs":
		return o.jobs(env, value)
	case "noheader":
		o.noHeader = true
	case "noconvert":
		o.noConvert = true
	case "format":
		o.fields = value
	case "parsable":
		o.parsable, o.trailing = true, true
	case "parsable2":
		o.parsable, o.trailing = true, false
	}
	return nil
}

func (o *options) jobs(env *command.Env, value string) error {
	for _, word := range command.List(value) {
		id, step, hasStep := strings.Cut(word, ".")
		if s, ok := view.ParseSelector(id, false); !ok || s.Job == 0 {
			return env.Fatalf("Bad job/step specified: %s", format.Escape(word))
		}
		if _, err := strconv.ParseUint(step, 10, 32); hasStep && err != nil &&
			!slices.Contains([]string{"batch", "extern", "interactive"}, step) {
			return env.Fatalf("Bad step specified: %s", format.Escape(id))
		}
		if !slices.Contains(o.ids, id) {
			o.ids = append(o.ids, id)
		}
		if hasStep && !strings.Contains(id, "_") {
			o.steps[id] = append(o.steps[id], step)
		}
	}
	return nil
}
