package sched

import (
	"fmt"
	"testing"
)

// TestExplainReservation: what keeps a job away is named, now and before the reservation begins; what runs meanwhile is not in its way, and
// it is expected to start when the reservation is over.
func TestExplainReservation(t *testing.T) {
	w := newWorld(t, Params{}, 2, 8)
	w.add(1, 50, Request{Tasks: 2, MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.in.Now += 5
	w.in.Reservations = []*Reservation{
		{Name: "maint", Start: w.in.Now + 600, End: w.in.Now + 4200, Nodes: []string{"n1", "n2"}, Users: []string{"root"}, Maint: true},
	}
	w.add(2, 3600, Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	for _, want := range []string{
		"2 nodes: reserved (maint) before the job's time limit would end it\nexpected on n1\nwould start now: with --time=00:10:00\n",
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

// TestExplainLicenses: a job that waits for licenses alone waits for those who have them, and is told how many there are.
func TestExplainLicenses(t *testing.T) {
	w := newWorld(t, Params{}, 2, 8)
	w.in.Licenses = []License{{Name: "matlab", Count: 3}}
	w.add(1, 100, Request{Tasks: 8, MinNodes: 1, MaxNodes: 1})
	w.add(2, 300, Request{Tasks: 1, MinNodes: 1, MaxNodes: 1, Licenses: []License{{Name: "matlab", Count: 2}}})
	w.plan()
	w.add(3, 50, Request{Tasks: 4, MinNodes: 1, MaxNodes: 1, Licenses: []License{{Name: "matlab", Count: 2}}})
	w.plan()
	in := w.in
	x, _ := w.s.Explain(&in, 3)
	const want = `reason: Licenses
1 node: 4 CPUs not free (at most 0)
1 node: has room for the job now
licenses not free: 2 matlab (at most 1 of 3)
expected on n1
after the end of job 2
would start now: without --licenses
`
	if x.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", x, want)
	}
}

func TestExplain(t *testing.T) {
	w := newWorld(t, Params{}, 4, 4)
	w.in.Nodes[3] = &Node{Name: "n4", CPUs: 2, MemMiB: 1000}
	w.in.Nodes[2] = &Node{Name: "n3", CPUs: 4, MemMiB: 1000, State: NodeDrained}
	w.add(1, 100, Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.add(2, 300, Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.add(3, 100, Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.plan()
	in := w.in
	x, ok := w.s.Explain(&in, 3)
	want := `reason: Resources
2 nodes: 4 CPUs not free (at most 0)
1 node: drained
1 node: 4 CPUs not there (at most 2)
expected on n1
after the end of job 1
would start now: with --ntasks=2
`
	if !ok || x.Start != w.in.Now+100 || x.String() != want {
		t.Fatalf("at %d:\n%s\nwant:\n%s", x.Start, x, want)
	}
	if _, ok := w.s.Explain(&in, 77); ok {
		t.Fatal("a job that is not there is explained")
	}
}

// TestExplainNamesOnlyWhatMustEnd: a job that ends before, and leaves what is not needed, is not named.
func TestExplainNamesOnlyWhatMustEnd(t *testing.T) {
	for _, tt := range []struct {
		cpus int
		want string
	}{{6, "[2]"}, {7, "[1 2]"}, {1, "[1 2]"}} { // either of them will do for one CPU
		w := newWorld(t, Params{}, 1, 8)
		w.add(1, 50, Request{Tasks: 2, MinNodes: 1, MaxNodes: 1})
		w.add(2, 100, Request{Tasks: 6, MinNodes: 1, MaxNodes: 1})
		w.plan()
		w.in.Now += 5
		w.add(3, 10, Request{Tasks: tt.cpus, MinNodes: 1, MaxNodes: 1})
		if tt.cpus == 1 {
			w.in.Running[0].End = w.in.Running[1].End
		}
		w.plan()
		in := w.in
		if x, _ := w.s.Explain(&in, 3); fmt.Sprint(x.After) != tt.want {
			t.Errorf("%d CPUs: after the end of %v, not %s\n%s", tt.cpus, x.After, tt.want, x)
		}
	}
}
