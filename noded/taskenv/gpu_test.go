package taskenv

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestGPUs compares with what batch jobs on two nodes of two GPUs each saw under Slurm 22.05.
func TestGPUs(t *testing.T) {
	gpu := func(i uint32) *pb.GresDevice { return &pb.GresDevice{Name: "gpu", Type: "a100", Index: i} }
	for _, c := range []struct {
		about string
		spec  *pb.JobSpec
		has   []*pb.GresDevice
		want  string
	}{
		{"--gres=gpu:1", &pb.JobSpec{TresPerNode: "gres/gpu:1"}, []*pb.GresDevice{gpu(0)},
			"CUDA_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0 ROCR_VISIBLE_DEVICES=0 SLURM_GPUS_ON_NODE=1 SLURM_JOB_GPUS=0 ZE_AFFINITY_MASK=0"},
		{"--gpus=2", &pb.JobSpec{TresPerJob: "gres/gpu:2"}, []*pb.GresDevice{gpu(0), gpu(1)},
			"CUDA_VISIBLE_DEVICES=0,1 GPU_DEVICE_ORDINAL=0,1 ROCR_VISIBLE_DEVICES=0,1 SLURM_GPUS=2 SLURM_GPUS_ON_NODE=2 " +
				"SLURM_JOB_GPUS=0,1 ZE_AFFINITY_MASK=0,1"},
		{"--gpus-per-task=1 -n2", &pb.JobSpec{TresPerTask: "gres/gpu:1", NumTasks: 2}, []*pb.GresDevice{gpu(0), gpu(1)},
			"CUDA_VISIBLE_DEVICES=0,1 GPU_DEVICE_ORDINAL=0,1 ROCR_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=2 SLURM_GPUS_PER_TASK=1 " +
				"SLURM_JOB_GPUS=0,1 ZE_AFFINITY_MASK=0,1"},
		{"--gres=gpu:1 --gpu-bind=map_gpu:1", &pb.JobSpec{TresPerNode: "gres/gpu:1", TresBind: "gres/gpu:map_gpu:1"},
			[]*pb.GresDevice{gpu(0)},
			"CUDA_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0 ROCR_VISIBLE_DEVICES=0 SLURM_GPUS_ON_NODE=1 SLURM_GPU_BIND=map_gpu:1 " +
				"SLURM_JOB_GPUS=0 ZE_AFFINITY_MASK=0"},
		{"--gpus-per-node=2 --gpu-freq=low", &pb.JobSpec{TresPerNode: "gres/gpu:2", TresFreq: "gpu:low"}, []*pb.GresDevice{gpu(0), gpu(1)},
			"CUDA_VISIBLE_DEVICES=0,1 GPU_DEVICE_ORDINAL=0,1 ROCR_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=2 SLURM_GPUS_PER_NODE=2 " +
				"SLURM_GPU_FREQ=low SLURM_JOB_GPUS=0,1 ZE_AFFINITY_MASK=0,1"},
		{"--gpus=1 --cpus-per-gpu=3", &pb.JobSpec{TresPerJob: "gres/gpu:1", CpusPerTres: "gres/gpu:3"}, []*pb.GresDevice{gpu(0)},
			"CUDA_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0 ROCR_VISIBLE_DEVICES=0 SLURM_CPUS_PER_GPU=3 SLURM_GPUS=1 SLURM_GPUS_ON_NODE=1 " +
				"SLURM_JOB_GPUS=0 ZE_AFFINITY_MASK=0"},
		{"none", &pb.JobSpec{}, nil, ""},
	} {
		l := &pb.LaunchSpec{Key: &pb.StepKey{JobId: 1}, Spec: c.spec, Node: "g1",
			Alloc: []*pb.NodeAlloc{{Node: "g1", Cpus: 1, Devices: c.has}, {Node: "g2", Cpus: 1, Devices: []*pb.GresDevice{gpu(1)}}},
			Env:   []string{"CUDA_VISIBLE_DEVICES=7", "SLURM_JOB_GPUS=7"}}
		if strings.Contains(c.about, "--gpus-per-node") {
			l.Env = append(l.Env, "SLURM_GPUS_PER_NODE=2") // sbatch's own, in both
		}
		var got []string
		for _, e := range Batch(l, "c", Daemon{Node: "g1"}) {
			name, _, _ := strings.Cut(e, "=")
			if strings.Contains(name, "GPU") || strings.Contains(name, "VISIBLE") || strings.HasPrefix(name, "ZE_") {
				got = append(got, e)
			}
		}
		slices.Sort(got)
		want := c.want
		if c.has == nil {
			want = "CUDA_VISIBLE_DEVICES=7" // the user's own, as in Slurm; the job has no GPU of the cluster
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s:\n got %s\nwant %s", c.about, s, want)
		}
	}
}

// vars of the environment that are about devices.
func deviceVars(env []string) string {
	var got []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		for _, part := range []string{"GPU", "VISIBLE", "ZE_AFF", "SHARDS", "MPS", "GRES"} {
			if strings.Contains(name, part) {
				got = append(got, e)
				break
			}
		}
	}
	slices.Sort(got)
	return strings.Join(got, " ")
}

// TestDevices: how the devices of a node are numbered and named for a job.
func TestDevices(t *testing.T) {
	node := []*pb.Device{
		{Name: "gpu", Index: 0, Id: "GPU-aa", Declared: "nvml", Shares: 40, SharedAs: "shard"},
		{Name: "gpu", Index: 1, Id: "GPU-bb", Declared: "nvml", Shares: 100, SharedAs: "mps"},
		{Name: "gpu", Index: 2, Id: "GPU-cc", Declared: "nvml"}, {Name: "gpu", Type: "a100_3g.20gb", Index: 3, Id: "MIG-dd",
			Parent: "GPU-x", MigStart: 4, Declared: "nvml"},
		{Name: "fpga", Index: 0, Id: "/dev/fpga0", Files: []string{"/dev/fpga0"}},
		{Name: "fpga", Index: 1, Id: "/dev/fpga1", Files: []string{"/dev/fpga1"}},
	}
	gpu := func(i uint32) *pb.GresDevice { return &pb.GresDevice{Name: "gpu", Index: i, Id: node[i].Id} }
	closed := Gres{Devices: node, Closed: true}
	with := func(g Gres, f func(*Gres)) Gres { f(&g); return g }
	for _, c := range []struct {
		about string
		g     Gres
		has   []*pb.GresDevice
		want  string
	}{
		{"none", closed, nil, "CUDA_VISIBLE_DEVICES="},
		{"none, on a node without GPUs", Gres{}, nil, "CUDA_VISIBLE_DEVICES=7"},
		{"closed", closed, []*pb.GresDevice{gpu(2), gpu(1)},
			"CUDA_VISIBLE_DEVICES=0,1 GPU_DEVICE_ORDINAL=0,1 SLURM_GPUS_ON_NODE=2 SLURM_JOB_GPUS=1,2"},
		{"open", Gres{Devices: node}, []*pb.GresDevice{gpu(1), gpu(2)},
			"CUDA_VISIBLE_DEVICES=1,2 GPU_DEVICE_ORDINAL=1,2 SLURM_GPUS_ON_NODE=2 SLURM_JOB_GPUS=1,2"},
		{"UUIDs", with(closed, func(g *Gres) { g.UUIDs = true }), []*pb.GresDevice{gpu(1), gpu(2)},
			"CUDA_VISIBLE_DEVICES=GPU-bb,GPU-cc GPU_DEVICE_ORDINAL=0,1 SLURM_GPUS_ON_NODE=2 SLURM_JOB_GPUS=1,2"},
		{"MIG", closed, []*pb.GresDevice{gpu(3)}, "CUDA_VISIBLE_DEVICES=MIG-dd GPU_DEVICE_ORDINAL=0 SLURM_GPUS_ON_NODE=1 SLURM_JOB_GPUS=3"},
		{"MIG that was cut for it", closed, []*pb.GresDevice{{Name: "gpu", Index: 3, Parent: "GPU-x", MigStart: 4}},
			"CUDA_VISIBLE_DEVICES=MIG-dd GPU_DEVICE_ORDINAL=0 SLURM_GPUS_ON_NODE=1 SLURM_JOB_GPUS=3"},
		{"shards", closed, []*pb.GresDevice{{Name: "shard", Index: 0, Share: 8}},
			"CUDA_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0 SLURM_JOB_GPUS=0 SLURM_SHARDS_ON_NODE=8"},
		{"shards by the GPU", closed, []*pb.GresDevice{{Name: "gpu", Id: "GPU-aa", Share: 8}},
			"CUDA_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0 SLURM_JOB_GPUS=0 SLURM_SHARDS_ON_NODE=8"},
		{"mps", closed, []*pb.GresDevice{{Name: "mps", Index: 1, Id: "GPU-bb", Share: 25}},
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 CUDA_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0 SLURM_JOB_GPUS=1"},
		{"an FPGA", closed, []*pb.GresDevice{{Name: "fpga", Index: 1, Id: "/dev/fpga1"}, {Name: "license-like", Count: 3}},
			"CUDA_VISIBLE_DEVICES= SLUICE_GRES_FPGA=1 SLUICE_GRES_FPGA_FILES=/dev/fpga1"},
		{"no_gpu_env", with(closed, func(g *Gres) { g.Conf = []*pb.GresConf{{Name: "gpu", Flags: []string{"no_gpu_env"}}} }),
			[]*pb.GresDevice{gpu(0)}, "CUDA_VISIBLE_DEVICES=7 SLURM_GPUS_ON_NODE=1 SLURM_JOB_GPUS=0"},
		{"amd_gpu_env", with(closed, func(g *Gres) { g.Conf = []*pb.GresConf{{Name: "gpu", Flags: []string{"AMD_gpu_env"}}} }),
			[]*pb.GresDevice{gpu(2)}, "CUDA_VISIBLE_DEVICES=7 ROCR_VISIBLE_DEVICES=0 SLURM_GPUS_ON_NODE=1 SLURM_JOB_GPUS=2"},
	} {
		l := &pb.LaunchSpec{Key: &pb.StepKey{JobId: 1}, Spec: &pb.JobSpec{}, Node: "g1",
			Alloc: []*pb.NodeAlloc{{Node: "g1", Cpus: 1, Devices: c.has}},
			Env:   []string{"CUDA_VISIBLE_DEVICES=7", "SLURM_JOB_GPUS=7", "SLURM_SHARDS_ON_NODE=7"}}
		if got := deviceVars(Batch(l, "c", Daemon{Node: "g1", Gres: c.g})); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.about, got, c.want)
		}
	}
}

// TestDevicesOfHooks: prolog and epilog see all devices, by the node's numbers.
func TestDevicesOfHooks(t *testing.T) {
	l := &pb.LaunchSpec{Key: &pb.StepKey{JobId: 1}, Spec: &pb.JobSpec{}, Node: "g1",
		Alloc: []*pb.NodeAlloc{{Node: "g1", Devices: []*pb.GresDevice{{Name: "gpu", Index: 3, Id: "GPU-dd"}}}}}
	d := Daemon{Node: "g1", Gres: Gres{Closed: true, UUIDs: true,
		Devices: []*pb.Device{{Name: "gpu", Index: 3, Id: "GPU-dd", Declared: "nvml"}}}}
	if got, want := deviceVars(Hook(Prolog, l, nil, "c", d)),
		"CUDA_VISIBLE_DEVICES=3 GPU_DEVICE_ORDINAL=3 SLURM_GPUS_ON_NODE=1 SLURM_JOB_GPUS=3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	l.Alloc[0].Devices = nil
	if got := deviceVars(Hook(Epilog, l, nil, "c", d)); got != "" {
		t.Errorf("without a GPU: %s", got)
	}
}

func TestBindAndFrequency(t *testing.T) {
	l := &pb.LaunchSpec{Key: &pb.StepKey{JobId: 1}, Spec: &pb.JobSpec{TresBind: "gres/gpu:map_gpu:0,1", TresFreq: "gpu:high,memory=low"}}
	if got, want := deviceVars(Batch(l, "c", Daemon{})), "SLURM_GPU_BIND=map_gpu:0,1 SLURM_GPU_FREQ=high,memory=low"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
