// Package sattach is the command that attaches to a running step: it shows the output of its tasks and forwards standard input.
package sattach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/sattach/about"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// options is a parsed command line.
type options struct {
	in, out, err       int64 // the only task connected; -1 = all
	label, layout, pty bool
	quiet              bool
	verbose            int
	id                 string
}

// Main attaches to a step.
func Main(env *command.Env, args []string) int {
	o, err := parse(env, args)
	if err != nil {
		return env.Exit(err)
	}
	ctx := context.Background()
	c, err := env.Dial(ctx)
	if err != nil {
		return refused(env, err)
	}
	defer func() { _ = c.Close() }()
	step, err := find(ctx, c, o.id)
	if err != nil {
		return refused(env, err)
	}
	if o.layout {
		printLayout(env.Stdout, step)
		return 0
	}
	for _, f := range []struct {
		name string
		task int64
	}{{"input-filter", o.in}, {"output-filter", o.out}, {"error-filter", o.err}} {
		if f.task < int64(step.GetNumTasks()) {
			continue
		}
		if f.name == "input-filter" {
			env.Errorf("A valid node id must be specified for SLURM_IO_STDIN")
		}
		if !o.quiet {
			env.Infof("--%s=%d: StepId=%s has tasks 0 to %d", f.name, f.task, o.id, step.GetNumTasks()-1)
		}
	}
	return attach(ctx, env, c, o, step)
}

func parse(env *command.Env, args []string) (*options, error) {
	o := &options{in: -1, out: -1, err: -1}
	rest, err := env.Options(about.Options[:], args, func(name string, h opt.Hit) (err error) {
		switch name {
		case "input-filter":
			o.in, err = task(env, name, h.Value)
		case "output-filter":
			o.out, err = task(env, name, h.Value)
		case "error-filter":
			o.err, err = task(env, name, h.Value)
		case "label":
			o.label = true
		case "layout":
			o.layout = true
		case "pty":
			o.pty = true
		case "quiet":
			o.quiet = true
		case "verbose":
			o.verbose++
		case "help":
			return env.Print(about.Page().Help())
		case "usage":
			return env.Print(about.Usage)
		case "version":
			return env.PrintVersion()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(rest) != 1 {
		return nil, misused(env, "too many parameters")
	}
	if o.id = rest[0]; !strings.Contains(o.id, ".") {
		return nil, misused(env, "Failed to parse stepid from command line options")
	}
	if o.pty && (o.in >= 0 || o.out >= 0 || o.err >= 0) {
		return nil, env.Failf("don't specify both --pty and I/O filtering")
	}
	return o, nil
}

func misused(env *command.Env, text string) error {
	_, _ = io.WriteString(env.Stdout, about.Usage)
	return env.Failf("%s", text)
}

func task(env *command.Env, option, value string) (int64, error) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0, env.Failf("Invalid numeric value %q for %s.", value, option)
	}
	return int64(n), nil
}

// find looks up a running step.
func find(ctx context.Context, c *client.Client, id string) (*msg.StepRecord, error) {
	want, err := jobid.Parse(id)
	if err != nil || want.Step == jobid.StepNone {
		return nil, &noStep{msg.CodeInvalidJobID, fmt.Sprintf("%.80q is not a step id: write 12.0 or 12_3.0, as squeue -s shows them", id)}
	}
	made, err := view.StepsOf(ctx, c, &msg.JobsRequest{AllStates: true, Ids: []string{id}})
	if err != nil {
		return nil, err
	}
	for _, list := range made {
		for _, s := range list {
			if s.GetStepId() == want.Step {
				return s, nil
			}
		}
	}
	missing := &noStep{msg.CodeInvalidJobID, fmt.Sprintf("there is no running step %s of srun", id)}
	job, _, _ := strings.Cut(id, ".")
	err = view.EachJob(ctx, c, &msg.JobsRequest{AllStates: true, Ids: []string{job}}, &format.Context{}, func(j *msg.JobRecord) {
		if j.GetState() > msg.JobState_JOB_SUSPENDED {
			*missing = noStep{msg.CodeAlreadyDone, fmt.Sprintf("job %s has ended", job)}
		}
	})
	if p := client.ProblemOf(err); err != nil && (p == nil || p.GetCode() != uint32(msg.CodeInvalidJobID)) {
		return nil, err
	}
	return nil, missing
}

// noStep reports that there is nothing to attach to.
type noStep struct {
	code msg.Code
	more string
}

func (n *noStep) Error() string { return n.code.Phrase() }

// refused prints that, in Slurm's words.
func refused(env *command.Env, err error) int {
	text, more := command.Phrase(err)
	var none *noStep
	if errors.As(err, &none) {
		more = none.more
	}
	env.Errorf("Could not get job step info: %s", text)
	if more != "" {
		env.Errorf("%s", more)
	}
	return env.ErrorExit()
}

// printLayout prints which tasks run where.
func printLayout(w io.Writer, s *msg.StepRecord) {
	var b strings.Builder
	fmt.Fprintf(&b, "Job step layout:\n\t%d tasks, %d nodes (%s)\n\n", s.GetNumTasks(), len(s.GetNodes()), s.GetNodeList())
	for i, n := range s.GetNodes() {
		fmt.Fprintf(&b, "\tNode %d (%s), %d task(s): ", i, n.GetNode(), len(n.GetTasks()))
		for _, task := range n.GetTasks() {
			fmt.Fprintf(&b, "%d ", task)
		}
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(w, b.String())
}
