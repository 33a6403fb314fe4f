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

// qosWorld has one node of 4 CPUs, and jobs of the QOS high, before which those of low give way, and those of last at once.
func qosWorld(t *testing.T, p record.Params) *world {
	p.Preempt = record.PreemptQOS
	w := newWorld(t, p, 1, 4)
	w.in.QOS = []*record.QOS{{Name: "high", Preempts: []string{"low", "last"}}, {Name: "low", GraceTimeS: 20}, {Name: "last", ExemptS: -1},
		{Name: "kept", PreemptMode: record.PreemptOff}}
	return w
}

// TestPreemptByQOS: jobs give way only to jobs whose QOS may preempt theirs, regardless of priority, with the grace time of their own QOS.
func TestPreemptByQOS(t *testing.T) {
	w := qosWorld(t, record.Params{PreemptMode: record.PreemptRequeue})
	w.add(1, 1000, record.Request{Tasks: 2}).QOS = "low"
	w.want("start 1 n1:2")
	w.add(2, 1000, record.Request{Tasks: 2}).QOS = "kept"
	w.want("start 2 n1:2")
	same := w.add(3, 1000, record.Request{Tasks: 2})
	same.QOS, same.Priority = "low", 1e9
	w.want("reserve 3 at 1000 on n1; 3: Resources")
	w.in.Pending = nil
	w.add(4, 1000, record.Request{Tasks: 2}).QOS = "high"
	w.want("preempt 1 for 4; reserve 4 at 20 on n1; 4: Resources")
	w.in.QOS[0].Preempts = []string{"kept"} // which are never preempted
	w.add(5, 1000, record.Request{Tasks: 2}).QOS = "high"
	w.want("reserve 4 at 1000 on n1; 5: Priority")
}

// TestPreemptExemptTime: a job runs for the time of its QOS before it can be preempted, or for the cluster's. The plan is made again when
// that has passed.
func TestPreemptExemptTime(t *testing.T) {
	w := qosWorld(t, record.Params{PreemptMode: record.PreemptRequeue, ExemptS: 100})
	w.add(1, 1000, record.Request{Tasks: 2}).QOS = "low"
	w.want("start 1 n1:2")
	w.in.Now += 30
	w.add(2, 1000, record.Request{Tasks: 2}).QOS = "last"
	w.want("start 2 n1:2")
	w.add(3, 500, record.Request{Tasks: 2}).QOS = "high"
	w.want("preempt 2 for 3; reserve 3 at 1 on n1; 3: Resources") // it has no such time
	w.end(2)
	w.want("start 3 n1:2")
	w.add(4, 500, record.Request{Tasks: 2}).QOS = "high"
	w.want("reserve 4 at 500 on n1; 4: Resources")
	if in := w.in; New(w.s.params).Plan(&in).Wake != in.Now+70 {
		t.Error("the next plan is not made in 70 s")
	}
	w.in.Now += 70
	w.want("preempt 1 for 4; reserve 4 at 20 on n1")
}

// TestPreemptModeOffOfAPartition: its jobs stay, though those of the cluster's other partitions give way.
func TestPreemptModeOffOfAPartition(t *testing.T) {
	w := lowWorld(t, 1, 2)
	w.in.Partitions[0].PreemptMode = record.PreemptOff
	w.add(1, 1000, record.Request{Tasks: 2})
	w.want("start 1 n1:2")
	w.urgent(2, record.Request{Tasks: 2})
	w.want("reserve 2 at 1000 on n1; 2: Resources")
}
