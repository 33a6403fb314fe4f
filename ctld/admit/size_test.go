package admit

import (
	"math"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// TestSize: the size shown for a waiting job is the least that it can be given. Products larger than any cluster do not wrap around.
func TestSize(t *testing.T) {
	for name, tt := range map[string]struct {
		spec               *pb.JobSpec
		nodes, cpus, tasks uint32
	}{
		"-n5 --ntasks-per-node=2":     {&pb.JobSpec{NumTasks: 5, NtasksPerNode: 2}, 3, 5, 5},
		"-N2 -n5 --ntasks-per-node=2": {&pb.JobSpec{NumTasks: 5, NtasksPerNode: 2, MinNodes: 2, MaxNodes: 4}, 3, 5, 5},
		"-w n1,n3":                    {&pb.JobSpec{ReqNodes: "n[1,3]"}, 2, 2, 2},
		"-O -c2 -n4 -N2":              {&pb.JobSpec{Overcommit: true, CpusPerTask: 2, NumTasks: 4, MinNodes: 2, MaxNodes: 2}, 2, 4, 4},
		"--mincpus=3 -N2":             {&pb.JobSpec{PnMinCpus: 3, MinNodes: 2, MaxNodes: 2}, 2, 6, 2},
		"--gpus=2 --cpus-per-gpu=8":   {&pb.JobSpec{TresPerJob: "gres/gpu:2", CpusPerTres: "gres/gpu:8"}, 1, 16, 1},
		"more than can be counted by uint": {&pb.JobSpec{MinNodes: maxCount, NtasksPerNode: maxCount, CpusPerTask: maxCount,
			TresPerTask: "gres/gpu:9"}, maxCount, math.MaxUint32, math.MaxUint32},
	} {
		t.Run(name, func(t *testing.T) {
			j := &pb.JobRecord{Spec: tt.spec}
			c := sizing.Count(convert.Request(j.Spec, state.Users{}))
			if size(&state.Settings{}, j, &c, 0); j.NumNodes != tt.nodes || j.NumCpus != tt.cpus || j.NumTasks != tt.tasks {
				t.Errorf("%d nodes, %d CPUs, %d tasks, want %d, %d, %d", j.NumNodes, j.NumCpus, j.NumTasks, tt.nodes, tt.cpus, tt.tasks)
			}
		})
	}
}
