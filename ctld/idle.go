package ctld

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/clock"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// idleWatch looks for jobs that leave their GPUs idle (gpu_idle=). It depends on samples, which are not part of the state: after a start of
// the controller, and while a node does not report, nothing counts as idle.
type idleWatch struct {
	view    func() *state.View
	samples *live.Samples
	rules   func() *conf.GPU
	do      func(context.Context, reactor.Command) (any, error)
	log     *slog.Logger
}

// lookEvery is the interval, and so the delay until a job is noticed.
const lookEvery = 5 * time.Second

// Run looks until ctx ends.
func (w *idleWatch) Run(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			w.look(ctx, clock.Boot())
		}
	}
}

// look marks and unmarks jobs. Its times, like those of all samples, are by CLOCK_BOOTTIME: setting the clock makes no GPU idle.
func (w *idleWatch) look(ctx context.Context, nowNS int64) {
	rules := w.rules()
	v := w.view()
	for j := range v.Jobs.All() {
		if j.State != pb.JobState_JOB_RUNNING || j.StopReason != "" {
			continue
		}
		marked := reactor.IdleMarked(j)
		since := int64(0)
		if rules.IdleMin > 0 {
			since = w.idleSince(v, j, nowNS, rules)
		}
		idle := since != 0 && nowNS-since >= int64(rules.IdleMin)*60e9
		if idle == marked && !(idle && rules.IdleAction == "cancel") { // the rule may be newer than the mark
			continue
		}
		c := reactor.IdleGPUs{Job: j.Id, Attempt: j.Attempt, Action: rules.IdleAction}
		if idle {
			c.Since = timespec.FormatUTC(v.Wall(since))
			w.log.Warn("a job leaves its GPUs idle", "job", j.Id, "user", j.Spec.User, "nodes", j.NodeList, "since", c.Since, "action",
				rules.IdleAction)
		}
		if _, err := w.do(ctx, c); err != nil {
			return // the writer is busy; the next look repeats it
		}
	}
}

// idleSince returns when the last of a job's GPUs became idle; 0 when one is busy, when the job has none, or when one is unknown.
func (w *idleWatch) idleSince(v *state.View, j *pb.JobRecord, nowNS int64, rules *conf.GPU) int64 {
	since := int64(0)
	for _, a := range j.Alloc {
		n := v.Node(a.Node)
		if n == nil || a.Ended {
			continue
		}
		for _, d := range a.Devices {
			if d.Count > 0 || d.Name != "gpu" && d.Share == 0 {
				continue
			}
			id := n.Inv.Instance(d)
			_, idle := w.samples.Get(a.Node, id, nowNS-int64(3*rules.SampleS+30)*1e9)
			if id == "" || idle == 0 {
				return 0
			}
			since = max(since, idle, v.Steady(max(j.StartNs, j.SuspendNs))) // a resumed job counts from when it was resumed
		}
	}
	return since
}
