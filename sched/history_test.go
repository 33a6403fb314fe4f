package sched

import (
	"github.com/sluice-hpc/sluice/sched/record"
	"testing"
)

// TestPromiseFromNowIsNotFree: resources promised from now on are also taken for a scheduler without history. Job 12 once got more tasks on
// n0 than the promise to job 6 leaves, and so did not start; a scheduler that had planned before started it.
func TestPromiseFromNowIsNotFree(t *testing.T) {
	w := newWorld(t, record.Params{}, 0, 0)
	w.in.Nodes = []*record.Node{{Name: "n0", CPUs: 3, MemMiB: 100},
		{Name: "n2", CPUs: 4, MemMiB: 100, WakeS: 7}, {Name: "n4", CPUs: 2, MemMiB: 100}}
	w.in.Partitions = []*record.Partition{{Name: "p", Nodes: []string{"n0", "n2", "n4"}, Share: record.ShareForce, MaxShare: 2}}
	w.in.Reservations = []*record.Reservation{{Name: "r", Start: 1300, End: 4300, Nodes: []string{"n0"}, Users: []string{"v"},
		Parts: []record.Alloc{{Node: "n0", CPUs: 2, Cores: record.BitsOf(0, 1)}}}}
	w.in.Running = []*record.Run{{ID: 7, Task: -1, Job: &record.Job{ID: 7, User: "u", Request: &record.Request{}},
		Partition: "p", Start: 1000, End: 1060,
		Allocs: []record.Alloc{
			{Node: "n0", Tasks: 1, CPUs: 1, Cores: record.BitsOf(0), MemMiB: 3},
			{Node: "n4", Tasks: 1, CPUs: 1, Cores: record.BitsOf(1), MemMiB: 3}}}}
	two := record.Request{MinNodes: 2, MaxNodes: 2, Tasks: 5, NodeList: []string{"n0"}, MemSaid: true, MemNodeMiB: 50, CPUsPerTask: 2}
	w.add(6, 2640, two).Promised = true
	two.CPUsPerTask, two.MemNodeMiB = 1, 1
	w.add(12, 120, two)
	w.want("start 12 n0:3 n4:2; reserve 6 at 0 on n0,n2; 6: Resources")
}
