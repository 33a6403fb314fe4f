package live

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestStepsOfOthers: figures from a node about a job that does not run there are dropped.
func TestStepsOfOthers(t *testing.T) {
	job := &pb.JobRecord{Id: 7, Attempt: 1, State: pb.JobState_JOB_RUNNING, Spec: &pb.JobSpec{},
		Alloc: []*pb.NodeAlloc{{Node: "n1"}}}
	tx := state.Begin(state.New(&state.Config{Settings: &state.Settings{}}, "c", 1), 1)
	tx.Emit(state.JobSubmitted{Job: job})
	v, _ := tx.Freeze()
	s := NewSteps()
	for _, node := range []string{"n1", "n2"} {
		s.Put(v, node, []*pb.StepUsage{{Key: &pb.StepKey{JobId: 7, Attempt: 1}}, {Key: &pb.StepKey{JobId: 8}}})
	}
	if n := s.nodes["n1"].steps; n != 1 {
		t.Errorf("%d steps are kept of the node that runs the job", n)
	}
	if n := s.nodes["n2"].steps; n != 0 {
		t.Errorf("%d steps are kept of a node that does not", n)
	}
}
