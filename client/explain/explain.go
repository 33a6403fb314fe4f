// Package explain is `sluice explain`: why a job waits, and what would let it start. The text is the controller's: about nodes and
// the queue it comes from sched/explain, all else from ctld/explain.
package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// Verb is `sluice explain`.
func Verb() *command.Verb {
	return &command.Verb{
		Name: "explain", Args: "JOB…", Line: "show why a job is pending, and what would let it start (explain JOB)",
		Page: command.Page{
			About: `Shows why a job is pending: the resources that each node of its partitions lacks, the running jobs that must end, the
expected start, and a smaller request that would start now. For a running job it shows start, nodes and the event that
will end it. For a job that has ended it shows the cause and a remedy. JOB is 12, or 12_3 for a task of an array.`,
			Examples: "  sluice explain 12\n",
		},
		Run: run,
	}
}

func run(call *command.Call) error {
	c, err := call.Dial(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	var failed error
	for i, id := range call.Args {
		reply, err := c.Explain(context.Background(), &msg.ExplainRequest{Id: id})
		if err != nil { // continue with the other jobs
			failed = command.ExitCode(call.Exit(err))
			continue
		}
		if i > 0 {
			fmt.Fprintln(call.Stdout)
		}
		for line := range strings.Lines(timespec.LocalTimes(reply.GetText(), time.Local)) {
			fmt.Fprintln(call.Stdout, format.Escape(strings.TrimSuffix(line, "\n")))
		}
	}
	return failed
}
