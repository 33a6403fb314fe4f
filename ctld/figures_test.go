package ctld

import (
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestFiguresReset(t *testing.T) {
	start := time.Unix(1000, 0)
	f := newFigures(start)
	ended := func(s pb.JobState) state.Event { return state.JobEnded{Job: &pb.JobRecord{State: s}} }
	f.Changed(state.Change{Events: []state.Event{state.JobSubmitted{}, state.JobStarted{}, ended(pb.JobState_JOB_COMPLETED),
		ended(pb.JobState_JOB_FAILED),
		ended(pb.JobState_JOB_CANCELLED), ended(pb.JobState_JOB_NODE_FAIL), state.JobChanged{}}})
	got := f.shown(map[string]float64{"passes": 7, "running": 3, "backfilled_ever": 2}, true, start.Add(time.Minute))
	for name, want := range map[string]float64{"jobs_submitted": 1, "jobs_started": 1, "jobs_completed": 2, "jobs_canceled": 1,
		"jobs_failed": 1, "passes": 7, "since_s": 1000} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	f.Changed(state.Change{Events: []state.Event{state.JobSubmitted{}}})
	got = f.shown(map[string]float64{"passes": 9, "running": 3, "backfilled_ever": 2}, false, start)
	for name, want := range map[string]float64{"jobs_submitted": 1, "jobs_completed": 0, "passes": 2, "running": 3, "backfilled_ever": 2,
		"since_s": 1060} {
		if got[name] != want {
			t.Errorf("after the reset %s = %v, want %v", name, got[name], want)
		}
	}
}
