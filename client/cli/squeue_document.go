package cli

import (
	"context"

	"github.com/sluice-hpc/sluice/client/format"
)

// squeueDocument prints the jobs that the options choose as JSON or YAML, in the order of ids: formats and sorting mean nothing
// to it.
func squeueDocument(ctx context.Context, env *Env, o *squeueOptions) int {
	if o.steps {
		return squeueStepsDocument(ctx, env, o)
	}
	doc := env.newDocument(o.document, "jobs")
	lastSched := int64(0)
	fc, failed, err := squeueFetch(ctx, env, o, format.NeedsOfJobDocument(), func(c *format.Context, j format.Job) bool {
		doc.begin()
		format.WriteJob(doc.Writer, c, j)
		lastSched = max(lastSched, j.GetLastSchedNs())
		return true
	})
	switch {
	case failed != nil && !doc.Started():
		return env.viewExit(env.loadFailed("slurm_load_jobs", failed))
	case err != nil && failed == nil:
		return env.viewExit(err)
	}
	return doc.finish(failed, func() {
		doc.Seconds("last_backfill", lastSched)
		doc.Seconds("last_update", fc.Now.UnixNano())
	})
}

// squeueStepsDocument is -s --json.
func squeueStepsDocument(ctx context.Context, env *Env, o *squeueOptions) int {
	doc := env.newDocument(o.document, "steps")
	fc, failed, err := squeueFetch(ctx, env, o.ofRunning(), format.NeedsOfSteps(), func(c *format.Context, j format.Job) bool {
		for _, s := range format.StepsOf(j.JobRecord) {
			if o.wantsStep(j.JobRecord, s) {
				doc.begin()
				format.WriteStep(doc.Writer, c, s)
			}
		}
		return true
	})
	switch {
	case failed != nil && !doc.Started():
		return env.viewExit(env.loadFailed("slurm_get_job_steps", failed))
	case err != nil && failed == nil:
		return env.viewExit(err)
	}
	return doc.finish(failed, func() { doc.Seconds("last_update", fc.Now.UnixNano()) })
}
