package sched

import (
	"slices"
	"testing"
)

// TestAsleepNodes: of nodes with the same weight, those that are up are given first; a lower weight counts before that.
func TestAsleepNodes(t *testing.T) {
	w := newWorld(t, Params{}, 2, 4)
	w.in.Nodes[0] = &Node{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60}
	w.add(1, 50, Request{Tasks: 1})
	w.want("start 1 n2:1")
	w.add(2, 50, Request{Tasks: 4})
	w.want("start 2 n1:4")
	w.end(1)
	w.end(2)
	w.in.Nodes = slices.Clone(w.in.Nodes)
	w.in.Nodes[1] = &Node{Name: "n2", CPUs: 4, MemMiB: 1000, Weight: 5}
	w.add(3, 50, Request{Tasks: 1})
	w.want("start 3 n1:1")
}

// TestAsleepBeforeReservation: a job that has to wait for its node to be powered up ends as much later, and is not started where that is
// into somebody else's time.
func TestAsleepBeforeReservation(t *testing.T) {
	w := newWorld(t, Params{}, 1, 4)
	w.in.Nodes[0] = &Node{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60}
	w.in.Reservations = []*Reservation{{Name: "r", Start: 1100, End: 1200, Nodes: []string{"n1"}, Users: []string{"v"}}}
	w.add(1, 41, Request{Tasks: 1})
	w.add(2, 40, Request{Tasks: 1})
	w.want("start 2 n1:1; reserve 1 at 200 on n1; 1: Resources")
}

// TestPlannedOnNodesThatGoDown: a node that is being powered down can be had when that is over, and not before, also when it is late.
func TestPlannedOnNodesThatGoDown(t *testing.T) {
	w := newWorld(t, Params{}, 1, 4)
	w.in.Nodes[0] = &Node{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60, AwayUntil: 1030}
	w.add(1, 50, Request{Tasks: 4})
	w.want("reserve 1 at 30 on n1; 1: Resources")
	w.in.Now = 1040
	w.want("reserve 1 at 1 on n1")
	w.in.Nodes = []*Node{{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60, AwayUntil: 1070}} // once more
	w.want("reserve 1 at 30 on n1")
	w.in.Nodes = []*Node{{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60}}
	w.want("start 1 n1:4")
}
