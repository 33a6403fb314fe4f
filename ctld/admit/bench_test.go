package admit

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// BenchmarkJob: admitting one more job of a kind that is known, beside a thousand nodes.
func BenchmarkJob(b *testing.B) {
	cfg := &state.Config{Settings: &state.Settings{CountMemory: true, DefMemPerCPUMiB: 100}, Default: "p",
		PartitionNodes: map[string][]string{},
		Partitions:     []*pb.PartitionRecord{{Name: "p", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}}}
	for i := range 1000 {
		name := fmt.Sprintf("n%d", i)
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: name, Cpus: 64, Sockets: 2, Cores: 32, Threads: 1, RealMemoryMib: 256000,
			Gres: "gpu:a100:8"})
		cfg.PartitionNodes["p"] = append(cfg.PartitionNodes["p"], name)
	}
	v := state.New(cfg, "c", 1)
	spec := &pb.JobSpec{Name: "j", Uid: 1000, User: "u", NumTasks: 4, CpusPerTask: 2, TresPerNode: "gres/gpu:1"}
	b.ReportAllocs()
	for b.Loop() {
		if _, p := Job(v, state.CloneSpec(spec), ""); p != nil {
			b.Fatal(p)
		}
	}
}
