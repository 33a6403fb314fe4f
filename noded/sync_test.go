package noded

import (
	"testing"

	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestStepsBeforeAllocations: a new stream begins with the ends of steps before those of their allocations, since the controller takes a
// step that is still open when its allocation has gone for cancelled.
func TestStepsBeforeAllocations(t *testing.T) {
	n := &node{jobs: map[agent.Key]*job{}}
	for id := range uint32(20) {
		for _, step := range []uint32{pb.BatchStep, pb.ExternStep, 0, 1, 7} {
			k := agent.Key{Job: id, Attempt: 1, Step: step}
			n.jobs[k] = &job{key: k, phase: pb.StepPhase_STEP_ENDED}
		}
	}
	gone := map[uint32]bool{}
	all := n.reports()
	for _, r := range all {
		switch {
		case r.Key.Step >= pb.BatchStep:
			gone[r.Key.JobId] = true
		case gone[r.Key.JobId]:
			t.Fatalf("step %d.%d is told after its allocation", r.Key.JobId, r.Key.Step)
		}
	}
	if len(all) != len(n.jobs) || len(gone) != 20 {
		t.Errorf("%d reports of %d", len(all), len(n.jobs))
	}
}
