package ctld

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/clock"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// leaseWatch ends allocations that salloc or srun has left behind: no client waits for their end, and no step of theirs runs. With
// InactiveLimit they end after that time (slurm.conf(5)). In any case they end after leaseGrace if a client should wait (JobSpec.attended,
// which outlives this process), or has waited and disconnected: a killed process, or a dead host. A host that is cut off for a while
// returns before that, and after a restart of the controller all clients have that time again.
type leaseWatch struct {
	view  func() *state.View
	holds *rpc.Holds
	limit func() time.Duration // InactiveLimit; 0 = none
	do    func(context.Context, reactor.Command) (any, error)
	log   *slog.Logger

	since map[uint32]int64 // by CLOCK_BOOTTIME: when the last client stopped waiting for a job
}

// leaseGrace is the time for which an abandoned allocation stays.
const leaseGrace = 10 * time.Minute

// Run looks until ctx ends.
func (w *leaseWatch) Run(ctx context.Context) {
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

func (w *leaseWatch) look(ctx context.Context, nowNS int64) {
	v, limit, left := w.view(), w.limit(), map[uint32]int64{}
	for j := range v.Jobs.All() {
		if !j.Spec.GetInteractive() || j.State != pb.JobState_JOB_RUNNING || j.StopReason != "" || j.StateFlags&pb.JobConfiguring != 0 {
			continue
		}
		waiting, ever := w.holds.Of(j.Id)
		if waiting > 0 || len(v.Steps(j.Id).Live()) > 0 {
			continue
		}
		since, known := w.since[j.Id]
		if !known {
			since = nowNS
		}
		left[j.Id] = since
		after := limit
		if (ever || j.Spec.Attended) && (after == 0 || after > leaseGrace) {
			after = leaseGrace
		}
		if gone := time.Duration(nowNS - since); after > 0 && gone >= after {
			why := fmt.Sprintf("the salloc or srun that created it has not been heard of for %v", gone.Round(time.Second))
			w.log.Warn("an allocation was abandoned: ending it", "job", j.Id, "user", j.Spec.User, "inactive", gone.Round(time.Second))
			if _, err := w.do(ctx, reactor.EndAllocation{Caller: reactor.Caller{Operator: true}, Job: j.Id, Inactive: why}); err != nil {
				w.since = left
				return // the writer is busy; the next look repeats it
			}
		}
	}
	w.since = left
	w.holds.Forget(func(id uint32) bool { j := v.Jobs.Get(id); return j == nil || !state.Active(j) })
}
