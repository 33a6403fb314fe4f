package cli

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
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/accounts"
	"github.com/sluice-hpc/sluice/proto/coding"
)

// sacct runs one sacct command line. What it prints and returns follows a real sacct (testdata/sacct).
func sacct(env *Env, args []string) int {
	o, err := sacctParse(env, args)
	if err != nil {
		return env.viewExit(err)
	}
	switch {
	case o.helpFields:
		printFieldNames(env)
		return 0
	case o.script, o.envVars:
		return sacctTexts(env, o)
	case o.document.wanted:
		return sacctDocument(env, o)
	}
	table, err := o.table(env)
	if err != nil {
		return env.viewExit(err)
	}
	if o.verbose {
		o.sayWindow(env)
	}
	return sacctTable(env, o, table)
}

// sacctTable prints the rows as they come: a table of a million jobs is never held.
func sacctTable(env *Env, o *sacctOptions, table *acct.Table) int {
	b := make([]byte, 0, flushBytes+4096)
	if !o.noHeader {
		b = table.AppendHeader(b)
	}
	var broken error
	err := o.each(env, func(c *acct.Context, j *pb.JobRecord) bool {
		for _, r := range o.rows(c, j) {
			b = table.AppendRow(b, c, r)
		}
		if len(b) >= flushBytes {
			_, broken = env.Stdout.Write(b)
			b = b[:0]
		}
		return broken == nil
	})
	if err != nil && !errors.Is(err, errStopped) {
		return env.sacctFailed(err)
	}
	if broken == nil {
		_, broken = env.Stdout.Write(b)
	}
	if broken != nil {
		return 1
	}
	return 0
}

// sacctFailed says why there is no answer, in the words of a sacct whose database cannot be reached.
func (e *Env) sacctFailed(err error) int {
	text, more := phrase(err)
	e.Errorf("Problem with accounting: %s", format.Escape(text))
	if more != "" {
		e.Errorf("%s", format.Escape(more))
	}
	return e.errorExit()
}

// errStopped: the reader of the output has gone.
var errStopped = errors.New("stopped")

// Tags of the fields of AccountingReply (controller.proto).
const (
	acctJobs    = 1<<3 | coding.Chunk
	acctNowNS   = 3<<3 | coding.Varint
	acctExtern  = 4<<3 | coding.Varint
	acctWarning = 6<<3 | coding.Chunk
)

// each calls f with every attempt that the options select; the record is good until f returns. f returns false to stop.
func (o *sacctOptions) each(env *Env, f func(c *acct.Context, j *pb.JobRecord) bool) error {
	if o.nothing {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := env.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	stream, err := c.Accounting(ctx, &o.request)
	if err != nil {
		return err
	}
	ac, one, warned, stopped := o.context(env), &pb.JobRecord{Spec: &pb.JobSpec{}}, false, false
	var broken error
	err = eachPage(stream.RecvEncoded, func(page string) {
		if broken != nil || stopped {
			return
		}
		warning := readHead(page, ac)
		if warning != "" && !warned {
			warned = true
			env.Errorf("%s", format.Escape(warning))
		}
		broken = o.takeApart(page, one, func(j *pb.JobRecord) {
			stopped = stopped || !f(ac, j)
		})
	})
	if stopped {
		return errStopped
	}
	return errors.Join(err, broken)
}

// readHead reads what of an answer is not a job.
func readHead(page string, c *acct.Context) (warning string) {
	for d := coding.NewDecoder(page); d.Next(); {
		switch d.Tag {
		case acctNowNS:
			setClock(&c.Context, int64(d.Number()))
		case acctExtern:
			c.Extern = d.Number() != 0
		case acctWarning:
			warning = d.Data
		}
	}
	return warning
}

func (o *sacctOptions) takeApart(page string, one *pb.JobRecord, f func(*pb.JobRecord)) error {
	d := coding.NewDecoder(page)
	for d.Next() {
		if d.Tag != acctJobs {
			continue
		}
		spec := one.Spec
		*spec = pb.JobSpec{}
		*one = pb.JobRecord{Spec: spec}
		if err := one.Merge(d.Data); err != nil {
			return fmt.Errorf("cannot read a job from the controller's answer: %w", err)
		}
		if o.selects(one) {
			f(one)
		}
	}
	return d.Err()
}

// selects makes the tests that the controller does not make.
func (o *sacctOptions) selects(j *pb.JobRecord) bool {
	if len(o.schedulers) > 0 && !slices.Contains(o.schedulers, j.GetScheduler()) {
		return false
	}
	return len(o.reasons) == 0 || slices.Contains(o.reasons, j.GetWaitReason()) || slices.Contains(o.reasons, j.GetReason())
}

// context is what columns need to know.
func (o *sacctOptions) context(env *Env) *acct.Context {
	c := &acct.Context{Context: *env.formatContext(0), Units: o.units, GroupOf: accounts.GroupName}
	c.NoConvert = o.noConvert
	if o.truncate {
		c.Since = o.window.since.UnixNano()
		c.Until = o.window.until.UnixNano()
	}
	return c
}

// rows are the lines of an attempt that are asked for: all, or the steps that -j names.
func (o *sacctOptions) rows(c *acct.Context, j *pb.JobRecord) []acct.Row {
	rows := acct.Rows(j, c, !o.allocations)
	if len(o.steps) == 0 || o.allocations {
		return rows
	}
	steps, named := o.stepsOf(j)
	if !named || steps == nil {
		return rows
	}
	return slices.DeleteFunc(rows, func(r acct.Row) bool { return !slices.Contains(steps, r.Step) })
}

// stepsOf are the steps of a job that -j asks for, nil = all of it.
func (o *sacctOptions) stepsOf(j *pb.JobRecord) (steps []string, named bool) {
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

// sayWindow is what -v says first.
func (o *sacctOptions) sayWindow(env *Env) {
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
func printFieldNames(env *Env) { printNames(env, acct.Names()) }

func printNames(env *Env, names []string) {
	for i, name := range names {
		fmt.Fprintf(env.Stdout, "%-19s", name)
		if (i+1)%4 == 0 || i == len(names)-1 {
			fmt.Fprintln(env.Stdout)
		} else {
			fmt.Fprint(env.Stdout, " ")
		}
	}
}

// sacctTexts prints the scripts or environments of jobs (-B, --env-vars).
func sacctTexts(env *Env, o *sacctOptions) int {
	c, err := env.Dial(context.Background())
	if err != nil {
		return env.sacctFailed(err)
	}
	defer func() { _ = c.Close() }()
	title := "Batch Script for %s"
	if o.envVars {
		title = "Environment used for %s (must be batch to display)"
	}
	code := 0
	err = o.each(env, func(ac *acct.Context, j *pb.JobRecord) bool {
		data, err := acctText(c, j.GetId(), o.envVars)
		if err != nil {
			code = env.sacctFailed(err)
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
	if err != nil && !errors.Is(err, errStopped) {
		return env.sacctFailed(err)
	}
	return code
}

func acctText(c *client.Client, id uint32, envVars bool) ([]byte, error) {
	stream, err := c.AccountingScript(context.Background(), &pb.AccountingScriptRequest{JobId: id, Env: envVars})
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

// sacctDocument is --json and --yaml.
func sacctDocument(env *Env, o *sacctOptions) int {
	doc := env.newDocument(o.document, "jobs")
	err := o.each(env, func(c *acct.Context, j *pb.JobRecord) bool {
		doc.begin()
		acct.WriteJob(doc.Writer, c, acct.Rows(j, c, !o.allocations))
		return true
	})
	if err != nil && !doc.Started() {
		return env.sacctFailed(err)
	}
	return doc.finish(err, nil)
}
