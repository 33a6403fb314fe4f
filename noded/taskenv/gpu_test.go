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
		{"--gres=gpu:1", &pb.JobSpec{TresPerNode: "gres/gpu:1"}, []*pb.GresDevice{gpu(0)}, "CUDA_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0 ROCR_VISIBLE_DEVICES=0 SLURM_GPUS_ON_NODE=1 SLURM_JOB_GPUS=0 ZE_AFFINITY_MASK=0"},
		{"--gpus=2", &pb.JobSpec{TresPerJob: "gres/gpu:2"}, []*pb.GresDevice{gpu(0), gpu(1)}, "CUDA_VISIBLE_DEVICES=0,1 GPU_DEVICE_ORDINAL=0,1 ROCR_VISIBLE_DEVICES=0,1 SLURM_GPUS=2 SLURM_GPUS_ON_NODE=2 SLURM_JOB_GPUS=0,1 ZE_AFFINITY_MASK=0,1"},
		{"--gpus-per-task=1 -n2", &pb.JobSpec{TresPerTask: "gres/gpu:1", NumTasks: 2}, []*pb.GresDevice{gpu(0), gpu(1)}, "CUDA_VISIBLE_DEVICES=0,1 GPU_DEVICE_ORDINAL=0,1 ROCR_VISIBLE_DEVICES=0,1 SLURM_GPUS_ON_NODE=2 SLURM_GPUS_PER_TASK=1 SLURM_JOB_GPUS=0,1 ZE_AFFINITY_MASK=0,1"},
		{"none", &pb.JobSpec{}, nil, ""},
	} {
		l := &pb.LaunchSpec{Key: &pb.StepKey{JobId: 1}, Spec: c.spec, Node: "g1", Alloc: []*pb.NodeAlloc{{Node: "g1", Cpus: 1, Devices: c.has}, {Node: "g2", Cpus: 1, Devices: []*pb.GresDevice{gpu(1)}}},
			Env: []string{"CUDA_VISIBLE_DEVICES=7", "SLURM_JOB_GPUS=7"}}
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
