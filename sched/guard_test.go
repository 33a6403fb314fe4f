package sched

import (
	"github.com/sluice-hpc/sluice/sched/record"
	"slices"
	"testing"
)

func TestHeadGuard(t *testing.T) {
	w := newWorld(t, record.Params{Order: record.Merit, HeadGuardS: 100}, 1, 4)
	w.in.Partitions = append(w.in.Partitions, &record.Partition{Name: "high", Nodes: []string{"n1"}, PriorityTier: 1})
	w.add(1, 1000, record.Request{Tasks: 3})
	w.want("start 1 n1:3")
	w.add(2, 1000, record.Request{Tasks: 2})
	w.want("2: Resources") // no promise yet
	w.in.Now += 100
	w.want("reserve 2 at 900 on n1")
	w.in.Now++
	w.add(3, 500, record.Request{Tasks: 4}).Partitions = []string{"high"}
	w.want("reserve 3 at 899 on n1; reserve 2 at 1399 on n1; 3: Resources")
}

// TestPromiseSurvivesNewcomers: a job that was promised a start while few jobs waited keeps it when many do.
func TestPromiseSurvivesNewcomers(t *testing.T) {
	w := newWorld(t, record.Params{Order: record.Merit, HeadGuardS: 1000, ShortQueue: 2}, 1, 4)
	w.add(1, 100, record.Request{Tasks: 3})
	w.want("start 1 n1:3")
	w.add(2, 1000, record.Request{Tasks: 4})
	w.want("reserve 2 at 100 on n1; 2: Resources")
	w.in.Now += 10
	for id := uint32(3); id <= 6; id++ {
		w.add(id, 1000, record.Request{Tasks: 1})
	}
	w.want("reserve 2 at 90 on n1; 3: Priority; 4: Priority; 5: Priority; 6: Priority")
}

// TestShortQueueCountsWhatCouldStart: jobs that are held, and those of other partitions, do not make a queue long; tasks of an array do.
func TestShortQueueCountsWhatCouldStart(t *testing.T) {
	for _, c := range []struct {
		name string
		more func(w *world, id uint32) *record.Job
		want bool // a promise
	}{
		{"held", func(w *world, id uint32) *record.Job {
			j := w.add(id, 100, record.Request{Tasks: 4})
			j.Hold = record.HeldUser
			return j
		}, true},
		{"of another partition", func(w *world, id uint32) *record.Job {
			j := w.add(id, 100, record.Request{Tasks: 4})
			j.Partitions = []string{"q"}
			return j
		}, true},
		{"that fit nowhere", func(w *world, id uint32) *record.Job {
			return w.add(id, 100, record.Request{Tasks: 4, NodeList: []string{"down"}})
		}, true},
		{"like it", func(w *world, id uint32) *record.Job { return w.add(id, 100, record.Request{Tasks: 4}) }, false},
		{"of an array", func(w *world, id uint32) *record.Job {
			j := w.add(id, 100, record.Request{Tasks: 4})
			if j.Array = (&record.Array{Tasks: []record.TaskRange{{First: 1, Last: 2}}}); id > 3 {
				j.Hold = record.HeldUser
			}
			return j
		}, false},
	} {
		w := newWorld(t, record.Params{Order: record.Merit, HeadGuardS: 1000, ShortQueue: 2, Weights: record.Weights{Basic: true}}, 1, 4)
		w.in.Nodes = append(w.in.Nodes, &record.Node{Name: "m1", CPUs: 4}, &record.Node{Name: "down", CPUs: 4, State: record.NodeDown})
		w.in.Partitions[0].Nodes = append(w.in.Partitions[0].Nodes, "down")
		w.in.Partitions = append(w.in.Partitions, &record.Partition{Name: "q", Nodes: []string{"m1"}})
		w.add(1, 100, record.Request{Tasks: 4})
		w.plan()
		w.add(2, 100, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
		for id := uint32(3); id <= 6; id++ {
			c.more(w, id)
		}
		in := w.in
		p := w.s.Plan(&in)
		promised := slices.ContainsFunc(p.Reserve, func(r record.Reserve) bool { return r.ID == 2 })
		if promised != c.want {
			t.Errorf("with four jobs %s behind it: promised a start: %v, want %v: %s", c.name, promised, c.want, showPlan(p))
		}
	}
}

// TestMaxWaitOfOtherPartitions: how long jobs of another partition are does not matter to when a start is kept free.
func TestMaxWaitOfOtherPartitions(t *testing.T) {
	w := newWorld(t, record.Params{Order: record.ShortestFirst, HeadGuardS: 10_000, MaxWaitS: 600, Weights: record.Weights{Basic: true}}, 1,
		4)
	w.in.Nodes = append(w.in.Nodes, &record.Node{Name: "m1", CPUs: 4})
	w.in.Partitions = append(w.in.Partitions, &record.Partition{Name: "q", Nodes: []string{"m1"}})
	w.add(1, 2000, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.add(2, 100, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	for id := uint32(3); id <= 4; id++ {
		w.add(id, 10_000, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1}).Partitions = []string{"q"}
	}
	w.want("start 1 n1:4; start 3 m1:4; 2: Resources; 4: Resources")
	w.in.Now += 400
	w.want("reserve 4 at 9600 on m1")
	w.in.Now += 101 // what runs for 100 s from now on is there until 600
	w.want("reserve 2 at 1499 on n1; reserve 4 at 9499 on m1")
}

// TestOrderAcrossPartitions: a job that another partition has started leaves those behind it in their place.
func TestOrderAcrossPartitions(t *testing.T) {
	w := newWorld(t, record.Params{Weights: record.Weights{Basic: true}}, 1, 2)
	w.in.Partitions = append(w.in.Partitions, &record.Partition{Name: "q", Nodes: []string{"n1"}})
	w.add(1, 100, record.Request{Tasks: 1}).Partitions = []string{"p", "q"}
	w.add(3, 100, record.Request{Tasks: 1})
	w.add(5, 100, record.Request{Tasks: 1}).Partitions = []string{"q"}
	w.want("start 1 n1:1; start 3 n1:1; reserve 5 at 100 on n1; 5: Resources")
}

// TestMaxWait: a start is kept free for a job once what starts now could still run when it has waited long enough, and not before.
func TestMaxWait(t *testing.T) {
	p := record.Params{Order: record.ShortestFirst, HeadGuardS: 10_000, MaxWaitS: 600, Weights: record.Weights{Basic: true}}
	w := newWorld(t, p, 2, 1)
	w.add(1, 50, record.Request{MinNodes: 1, MaxNodes: 1})
	w.add(2, 300, record.Request{MinNodes: 1, MaxNodes: 1})
	w.add(3, 100, record.Request{MinNodes: 2, MaxNodes: 2})
	w.want("start 1 n1:1; start 2 n2:1; 3: Resources")
	w.in.Now = 1050
	w.end(1)
	w.add(4, 400, record.Request{MinNodes: 1, MaxNodes: 1}) // by 1450 it has gone; 3 may wait until 1600
	w.want("start 4 n1:1")
	w.in.Now = 1300
	w.end(2)
	w.add(5, 500, record.Request{MinNodes: 1, MaxNodes: 1}) // until 1800
	w.want("reserve 3 at 300 on n1,n2; 5: Priority")
	w.in.Now = 1310
	w.add(6, 290, record.Request{MinNodes: 1, MaxNodes: 1}) // until 1600
	w.want("start 6 n2:1; reserve 3 at 290 on n1,n2")
}

// TestMaxWaitOverfull: the more have waited too long, the fewer of them are promised a start, down to two, by no more than one at once.
func TestMaxWaitOverfull(t *testing.T) {
	for waiting, want := range map[int]int{15: 15, 32: 16, 33: 15, 40: 8, 46: 2, 600: 2} {
		w := newWorld(t, record.Params{Order: record.ShortestFirst, HeadGuardS: 10_000, MaxWaitS: 600,
			Weights: record.Weights{Basic: true}}, 1, 4)
		w.add(1, 2000, record.Request{Tasks: 1})
		w.plan()
		for i := range waiting {
			w.add(uint32(i+2), 300, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
		}
		w.in.Now += 700
		in := w.in
		if p := w.s.Plan(&in); len(p.Reserve) != want {
			t.Errorf("of %d that have waited too long %d are promised a start, want %d: %s", waiting, len(p.Reserve), want, showPlan(p))
		}
	}
}
