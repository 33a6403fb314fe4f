package admit

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestMaxMemPerCPU: requests in a partition with MaxMemPerCPU=500 and nodes of 4000 MiB, and what a real Slurm 22.05 gives them.
func TestMaxMemPerCPU(t *testing.T) {
	for _, c := range []struct {
		options                string
		spec                   *pb.JobSpec
		cpus, perTask, minCPUs uint32
		memPerCPU              uint64
	}{
		{"--mem-per-cpu=500", &pb.JobSpec{MemPerCpuMib: 500}, 1, 0, 0, 500},
		{"--mem-per-cpu=501", &pb.JobSpec{MemPerCpuMib: 501}, 2, 2, 0, 251},
		{"--mem-per-cpu=1000 -n2", &pb.JobSpec{NumTasks: 2, MemPerCpuMib: 1000}, 4, 2, 0, 500},
		{"--mem-per-cpu=1100", &pb.JobSpec{MemPerCpuMib: 1100}, 3, 3, 0, 367},
		{"--mem-per-cpu=700 -c2", &pb.JobSpec{CpusPerTask: 2, MemPerCpuMib: 700}, 4, 4, 0, 350},
		{"--mem=500", &pb.JobSpec{MemPerNodeMib: 500}, 1, 0, 0, 0},
		{"--mem=501", &pb.JobSpec{MemPerNodeMib: 501}, 2, 0, 2, 0},
		{"--mem=1000 -n2", &pb.JobSpec{NumTasks: 2, MemPerNodeMib: 1000}, 2, 0, 2, 0},
		{"--mem=1500 -n2", &pb.JobSpec{NumTasks: 2, MemPerNodeMib: 1500}, 3, 0, 3, 0},
		{"--mem=1500 -n2 -c2", &pb.JobSpec{NumTasks: 2, CpusPerTask: 2, MemPerNodeMib: 1500}, 4, 2, 3, 0},
		{"--mem=1500 -N2", &pb.JobSpec{MinNodes: 2, MaxNodes: 2, MemPerNodeMib: 1500}, 6, 0, 3, 0},
		{"--mem=0", &pb.JobSpec{MemAll: true}, 8, 0, 8, 0},
	} {
		for _, ofPartition := range []bool{true, false} {
			part, set := &pb.PartitionRecord{Name: "p", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited},
				&state.Settings{CountMemory: true}
			if ofPartition {
				part.MaxMemPerCpuMib, set.MaxMemPerCPUMiB = 500, 100
			} else {
				set.MaxMemPerCPUMiB = 500
			}
			v := state.New(&state.Config{Settings: set, Default: "p", Partitions: []*pb.PartitionRecord{part},
				PartitionNodes: map[string][]string{"p": {"n1", "n2"}},
				Nodes:          []*pb.NodeRecord{{Name: "n1", Cpus: 8, RealMemoryMib: 4000}, {Name: "n2", Cpus: 8, RealMemoryMib: 4000}}},
				"c", 1)
			spec := state.CloneSpec(c.spec)
			j, p := Job(v, spec, "")
			if p != nil {
				t.Fatal(p)
			}
			if j.NumCpus != c.cpus || spec.CpusPerTask != c.perTask || spec.PnMinCpus != c.minCPUs || spec.MemPerCpuMib != c.memPerCPU {
				t.Errorf("%s: %d CPUs, %d per task, at least %d on a node, %d MiB each; want %d, %d, %d, %d", c.options, j.NumCpus,
					spec.CpusPerTask, spec.PnMinCpus, spec.MemPerCpuMib,
					c.cpus, c.perTask, c.minCPUs, c.memPerCPU)
			}
		}
	}
}
