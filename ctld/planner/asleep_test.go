package planner

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestNeverUp: for a node that has never been up, the planner believes slurm.conf, also about GPUs: jobs that ask for them are neither
// refused nor left waiting.
func TestNeverUp(t *testing.T) {
	for _, tt := range []struct{ gres, ask, given string }{
		{"gpu:a100:2", "gres/gpu:2", "gpu:a100:2(IDX:0-1)"},
		{"gpu:a100:2", "gres/gpu:a100:1", "gpu:a100:1(IDX:0)"},
		{"gpu:2", "gres/gpu:1", "gpu:1(IDX:0)"},
		{"gpu:a100:1,gpu:v100:1", "gres/gpu:2", "gpu:a100:1(IDX:0),gpu:v100:1(IDX:1)"},
		{"gpu:a100:1,gpu:v100:1", "gres/gpu:v100:1", "gpu:v100:1(IDX:1)"},
		{"gpu:a100:1,shard:8", "gres/shard:3", "shard:a100:3(IDX:0)"},
	} {
		cfg := config(1)
		cfg.Settings.Power = &state.PowerSettings{SuspendTimeS: 100, SuspendTimeoutS: 20, ResumeTimeoutS: 60}
		n := cfg.Nodes[0]
		n.Gres, n.State, n.StateFlags = tt.gres, pb.NodeState_NODE_IDLE, pb.NodeCloud|pb.NodePoweredDown
		n.Cores = 2
		// gres.conf says what the host is to look for; it has not looked yet
		cfg.Gres = map[string]state.GresConfig{"n1": {Lines: []*pb.GresConf{{Name: "gpu", Autodetect: "nvml"}}}}
		w := &gpuWorld{cfg: cfg, store: journal.NewMemory()}
		w.t, w.now = t, 1000e9
		w.boot(state.New(cfg, "c", 1))
		j, p := admit.Job(w.loop.View(), &pb.JobSpec{Name: "j", Uid: 1000, User: "u", NumTasks: 1, TresPerNode: tt.ask}, "")
		if p != nil {
			t.Errorf("%s of %s is refused: %v", tt.ask, tt.gres, p)
			continue
		}
		id := w.do(reactor.Submit{Job: j}).(reactor.Submitted).ID
		w.run()
		if j = w.loop.View().Jobs.Get(id); len(j.Alloc) != 1 || j.Alloc[0].Gres != tt.given {
			t.Errorf("%s of %s: %v (%s) with %v, want %s", tt.ask, tt.gres, j.State, j.Reason, j.Alloc, tt.given)
		}
	}
}
