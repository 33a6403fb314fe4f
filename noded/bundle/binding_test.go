package bundle

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// twoSockets has two cores of two threads on each of two sockets; the threads of a core are numbered as Linux does: 0 and 4.
func twoSockets() (t hw.Topology) {
	for socket := range 2 {
		for core := range 2 {
			for thread := range 2 {
				t = append(t, hw.CPU{ID: 2*socket + core + 4*thread, Socket: socket, Core: 2*socket + core, Thread: thread})
			}
		}
	}
	return t
}

func TestCPUBind(t *testing.T) {
	for _, c := range []struct {
		as           string
		cpuset       string
		n, each      int
		distribution string
		want         string // by task
		bind         string // SLURM_CPU_BIND
	}{
		{"", "", 2, 1, "", "", ""},
		{"none", "", 2, 1, "", "", "quiet,none"},
		{"cores", "", 3, 1, "", "0,4 2,6 1,5", "quiet,mask_cpu:0x11,0x44,0x22"},
		{"v,cores", "", 3, 1, "block:block", "0,4 1,5 2,6", "verbose,mask_cpu:0x11,0x22,0x44"},
		{"threads", "", 2, 2, "", "0,4 2,6", "quiet,mask_cpu:0x11,0x44"},
		{"sockets", "", 2, 1, "", "0-1,4-5 2-3,6-7", "quiet,mask_cpu:0x33,0xCC"},
		{"cores", "0,4", 3, 1, "", "0,4 0,4 0,4", "quiet,mask_cpu:0x11,0x11,0x11"},
		{"rank", "2-3", 3, 1, "", "2 3 2", "quiet,rank"},
		{"map_cpu:3,1", "", 3, 1, "", "3 1 3", "quiet,map_cpu:3,1"},
		{"verbose,mask_cpu:0x3*2,0xc", "", 3, 1, "", "0-1 0-1 2-3", "verbose,mask_cpu:3,3,c"},
		{"map_cpu:9", "", 1, 1, "", "", "quiet,map_cpu:9"},
		{"ldoms", "", 1, 3, "", "0-1,4-5", "quiet,mask_cpu:0x33"},
		{"mask_cpu:zz", "", 1, 1, "", "", "quiet,mask_cpu:zz"},
	} {
		kind, list, verbose := cpuBind(c.as)
		got := bindCPUs(usable(twoSockets(), c.cpuset), kind, list, c.n, c.each, c.distribution)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.as, got, c.want)
		}
		env := cpuBindEnv(kind, list, verbose, got)
		if bind := strings.TrimPrefix(strings.Join(env[:min(1, len(env))], ""), "SLURM_CPU_BIND="); bind != c.bind {
			t.Errorf("%s: SLURM_CPU_BIND=%s, want %s", c.as, bind, c.bind)
		}
	}
}

func TestGPUBind(t *testing.T) {
	for bind, want := range map[string]string{
		"":                         "[]",
		"gres/gpu:none":            "[]",
		"gres/gpu:single:1":        "[[0] [1] [0]]",
		"gres/gpu:single:2":        "[[0] [0] [1]]",
		"gres/gpu:per_task:1":      "[[0] [1] [0]]",
		"gres/gpu:map_gpu:1,0":     "[[1] [0] [1]]",
		"gpu:verbose,mask_gpu:0x3": "[[0 1] [0 1] [0 1]]",
		"gres/gpu:single:":         "[[0] [1] [0]]",
		"gres/gpu:map_gpu:":        "[[] [] []]",
	} {
		if got := fmt.Sprint(bindGPUs(&pb.StepSpec{TresBind: bind}, 2, 3)); got != want {
			t.Errorf("%q: %s, want %s", bind, got, want)
		}
	}
	if got := fmt.Sprint(bindGPUs(&pb.StepSpec{TresPerTask: "gres/gpu:a100:2"}, 4, 2)); got != "[[0 1] [2 3]]" {
		t.Errorf("--gpus-per-task: %s", got)
	}
}

// TestAutoBind: what srun of a real Slurm 22.05 with TaskPlugin=task/affinity gives its tasks on a node with one socket of two cores, when
// nobody says how they are to be bound.
func TestAutoBind(t *testing.T) {
	twoCores := hw.Topology{{ID: 0}, {ID: 1, Core: 1}}
	for _, c := range []struct {
		what    string
		has     hw.Topology // of the step
		n, each int
		want    string
		bind    string
	}{
		{"srun -n2", twoCores, 2, 1, "0 1", "quiet,mask_cpu:0x1,0x2"},
		{"srun -n1", twoCores[:1], 1, 1, "0", "quiet,mask_cpu:0x1"},
		{"srun -n1 -c2", twoCores, 1, 2, "0-1", "quiet,mask_cpu:0x3"},
		{"srun -n4 -O", twoCores[:1], 4, 1, "0 0 0 0", "quiet,mask_cpu:0x1"},
		{"salloc -n2 srun -n1", twoCores, 1, 1, "0-1", "quiet,mask_cpu:0x3"},
		{"salloc -n2 srun -n1 --exact", twoCores[:1], 1, 1, "0", "quiet,mask_cpu:0x1"},
	} {
		kind := matching(c.has, c.n*c.each)
		got := bindCPUs(c.has, kind, nil, c.n, c.each, "")
		env := cpuBindEnv(kind, nil, "", got)
		if strings.Join(got, " ") != c.want || env[0] != "SLURM_CPU_BIND="+c.bind {
			t.Errorf("%s: %q, %s, want %q, %s", c.what, got, env[0], c.want, c.bind)
		}
	}
	if kind := matching(twoSockets(), 8); kind != "threads" {
		t.Errorf("a task for each thread: %s", kind)
	}
	if kind := matching(twoSockets(), 2); kind != "sockets" {
		t.Errorf("a task for each socket: %s", kind)
	}
}

// TestClosestGPUs: each task sees the GPUs near its CPUs; all where it is not known which are, or where it has no CPUs of its own.
func TestClosestGPUs(t *testing.T) {
	device := func(index uint32, cores string) *pb.Device {
		return &pb.Device{Name: "gpu", Index: index, Id: fmt.Sprint("GPU-", index), Cores: cores}
	}
	for _, c := range []struct {
		first, second string // cores near each GPU
		cpus          []string
		want          string
	}{
		{"0-1", "2-3", []string{"0", "3", "1-2"}, "[[0] [1] [0 1]]"},
		{"0-1", "2-3", []string{"", "3"}, "[[] [1]]"},
		{"0-1", "", []string{"0", "3"}, "[]"},
		{"0-1", "0-1", []string{"3"}, "[]"},
	} {
		b := &Builder{Topology: hw.Topology{{ID: 0}, {ID: 1, Core: 1}, {ID: 2, Core: 2, Socket: 1}, {ID: 3, Core: 3, Socket: 1}},
			Log: slog.New(slog.DiscardHandler)}
		b.Devices = func() []*pb.Device { return []*pb.Device{device(0, c.first), device(1, c.second)} }
		here := &pb.StepNode{Devices: []*pb.GresDevice{{Name: "gpu", Index: 0, Id: "GPU-0"}, {Name: "gpu", Index: 1, Id: "GPU-1"}}}
		if got := fmt.Sprint(b.closestGPUs(&pb.LaunchSpec{}, here, &pb.NodeSettings{}, c.cpus)); got != c.want {
			t.Errorf("near %s and %s, tasks on %q: %s, want %s", c.first, c.second, c.cpus, got, c.want)
		}
	}
}
