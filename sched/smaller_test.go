package sched

import (
	"github.com/sluice-hpc/sluice/sched/explain"
	"github.com/sluice-hpc/sluice/sched/record"
	"slices"
	"strings"
	"testing"
)

// smallerOf returns the explanation of job id in the world's present state.
func smallerOf(t *testing.T, w *world, id uint32) *explain.Explanation {
	t.Helper()
	in := w.in
	x, ok := New(w.s.params).Explain(&in, id)
	if !ok {
		t.Fatalf("job %d is not explained", id)
	}
	return x
}

func wantSmaller(t *testing.T, w *world, id uint32, want ...string) {
	t.Helper()
	if got := smallerOf(t, w, id).Smaller; !slices.Equal(got, want) {
		t.Errorf("job %d would start\n%s\nwant\n%s", id, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A smaller request that would start now is found by trying it on the plan itself, with promises to others, and is the largest that starts.
func TestSmallerThatStarts(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.add(1, 3600, record.Request{Tasks: 3, MinNodes: 1, MaxNodes: 1, MemSaid: true, MemNodeMiB: 700})
	w.plan()
	w.add(2, 7200, record.Request{MinNodes: 2, MaxNodes: 2, CPUsPerTask: 4})
	w.plan() // promised both nodes in an hour
	w.add(3, 7200, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.add(4, 3000, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.plan() // 4 starts on n2
	w.add(5, 600, record.Request{Tasks: 2, MinNodes: 1, MaxNodes: 1, MemSaid: true, MemNodeMiB: 500})
	w.add(6, 600, record.Request{Tasks: 1, MinNodes: 1, MaxNodes: 1, MemSaid: true, MemNodeMiB: 500})
	w.add(7, 7200, record.Request{Tasks: 2, CPUsPerTask: 1, MinNodes: 1, MaxNodes: 1, MemSaid: true})
	w.plan()
	wantSmaller(t, w, 3, "with --time=00:59:00 --ntasks=1, beside this job") // neither alone: n1 is promised whole in an hour
	wantSmaller(t, w, 5, "with --ntasks=1 --mem=300M, beside this job")
	wantSmaller(t, w, 6, "with --mem=300M, beside this job")
	wantSmaller(t, w, 7, "with --time=00:59:00 --ntasks=1 --mem=300M, beside this job")
	w.in.Now += 3000
	w.end(4)
	wantSmaller(t, w, 3, "with --time=00:09:00 --ntasks=1, beside this job") // 5 and 6 start before it
	wantSmaller(t, w, 2, "with --time=00:09:00 --cpus-per-task=1, beside this job")
}

// Where nothing smaller starts beside a job, because its own promise is in the way, it may do so in its place.
func TestSmallerInPlaceOf(t *testing.T) {
	w := newWorld(t, record.Params{}, 3, 1)
	w.add(1, 3600, record.Request{MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.add(2, 7200, record.Request{MinNodes: 3, MaxNodes: 3, Tasks: 3})
	w.plan()
	wantSmaller(t, w, 2, "with --nodes=2 --ntasks=2, in place of this job") // beside it it would take less of two things
	w.in.Now += 3600 - 20                                                   // less than a minute is left
	wantSmaller(t, w, 2, "with --nodes=2 --ntasks=2, in place of this job")
}

func TestSmallerDevices(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 8)
	w.in.Nodes[0] = &record.Node{
		Name:   "n1",
		CPUs:   8,
		MemMiB: 1000,
		Gres:   []record.Gres{{Name: "gpu", Devices: []record.Device{{Index: 0}, {Index: 1}, {Index: 2}, {Index: 3}}}},
	}
	w.add(1, 3600, record.Request{Tasks: 1, MinNodes: 1, MaxNodes: 1, Gres: []record.GresRequest{{Name: "gpu", Count: 1,
		Per: record.PerNode}}})
	w.plan()
	w.add(2, 3600, record.Request{Tasks: 1, MinNodes: 1, MaxNodes: 1, Gres: []record.GresRequest{{Name: "gpu", Count: 4,
		Per: record.PerNode}}})
	w.plan()
	wantSmaller(t, w, 2, "with --gres=gpu:3, in place of this job")
	w.add(3, 600, record.Request{Tasks: 7, MinNodes: 1, MaxNodes: 1, Exclusive: true})
	w.plan()
	wantSmaller(t, w, 3, "without --exclusive, beside this job")
}

// A job that asks for more than its partition has or allows is told so, and not what its nodes are short of.
func TestExplainBeyondPartition(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit int64
		req   record.Request
		part  func(*record.Partition)
		want  string
	}{
		{"nodes", 60, record.Request{MinNodes: 4}, nil,
			"reason: PartitionConfig\nrequests 4 nodes, partition p has 3\nwould start now: with --nodes=3, in place of this job\n"},
		{"CPUs", 60, record.Request{Tasks: 7}, nil,
			"reason: PartitionConfig\nrequests 7 CPUs, partition p has 6\nwould start now: with --ntasks=6, in place of this job\n"},
		{"time", 7200, record.Request{Tasks: 1}, func(p *record.Partition) { p.MaxTimeS = 3600 },
			"reason: PartitionTimeLimit\nrequests 02:00:00, partition p allows 01:00:00\nwould start now: with --time=01:00:00, in place of this job\n"},
		{"most nodes", 60, record.Request{MinNodes: 3, MaxNodes: 3}, func(p *record.Partition) { p.MaxNodes = 2 },
			"reason: PartitionNodeLimit\nrequests 3 nodes, partition p allows 2\nwould start now: with --nodes=2, in place of this job\n"},
		{"fewest nodes", 60, record.Request{MinNodes: 1, MaxNodes: 1}, func(p *record.Partition) { p.MinNodes = 2 },
			"reason: PartitionNodeLimit\nrequests 1 node, partition p requires at least 2\n"},
		{"down", 60, record.Request{Tasks: 1}, func(p *record.Partition) { p.State = record.PartitionDown },
			"reason: PartitionDown\npartition p is down\n"},
	} {
		w := newWorld(t, record.Params{}, 3, 2)
		if c.part != nil {
			c.part(w.in.Partitions[0])
		}
		w.add(1, c.limit, c.req)
		w.plan()
		if got := smallerOf(t, w, 1).String(); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, got, c.want)
		}
	}
}
