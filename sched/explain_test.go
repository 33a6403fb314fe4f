package sched

import (
	"fmt"
	"testing"
)

// TestExplainReservation: what keeps a job away is named, now and before the reservation begins; what runs meanwhile is not in its way, and it is expected
// to start when the reservation is over.
func TestExplainReservation(t *testing.T) {
	w := newWorld(t, Params{}, 2, 8)
	w.add(1, 50, Request{Tasks: 2, MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.in.Now += 5
	w.in.Reservations = []*Reservation{{Name: "maint", Start: w.in.Now + 600, End: w.in.Now + 4200, Nodes: []string{"n1", "n2"}, Users: []string{"root"}, Maint: true}}
	w.add(2, 3600, Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	for _, want := range []string{
		"2 nodes: reserved (maint) before the job has ended by its time limit\nexpected on n1\nwould start now: with --time=00:10:00\n",
		"2 nodes: reserved (maint)\nexpected on n1\n",
	} {
		w.plan()
		in := w.in
		x, _ := w.s.Explain(&in, 2)
		if want = "reason: ReqNodeNotAvail, Reserved for maintenance\n" + want; x.String() != want || fmt.Sprint(x.Reserved) != "[maint]" {
			t.Errorf("reserved by %v:\n%s\nwant:\n%s", x.Reserved, x, want)
		}
		if f := w.s.Forecast(&in, 10); len(f) != 1 || f[0].At != in.Reservations[0].End {
			t.Errorf("expected %+v, the reservation ends at %d", f, in.Reservations[0].End)
		}
		w.end(1)
		w.in.Now += 700
	}
}
