package sched

import "testing"

func TestOverSubscribeForce(t *testing.T) {
	w := newWorld(t, Params{}, 1, 4)
	w.in.Partitions[0].Share, w.in.Partitions[0].MaxShare = ShareForce, 2
	w.add(1, 100, Request{Tasks: 3})
	w.add(2, 100, Request{Tasks: 4, Exclusive: true}) // FORCE leaves no way out
	w.add(3, 50, Request{Tasks: 1})
	w.add(4, 50, Request{Tasks: 1})
	w.want("start 1 n1:3; start 2 n1:4; start 3 n1:1; reserve 4 at 50 on n1; 4: Resources")
	if k := w.in.Running[0].Allocs[0].Cores.List(); len(k) != 3 {
		t.Fatalf("cores %v", k)
	}
	w.in.Now += 50
	w.end(3)
	w.want("start 4 n1:1")
}

func TestOverSubscribeYes(t *testing.T) {
	w := newWorld(t, Params{}, 1, 4)
	w.in.Partitions[0].Share, w.in.Partitions[0].MaxShare = ShareYes, 2
	w.add(1, 100, Request{Tasks: 2, Oversubscribe: true})
	w.add(2, 100, Request{Tasks: 2, Oversubscribe: true}) // onto the same cores
	w.add(3, 100, Request{Tasks: 2})
	w.add(4, 100, Request{Tasks: 1})
	w.want("start 1 n1:2; start 2 n1:2; start 3 n1:2; reserve 4 at 100 on n1; 4: Resources")
	w.in.Now += 10
	w.end(2)
	w.add(5, 20, Request{Tasks: 1, Oversubscribe: true})
	w.want("start 5 n1:1; reserve 4 at 90 on n1")
}

func TestExclusivePartition(t *testing.T) {
	w := newWorld(t, Params{}, 2, 4)
	w.in.Partitions[0].Share = ShareExclusive
	w.add(1, 100, Request{Tasks: 1})
	w.add(2, 100, Request{Tasks: 1})
	w.add(3, 100, Request{Tasks: 1})
	w.want("start 1 n1:4; start 2 n2:4; reserve 3 at 100 on n1; 3: Resources")
}

// TestWholeNodes: select/linear.
func TestWholeNodes(t *testing.T) {
	w := newWorld(t, Params{WholeNodes: true}, 2, 4)
	w.add(1, 100, Request{Tasks: 1})
	w.want("start 1 n1:4")
}

// TestResumedJobs: a suspended job leaves its cores to another, and getting
// them back does not make them free when one of the two ends.
func TestResumedJobs(t *testing.T) {
	w := newWorld(t, Params{}, 1, 2)
	w.add(1, 1000, Request{Tasks: 2})
	w.want("start 1 n1:2")
	r := *w.in.Running[0]
	r.Suspended = true
	w.in.Running[0] = &r
	w.add(2, 100, Request{Tasks: 2})
	w.want("start 2 n1:2")
	w.in.Now += 10
	w.end(2)
	w.want("")
}
