package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/conf/version"
)

// scancel cancels or signals jobs: those named, those that match filters, or both. The controller applies the filters, so
// that one call does it all and no job can slip between a listing and its cancellation.
//
// What is printed and returned follows a real scancel: without filter, signal or step, a job that is unknown or has ended is
// no error unless -v asks.
func scancel(env *Env, args []string) int {
	hits, rest, err := opt.Scan(namesOf(scancelOptions[:]), args, true)
	if err != nil {
		return env.usageError(err, 1)
	}
	c := &cancellation{env: env, filter: &pb.JobsRequest{}}
	for _, h := range hits {
		switch scancelOptions[h.Index].Long {
		case "help":
			_, _ = io.WriteString(env.Stdout, scancelHelp())
			return 0
		case "usage":
			_, _ = io.WriteString(env.Stdout, scancelUsage)
			return 0
		case "version":
			_, _ = io.WriteString(env.Stdout, version.Interface())
			return 0
		}
	}
	if err := c.read(hits, rest); err != nil {
		return env.refuse(err)
	}
	if len(c.ids) == 0 && len(c.filters) == 0 {
		env.Errorf("No job identification provided")
		return env.errorExit()
	}
	return c.run(context.Background())
}

// cancellation is one run of scancel.
type cancellation struct {
	env     *Env
	ids     []string
	filter  *pb.JobsRequest
	filters []string // as printed: "partition=debug"
	wckey   string
	steps   bool // an id names a step

	signal      uint32
	batch, full bool
	hurry       bool
	interactive bool
	quiet       bool
	verbose     int
}

func (c *cancellation) read(hits []opt.Hit, rest []string) error {
	for i := range scancelOptions {
		o := &scancelOptions[i]
		if v, ok := c.env.LookupEnv(o.env); o.env != "" && ok {
			if err := c.set(o.Long, v); err != nil {
				if o.Long == "state" {
					return &opt.ValueError{Plain: []string{"Unrecognized SCANCEL_STATE value: " + v, cancelStates}, Exit: 1}
				}
				return opt.At(err, "from the variable "+o.env)
			}
		}
	}
	for _, h := range hits {
		if err := c.set(scancelOptions[h.Index].Long, h.Value); err != nil {
			return err
		}
	}
	for _, word := range rest {
		ids, err := jobid.ParseList(word)
		if err != nil || len(ids) == 0 || slices.ContainsFunc(ids, func(id jobid.ID) bool { return id.Job == 0 }) {
			return &opt.ValueError{Lines: []string{"Invalid job id " + word}, Exit: 1, Hint: "expected 12, 12_3, 12_[1-3] or 12.0"}
		}
		for _, id := range ids {
			c.steps = c.steps || id.Step != jobid.StepNone
			c.ids = append(c.ids, id.String())
		}
	}
	return nil
}

func (c *cancellation) set(long, value string) error {
	f := c.filter
	switch long {
	case "account":
		f.Accounts = c.list(long, value)
	case "name", "jobname":
		f.Names = c.list("job_name", value)
	case "partition":
		f.Partitions = c.list(long, value)
	case "qos":
		f.Qos = c.list(long, value)
	case "reservation":
		f.Reservations = c.list(long, value)
	case "wckey":
		c.wckey = value
		c.list(long, value)
	case "nodelist":
		return c.setNodes(value)
	case "state":
		return c.setState(value)
	case "user":
		return c.setUser(value)
	case "me":
		f.Uids = []uint32{uint32(os.Getuid())}
		c.filters = append(c.filters, "user_name="+self().Name)
	case "signal":
		n, ok := opt.Signal(value)
		if !ok {
			return &opt.ValueError{Plain: []string{"Unknown job signal: " + value}, Exit: 1, Hint: "expected a name such as TERM or USR1, or a number from 1 to 64"}
		}
		c.signal = n
	case "clusters":
		return c.env.checkClusters(value)
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
	case "hurry":
		c.hurry = true
	case "interactive":
		c.interactive = true
	case "quiet":
		c.quiet = true
	case "verbose":
		c.verbose++
	}
}

func (c *cancellation) list(name, value string) []string {
	c.filters = append(c.filters, name+"="+value)
	return strings.Split(value, ",")
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
	c.filters = append(c.filters, "nodelist="+value)
	return nil
}

const cancelStates = "Valid job states are PENDING, RUNNING, and SUSPENDED"

// setState takes the states that scancel(1) knows for -t; finished ones are accepted and match nothing.
func (c *cancellation) setState(value string) error {
	for n, long := range pb.JobState_name {
		name := strings.TrimPrefix(long, "JOB_")
		if strings.EqualFold(name, value) || (len(value) >= 4 && len(value) < len(name) && strings.EqualFold(name[:len(value)], value)) ||
			strings.EqualFold(compactState(pb.JobState(n)), value) {
			c.filter.States = []pb.JobState{pb.JobState(n)}
			c.filters = append(c.filters, "state="+name)
			return nil
		}
	}
	if _, _, ok := format.ParseJobState(value); ok { // a flag, or the short name of an end: no active job is just that
		c.filter.States = []pb.JobState{pb.JobState_JOB_COMPLETED}
		c.filters = append(c.filters, "state="+strings.ToUpper(value))
		return nil
	}
	return &opt.ValueError{Plain: []string{"Invalid job state specified: " + value, cancelStates}, Exit: 1}
}

func compactState(s pb.JobState) string {
	switch s {
	case pb.JobState_JOB_PENDING:
		return "PD"
	case pb.JobState_JOB_RUNNING:
		return "R"
	case pb.JobState_JOB_SUSPENDED:
		return "S"
	}
	return ""
}

func (c *cancellation) setUser(value string) error {
	c.filter.Uids = nil
	for _, name := range strings.Split(value, ",") {
		uid, ok := lookupUID(name)
		if !ok {
			return &opt.ValueError{Lines: []string{"Invalid user name: " + name}, Exit: 1}
		}
		c.filter.Uids = append(c.filter.Uids, uid)
	}
	c.filters = append(c.filters, "user_name="+value)
	return nil
}

// quietly: in the plain form a job that is not there any more is no error.
func (c *cancellation) quietly() bool {
	return len(c.filters) == 0 && c.signal == 0 && !c.batch && !c.interactive && !c.steps
}

func (c *cancellation) run(ctx context.Context) int {
	conn, err := c.env.Dial(ctx)
	if err != nil {
		return c.failed(err)
	}
	defer conn.Close()
	req := &pb.CancelJobsRequest{Ids: c.ids, Filter: c.filter, ByFilter: len(c.filters) > 0, Signal: c.signal, Batch: c.batch, Full: c.full, Hurry: c.hurry}
	if c.batch && c.signal == 0 {
		req.Signal = signalKill // scancel(1): without -s the signal is SIGKILL, and -b keeps it to the batch shell
	}
	if c.interactive || c.wckey != "" {
		if req.Ids, err = c.choose(ctx, conn); err != nil {
			return c.failed(err)
		}
		if len(req.Ids) == 0 {
			return 0
		}
		req.ByFilter, req.Filter = false, nil
	}
	reply, err := conn.CancelJobs(ctx, req)
	if err != nil {
		return c.failed(err)
	}
	return c.report(reply.GetOutcomes())
}

const signalKill = 9

func (c *cancellation) failed(err error) int {
	text, more := phrase(err)
	c.env.Errorf("%s", text)
	if more != "" {
		c.env.Errorf("%s", more)
	}
	return c.env.errorExit()
}

// report prints what was done and what could not be.
func (c *cancellation) report(outcomes []*pb.JobOutcome) int {
	exit := 0
	if c.verbose > 0 {
		for _, o := range outcomes {
			if o.GetProblem().GetCode() != uint32(pb.CodeInvalidJobID) || c.quietly() {
				c.env.Infof("%s", c.action(o.GetId()))
			}
		}
	}
	for _, o := range outcomes {
		if p := o.GetProblem(); p != nil && c.complain(o.GetId(), p) {
			exit = max(exit, c.exitOf(p))
		}
	}
	if c.verbose > 0 && len(c.filters) > 0 && !slices.ContainsFunc(outcomes, matched) {
		c.env.Errorf("No active jobs match ALL job filters, including: %s ", strings.Join(c.inOrder(), " "))
	}
	return exit
}

// matched tells the outcome of a job that the filters took from that of an id that names none.
func matched(o *pb.JobOutcome) bool {
	return o.GetProblem() == nil || o.GetProblem().GetCode() != uint32(pb.CodeInvalidJobID)
}

// exitOf is 1 for a job that does not exist; else Slurm's scancel exits with the number of its error, in one byte, the highest of several.
func (c *cancellation) exitOf(p *pb.Problem) int {
	if p.GetCode() == uint32(pb.CodeInvalidJobID) {
		return c.env.errorExit()
	}
	return int(p.GetCode() & 0xff)
}

// inOrder are the filters in the order in which Slurm's scancel names them.
func (c *cancellation) inOrder() []string {
	list := slices.Clone(c.filters)
	slices.Sort(list)
	return list
}

func (c *cancellation) action(id string) string {
	switch {
	case c.signal != 0 && c.batch:
		return fmt.Sprintf("Signal %d to batch job %s", c.signal, id)
	case c.signal != 0:
		return fmt.Sprintf("Signal %d to job %s", c.signal, id)
	case c.full:
		return "Terminating full job " + id
	}
	return "Terminating job " + id
}

// complain prints one refusal and reports whether it counts as a failure.
func (c *cancellation) complain(id string, p *pb.Problem) bool {
	gone := p.GetCode() == uint32(pb.CodeInvalidJobID) || p.GetCode() == uint32(pb.CodeAlreadyDone)
	if gone && c.quiet {
		return !c.quietly() // not said, but told by the exit code
	}
	if gone && c.quietly() {
		if c.verbose > 0 {
			c.env.Errorf("Kill job error on job id %s: %s", id, p.GetPhrase())
		}
		return false
	}
	kind := "job"
	if strings.Contains(id, ".") {
		kind = "job step"
	}
	c.env.Errorf("Kill job error on %s id %s: %s", kind, id, p.GetPhrase())
	if d := diagnosis(p); d != "" && !gone {
		c.env.Errorf("%s", d)
	}
	return true
}

// choose asks about each job (-i) and returns the ids to cancel.
func (c *cancellation) choose(ctx context.Context, conn *client.Client) ([]string, error) {
	req := c.filter
	for _, id := range c.ids {
		job, _, _ := strings.Cut(id, ".")
		req.Ids = append(req.Ids, job)
	}
	stream, err := conn.Jobs(ctx, req)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(c.env.Stdin)
	var chosen []string
	for {
		page, err := stream.Recv()
		if err == io.EOF {
			return c.withSteps(chosen), nil
		}
		if err != nil {
			return nil, err
		}
		for _, j := range page.GetJobs() {
			if (c.wckey != "" && j.GetSpec().GetWckey() != c.wckey) || (c.interactive && !c.confirm(in, j)) {
				continue
			}
			chosen = append(chosen, fmt.Sprint(j.GetId()))
		}
	}
}

// withSteps puts the steps back that were named of the chosen jobs.
func (c *cancellation) withSteps(chosen []string) []string {
	if !c.steps {
		return chosen
	}
	return slices.DeleteFunc(slices.Clone(c.ids), func(id string) bool {
		job, _, _ := strings.Cut(id, ".")
		return !slices.Contains(chosen, job)
	})
}

func (c *cancellation) confirm(in *bufio.Reader, j *pb.JobRecord) bool {
	for {
		fmt.Fprintf(c.env.Stdout, "Cancel job_id=%d name=%s partition=%s [y/n]? ", j.GetId(), j.GetSpec().GetName(), j.GetPartition())
		line, err := in.ReadString('\n')
		switch strings.TrimSpace(strings.ToLower(line)) {
		case "y", "yes":
			return true
		case "n", "no":
			return false
		}
		if err != nil {
			return false
		}
	}
}
