// Package sacct is the command that shows jobs and steps from accounting, even after the controller has forgotten them.
package sacct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

// Main runs one sacct command line. Output and exit code follow a real sacct (testdata/sacct).
func Main(env *command.Env, args []string) int {
	o, err := parse(env, args)
	if err != nil {
		return env.Exit(err)
	}
	switch {
	case o.helpFields:
		printFieldNames(env)
		return 0
	case o.script, o.envVars:
		return printTexts(env, o)
	case o.document.Wanted:
		return printDocument(env, o)
	}
	table, err := o.table(env)
	if err != nil {
		return env.Exit(err)
	}
	if o.verbose {
		o.sayWindow(env)
	}
	return printTable(env, o, table)
}

// printTable prints rows as they arrive, so that a table of a million jobs need not fit in memory.
func printTable(env *command.Env, o *options, table *acct.Table) int {
	b := make([]byte, 0, view.FlushBytes+4096)
	if !o.noHeader {
		b = table.AppendHeader(b)
	}
	var broken error
	err := o.each(env, func(c *acct.Context, j *msg.JobRecord) bool {
		for _, r := range o.rows(c, j) {
			b = table.AppendRow(b, c, r)
		}
		if len(b) >= view.FlushBytes {
			_, broken = env.Stdout.Write(b)
			b = b[:0]
		}
		return broken == nil
	})
	if err != nil && !errors.Is(err, view.ErrStopped) {
		return view.AccountingFailed(env, err)
	}
	if broken == nil {
		_, broken = env.Stdout.Write(b)
	}
	if broken != nil {
		return 1
	}
	return 0
}

// each calls f with every selected attempt; the record is valid until f returns. f returns false to stop.
func (o *options) each(env *command.Env, f func(c *acct.Context, j *msg.JobRecord) bool) error {
	if o.nothing {
		return nil
	}
	return view.EachAttempt(env, &o.request, o.context(env), func(c *acct.Context, j *msg.JobRecord) bool {
		return !o.selects(j) ||
			f(c, j)
	})
}

// selects makes the checks that the controller does not make.
func (o *options) selects(j *msg.JobRecord) bool {
	if len(o.schedulers) > 0 && !slices.Contains(o.schedulers, j.GetScheduler()) {
		return false
	}
	return len(o.reasons) == 0 || slices.Contains(o.reasons, j.GetWaitReason()) || slices.Contains(o.reasons, j.GetReason())
}

// context returns the context for columns.
func (o *options) context(env *command.Env) *acct.Context {
	c := view.AttemptContext(env)
	c.Units, c.NoConvert = o.units, o.noConvert
	if o.truncate {
		c.Since = o.window.since.UnixNano()
		c.Until = o.window.until.UnixNano()
	}
	return c
}

// rows returns the requested lines of an attempt: all, or the steps named by -j.
func (o *options) rows(c *acct.Context, j *msg.JobRecord) []acct.Row {
	rows := acct.Rows(j, c, !o.allocations)
	if len(o.request.Nodes) > 0 { // only steps that ran there
		rows = append(rows[:1], slices.DeleteFunc(rows[1:], func(r acct.Row) bool { return !r.On(o.request.Nodes) })...)
	}
	if len(o.steps) == 0 || o.allocations {
		return rows
	}
	steps, named := o.stepsOf(j)
	if !named || steps == nil {
		return rows
	}
	return slices.DeleteFunc(rows, func(r acct.Row) bool { return !slices.Contains(steps, r.Step) })
}

// stepsOf returns the steps of a job requested by -j, nil = the whole job.
func (o *options) stepsOf(j *msg.JobRecord) (steps []string, named bool) {
	id, array := strconv.FormatUint(uint64(j.GetId()), 10), strconv.FormatUint(uint64(j.GetArrayJobId()), 10)
	for key, list := range o.steps {
		if key != id && key != array && !strings.HasPrefix(key, array+"_") {
			continue
		}
		if list == nil {
			return nil, true
		}
		steps, named = append(steps, list...), true
	}
	return steps, named
}

// sayWindow prints the first line of -v.
func (o *options) sayWindow(env *command.Env) {
	const stamp = "Mon Jan _2 15:04:05 2006"
	what := "Eligible"
	if states := o.request.States; len(states) > 0 {
		var names []string
		for _, s := range states {
			names = append(names, strings.TrimPrefix(s.String(), "JOB_"))
		}
		what = strings.Join(names, ",")
	}
	until := o.window.until
	if o.window.open && o.window.since.Equal(until) {
		until = until.Add(time.Second)
	}
	env.Infof("Jobs %s in the time window from %s to %s", what, o.window.since.Format(stamp), until.Format(stamp))
}

// printFieldNames is --helpformat: four names to a line.
func printFieldNames(env *command.Env) { view.PrintNames(env, acct.Names(), 19) }

// printTexts prints the scripts or environments of jobs (-B, --env-vars).
func printTexts(env *command.Env, o *options) int {
	c, err := env.Dial(context.Background())
	if err != nil {
		return view.AccountingFailed(env, err)
	}
	defer func() { _ = c.Close() }()
	title := "Batch Script for %s"
	if o.envVars {
		title = "Environment used for %s (must be batch to display)"
	}
	code := 0
	err = o.each(env, func(ac *acct.Context, j *msg.JobRecord) bool {
		data, err := acctText(c, j.GetId(), o.envVars)
		if err != nil {
			code = view.AccountingFailed(env, err)
			return false
		}
		fmt.Fprintf(env.Stdout, title+"\n%s\n", acct.ID(ac, j), strings.Repeat("-", 80))
		if len(data) == 0 {
			data = []byte("NONE")
		}
		if data[len(data)-1] != '\n' {
			data = append(data, '\n')
		}
		_, err = env.Stdout.Write(append(data, '\n'))
		return err == nil
	})
	if err != nil && !errors.Is(err, view.ErrStopped) {
		return view.AccountingFailed(env, err)
	}
	return code
}

func acctText(c *client.Client, id uint32, envVars bool) ([]byte, error) {
	stream, err := c.AccountingScript(context.Background(), &msg.AccountingScriptRequest{JobId: id, Env: envVars})
	if err != nil {
		return nil, err
	}
	var data []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		data = append(data, m.GetData()...)
	}
}

// printDocument is --json and --yaml.
func printDocument(env *command.Env, o *options) int {
	out := view.NewDocument(env, o.document, "jobs")
	err := o.each(env, func(c *acct.Context, j *msg.JobRecord) bool {
		out.Begin()
		acct.WriteJob(out.Writer, c, acct.Rows(j, c, !o.allocations))
		return true
	})
	if err != nil && !out.Started() {
		return view.AccountingFailed(env, err)
	}
	return out.Finish(err, nil)
}
