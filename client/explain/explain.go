// Package explain is `sluice explain`: why a job waits, and what would let it start.
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

const usage = `usage: sluice explain JOB…

Shows why a job is pending: the resources that each node of its partitions lacks, the running jobs that must end, the expected start,
and a smaller request that would start now. For a running job it shows start, nodes and the event that will end it. For a job that has
ended it shows the cause and a remedy. JOB is 12, or 12_3 for a task of an array.
`

// Main runs `sluice explain JOB…`.
func Main(env *command.Env, args []string) int {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
		if len(args) == 0 {
			fmt.Fprint(env.Stderr, usage)
			return 2
		}
		fmt.Fprint(env.Stdout, usage)
		return 0
	}
	c, err := env.Dial(context.Background())
	if err != nil {
		return failed(env, err)
	}
	defer func() { _ = c.Close() }()
	exit := 0
	for i, id := range args {
		reply, err := c.Explain(context.Background(), &msg.ExplainRequest{Id: id})
		if err != nil {
			exit = failed(env, err)
			continue
		}
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		for line := range strings.Lines(timespec.LocalTimes(reply.GetText(), time.Local)) {
			fmt.Fprintln(env.Stdout, format.Escape(strings.TrimSuffix(line, "\n")))
		}
	}
	return exit
}

func failed(env *command.Env, err error) int {
	text, more := command.Phrase(err)
	if more != "" {
		text += ": " + more
	}
	fmt.Fprintf(env.Stderr, "sluice explain: %s\n", format.Escape(text))
	return 1
}
