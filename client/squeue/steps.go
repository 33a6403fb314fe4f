package squeue

import (
	"context"
	"slices"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/view"
)

const (
	stepsFormat = "%.15i %.8j %.9P %.8u %.9M %N"
	stepsSort   = "P,i"
)

// printSteps prints the steps of running jobs (-s).
func printSteps(ctx context.Context, env *command.Env, o *options) int {
	table := format.Steps()
	layout, unknown := table.ParseLetters(stepsFormat)
	switch {
	case o.haveFormat:
		layout, unknown = table.ParseLetters(o.format)
	case o.haveLong:
		layout, unknown = table.ParseNames(o.formatLong)
	}
	for _, word := range unknown {
		env.Errorf("Invalid job step format specification: %s", format.Escape(word))
	}
	spec := stepsSort
	if o.haveSort {
		spec = o.sort
	}
	order, bad := table.ParseSort(spec)
	if bad != "" {
		env.Errorf("Invalid sort specification: %s", bad)
		return 1
	}
	rows := &format.Sorter[format.Step]{Layout: layout, Order: order}
	fc, err := load(ctx, env, o.ofRunning(), format.NeedsOfSteps(), func(c *format.Context, j format.Job) bool {
		for _, s := range format.StepsOf(j.JobRecord) {
			if o.wantsStep(j.JobRecord, s) && !rows.Add(c, s) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return env.Exit(err)
	}
	head := view.TableOptions{NoHeader: o.noHeader, Stamp: o.long || o.iterateS > 0, Cluster: o.clusterHeader(env)}
	return view.PrintLines(env, fc, layout, head, rows.Lines)
}

// ofRunning is a copy of the options that chooses jobs that have steps; -i asks again with the first.
func (o *options) ofRunning() *options {
	running := *o
	running.haveStates, running.states, running.start = true, []msg.JobState{msg.JobState_JOB_RUNNING, msg.JobState_JOB_SUSPENDED}, false
	return &running
}

// wantsStep compares with the list of -s.
func (o *options) wantsStep(r *msg.JobRecord, s format.Step) bool {
	if len(o.stepIDs) == 0 {
		return true
	}
	return slices.ContainsFunc(o.stepIDs, func(want view.Selector) bool {
		return want.Matches(r) && (want.Step == "" || want.Step == s.Name())
	})
}
