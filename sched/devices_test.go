package sched

import (
	"fmt"
	"github.com/sluice-hpc/sluice/sched/record"
	"testing"
)

// TestCoresNearDevices: cores near the GPU come first, whether cores or CPUs are given, and GPUs of a socket are found by them.
func TestCoresNearDevices(t *testing.T) {
	for _, whole := range []bool{false, true} {
		w := newWorld(t, record.Params{WholeCores: whole}, 1, 16)
		n := w.in.Nodes[0]
		n.Sockets, n.CoresPerSocket, n.Threads = 2, 4, 2
		n.Gres = []record.Gres{
			{Name: "gpu", Type: "a", Count: 2, Devices: []record.Device{{Index: 0, Cores: record.Bits{0b00001100}},
				{Index: 1, Cores: record.Bits{0b11000000}}}},
		}
		w.add(1, 100, record.Request{Tasks: 1, CPUsPerTask: 2, Gres: []record.GresRequest{{Name: "gpu", Count: 1}}})
		w.add(2, 100, record.Request{Tasks: 1, CPUsPerTask: 4, Gres: []record.GresRequest{{Name: "gpu", Count: 1}}, Binding: true})
		w.plan()
		want := "[2] [6 7]"
		if !whole { // CPUs 2k and 2k+1 are core k
			want = "[4 5] [12 13 14 15]"
		}
		if len(w.in.Running) != 2 {
			t.Fatalf("whole cores %v: %d jobs run", whole, len(w.in.Running))
		}
		if got := fmt.Sprint(w.in.Running[0].Allocs[0].Cores.List(), w.in.Running[1].Allocs[0].Cores.List()); got != want {
			t.Errorf("whole cores %v: %s, want %s", whole, got, want)
		}
	}
}

// TestTasksFollowGPUs: with --ntasks-per-gpu the GPUs of a node decide its tasks, not its CPUs.
func TestTasksFollowGPUs(t *testing.T) {
	for _, c := range []struct {
		tasks, each int
		gpus        int64
		want        string
	}{
		{4, 1, 4, "[n1:2/2 n2:2/2]"},
		{8, 2, 4, "[n1:4/2 n2:4/2]"},
		{6, 2, 3, "[n1:4/2 n2:2/1]"},
		{4, 0, 4, "[n1:3/2 n2:1/2]"}, // --gpus=4 -n4
		{5, 2, 3, "[n1:4/2 n2:1/1]"}, // -n5 was said, too
		{20, 5, 4, "[]"},             // a node has CPUs for one GPU's tasks
	} {
		w := newWorld(t, record.Params{}, 2, 8)
		for _, n := range w.in.Nodes {
			n.Gres = []record.Gres{{Name: "gpu", Type: "a", Count: 2, Devices: []record.Device{{Index: 0}, {Index: 1}}}}
		}
		w.add(1, 100, record.Request{MinNodes: 2, MaxNodes: 2, Tasks: c.tasks, TasksPerGPU: c.each,
			Gres: []record.GresRequest{{Name: "gpu", Count: c.gpus, Per: record.PerJob}}})
		w.plan()
		got := []string{}
		for _, r := range w.in.Running {
			for _, a := range r.Allocs {
				got = append(got, fmt.Sprintf("%s:%d/%d", a.Node, a.Tasks, len(a.Gres[0].Devices)))
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
}

// TestTasksOfNodes: the tasks and CPUs of nodes with GPUs requested per node, or with --ntasks-per-node. Starts and refusals ("never") are
// those of Slurm 22.05.
func TestTasksOfNodes(t *testing.T) {
	each := func(n int64) []record.GresRequest { return []record.GresRequest{{Name: "gpu", Count: n}} }
	all := func(n int64) []record.GresRequest {
		return []record.GresRequest{{Name: "gpu", Count: n, Per: record.PerJob}}
	}
	for name, c := range map[string]struct {
		req  record.Request
		want string
	}{
		"-N2 --gres=gpu:2 --ntasks-per-gpu=2": {record.Request{MinNodes: 2, MaxNodes: 2, Tasks: 8, TasksPerGPU: 2, Gres: each(2)},
			"[n1:4 n2:4]"},
		"-n4 --gres=gpu:1 --ntasks-per-gpu=2": {record.Request{Tasks: 4, TasksPerGPU: 2, Gres: each(1)}, "[n1:2 n2:2]"},
		"-N1 -n4 --gres=gpu:1 --ntasks-per-gpu=2": {record.Request{MinNodes: 1, MaxNodes: 1, Tasks: 4, TasksPerGPU: 2, Gres: each(1)},
			"never"},
		"--gpus=4 --ntasks-per-node=2":  {record.Request{TasksPerNode: 2, Gres: all(4)}, "[n1:2 n2:2]"},
		"--gpus=3 --ntasks-per-node=2":  {record.Request{TasksPerNode: 2, Gres: all(3)}, "[n1:2 n2:2]"},
		"-N1-2 -n9 --ntasks-per-node=4": {record.Request{MinNodes: 1, MaxNodes: 2, Tasks: 9, TasksPerNode: 4}, "never"},
		"-n1 -c5 --ntasks-per-node=2":   {record.Request{Tasks: 1, CPUsPerTask: 5, TasksPerNode: 2}, "[n3:1]"},
		"-n1 -c9 --ntasks-per-node=2":   {record.Request{Tasks: 1, CPUsPerTask: 9, TasksPerNode: 2}, "never"},
		"-N1 -n1 --overcommit --ntasks-per-node=17": {record.Request{MinNodes: 1, MaxNodes: 1, Tasks: 1, TasksPerNode: 17,
			Overcommit: true},
			"never"},
	} {
		w := newWorld(t, record.Params{}, 3, 8)
		for _, n := range w.in.Nodes[:2] {
			n.Gres = []record.Gres{{Name: "gpu", Type: "a", Count: 2, Devices: []record.Device{{Index: 0}, {Index: 1}}}}
		}
		w.in.Nodes[2].CPUs = 16
		j := w.add(1, 100, c.req)
		got := "never"
		if ok, _ := admissible(j, w.in.Nodes, w.in.Partitions); ok {
			w.plan()
			var list []string
			for _, r := range w.in.Running {
				for _, a := range r.Allocs {
					list = append(list, fmt.Sprintf("%s:%d", a.Node, a.Tasks))
				}
			}
			got = fmt.Sprint(list)
		} else if w.plan(); len(w.in.Running) > 0 {
			got = "refused, and runs"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestGroupsOfUnequalShares: GPUs of one type that are worth different numbers of shares are one pool for whole GPUs, and each is shared
// as far as it goes.
func TestGroupsOfUnequalShares(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 64)
	w.in.Nodes[0].Gres = []record.Gres{
		{Name: "gpu", Type: "a", Count: 1, Devices: []record.Device{{Index: 0}}, Shared: "shard", Shares: 4},
		{Name: "gpu", Type: "a", Count: 1, Devices: []record.Device{{Index: 1}}, Shared: "shard", Shares: 1},
	}
	w.add(1, 100, record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "shard", Count: 3}}})
	w.add(2, 100, record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "gpu", Type: "a", Count: 1}}})
	w.add(3, 100, record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "shard", Count: 1}}})
	w.add(4, 100, record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "gpu", Count: 2}}})
	w.plan()
	if got, want := cutsOf(&w.in), "1:a@0 2:a@1 3:a@0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, id := range []uint32{1, 2, 3} {
		w.end(id)
	}
	w.plan()
	if got, want := cutsOf(&w.in), "4:a@0 4:a@1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestWithheldDevices: a job that would fit if all devices were given out waits for them.
func TestWithheldDevices(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.in.Nodes[0].Gres, w.in.Nodes[0].Withheld = []record.Gres{{Name: "gpu", Count: 1, Devices: []record.Device{{Index: 1}}}},
		[]string{"gpu"}
	w.add(1, 100, record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "gpu", Count: 2}}})
	w.add(2, 100, record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "fpga", Count: 1}}})
	w.want("1: Resources; 2: BadConstraints")
	whole := *w.in.Nodes[0]
	whole.Gres, whole.Withheld = []record.Gres{{Name: "gpu", Count: 2, Devices: []record.Device{{Index: 0}, {Index: 1}}}}, nil
	w.in.Nodes = []*record.Node{&whole, w.in.Nodes[1]}
	w.plan()
	if len(w.in.Running) != 1 {
		t.Error("the job does not start when the device is given out again")
	}
}
