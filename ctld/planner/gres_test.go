package planner

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/feasible"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestWaitsForTheGPU: a job for more than is given out now waits, and is told why; it is not refused.
func TestWaitsForTheGPU(t *testing.T) {
	w := newGPUWorld(t)
	ask := func(gres string) (*pb.JobRecord, *pb.Problem) {
		return admit.Job(w.loop.View(), &pb.JobSpec{Name: "j", Uid: 1000, User: "u", NumTasks: 1, TresPerNode: gres}, "")
	}
	w.gpus["n3"][1].Foreign = "python3 (pid 7) of eve"
	w.gpus["n1"][0].MigMode, w.gpus["n1"][1].MigMode = "pending on", "pending on"
	for _, n := range []string{"n1", "n3"} {
		w.report(n)
	}
	if _, p := ask("gres/gpu:a100:4"); p == nil || !strings.Contains(p.Error(), "python3 (pid 7) of eve") {
		t.Errorf("four of three: %v, want a refusal that names what is wrong as well", p)
	}
	for _, tt := range []struct{ gres, note string }{
		{"gres/gpu:a100:3", "n3: gpu 1 (a100) is not allocated to jobs: in use outside of any job by python3 (pid 7) of eve"},
		{"gres/gpu:3g.40gb:1",
			"n1: gpu 0 (h100): its MIG mode is pending on, the GPU must be reset first; until then it is allocated as a whole"},
	} {
		j, p := ask(tt.gres)
		if p != nil {
			t.Errorf("%s is refused: %v", tt.gres, p)
			continue
		}
		id := w.do(reactor.Submit{Job: j}).(reactor.Submitted).ID
		w.run()
		j = w.loop.View().Jobs.Get(id)
		if j.State != pb.JobState_JOB_PENDING || j.Reason != "Resources" {
			t.Errorf("%s: %v (%s), want pending for Resources", tt.gres, j.State, j.Reason)
		}
		if note := feasible.Withheld(w.loop.View(), j); !strings.HasPrefix(note, tt.note) {
			t.Errorf("%s: told %q, want %q", tt.gres, note, tt.note)
		}
		elsewhere := state.CloneJob(j)
		elsewhere.Spec = state.CloneSpec(j.Spec)
		if elsewhere.Spec.ExcNodes = "n[1-3]"; feasible.Withheld(w.loop.View(), elsewhere) != "" {
			t.Errorf("%s: told of nodes that it excludes", tt.gres)
		}
	}
}
