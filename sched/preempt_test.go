package sched

import (
	"github.com/sluice-hpc/sluice/sched/record"
	"testing"
)

// lowWorld has a partition p of tier 1, whose jobs give way to those of high.
func lowWorld(t *testing.T, nodes, cpus int) *world {
	w := newWorld(t, record.Params{Preempt: record.PreemptPartition, PreemptMode: record.PreemptRequeue}, nodes, cpus)
	high := *w.in.Partitions[0]
	high.Name, high.PriorityTier = "high", 5
	w.in.Partitions = append(w.in.Partitions, &high)
	return w
}

func (w *world) urgent(id uint32, r record.Request) {
	w.add(id, 100, r).Partitions = []string{"high"}
}

// TestOneWideVictim: one job on two nodes rather than two on one each, though
// it has run for longer.
func TestOneWideVictim(t *testing.T) {
	w := lowWorld(t, 4, 1)
	w.add(1, 1000, record.Request{MinNodes: 2, MaxNodes: 2})
	w.want("start 1 n1:1 n2:1")
	w.in.Now += 100
	w.add(2, 1000, record.Request{Tasks: 1})
	w.add(3, 1000, record.Request{Tasks: 1})
	w.want("start 2 n3:1; start 3 n4:1")
	w.in.Now += 100
	w.urgent(4, record.Request{MinNodes: 2, MaxNodes: 2})
	w.want("preempt 1 for 4; reserve 4 at 1 on n1,n2; 4: Resources")
}

// TestFewestOnANode: one large job rather than two small ones; the younger of
// two equal ones.
func TestFewestOnANode(t *testing.T) {
	w := lowWorld(t, 1, 8)
	w.add(1, 1000, record.Request{Tasks: 4})
	w.want("start 1 n1:4")
	w.in.Now += 50
	w.add(2, 1000, record.Request{Tasks: 2})
	w.add(3, 1000, record.Request{Tasks: 2})
	w.want("start 2 n1:2; start 3 n1:2")
	w.in.Now += 50
	w.urgent(4, record.Request{Tasks: 3})
	w.want("preempt 1 for 4; reserve 4 at 1 on n1; 4: Resources")
}

// TestNoneInVain: two nodes are needed and one can be had.
func TestNoneInVain(t *testing.T) {
	w := lowWorld(t, 2, 2)
	w.add(1, 1000, record.Request{Tasks: 2})
	w.want("start 1 n1:2")
	w.urgent(2, record.Request{Tasks: 2})
	w.want("start 2 n2:2")
	w.urgent(3, record.Request{MinNodes: 2, MaxNodes: 2, TasksPerNode: 2})
	w.want("reserve 3 at 1000 on n1,n2; 3: Resources")
}

// TestPreemptCounts: a feature has to be on one of the two nodes.
func TestPreemptCounts(t *testing.T) {
	w := lowWorld(t, 3, 1)
	w.in.Nodes[0].Features = []string{"ib"}
	for id := range uint32(3) {
		w.add(id+1, 1000, record.Request{Tasks: 1})
	}
	w.want("start 1 n1:1; start 2 n2:1; start 3 n3:1")
	w.in.Now += 10
	w.urgent(4, record.Request{MinNodes: 2, MaxNodes: 2, Features: "ib*1"})
	w.want("preempt 1 for 4; preempt 2 for 4; reserve 4 at 1 on n1,n2; 4: Resources")
}

// TestPreemptSpread: eight tasks over whatever nodes.
func TestPreemptSpread(t *testing.T) {
	w := lowWorld(t, 3, 4)
	for id := range uint32(3) {
		w.add(id+1, 1000, record.Request{Tasks: 4})
	}
	w.want("start 1 n1:4; start 2 n2:4; start 3 n3:4")
	w.in.Now += 10
	w.urgent(4, record.Request{Tasks: 8})
	w.want("preempt 1 for 4; preempt 2 for 4; reserve 4 at 1 on n1,n2; 4: Resources")
}
