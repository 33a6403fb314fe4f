package planner

import (
	"testing"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// TestPromiseIsKept: a job that was promised a start while few jobs wait keeps it when more arrive, also after a restart of the planner.
func TestPromiseIsKept(t *testing.T) {
	b := newBench(t)
	params := record.Params{Order: record.Merit, HeadGuardS: 3600, ShortQueue: 1, Weights: record.Weights{Basic: true}}
	restart := func() {
		b.p = New(b.loop, params, func() time.Time { return time.Unix(0, b.now) }, discard())
		b.loop.Observe(b.p.Changed)
	}
	plan := func() {
		t.Helper()
		b.prepare()
		if b.plan != nil {
			b.do(*b.plan)
		}
	}
	restart()
	b.submit(&pb.JobSpec{NumTasks: 8, MinNodes: 2, MaxNodes: 2, NtasksPerNode: 4})
	plan()
	b.submit(&pb.JobSpec{NumTasks: 12, MinNodes: 3, MaxNodes: 3, NtasksPerNode: 4})
	plan()
	end := b.loop.View().Jobs.Get(1).EndNs
	restart() // what is planned from now on comes from the records alone
	b.now += 10e9
	for range 3 {
		b.submit(&pb.JobSpec{NumTasks: 1})
	}
	plan()
	v := b.loop.View()
	if j := v.Jobs.Get(2); !j.Promised || j.ExpectedStartNs != end {
		t.Errorf("job 2 is expected at %d, not at %d, when the first ends", j.ExpectedStartNs, end)
	}
	for id := uint32(3); id <= 5; id++ {
		if j := v.Jobs.Get(id); j.State != pb.JobState_JOB_PENDING {
			t.Errorf("job %d, which would end after that, is %v", id, j.State)
		}
	}
}
