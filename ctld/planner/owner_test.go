package planner

import (
	"context"
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// The owners of crontabs are looked up once for a plan, each uid once.
func TestOwnersOfAPlan(t *testing.T) {
	var starts []reactor.PlannedStart
	for i := range 200 {
		spec := &pb.JobSpec{Uid: uint32(i % 3)}
		if i%2 == 0 {
			spec.Cron = "* * * * *"
		}
		starts = append(starts, reactor.PlannedStart{Spec: spec})
	}
	p, calls := &Planner{}, 0
	p.ownersOf(t.Context(), starts)
	p.Owners = func(_ context.Context, uids []uint32) map[uint32]*reactor.Owner {
		calls++
		if slices.Sort(uids); !slices.Equal(uids, []uint32{0, 1, 2}) {
			t.Errorf("asked for %v", uids)
		}
		return map[uint32]*reactor.Owner{0: {GID: 10}, 1: {GID: 11}}
	}
	p.ownersOf(t.Context(), starts)
	p.ownersOf(t.Context(), starts[1:2]) // not of a crontab
	for _, s := range starts {
		known := s.Spec.Cron != "" && s.Spec.Uid != 2
		if known != (s.Owner != nil) || known && s.Owner.GID != 10+s.Spec.Uid {
			t.Errorf("%+v", s)
		}
	}
	if calls != 1 {
		t.Errorf("asked %d times", calls)
	}
}
