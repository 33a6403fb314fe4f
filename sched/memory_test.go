package sched

import (
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/record"
	"testing"
)

// TestMaxMemPerNode: the jobs that wait in a partition with MaxMemPerNode=1000 and nodes with 4 CPUs and 4000 MiB are those of a real Slurm
// 22.05.
func TestMaxMemPerNode(t *testing.T) {
	for _, c := range []struct {
		options string
		req     record.Request
		waits   bool
	}{
		{"--mem=1000", record.Request{Tasks: 1, MemSaid: true, MemNodeMiB: 1000}, false},
		{"--mem=1001", record.Request{Tasks: 1, MemSaid: true, MemNodeMiB: 1001}, true},
		{"--mem=0", record.Request{Tasks: 1, MemSaid: true}, true},
		{"--mem-per-cpu=600 -c2", record.Request{Tasks: 1, CPUsPerTask: 2, MemCPUMiB: 600}, true},
		{"--mem-per-cpu=1001", record.Request{Tasks: 1, MemCPUMiB: 1001}, true},
		{"--mem-per-cpu=600 -n2", record.Request{Tasks: 2, MemCPUMiB: 600}, false},
		{"--mem-per-cpu=300 -n4", record.Request{Tasks: 4, MemCPUMiB: 300}, false},
		{"--mem-per-cpu=300 -n4 -N1", record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1, MemCPUMiB: 300}, true},
		{"--mem-per-cpu=300 -n8 -N2", record.Request{Tasks: 8, MinNodes: 2, MaxNodes: 2, MemCPUMiB: 300}, true},
		{"--mem-per-cpu=300 --ntasks-per-node=4", record.Request{TasksPerNode: 4, MemCPUMiB: 300}, true},
		{"--mem-per-cpu=300 --mincpus=4", record.Request{Tasks: 1, MinCPUs: 4, MemCPUMiB: 300}, true},
		{"--mem-per-cpu=300 --exclusive", record.Request{Tasks: 1, Exclusive: true, MemCPUMiB: 300}, true},
	} {
		w := newWorld(t, record.Params{}, 2, 4)
		for _, n := range w.in.Nodes {
			n.MemMiB = 4000
		}
		w.in.Partitions[0].MaxMemNodeMiB = 1000
		w.add(1, 60, c.req)
		if got := w.plan(); (got == "1: MaxMemPerLimit") != c.waits {
			t.Errorf("%s: %s", c.options, got)
		}
		a := placement.NewAdmitter(&record.Params{}, &w.in)
		if why := a.Memory(&record.Job{Request: &c.req, Partitions: []string{"p"}}, "p"); (why != "") != c.waits {
			t.Errorf("%s at submission: %q", c.options, why)
		}
	}
}
