package admit

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func gpuView(set func(*state.Settings, *pb.PartitionRecord)) *state.View {
	s := &state.Settings{CountMemory: true, DefMemPerCPUMiB: 100, MaxArraySize: 1001}
	p := &pb.PartitionRecord{Name: "p", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}
	if set != nil {
		set(s, p)
	}
	return state.New(&state.Config{Settings: s, Default: "p", Partitions: []*pb.PartitionRecord{p},
		PartitionNodes: map[string][]string{"p": {"g1", "g2"}},
		Nodes: []*pb.NodeRecord{{Name: "g1", Cpus: 64, Sockets: 2, Cores: 32, Threads: 1, RealMemoryMib: 64000,
			Gres: "gpu:a100:8,shard:32"},
			{Name: "g2", Cpus: 64, Sockets: 2, Cores: 32, Threads: 1, RealMemoryMib: 64000, Gres: "gpu:a100:4,gpu:v100:4"}}}, "c", 1)
}

// TestWhatGPUsImply: the record of a job that asks for GPUs, in each of the ways to do so. TRES and counts are those of a Slurm 22.05
// (client/compat), without types there because its AccountingStorageTRES names none.
func TestWhatGPUsImply(t *testing.T) {
	tests := map[string]struct {
		spec *pb.JobSpec
		set  func(*state.Settings, *pb.PartitionRecord)
		want string // ReqTRES
		then string // what was filled in
	}{
		"--gres=gpu:2": {spec: &pb.JobSpec{TresPerNode: "gres/gpu:2"},
			want: "cpu=1,mem=100M,node=1,billing=1,gres/gpu=2"},
		"-N2 --gres=gpu:a100:2": {spec: &pb.JobSpec{MinNodes: 2, TresPerNode: "gres/gpu:a100:2"},
			want: "cpu=2,mem=200M,node=2,billing=2,gres/gpu=4,gres/gpu:a100=4"},
		"types are tracked by name": {spec: &pb.JobSpec{TresPerNode: "gres/gpu:a100:2"},
			set:  func(s *state.Settings, _ *pb.PartitionRecord) { s.TrackTRES = []string{"gres/gpu"} },
			want: "cpu=1,mem=100M,node=1,billing=1,gres/gpu=2"},
		"two types": {spec: &pb.JobSpec{TresPerNode: "gres/gpu:a100:2,gres/gpu:v100:1"},
			want: "cpu=1,mem=100M,node=1,billing=1,gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1"},
		"--gpus=2": {spec: &pb.JobSpec{TresPerJob: "gres/gpu:2"},
			want: "cpu=1,mem=100M,node=1,billing=1,gres/gpu=2"},
		"--gpus-per-task=1 -n2": {spec: &pb.JobSpec{NumTasks: 2, TresPerTask: "gres/gpu:1"},
			want: "cpu=2,mem=200M,node=1,billing=2,gres/gpu=2"},
		"--gpus-per-task=2 --gpus=8": {spec: &pb.JobSpec{TresPerJob: "gres/gpu:8", TresPerTask: "gres/gpu:2"},
			want: "cpu=4,mem=400M,node=1,billing=4,gres/gpu=8", then: "n4"},
		"--gpus-per-node=4 --gpus=8": {spec: &pb.JobSpec{TresPerJob: "gres/gpu:8", TresPerNode: "gres/gpu:4"},
			want: "cpu=2,mem=200M,node=2,billing=2,gres/gpu=8", then: "N2"},
		"--ntasks-per-gpu=2 --gpus=2": {spec: &pb.JobSpec{TresPerJob: "gres/gpu:2", NtasksPerTres: 2},
			want: "cpu=4,mem=400M,node=1,billing=4,gres/gpu=2", then: "n4"},
		"--ntasks-per-gpu=2 -n5": {spec: &pb.JobSpec{NumTasks: 5, NtasksPerTres: 2},
			want: "cpu=5,mem=500M,node=1,billing=5,gres/gpu=3", then: "n5 gpu3"},
		"--ntasks-per-gpu=2 -N2": {spec: &pb.JobSpec{MinNodes: 2, MaxNodes: 2, NtasksPerTres: 2},
			want: "cpu=4,mem=400M,node=2,billing=4,gres/gpu=2", then: "n4 gpu2"},
		"--mem-per-gpu=500 --gpus=2": {spec: &pb.JobSpec{TresPerJob: "gres/gpu:2", MemPerGpuMib: 500},
			want: "cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2"},
		"--mem-per-gpu=500 without GPUs": {spec: &pb.JobSpec{MemPerGpuMib: 500, CpusPerTres: "gres/gpu:4"},
			want: "cpu=1,mem=100M,node=1,billing=1"},
		"--gpus-per-socket=2 --sockets...2": {spec: &pb.JobSpec{TresPerSocket: "gres/gpu:2", SocketsPerNode: 2},
			want: "cpu=1,mem=100M,node=1,billing=1,gres/gpu=4"},
		"--gpus-per-socket=1 ... --gpus=4": {spec: &pb.JobSpec{TresPerSocket: "gres/gpu:1", SocketsPerNode: 2, TresPerJob: "gres/gpu:4"},
			want: "cpu=2,mem=200M,node=2,billing=2,gres/gpu=4", then: "N2"},
		"--gres=shard:3": {spec: &pb.JobSpec{TresPerNode: "gres/shard:3"},
			want: "cpu=1,mem=100M,node=1,billing=1,gres/shard=3"},
		"DefMemPerGPU, DefCpuPerGPU": {spec: &pb.JobSpec{TresPerNode: "gres/gpu:2"},
			set:  func(s *state.Settings, _ *pb.PartitionRecord) { s.DefMemPerGPUMiB, s.DefCPUPerGPU = 700, 3 },
			want: "cpu=6,mem=1400M,node=1,billing=6,gres/gpu=2", then: "c3"},
		"JobDefaults of the partition": {spec: &pb.JobSpec{TresPerNode: "gres/gpu:2"}, set: func(s *state.Settings, p *pb.PartitionRecord) {
			s.DefMemPerGPUMiB, p.JobDefaults = 700, "DefCpuPerGPU=2,DefMemPerGPU=300"
		}, want: "cpu=4,mem=600M,node=1,billing=4,gres/gpu=2", then: "c2"},
		"not for a job without GPUs": {spec: &pb.JobSpec{TresPerNode: "gres/shard:1"},
			set:  func(s *state.Settings, _ *pb.PartitionRecord) { s.DefMemPerGPUMiB, s.DefCPUPerGPU = 700, 3 },
			want: "cpu=1,mem=100M,node=1,billing=1,gres/shard=1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.spec.Name = "j"
			given := state.CloneSpec(tt.spec)
			j, p := Job(gpuView(tt.set), tt.spec, "")
			if p != nil {
				t.Fatal(p)
			}
			if j.ReqTres != tt.want {
				t.Errorf("%s, want %s", j.ReqTres, tt.want)
			}
			var then []string
			for _, f := range []struct {
				changed bool
				text    string
			}{{j.Spec.NumTasks != given.NumTasks || strings.HasPrefix(tt.then, "n"), "n" + utoa(j.Spec.NumTasks)},
				{j.Spec.MinNodes != given.MinNodes, "N" + utoa(j.Spec.MinNodes)},
				{j.Spec.TresPerJob != given.TresPerJob, "gpu" + utoa(uint32(count(j.Spec.TresPerJob)))},
				{j.Spec.CpusPerTres != "", "c" + utoa(uint32(count(j.Spec.CpusPerTres)))}} {
				if f.changed {
					then = append(then, f.text)
				}
			}
			if got := strings.Join(then, " "); got != tt.then {
				t.Errorf("filled in %q, want %q", got, tt.then)
			}
		})
	}
}

func utoa(n uint32) string {
	return strings.TrimSpace(TRES(n, 0, 0)[len("cpu="):strings.IndexByte(TRES(n, 0, 0), ',')])
}

func TestContradictingGPUs(t *testing.T) {
	for want, spec := range map[string]*pb.JobSpec{
		"3 GPUs in total cannot be divided into tasks of 2":     {TresPerJob: "gres/gpu:3", TresPerTask: "gres/gpu:2"},
		"3 GPUs in total cannot be divided into nodes of 2":     {TresPerJob: "gres/gpu:3", TresPerNode: "gres/gpu:2"},
		"1 GPU in total cannot give each of 2 nodes one":        {TresPerJob: "gres/gpu:1", MinNodes: 2},
		"3 tasks with 2 GPUs each are not 8 GPUs":               {TresPerJob: "gres/gpu:8", TresPerTask: "gres/gpu:2", NumTasks: 3},
		"3 nodes with 2 GPUs each are not 8 GPUs":               {TresPerJob: "gres/gpu:8", TresPerNode: "gres/gpu:2", MinNodes: 3},
		"3 GPUs on each node cannot be divided into tasks of 2": {TresPerNode: "gres/gpu:3", TresPerTask: "gres/gpu:2"},
		"1 GPU in total cannot be divided into nodes of 2":      {TresPerJob: "gres/gpu:1", TresPerSocket: "gres/gpu:2"},
		"1 node with 2 GPUs each are not 4 GPUs": {TresPerJob: "gres/gpu:4", TresPerSocket: "gres/gpu:1", SocketsPerNode: 2,
			MinNodes: 1},
		"1 GPU on each node are not 1 on each of 2 sockets": {TresPerNode: "gres/gpu:1", TresPerSocket: "gres/gpu:1", SocketsPerNode: 2},
		"1 task with 1 GPU each are fewer than 2 GPUs on each node": {TresPerSocket: "gres/gpu:2", TresPerTask: "gres/gpu:1",
			NumTasks: 1},
		"\"gpu::\"":        {TresPerNode: "gres/gpu::"},
		"at most 16777216": {TresPerNode: "gres/gpu:99999999"},
		"given twice":      {TresPerNode: "gres/gpu:1,gres/gpu:2"},
		"no node has the generic resource \"tpu\"": {TresPerNode: "gres/tpu:1"},
	} {
		_, p := Job(gpuView(nil), spec, "")
		if p == nil || !strings.Contains(p.Error(), want) {
			t.Errorf("%v: %v, want %s", spec, p, want)
		}
	}
}

// TestNoneOfAResource: a real Slurm takes a count of 0, also of what the cluster does not have.
func TestNoneOfAResource(t *testing.T) {
	for _, spec := range []*pb.JobSpec{{TresPerJob: "gres/gpu:0"}, {TresPerNode: "gres/tpu:0"},
		{TresPerNode: "gres/gpu:a100:0,gres/tpu:0"}, {TresPerTask: "gres/gpu:0", NumTasks: 1}} {
		v := gpuView(nil)
		for _, n := range v.Nodes() {
			n.Inv = nil
		}
		if _, p := Job(v, spec, ""); p != nil {
			t.Errorf("%v: %v", spec, p)
		}
	}
}
