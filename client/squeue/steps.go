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
	case o.haveFormat && !o.layoutFromEnv: // SQUEUE_FORMAT is for jobs
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
	running := o.ofRunning()
	made, err := madeSteps(ctx, env, running)
	if err != nil {
		return env.Exit(view.LoadFailed(env, "slurm_get_job_steps error", err))
	}
	fc, err := load(ctx, env, running, format.NeedsOfSteps(), func(c *format.Context, j format.Job) bool {
		for _, s := range format.StepsOf(j.JobRecord, made[j.GetId()]) {
			if running.wantsStep(j.JobRecord, s) && !rows.Add(c, s) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return env.Exit(err)
	}
	return view.PrintLines(env, fc, layout, o.head(env, rows.Len()), rows.Lines)
}

// madeSteps returns the steps created by srun of the selected jobs.
func madeSteps(ctx context.Context, env *command.Env, o *options) (map[uint32][]*msg.StepRecord, error) {
	if o.nothing {
		return nil, nil
	}
	c, err := env.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	r := request(o, format.Needs{})
	r.Nodes = nil // it may contain host names
	return view.StepsOf(ctx, c, r)
}

// ofRunning returns a copy of the options that selects jobs with steps, without the filters for steps; -i reuses the original.
func (o *options) ofRunning() *options {
	running := *o
	running.haveStates, running.states, running.start = true, []msg.JobState{msg.JobState_JOB_RUNNING, msg.JobState_JOB_SUSPENDED}, false
	running.names, running.stepNames = nil, o.names
	return &running
}

// wantsStep applies the list of -s, -n and -w.
func (o *options) wantsStep(r *msg.JobRecord, s format.Step) bool {
	if len(o.stepNames) > 0 && !slices.Contains(o.stepNames, s.Name()) && !slices.Contains(o.stepNames, r.GetSpec().GetName()) {
		return false
	}
	if len(o.nodes) > 0 && !s.On(o.nodes) {
		return false
	}
	return len(o.stepIDs) == 0 || slices.ContainsFunc(o.stepIDs, func(want view.Selector) bool {
		return want.Matches(r) && (want.Step == "" || want.Step == s.Number())
	})
}
