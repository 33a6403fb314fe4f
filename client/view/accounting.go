package view

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/internal/passwd"
	"github.com/sluice-hpc/sluice/proto/coding"
)

// AccountingFailed reports why there is no answer, with the message of a sacct that cannot reach its database.
func AccountingFailed(e *command.Env, err error) int {
	text, more := command.Phrase(err)
	e.Errorf("Problem with accounting: %s", format.Escape(text))
	if more != "" {
		e.Errorf("%s", format.Escape(more))
	}
	return e.ErrorExit()
}

// ErrStopped means that the reader of the output is gone.
var ErrStopped = errors.New("stopped")

// readHead reads the parts of a page that are not jobs. Steps are in the same page as their job.
func readHead(page string, c *acct.Context) (warning string, err error) {
	c.Made = map[acct.Attempt][]*msg.StepRecord{}
	for d := coding.NewDecoder(page); d.Next(); {
		switch d.Tag {
		case acctNowNS:
			setClock(&c.Context, int64(d.Number()))
		case acctExtern:
			c.Extern = d.Number() != 0
		case acctWarning:
			warning = d.Data
		case acctSteps:
			s := &msg.StepRecord{}
			if err := s.Merge(d.Data); err != nil {
				return "", fmt.Errorf("cannot read a step from the controller's answer: %w", err)
			}
			a := acct.Attempt{Job: s.GetJobId(), Number: s.GetAttempt()}
			c.Made[a] = append(c.Made[a], s)
		}
	}
	return warning, nil
}

// PrintNames prints field names, four per line (--helpformat).
func PrintNames(env *command.Env, names []string, width int) {
	for i, name := range names {
		fmt.Fprintf(env.Stdout, "%-*s", width, name)
		if (i+1)%4 == 0 || i == len(names)-1 {
			fmt.Fprintln(env.Stdout)
		} else {
			fmt.Fprint(env.Stdout, " ")
		}
	}
}

// Tags of the fields of AccountingReply (controller.proto).
const (
	acctJobs    = 1<<3 | coding.Chunk
	acctNowNS   = 3<<3 | coding.Varint
	acctExtern  = 4<<3 | coding.Varint
	acctWarning = 6<<3 | coding.Chunk
	acctSteps   = 7<<3 | coding.Chunk
)

// EachAttempt calls f with every attempt in the answer of accounting; the record is valid until f returns. If f returns false,
// EachAttempt stops and returns ErrStopped.
func EachAttempt(env *command.Env, r *msg.AccountingRequest, ac *acct.Context, f func(c *acct.Context, j *msg.JobRecord) bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := env.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	stream, err := c.Accounting(ctx, r)
	if err != nil {
		return err
	}
	one, warned, stopped := &msg.JobRecord{Spec: &msg.JobSpec{}}, false, false
	var broken error
	err = EachPage(stream.RecvEncoded, func(page string) {
		if broken != nil || stopped {
			return
		}
		var warning string
		if warning, broken = readHead(page, ac); broken != nil {
			return
		}
		if warning != "" && !warned {
			warned = true
			env.Errorf("%s", format.Escape(warning))
		}
		broken = eachOfPage(page, acctJobs, one, func(j *msg.JobRecord) {
			stopped = stopped || !f(ac, j)
		})
	})
	if stopped {
		return ErrStopped
	}
	return errors.Join(err, broken)
}

// AttemptContext returns the context for columns of accounting.
func AttemptContext(env *command.Env) *acct.Context {
	return &acct.Context{Context: *Context(env, 0), GroupOf: passwd.GroupName}
}

// AttemptIDs reads the requested jobs: "12", "12_3", "12_[1-3]", each optionally with a step, "12.batch". It collects the steps in
// a map by job, nil for the whole job.
func AttemptIDs(env *command.Env, value string, steps map[string][]string) (ids []string, err error) {
	for _, word := range hostlist.Split(value) {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		id, step, hasStep := strings.Cut(word, ".")
		number, _, hasTask := strings.Cut(id, "_")
		number, offset, isHet := strings.Cut(number, "+")
		if isHet && offset == "" {
			return nil, env.Fatalf("Bad hetjob offset specified: %s", format.Escape(number))
		}
		if n, err := strconv.ParseUint(number, 10, 32); err != nil || n == 0 {
			return nil, env.Fatalf("Bad job/step specified: %s", format.Escape(word))
		}
		if s, ok := ParseSelector(id, false); hasTask && (!ok || len(s.Tasks) == 0 && s.Tasks != nil) {
			return nil, env.Fatalf("Bad job array element specified: %s", format.Escape(number))
		}
		if _, err := strconv.ParseUint(step, 10, 32); hasStep && err != nil && step != "batch" && step != "extern" &&
			step != "interactive" {
			return nil, env.Fatalf("Bad step specified: %s", format.Escape(number))
		}
		if isHet {
			continue // heterogeneous components do not exist here
		}
		old, known := steps[id]
		switch {
		case !hasStep, known && old == nil:
			steps[id] = nil
		default:
			steps[id] = append(old, step)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
