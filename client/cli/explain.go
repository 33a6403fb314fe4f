package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
)

const explainUsage = `usage: sluice explain JOB…

Says in words why a job waits: what each node of its partitions lacks, which running jobs must end, when and where it is expected
to start, and what smaller request would start now. JOB is 12, or 12_3 for a task of an array.
`

// explain runs `sluice explain JOB…`.
func explain(env *Env, args []string) int {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
		if len(args) == 0 {
			fmt.Fprint(env.Stderr, explainUsage)
			return 2
		}
		fmt.Fprint(env.Stdout, explainUsage)
		return 0
	}
	c, err := env.Dial(context.Background())
	if err != nil {
		return explainFailed(env, err)
	}
	defer func() { _ = c.Close() }()
	exit := 0
	for i, id := range args {
		reply, err := c.Explain(context.Background(), &pb.ExplainRequest{Id: id})
		if err != nil {
			exit = explainFailed(env, err)
			continue
		}
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		for line := range strings.Lines(reply.GetText()) {
			fmt.Fprintln(env.Stdout, format.Escape(strings.TrimSuffix(line, "\n")))
		}
	}
	return exit
}

func explainFailed(env *Env, err error) int {
	text, more := phrase(err)
	if more != "" {
		text += ": " + more
	}
	fmt.Fprintf(env.Stderr, "sluice explain: %s\n", format.Escape(text))
	return 1
}
