package sched

import (
	"fmt"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/record"
	"testing"
)

func TestAdmissible(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	try := func(r record.Request) string {
		ok, why := admissible(&record.Job{Request: &r, Partitions: []string{"p"}}, w.in.Nodes, w.in.Partitions)
		return fmt.Sprint(ok, " ", why)
	}
	for _, c := range []struct {
		r    record.Request
		want string
	}{
		{record.Request{Tasks: 8}, "true "},
		{record.Request{Tasks: 9},
			"false 9 tasks were asked for; the 2 nodes of partition p that could hold a part of the job have room for 8"},
		{record.Request{Tasks: 1, CPUsPerTask: 5}, "false no node of partition p can give 5 CPUs; the largest has 4 CPUs, 1000 MiB"},
		{record.Request{Tasks: 1, TmpMiB: 5},
			"false no node of partition p can give 1 CPU, 5 MiB of temporary disk space; the largest has 4 CPUs, 1000 MiB, 0 MiB of " +
				"temporary disk space (TmpDisk in slurm.conf)"},
		{record.Request{Tasks: 1, Sockets: 2, ThreadsPerCore: 2},
			"false no node of partition p can give 1 CPU, 2 sockets, 2 threads per core; the largest has 4 CPUs, 1000 MiB, 1 sockets, " +
				"4 cores per socket, 1 threads per core"},
		{record.Request{MemSaid: true, MemNodeMiB: 2000},
			"false no node of partition p can give 1 CPU, 2000 MiB; the largest has 4 CPUs, 1000 MiB"},
		{record.Request{Gres: []record.GresRequest{{Name: "gpu", Count: 1}}},
			"false no node of partition p can give 1 CPU, 1 gpu; the largest has 4 CPUs, 1000 MiB"},
		{record.Request{Features: "[a"}, `false cannot read constraint "[a" at character 1: "[" has no matching "]"`},
		{record.Request{Tasks: -1}, "false cannot ask for -1 tasks"},
		{record.Request{MinNodes: 3, MaxNodes: 3}, "false 3 nodes were asked for; partition p has 2 that could hold a part of the job"},
	} {
		if got := try(c.r); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.r, got, c.want)
		}
	}
	// Of nodes that were named it is these that are described.
	w.in.Nodes[1] = &record.Node{Name: "n2", CPUs: 3, MemMiB: 500}
	// Shares are parts of one device: more than one has cannot be had, however many devices there are.
	w.in.Nodes[0] = &record.Node{
		Name:   "n1",
		CPUs:   4,
		MemMiB: 1000,
		Gres:   []record.Gres{{Name: "gpu", Count: 2, Devices: []record.Device{{Index: 0}, {Index: 1}}, Shared: "mps", Shares: 50}},
	}
	for count, want := range map[int64]string{50: "true ",
		60: "false no node of partition p can give 1 CPU, 60 mps; the largest has 4 CPUs, 1000 MiB, 2 gpu, 50 mps of one device"} {
		if got := try(record.Request{Gres: []record.GresRequest{{Name: "mps", Count: count}}}); got != want {
			t.Errorf("%d mps:\n got %s\nwant %s", count, got, want)
		}
	}
	for _, cpus := range []int{4, 9} { // n1 has four
		if got, want := try(record.Request{NodeList: []string{"n2"}, CPUsPerTask: cpus}),
			fmt.Sprintf("false no node of partition p can give %d CPUs on n2; the largest has 3 CPUs, 500 MiB", cpus); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// TestAdmissibleNamesTheCause: causes other than size are named: nodes elsewhere, nodes excluded, devices elsewhere.
func TestAdmissibleNamesTheCause(t *testing.T) {
	w := newWorld(t, record.Params{}, 5, 4)
	w.in.Nodes[3].Gres = []record.Gres{{Name: "gpu", Type: "a100", Count: 2, Devices: []record.Device{{Index: 0}, {Index: 1}},
		Shared: "shard",
		Shares: 8}}
	w.in.Nodes[2].CPUs = 16
	w.in.Partitions = []*record.Partition{{Name: "g", Nodes: []string{"n4", "n5"}}, {Name: "h", Nodes: []string{"n4"}},
		{Name: "p", Nodes: []string{"n1", "n2", "n3"}}}
	for _, c := range []struct {
		r    record.Request
		want string
	}{
		{record.Request{NodeList: []string{"n4"}}, "-w names n4, not in partition p; partitions g, h have them"},
		{record.Request{NodeList: []string{"n1", "n4", "n5"}}, "-w names n[4-5], not in partition p; partition g has them"},
		{record.Request{Exclude: []string{"n1", "n2", "n3", "n4"}}, "-x excludes every node of partition p"},
		{record.Request{Exclude: []string{"n3", "n4"}, CPUsPerTask: 8}, "the job needs n3 of partition p, which -x excludes"},
		{record.Request{Exclude: []string{"n2"}, MinNodes: 3}, "the job needs n2 of partition p, which -x excludes"},
		{record.Request{Exclude: []string{"n2"}, CPUsPerTask: 20},
			"no node of partition p can give 20 CPUs; the largest has 16 CPUs, 1000 MiB"},
		{record.Request{Gres: []record.GresRequest{{Name: "gpu", Count: 1}}}, "no node of partition p has gpu; partitions g, h have it"},
		{record.Request{Gres: []record.GresRequest{{Name: "gpu", Type: "a100", Count: 9}}},
			"no node of partition p has gpu:a100; partitions g, h have it"},
		{record.Request{Gres: []record.GresRequest{{Name: "shard", Count: 1}}},
			"no node of partition p has shard; partitions g, h have it"},
		{record.Request{Gres: []record.GresRequest{{Name: "gpu", Type: "h100", Count: 1}}},
			"no node of partition p can give 1 CPU, 1 gpu:h100; the largest has 16 CPUs, 1000 MiB"},
	} {
		if _, why := admissible(&record.Job{Request: &c.r, Partitions: []string{"p"}}, w.in.Nodes, w.in.Partitions); why != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.r, why, c.want)
		}
	}
}

// admissible reports whether the job could ever start on these nodes, regardless of what is free or up now, and otherwise why not.
func admissible(j *record.Job, nodes []*record.Node, parts []*record.Partition) (ok bool, why string) {
	idle := make([]*record.Node, len(nodes))
	for i, n := range nodes {
		idle[i] = n
		if n.State != record.NodeFuture && n.State != record.NodeUsable {
			c := *n
			c.State = record.NodeUsable
			idle[i] = &c
		}
	}
	n, why := placement.NewAdmitter(&record.Params{}, &record.Snapshot{Nodes: idle, Partitions: parts}).Admit(j)
	return n > 0, why
}
