package sched

import (
	"slices"
	"strings"
	"testing"
)

func TestCompareNames(t *testing.T) {
	names := strings.Fields("n10 n2 n1 n01 a9b2 a9b10 a10 n m")
	slices.SortFunc(names, compareNames)
	if got := strings.Join(names, " "); got != "a9b2 a9b10 a10 m n n01 n1 n2 n10" {
		t.Fatal(got)
	}
}

// TestHostileInput: what a controller should have refused does not break a plan.
func TestHostileInput(t *testing.T) {
	w := newWorld(t, Params{}, 2, 4)
	w.in.Reservations = []*Reservation{{Name: "a", Start: 5, End: 3, Nodes: []string{"nowhere"}}, {Name: "b", Start: 900, End: 1100, Nodes: []string{"n1"}}, {Name: "c", Start: 950, End: 1050, Nodes: []string{"n1"}}}
	w.add(1, 50, Request{Tasks: 1, Features: "[a&(b"})
	j := w.add(2, 50, Request{Tasks: 1})
	j.Array = &Array{Tasks: []TaskRange{{First: 9, Last: 3}, {First: 0, Last: 1<<32 - 1}}}
	w.add(3, 50, Request{Tasks: 1}).Partitions = []string{"unknown"}
	w.add(4, -5, Request{Tasks: 1, NodeList: []string{"nowhere"}})
	w.add(5, 50, Request{Tasks: 1, Licenses: []License{{"none", 1}}})
	w.want("start 2_0 n2:1; start 2_1 n2:1; start 2_2 n2:1; start 2_3 n2:1; reserve 2 at 50 on n2; 1: BadConstraints; 2: Resources; 3: PartitionDown; 4: BadConstraints; 5: Licenses")
}
