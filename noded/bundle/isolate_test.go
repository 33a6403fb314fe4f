package bundle

import (
	"errors"
	"slices"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestBundleNumbersDevices: what is closed to a job is not counted by it; what cannot be closed, or must not be, is numbered as on the
// node.
func TestBundleNumbersDevices(t *testing.T) {
	b := testBundler()
	b.Devices = func() []*pb.Device {
		return []*pb.Device{{Name: "gpu", Index: 0, Files: []string{"/dev/gpu0"}}, {Name: "gpu", Index: 1, Files: []string{"/dev/gpu1"}}}
	}
	l := testLaunch()
	l.Alloc[0].Devices = []*pb.GresDevice{{Name: "gpu", Index: 1}}
	l.Alloc = append(l.Alloc, &pb.NodeAlloc{Node: "n2", Devices: []*pb.GresDevice{{Name: "gpu", Index: 0}}})
	for _, c := range []struct {
		settings, node bool
		open           error
		want           string
	}{
		{settings: true, want: "CUDA_VISIBLE_DEVICES=0"},
		{node: true, want: "CUDA_VISIBLE_DEVICES=0"},
		{want: "CUDA_VISIBLE_DEVICES=1"},
		{settings: true, node: true, open: errors.New("no cgroups"), want: "CUDA_VISIBLE_DEVICES=1"},
	} {
		b.Closed, b.Open = c.node, c.open
		out := b.Build(l, &pb.NodeSettings{ConstrainDevices: c.settings})
		if len(out.Limits.GetDevices()) != 0 || !slices.Contains(out.Env, c.want) || !slices.Contains(out.Env, "SLURM_JOB_GPUS=1") ||
			len(out.Devices) != 1 {
			t.Errorf("%+v: %v, %v", c, out.Devices, out.Env)
		}
	}
	l.Batch, l.Key.Step = false, pb.ExternStep
	if out := b.Build(l, &pb.NodeSettings{ConstrainDevices: true}); len(out.Devices) != 1 {
		t.Errorf("where nothing runs: %v", out)
	}
}
