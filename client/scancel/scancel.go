// Package scancel is the command that cancels or signals jobs.
package scancel

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/joboptions"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/internal/version"
)

// Main cancels or signals jobs: those named, those that match filters, or both. The controller applies the filters, so that a
// single call does everything and no job can slip between a listing and its cancellation.
//
// Output and exit code follow a real scancel: without filter, signal or step, an unknown or finished job is not an error unless -v
// is given.
func Main(env *command.Env, args []string) int {
	hits, rest, err := env.Scan(command.NamesOf(Options[:]), args, true)
	if err != nil {
		return env.UsageError(err, 1)
	}
	c := &cancellation{env: env, filter: &msg.JobsRequest{}, filters: map[string]string{}}
	for _, h := range hits {
		switch Options[h.Index].Long {
		case "help":
			_, _ = io.WriteString(env.Stdout, Page().Help())
			return 0
		case "usage":
			_, _ = io.WriteString(env.Stdout, usage)
			return 0
		case "version":
			_, _ = io.WriteString(env.Stdout, version.Interface())
			return 0
		}
	}
	if err := c.read(hits, rest); err != nil {
		return env.Refuse(err)
	}
	if len(c.ids) == 0 && len(c.filters) == 0 {
		env.Errorf("No job identification provided")
		return env.ErrorExit()
	}
	return c.run(context.Background())
}

// cancellation is one invocation of scancel.
type cancellation struct {
	env     *command.Env
	ids     []string
	filter  *msg.JobsRequest
	filters map[string]string // for messages: partition → debug; the last of several
	wckey   string
	steps   bool // an id names a step

	signal      uint32
	batch, full bool
	sibling     bool
	interactive bool
	quiet       bool
	verbose     int
}

func (c *cancellation) read(hits []opt.Hit, rest []string) error {
	for i := range Options {
		o := &Options[i]
		if v, ok := c.env.LookupEnv(o.Env); o.Env != "" && ok {
			if o.Arg == opt.NoArg && o.Long != "verbose" && o.Long != "ctld" && !c.saysTrue(o.Env, v) {
				continue
			}
			if err := c.set(o.Long, v); err != nil {
				if o.Long == "state" {
					return &opt.ValueError{Plain: []string{"Unrecognized SCANCEL_STATE value: " + v, cancelStates}, Exit: 1}
				}
				return joboptions.At(err, "from the variable "+o.Env)
			}
		}
	}
	for _, h := range hits {
		if err := c.set(Options[h.Index].Long, h.Value); err != nil {
			return err
		}
	}
	if c.quiet {
		c.verbose = 0
	}
	for _, word := range rest {
		ids, err := jobid.ParseList(word)
		if err != nil || len(ids) == 0 || slices.ContainsFunc(ids, func(id jobid.ID) bool { return id.Job == 0 }) {
			return &opt.ValueError{Lines: []string{"Invalid job id " + word}, Exit: 1, Hint: "expected 12, 12_3, 12_[1-3] or 12.0"}
		}
		if slices.ContainsFunc(ids, func(id jobid.ID) bool { return id.Step != jobid.StepNone && id.Step >= jobid.StepInteractive }) {
			return &opt.ValueError{Lines: []string{"Invalid job id " + word}, Exit: 1,
				Hint: "scancel only takes steps with a number; --batch signals the script of a job"}
		}
		for _, id := range ids {
			c.steps = c.steps || id.Step != jobid.StepNone
			c.ids = append(c.ids, id.String())
		}
	}
	return nil
}

// saysTrue reads a variable that enables an option; it reports other values than true or false and ignores them.
func (c *cancellation) saysTrue(name, value string) bool {
	switch strings.ToLower(value) {
	case "t", "true":
		return true
	case "f", "false":
		return false
	}
	c.env.Errorf("Unrecognized %s value: %s", name, value)
	return false
}

func (c *cancellation) set(long, value string) error {
	f := c.filter
	switch long {
	case "account":
		f.Accounts = c.one(long, value)
	case "name", "jobname":
		f.Names = c.one("job_name", value)
	case "partition":
		f.Partitions = c.one(long, value)
	case "qos":
		f.Qos = c.one(long, value)
	case "reservation":
		f.Reservations = c.one(long, value)
	case "wckey":
		c.wckey = value
		c.one(long, value)
	case "nodelist":
		return c.setNodes(value)
	case "state":
		return c.setState(value)
	case "user":
		return c.setUser(value)
	case "me":
		f.Uids = []uint32{uint32(os.Getuid())}
		c.filters["user_name"] = passwd.Self().Name
	case "signal":
		n, ok := joboptions.Signal(value)
		if !ok {
			return &opt.ValueError{Plain: []string{"Unknown job signal: " + value}, Exit: 1,
				Hint: "expected a name such as TERM or USR1, or a number from 1 to 64"}
		}
		c.signal = n
	case "clusters":
		return c.env.CheckClusters(value)
	case "sibling":
		c.sibling = true
	default:
		c.setFlag(long)
	}
	return nil
}

func (c *cancellation) setFlag(long string) {
	switch long {
	case "batch":
		c.batch = true
	case "full":
		c.full = true
	case "hurry": // there are no burst buffers to stage out
	case "interactive":
		c.interactive = true
	case "quiet":
		c.quiet = true
	case "verbose":
		c.verbose++
	}
}

// one stores the value of a filter: a single name, not a list (scancel(1)).
func (c *cancellation) one(name, value string) []string {
	c.filters[name] = value
	return []string{value}
}

func (c *cancellation) setNodes(value string) error {
	if strings.Contains(value, "/") {
		data, err := os.ReadFile(value)
		if err != nil {
			return fmt.Errorf("cannot read the node list: %w", err)
		}
		value = strings.Join(strings.Fields(string(data)), ",")
	}
	names, err := hostlist.Expand(value)
	if err != nil {
		return fmt.Errorf("invalid node list %q: %w", value, err)
	}
	c.filter.Nodes = names
	c.filters["nodelist"] = value
	return nil
}

const cancelStates = "Valid job states are PENDING, RUNNING, and SUSPENDED"

// setState reads the states of scancel(1), -t; finished ones are valid and match nothing.
func (c *cancellation) setState(value string) error {
	for n, long := range msg.JobState_name {
		name := strings.TrimPrefix(long, "JOB_")
		if strings.EqualFold(name, value) || value != "" && strings.EqualFold(compactState(msg.JobState(n)), value) {
			c.filter.States = []msg.JobState{msg.JobState(n)}
			c.filters["state"] = name
			return nil
		}
	}
	if _, _, ok := format.ParseJobState(value); ok { // a flag, or the short name of a final state: no active job has that as its state
		c.filter.States = []msg.JobState{msg.JobState_JOB_COMPLETED}
		c.filters["state"] = strings.ToUpper(value)
		return nil
	}
	return &opt.ValueError{Plain: []string{"Invalid job state specified: " + value, cancelStates}, Exit: 1}
}

func compactState(s msg.JobState) string {
	switch s {
	case msg.JobState_JOB_PENDING:
		return "PD"
	case msg.JobState_JOB_RUNNING:
		return "R"
	case msg.JobState_JOB_SUSPENDED:
		return "S"
	}
	return ""
}

func (c *cancellation) setUser(value string) error {
	uid, ok := passwd.UID(value)
	if !ok {
		return &opt.ValueError{Lines: []string{"Invalid user name: " + value}, Exit: 1}
	}
	c.filter.Uids = []uint32{uid}
	c.filters["user_name"] = value
	return nil
}

// quietly reports whether missing jobs are not an error, which is so in the plain form of the command.
func (c *cancellation) quietly() bool {
	return len(c.filters) == 0 && c.signal == 0 && !c.batch && !c.interactive && !c.steps
}

func (c *cancellation) run(ctx context.Context) int {
	if c.sibling {
		for _, id := range c.ids {
			c.env.Errorf("Kill job error on job id %s: %s", id, notFederated)
		}
		if len(c.ids) > 0 {
			return exitNotFederated
		}
		return 0
	}
	conn, err := c.env.Dial(ctx)
	if err != nil {
		return c.failed(err)
	}
	defer conn.Close()
	req := &msg.CancelJobsRequest{Ids: c.ids, Filter: c.filter, ByFilter: len(c.filters) > 0, Signal: c.signal, Batch: c.batch,
		Full: c.full}
	if c.batch && c.signal == 0 {
		req.Signal = signalKill // scancel(1): without -s the signal is SIGKILL, and -b restricts it to the batch shell
	}
	var missing []*msg.JobOutcome
	if c.interactive || c.wckey != "" {
		if req.Ids, missing, err = c.choose(ctx, conn); err != nil {
			return c.failed(err)
		}
		if len(req.Ids) == 0 {
			return c.report(missing)
		}
		req.ByFilter, req.Filter = false, nil
	}
	reply, err := conn.CancelJobs(ctx, req)
	if err != nil {
		return c.failed(err)
	}
	return c.report(append(missing, reply.GetOutcomes()...))
}

const signalKill = 9

// Slurm's message about --sibling without a federation, and the exit code.
const (
	notFederated     = "Not a valid federated job"
	exitNotFederated = 191
)

func (c *cancellation) failed(err error) int {
	text, more := command.Phrase(err)
	if client.Broken(err) && len(c.ids) > 0 && len(c.filters) == 0 {
		for _, id := range c.ids { // Slurm makes a call for each
			c.env.Errorf("Kill job error on job id %s: %s", id, text)
		}
	} else {
		c.env.Errorf("%s", text)
	}
	if more != "" {
		c.env.Errorf("%s", more)
	}
	return c.env.ErrorExit()
}

// report prints the results and errors.
func (c *cancellation) report(outcomes []*msg.JobOutcome) int {
	exit := 0
	if c.verbose > 0 {
		for _, o := range outcomes {
			if o.GetProblem().GetCode() != uint32(msg.CodeInvalidJobID) || c.quietly() || o.GetOfStep() {
				c.env.Infof("%s", c.action(o.GetId()))
			}
		}
	}
	for _, o := range outcomes {
		if p := o.GetProblem(); o.GetOfStep() {
			c.refusedStep(o.GetId(), p)
			exit = max(exit, int(p.GetCode()&0xff))
		} else if p != nil && c.complain(o.GetId(), p) {
			exit = max(exit, c.exitOf(p))
		}
	}
	if c.verbose > 0 && len(c.filters) > 0 && !slices.ContainsFunc(outcomes, matched) {
		c.env.Errorf("No active jobs match ALL job filters, including: %s ", strings.Join(c.inOrder(), " "))
	}
	return exit
}

// matched distinguishes the outcome of a job selected by filters from that of an unknown id.
func matched(o *msg.JobOutcome) bool {
	return o.GetProblem() == nil || o.GetOfStep() || o.GetProblem().GetCode() != uint32(msg.CodeInvalidJobID)
}

// exitOf is 1 for a job that does not exist or has ended; otherwise, as in Slurm's scancel, the low byte of the error number, the
// highest of several.
func (c *cancellation) exitOf(p *msg.Problem) int {
	if gone(p) {
		return c.env.ErrorExit()
	}
	return int(p.GetCode() & 0xff)
}

// inOrder returns the filters in the order of Slurm's messages.
func (c *cancellation) inOrder() []string {
	var list []string
	for name, value := range c.filters {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

func (c *cancellation) action(id string) string {
	_, _, isStep := strings.Cut(id, ".")
	switch {
	case isStep && c.signal != 0:
		return fmt.Sprintf("Signal %d to step %s", c.signal, id)
	case isStep:
		return "Terminating step " + id
	case c.signal != 0 && c.batch:
		return fmt.Sprintf("Signal %d to batch job %s", c.signal, id)
	case c.signal != 0 && c.full:
		return fmt.Sprintf("Signal %d to full job %s", c.signal, id)
	case c.signal != 0:
		return fmt.Sprintf("Signal %d to job %s", c.signal, id)
	case c.full:
		return "Terminating full job " + id
	case c.batch:
		return "Terminating batch job " + id
	}
	return "Terminating job " + id
}

// refusedStep reports an error about a step of an existing job. Slurm then names the job.
func (c *cancellation) refusedStep(id string, p *msg.Problem) {
	job, _, _ := strings.Cut(id, ".")
	job, _, _ = strings.Cut(job, "_")
	c.env.Errorf("Kill job error on job step id %s: %s", job, p.GetPhrase())
	if d := command.Diagnosis(p); d != "" {
		c.env.Errorf("%s", d)
	}
}

// complain reports one error and returns whether it counts as a failure.
func (c *cancellation) complain(id string, p *msg.Problem) bool {
	if gone(p) && c.quiet {
		return !c.quietly() // no message, only an exit code
	}
	if gone(p) && c.quietly() {
		if c.verbose > 0 {
			c.env.Errorf("Kill job error on job id %s: %s", id, p.GetPhrase())
		}
		return false
	}
	kind := "job"
	if strings.Contains(id, ".") {
		kind = "job step"
	}
	text := p.GetPhrase()
	if gone(p) {
		text = msg.Code(msg.CodeInvalidJobID).Phrase() // signals, steps and questions require an existing job
	}
	c.env.Errorf("Kill job error on %s id %s: %s", kind, id, text)
	if d := command.Diagnosis(p); d != "" && !gone(p) {
		c.env.Errorf("%s", d)
	}
	return true
}

// gone reports whether the job has ended or never existed.
func gone(p *msg.Problem) bool {
	return p.GetCode() == uint32(msg.CodeInvalidJobID) || p.GetCode() == uint32(msg.CodeAlreadyDone)
}
