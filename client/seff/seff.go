// Package seff is the command that shows how much of its resources a job has used.
package seff

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/client/view"
)

// Options are the command line of seff(1).
var Options = [...]command.Option{
	{Name: opt.Name{Long: "help", Short: 'h'}, Help: "show this help"},
	{Name: opt.Name{Long: "usage"}, Help: "show this help"},
	{Name: opt.Name{Long: "version", Short: 'v'}, Help: "show the version"},
	{Name: opt.Name{Long: "debug", Short: 'd'}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "force", Short: 'f'}, Help: "accepted, no effect"},
	{Name: opt.Name{Long: "tasks", Short: 't'}, Help: "each task of an array instead of a summary"},
	{Name: opt.Name{Long: "clusters", Short: 'M', Arg: opt.Required}, Meta: "NAME", Help: "this cluster"},
}

// Page describes the command.
func Page() command.Page {
	return command.Page{
		Usage: "Usage: seff [OPTIONS] JOB",
		About: `Shows the share of its resources that a job used: CPU time, memory, and the load, memory, energy and idle hours of its GPUs.
JOB is 12 or 12_3. A running job is shown with the figures so far, an array as a summary of its tasks.`,
		Options: Options[:],
		Examples: `  seff 12
`,
	}
}

// Main runs one seff command line: the output of the tool of that name in Slurm's contribs, extended by GPUs.
func Main(env *command.Env, args []string) int {
	summary := true
	words, err := env.Options(Options[:], args, func(name string, h opt.Hit) error {
		switch name {
		case "help", "usage":
			return env.Print(Page().Help())
		case "version":
			return env.PrintVersion()
		case "tasks":
			summary = false
		case "clusters":
			return env.CheckClusters(h.Value)
		}
		return nil
	})
	if err != nil {
		return env.Exit(err)
	}
	if len(words) != 1 {
		fmt.Fprint(env.Stderr, Page().Help())
		return 1
	}
	ids, err := view.AttemptIDs(env, words[0], map[string][]string{})
	if err != nil {
		return env.Exit(err)
	}
	found := 0
	var live []*msg.StepUsage
	var array acct.ArrayUse
	var only []byte // output for a single task
	summary = summary && !strings.Contains(words[0], "_")
	if len(ids) > 0 {
		err = view.EachAttempt(env, &msg.AccountingRequest{Ids: ids}, view.AttemptContext(env),
			func(c *acct.Context, j *msg.JobRecord) bool {
				if summary && j.GetArrayJobId() != 0 {
					if array.Add(c, j); array.Records == 1 {
						only = acct.AppendEfficiency(nil, c, j)
					}
					found++
					return true
				}
				if j.GetState() == msg.JobState_JOB_RUNNING || j.GetState() == msg.JobState_JOB_SUSPENDED {
					live = liveUsage(env, acct.ID(c, j))
					j.Usage = live
				}
				if found++; found > 1 {
					fmt.Fprintln(env.Stdout)
				}
				_, err := env.Stdout.Write(acct.AppendEfficiency(nil, c, j))
				return err == nil
			})
	}
	if err != nil && err != view.ErrStopped {
		return view.AccountingFailed(env, err)
	}
	switch {
	case array.Records > 1:
		only = array.Append(nil)
		fallthrough
	case array.Records == 1:
		if _, err := env.Stdout.Write(only); err != nil {
			return 1
		}
	}
	if found == 0 {
		fmt.Fprintf(env.Stderr, "Job not found: %s\n", format.Escape(words[0]))
		return 1
	}
	return 0
}

// liveUsage returns the current usage of a running job; nil if it is not available.
func liveUsage(env *command.Env, id string) []*msg.StepUsage {
	c, err := env.Dial(context.Background())
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Usage(context.Background(), &msg.UsageRequest{Ids: []string{strings.TrimSpace(id)}})
	if err != nil {
		return nil
	}
	return reply.GetUsage()
}
