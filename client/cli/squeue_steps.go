package cli

import (
	"context"
	"slices"

	"github.com/sluice-hpc/sluice/client/format"
	pb "github.com/sluice-hpc/sluice/client/msg"
)

const (
	squeueStepsDefault = "%.15i %.8j %.9P %.8u %.9M %N"
	squeueStepsSort    = "P,i"
)

// squeueSteps prints the steps of running jobs (-s).
func squeueSteps(ctx context.Context, env *Env, o *squeueOptions) int {
	table := format.Steps()
	layout, unknown := table.ParseLetters(squeueStepsDefault)
	switch {
	case o.haveFormat:
		layout, unknown = table.ParseLetters(o.format)
	case o.haveLong:
		layout, unknown = table.ParseNames(o.formatLong)
	}
	for _, word := range unknown {
		env.Errorf("Invalid job step format specification: %s", format.Escape(word))
	}
	spec := squeueStepsSort
	if o.haveSort {
		spec = o.sort
	}
	order, bad := table.ParseSort(spec)
	if bad != "" {
		env.Errorf("Invalid sort specification: %s", bad)
		return 1
	}
	rows := &format.Sorter[format.Step]{Layout: layout, Order: order}
	fc, err := squeueRows(ctx, env, o.ofRunning(), format.NeedsOfSteps(), func(c *format.Context, j format.Job) bool {
		for _, s := range format.StepsOf(j.JobRecord) {
			if o.wantsStep(j.JobRecord, s) && !rows.Add(c, s) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return env.viewExit(err)
	}
	head := tableOptions{noHeader: o.noHeader, stamp: o.long || o.iterateS > 0, cluster: o.clusterHeader(env)}
	return printLines(env, fc, layout, head, rows.Lines)
}

// ofRunning is a copy of the options that chooses jobs that have steps; -i asks again with the first.
func (o *squeueOptions) ofRunning() *squeueOptions {
	running := *o
	running.haveStates, running.states, running.start = true, []pb.JobState{pb.JobState_JOB_RUNNING, pb.JobState_JOB_SUSPENDED}, false
	return &running
}

// wantsStep compares with the list of -s.
func (o *squeueOptions) wantsStep(r *pb.JobRecord, s format.Step) bool {
	if len(o.stepIDs) == 0 {
		return true
	}
	return slices.ContainsFunc(o.stepIDs, func(want jobSelector) bool {
		return want.matches(r) && (want.step == "" || want.step == s.Name())
	})
}
