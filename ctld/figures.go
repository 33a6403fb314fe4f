package ctld

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// figures computes the counters of sdiag(1). The parts count since the start; here their values at the last reset (sdiag --reset, or
// midnight UTC) are subtracted.
type figures struct {
	latencyUS float64 // of a thousand readings of the clock

	mu       sync.Mutex
	jobs     map[string]float64 // by "jobs_submitted" and the like
	base     map[string]float64
	sinceSec int64
}

func newFigures(now time.Time) *figures {
	f := &figures{jobs: map[string]float64{}, base: map[string]float64{}, sinceSec: now.Unix()}
	for range 1000 {
		_ = time.Now()
	}
	f.latencyUS = float64(time.Since(now).Microseconds())
	return f
}

// Changed counts the events of jobs. It is a loop observer.
func (f *figures) Changed(c state.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range c.Events {
		if name := countedAs(e); name != "" {
			f.jobs[name]++
		}
	}
}

// countedAs returns sdiag's counter for an event, "" for most.
func countedAs(e state.Event) string {
	switch e := e.(type) {
	case state.JobSubmitted:
		return "jobs_submitted"
	case state.JobStarted:
		return "jobs_started"
	case state.JobEnded:
		switch e.Job.State {
		case pb.JobState_JOB_CANCELLED:
			return "jobs_canceled"
		case pb.JobState_JOB_NODE_FAIL, pb.JobState_JOB_BOOT_FAIL:
			return "jobs_failed"
		}
		return "jobs_completed"
	}
	return ""
}

// shown subtracts the values of the last reset. Names that end in "_now", and those of the start, are never subtracted.
func (f *figures) shown(all map[string]float64, reset bool, now time.Time) map[string]float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.Copy(all, f.jobs)
	out := maps.Clone(all)
	for name, at := range f.base {
		out[name] -= at
	}
	out["since_s"] = float64(f.sinceSec)
	out["latency_us"] = f.latencyUS
	if reset {
		f.sinceSec = now.Unix()
		f.base = map[string]float64{}
		for _, name := range resettable {
			f.base[name] = all[name]
		}
	}
	return out
}

// resettable are the counters that sdiag --reset sets to 0.
var resettable = []string{"jobs_submitted", "jobs_started", "jobs_completed", "jobs_canceled", "jobs_failed", "commands", "batches",
	"commits", "commit_ns",
	"passes", "pass_total_ns", "queued", "tried", "probes", "started", "dropped", "backfilled", "truncated"}

// midnights resets the counters at each midnight UTC, as Slurm does.
func (d *daemon) midnights(ctx context.Context) {
	for {
		now := time.Now()
		t := time.NewTimer(time.Until(now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
			d.counters(true)
		}
	}
}

// counters collects the counters of the parts.
func (d *daemon) counters(reset bool) map[string]float64 {
	l, p := d.loop.Stats(), d.planner.Stats()
	all := map[string]float64{
		"commands": float64(l.Commands.Load()), "batches": float64(l.Batches.Load()), "commits": float64(l.Commits.Load()),
		"commit_ns": float64(l.CommitNS.Load()),
		"passes":    float64(p.Passes.Load()), "pass_last_ns": float64(p.LastNS.Load()), "pass_total_ns": float64(p.TotalNS.Load()),
		"pass_max_ns": float64(p.MaxNS.Load()),
		"pass_last_s": float64(p.LastAtNS.Load() / int64(time.Second)), "queued": float64(p.Queued.Load()),
		"tried":      float64(p.Tried.Load()),
		"last_tried": float64(p.LastTried.Load()), "truncated": float64(p.Truncated.Load()),
		"probes": float64(p.Probes.Load()), "started": float64(p.Started.Load()), "dropped": float64(p.Dropped.Load()),
		"backfilled":      float64(p.Backfilled.Load()),
		"backfilled_ever": float64(p.Backfilled.Load()), "queue": float64(p.LastQueue.Load()), "links": float64(d.disp.Links()),
		"database_bytes": float64(d.store.Size()),
	}
	if waiting, _, err := d.acct.Figures(); err == nil || waiting > 0 {
		all["accounting_waiting"] = float64(waiting)
	}
	for j := range d.loop.View().Jobs.All() {
		switch j.State {
		case pb.JobState_JOB_PENDING:
			all["pending"]++
		case pb.JobState_JOB_RUNNING:
			all["running"]++
		}
	}
	out := d.figures.shown(all, reset, time.Now())
	if reset {
		p.MaxNS.Store(0)
	}
	return out
}
