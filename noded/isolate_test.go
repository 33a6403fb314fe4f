package noded

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/isolate"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// numbers is a Kernel in which /dev/gpuN is 240:N.
type numbers struct{}

func (numbers) File(path string) (isolate.Number, error) {
	if strings.HasPrefix(path, "/dev/gpu") {
		return isolate.Number{Major: 240, Minor: int64(path[len(path)-1] - '0')}, nil
	}
	return isolate.Number{}, errors.New("no such file: " + path)
}
func (numbers) Majors() map[string]int64 { return nil }
func (numbers) Graphics(string) []string { return nil }

func TestBundleClosesDevices(t *testing.T) {
	b := testBundler()
	b.kernel = numbers{}
	b.devices = func() isolate.Node {
		return isolate.Node{Devices: []*pb.Device{{Name: "gpu", Index: 0, Files: []string{"/dev/gpu0"}}, {Name: "gpu", Index: 1, Files: []string{"/dev/gpu1"}},
			{Name: "gpu", Index: 2, Files: []string{"/dev/gone"}}}}
	}
	l := testLaunch()
	l.Alloc[0].Devices = []*pb.GresDevice{{Name: "gpu", Index: 1}}
	l.Alloc = append(l.Alloc, &pb.NodeAlloc{Node: "n2", Devices: []*pb.GresDevice{{Name: "gpu", Index: 0}}})
	has := func(out *pb.Bundle, kv string) bool { return slices.Contains(out.Env, kv) }
	set := &pb.NodeSettings{ConstrainDevices: true}
	out := b.bundle(l, set)
	if r := out.Limits.Devices; len(r) != 1 || r[0].Minor != 0 || r[0].Allow || !has(out, "CUDA_VISIBLE_DEVICES=0") || !has(out, "SLURM_JOB_GPUS=1") || len(out.Devices) != 1 {
		t.Errorf("%v, %v, %v", r, out.Devices, out.Env)
	}
	if len(b.told) != 1 {
		t.Errorf("said %v, want the file that is missing", b.told)
	}
	// What cannot be closed, or must not be, is numbered as on the node.
	for about, f := range map[string]func(){"ConstrainDevices=no": func() { set.ConstrainDevices = false }, "no cgroups": func() { set.ConstrainDevices, b.open = true, errors.New("no cgroups") }} {
		f()
		if out := b.bundle(l, set); len(out.Limits.Devices) != 0 || !has(out, "CUDA_VISIBLE_DEVICES=1") {
			t.Errorf("%s: %v, %v", about, out.Limits.Devices, out.Env)
		}
	}
	l.Batch, l.Key.Step, b.open = false, pb.ExternStep, nil
	if out := b.bundle(l, set); out.Limits.Devices != nil || len(out.Devices) != 1 {
		t.Errorf("where nothing runs: %v", out)
	}
}

// TestUsesAreShown: exporters see whose a GPU is for as long as the job lasts, over a restart of the daemon, and also when the job
// ended while there was none.
func TestUsesAreShown(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	base := t.TempDir()
	c.settings.Gpu = &pb.GpuPolicy{JobMapDir: base + "/jobs", StatDir: base + "/stat"}
	d := newDaemon(t, c, steps)
	f := d.pretend("t4:2")
	d.start()
	see := func(want string) {
		t.Helper()
		got := ""
		for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			jobs, _ := os.ReadFile(base + "/jobs/1")
			stat, _ := os.ReadFile(base + "/stat/1")
			if got = string(jobs) + string(stat); got == want {
				return
			}
		}
		t.Errorf("the files say %q, want %q", got, want)
	}
	l := withDevices(7, &pb.GresDevice{Name: "gpu", Index: 1, Id: f.ID(1)})
	l.Spec.Uid = 1234
	one := c.submit(l)
	c.phase(one, pb.StepPhase_STEP_RUNNING)
	see("7\n7 1234\n")
	d.stop()
	see("7\n7 1234\n") // the job goes on
	must(t, os.WriteFile(base+"/stat/0", []byte("99 1\n"), 0o644))
	d.pretend("t4:2")
	d.start()
	see("7\n7 1234\n")
	for _, err := os.Stat(base + "/stat/0"); err == nil; _, err = os.Stat(base + "/stat/0") {
		time.Sleep(time.Millisecond) // what an earlier daemon left
	}
	steps.exit(one, 0)
	c.end(one)
	see("")
	d.stop()
	if _, err := os.ReadDir(base + "/jobs"); err != nil {
		t.Error(err)
	}
}
