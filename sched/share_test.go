package sched

import (
	"github.com/sluice-hpc/sluice/sched/record"
	"testing"
)

func TestOverSubscribeForce(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 4)
	w.in.Partitions[0].Share, w.in.Partitions[0].MaxShare = record.ShareForce, 2
	w.add(1, 100, record.Request{Tasks: 3})
	w.add(2, 100, record.Request{Tasks: 4, Exclusive: true}) // FORCE leaves no way out
	w.add(3, 50, record.Request{Tasks: 1})
	w.add(4, 50, record.Request{Tasks: 1})
	w.want("start 1 n1:3; start 2 n1:4; start 3 n1:1; reserve 4 at 50 on n1; 4: Resources")
	if k := w.in.Running[0].Allocs[0].Cores.List(); len(k) != 3 {
		t.Fatalf("cores %v", k)
	}
	w.in.Now += 50
	w.end(3)
	w.want("start 4 n1:1")
}

func TestOverSubscribeYes(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 4)
	w.in.Partitions[0].Share, w.in.Partitions[0].MaxShare = record.ShareYes, 2
	w.add(1, 100, record.Request{Tasks: 2, Oversubscribe: true})
	w.add(2, 100, record.Request{Tasks: 2, Oversubscribe: true}) // onto the same cores
	w.add(3, 100, record.Request{Tasks: 2})
	w.add(4, 100, record.Request{Tasks: 1})
	w.want("start 1 n1:2; start 2 n1:2; start 3 n1:2; reserve 4 at 100 on n1; 4: Resources")
	w.in.Now += 10
	w.end(2)
	w.add(5, 20, record.Request{Tasks: 1, Oversubscribe: true})
	w.want("start 5 n1:1; reserve 4 at 90 on n1")
}

func TestExclusivePartition(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.in.Partitions[0].Share = record.ShareExclusive
	w.add(1, 100, record.Request{Tasks: 1})
	w.add(2, 100, record.Request{Tasks: 1})
	w.add(3, 100, record.Request{Tasks: 1})
	w.want("start 1 n1:4; start 2 n2:4; reserve 3 at 100 on n1; 3: Resources")
}

// TestWholeNodes: select/linear.
func TestWholeNodes(t *testing.T) {
	w := newWorld(t, record.Params{WholeNodes: true}, 2, 4)
	w.add(1, 100, record.Request{Tasks: 1})
	w.want("start 1 n1:4")
}

// TestWholeNodesMemory: on whole nodes, memory per CPU or per device counts all CPUs or devices of the node, as in Slurm. A request that
// no node can meet is refused. Memory per node is taken as requested.
func TestWholeNodesMemory(t *testing.T) {
	for _, tt := range []struct {
		r    record.Request
		want int64 // 0: no node can ever give it
	}{
		{record.Request{Tasks: 1, MemCPUMiB: 100}, 400},
		{record.Request{Tasks: 1, CPUsPerTask: 2, MemCPUMiB: 250}, 1000},
		{record.Request{Tasks: 1, MemCPUMiB: 300}, 0},
		{record.Request{Tasks: 1, MemSaid: true, MemNodeMiB: 300}, 300},
		{record.Request{Tasks: 1, MemGPUMiB: 200, Gres: []record.GresRequest{{Name: "gpu", Count: 1}}}, 400},
		{record.Request{Tasks: 1, MemGPUMiB: 600, Gres: []record.GresRequest{{Name: "gpu", Count: 1}}}, 0},
	} {
		w := newWorld(t, record.Params{}, 1, 4)
		w.in.Nodes[0].Gres = []record.Gres{{Name: "gpu", Type: "a100", Count: 2, Devices: []record.Device{{Index: 0}, {Index: 1}}}}
		tt.r.Exclusive = true
		w.add(1, 100, tt.r)
		w.plan()
		got := int64(0)
		if len(w.in.Running) > 0 {
			got = w.in.Running[0].Allocs[0].MemMiB
		}
		if got != tt.want {
			t.Errorf("%+v: %d MiB, want %d", tt.r, got, tt.want)
		}
	}
}

// TestTasksPerNodeAlone: --ntasks-per-node without counts of tasks and nodes is one node.
func TestTasksPerNodeAlone(t *testing.T) {
	w := newWorld(t, record.Params{}, 4, 4)
	w.add(1, 100, record.Request{TasksPerNode: 3})
	w.add(2, 100, record.Request{MinNodes: 2, MaxNodes: 2, TasksPerNode: 2})
	w.want("start 1 n1:3; start 2 n2:2 n3:2")
}

// TestResumedJobs: a suspended job leaves its cores to another, and getting
// them back does not make them free when one of the two ends.
func TestResumedJobs(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 2)
	w.add(1, 1000, record.Request{Tasks: 2})
	w.want("start 1 n1:2")
	r := *w.in.Running[0]
	r.Suspended = true
	w.in.Running[0] = &r
	w.add(2, 100, record.Request{Tasks: 2})
	w.want("start 2 n1:2")
	w.in.Now += 10
	w.end(2)
	w.want("")
}
