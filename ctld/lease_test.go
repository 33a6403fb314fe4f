package ctld

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestLease: an allocation that salloc or srun should attend ends when nobody has waited on it for leaseGrace, also if this controller has
// never seen a waiter because it started later. An allocation of salloc --no-shell stays.
func TestLease(t *testing.T) {
	for _, attended := range []bool{true, false} {
		b := newIdleBench(t, conf.GPU{})
		j := b.loop.View().Jobs.Get(b.id)
		j.Spec.Interactive, j.Spec.Attended = true, attended // the bench alone has the record
		w := &leaseWatch{view: b.loop.View, holds: rpc.NewHolds(), limit: func() time.Duration { return 0 },
			log: slog.New(slog.DiscardHandler),
			do:  func(_ context.Context, c reactor.Command) (any, error) { return b.turn(c), nil }}
		const began = 1_000_000
		for _, s := range []int64{began, began + int64(leaseGrace/time.Second) - 1, began + int64(leaseGrace/time.Second)} {
			w.look(t.Context(), s*1e9)
			want := pb.JobState_JOB_RUNNING
			if attended && s == began+int64(leaseGrace/time.Second) {
				want = pb.JobState_JOB_TIMEOUT
			}
			if got := b.loop.View().Jobs.Get(b.id).State; got != want {
				t.Errorf("attended %v, after %d s: %v, want %v", attended, s-began, got, want)
			}
		}
	}
}

// TestInactiveLimit: an allocation without a waiter and without a running step ends after InactiveLimit; without that limit it stays.
func TestInactiveLimit(t *testing.T) {
	b := newIdleBench(t, conf.GPU{})
	j := b.loop.View().Jobs.Get(b.id)
	j.Spec.Interactive = true // the bench alone has the record
	limit := time.Duration(0)
	w := &leaseWatch{view: b.loop.View, holds: rpc.NewHolds(), limit: func() time.Duration { return limit },
		log: slog.New(slog.DiscardHandler),
		do:  func(_ context.Context, c reactor.Command) (any, error) { return b.turn(c), nil }}
	look := func(s int64) pb.JobState {
		w.look(t.Context(), s*1e9)
		return b.loop.View().Jobs.Get(b.id).State
	}
	look(1000)
	if s := look(1_000_000); s != pb.JobState_JOB_RUNNING {
		t.Error(s)
	}
	limit = time.Minute
	step := b.turn(reactor.CreateStep{Caller: reactor.Caller{Operator: true}, Job: b.id, Spec: &pb.StepSpec{}}).(reactor.CreatedStep).Step
	if s := look(2_000_000); s != pb.JobState_JOB_RUNNING {
		t.Error("with a step that runs: ", s)
	}
	b.turn(reactor.StepReports{Node: "g1", Steps: []*pb.StepReport{{Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: "exited"},
		Key: &pb.StepKey{JobId: b.id, Attempt: step.Attempt, Epoch: step.Epoch, Step: step.StepId}}}})
	if s := look(2_000_010); s != pb.JobState_JOB_RUNNING {
		t.Error("at once: ", s)
	}
	if s := look(2_000_071); s != pb.JobState_JOB_TIMEOUT {
		t.Error(s)
	}
}
