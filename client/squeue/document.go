package squeue

import (
	"context"

	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/format/doc"
	"github.com/sluice-hpc/sluice/client/view"
)

// printDocument prints the selected jobs as JSON or YAML, in the order of ids; formats and sorting have no effect.
func printDocument(ctx context.Context, env *command.Env, o *options) int {
	if o.steps {
		return printStepsDocument(ctx, env, o)
	}
	out := view.NewDocument(env, o.document, "jobs")
	lastSched := int64(0)
	fc, failed, err := fetch(ctx, env, o, format.NeedsOfJobDocument(), func(c *format.Context, j format.Job) bool {
		out.Begin()
		doc.WriteJob(out.Writer, c, j)
		lastSched = max(lastSched, j.GetLastSchedNs())
		return true
	})
	switch {
	case failed != nil && !out.Started():
		return env.Exit(view.LoadFailed(env, "slurm_load_jobs error", failed))
	case err != nil && failed == nil:
		return env.Exit(err)
	}
	return out.Finish(failed, func() {
		out.Seconds("last_backfill", lastSched)
		out.Seconds("last_update", fc.Now.UnixNano())
	})
}

// printStepsDocument is -s --json.
func printStepsDocument(ctx context.Context, env *command.Env, o *options) int {
	out := view.NewDocument(env, o.document, "steps")
	running := o.ofRunning()
	made, failed := madeSteps(ctx, env, running)
	if failed != nil {
		return env.Exit(view.LoadFailed(env, "slurm_get_job_steps error", failed))
	}
	fc, failed, err := fetch(ctx, env, running, format.NeedsOfSteps(), func(c *format.Context, j format.Job) bool {
		for _, s := range format.StepsOf(j.JobRecord, made[j.GetId()]) {
			if running.wantsStep(j.JobRecord, s) {
				out.Begin()
				doc.WriteStep(out.Writer, c, s)
			}
		}
		return true
	})
	switch {
	case failed != nil && !out.Started():
		return env.Exit(view.LoadFailed(env, "slurm_get_job_steps error", failed))
	case err != nil && failed == nil:
		return env.Exit(err)
	}
	return out.Finish(failed, func() { out.Seconds("last_update", fc.Now.UnixNano()) })
}
