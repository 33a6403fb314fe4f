package squeue

import (
	"strconv"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/view"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// printOptions prints the first block of -v, in the format of a real squeue; nothing before a document.
func (o *options) printOptions(env *command.Env) {
	g := o.given
	if g.Verbose() == 0 || o.document.Wanted {
		return
	}
	users := g.Or(view.Null, "user")
	if _, mine := g["me"]; mine {
		users = strconv.FormatUint(uint64(o.users[0]), 10)
	}
	pairs := []string{
		"all         = ", g.Has("all", "partition"),
		"array       = ", g.Has("array"),
		"federation  = ", g.Has("federation"),
		"format      = ", g.Or(view.Null, "format"),
		"iterate     = ", strconv.Itoa(o.iterateS),
		"job_flag    = ", g.Flag("jobs"),
		"jobs        = ", g.Or(view.Null, "jobs"),
		"licenses    = ", g.Or(view.Null, "licenses"),
		"local       = ", g.Has("local", "clusters"),
		"names       = ", g.Or(view.Null, "name"),
		"nodes       = ", hostlist.Fold(o.nodes),
		"partitions  = ", g.Or(view.Null, "partition"),
		"priority    = ", g.Has("priority"),
		"reservation = ", g.Or(view.Null, "reservation"),
		"sibling      = ", g.Has("sibling"),
		"sort        = ", g.Or(view.Null, "sort"),
		"start_flag  = ", g.Flag("start"),
		"states      = ", g.Or(view.Null, "states"),
		"step_flag   = ", g.Flag("steps"),
		"steps       = ", g.Or(view.Null, "steps"),
		"users       = ", users,
		"verbose     = ", strconv.Itoa(g.Verbose()),
	}
	if g.Verbose() > 1 {
		if o.haveJobs {
			pairs = append(pairs, view.Listed("job_list", command.List(g["jobs"]))...)
		}
		pairs = append(pairs, view.Listed("part_list", o.partitions)...)
		var states []string
		for _, s := range o.states {
			states = append(states, format.JobStates[s][0])
		}
		pairs = append(pairs, view.Listed("state_list", states)...)
		pairs = append(pairs, view.Listed("user_list", o.users)...)
	}
	view.PrintOptions(env, pairs...)
	view.EndOptions(env, "\n\n")
}
