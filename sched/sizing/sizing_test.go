package sizing

import (
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

func drawRequest(t *rapid.T) *record.Request {
	some := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	r := &record.Request{MinNodes: some("nodes", 4), Tasks: some("tasks", 20), CPUsPerTask: some("cpus", 4), MinCPUs: some("mincpus", 8),
		TasksPerNode: some("tasks per node", 6), Overcommit: rapid.Bool().Draw(t, "overcommit"), CPUsPerGPU: some("cpus per GPU", 3),
		Sockets: some("sockets", 2)}
	*rapid.SampledFrom([]*int64{&r.MemNodeMiB, &r.MemCPUMiB, &r.MemGPUMiB}).Draw(t, "memory") = int64(some("mib", 500))
	if n := some("gpus", 4); n > 0 {
		per := rapid.SampledFrom([]record.GresPer{record.PerNode, record.PerSocket, record.PerTask}).Draw(t, "per")
		r.Gres = []record.GresRequest{{Name: "gpu", Count: int64(n), Per: per}}
	}
	return r
}

// TestMoreTasksUseNoLess: more tasks never use less of any resource, for any allocation of CPUs. Most relies on this in its search.
func TestMoreTasksUseNoLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, unit := drawRequest(t), rapid.Int64Range(1, 4).Draw(t, "threads")
		last := Use{}
		for tasks := range int64(12) {
			u := On(r, tasks, 0, unit)
			if u.CPUs < last.CPUs || u.GPUs < last.GPUs || u.MemMiB < last.MemMiB || u.CPUs%unit != 0 {
				t.Fatalf("%d tasks use %+v, one less %+v", tasks, u, last)
			}
			if all := u.All(r, 32, 8); all.CPUs < u.CPUs || all.MemMiB < u.MemMiB {
				t.Fatalf("all of a node is %+v, less than %+v", all, u)
			}
			last = u
		}
	})
}

// TestNodesAddUpToTheWhole: a request whose tasks are the same on each node comes in all to what it comes to on these.
func TestNodesAddUpToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		d := WorkOut(r)
		if !d.Even || d.Lo*d.PerNode != d.Tasks {
			t.Skip("not the same on each node")
		}
		c, u := Count(r), On(r, int64(d.PerNode), 0, 1)
		if n := c.Nodes; c.CPUs != n*u.CPUs || c.GPUs != n*u.GPUs || c.MemMiB != n*u.MemMiB {
			t.Fatalf("in all %+v, on each node %+v", c, u)
		}
	})
}

// TestMost finds the last of the numbers that fit.
func TestMost(t *testing.T) {
	for hi := range 40 {
		for last := range hi + 1 {
			if got := Most(0, hi, func(tasks int) bool { return tasks <= last }); got != last {
				t.Fatalf("of %d tasks %d fit, not %d", hi, last, got)
			}
		}
	}
}
