package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-hpc/sluice/client/acct"
	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/opt"
)

var seffNames = []opt.Name{{Long: "help", Short: 'h'}, {Long: "usage"}, {Long: "version", Short: 'v'}, {Long: "debug", Short: 'd'}, {Long: "force", Short: 'f'},
	{Long: "clusters", Short: 'M', Arg: opt.Required}}

const seffHelp = `Usage: seff [OPTIONS] JOB

Says how much of what a job held it has used: CPU time, memory, and of GPUs the load, memory, energy and the hours that were wasted.
JOB is 12 or 12_3. Of a running job it shows what is known so far.

  -h  this text      -v  versions      -d, -f  accepted      -M NAME  this cluster

Example:
  seff 12
`

// seff runs one seff command line: the text of the tool of that name from Slurm's contribs, and what it does not say of GPUs.
func seff(env *Env, args []string) int {
	hits, words, err := opt.Scan(seffNames, args, true)
	if err != nil {
		return env.viewExit(err)
	}
	for _, h := range hits {
		switch canonical(&seffNames[h.Index]) {
		case "help", "usage":
			fmt.Fprint(env.Stdout, seffHelp)
			return 0
		case "version":
			_ = env.printVersion()
			return 0
		case "clusters":
			if err := env.checkClusters(h.Value); err != nil {
				return env.viewExit(err)
			}
		}
	}
	if len(words) != 1 {
		fmt.Fprint(env.Stderr, seffHelp)
		return 1
	}
	o := &sacctOptions{steps: map[string][]string{}, allUsers: true}
	if err := o.jobs(env, words[0]); err != nil {
		return env.viewExit(err)
	}
	found := 0
	var live []*pb.StepUsage
	err = o.each(env, func(c *acct.Context, j *pb.JobRecord) bool {
		if j.GetState() == pb.JobState_JOB_RUNNING || j.GetState() == pb.JobState_JOB_SUSPENDED {
			live = seffLive(env, acct.ID(c, j))
			j.Usage = live
		}
		if found++; found > 1 {
			fmt.Fprintln(env.Stdout)
		}
		_, err := env.Stdout.Write(acct.AppendEfficiency(nil, c, j))
		return err == nil
	})
	if err != nil && err != errStopped {
		return env.sacctFailed(err)
	}
	if found == 0 {
		fmt.Fprintf(env.Stderr, "Job not found: %s\n", format.Escape(words[0]))
		return 1
	}
	return 0
}

// seffLive is what a running job uses now, nothing where it is not to be had.
func seffLive(env *Env, id string) []*pb.StepUsage {
	c, err := env.Dial(context.Background())
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }()
	reply, err := c.Usage(context.Background(), &pb.UsageRequest{Ids: []string{strings.TrimSpace(id)}})
	if err != nil {
		return nil
	}
	return reply.GetUsage()
}
