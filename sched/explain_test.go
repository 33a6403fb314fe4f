package sched

import (
	"fmt"
	"github.com/sluice-hpc/sluice/sched/record"
	"strings"
	"testing"
)

// TestExplainReservation: a reservation that keeps a job away is named, both now and before it begins. Jobs that run meanwhile are not in
// the way, and the job is expected to start when the reservation is over.
func TestExplainReservation(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 8)
	w.add(1, 50, record.Request{Tasks: 2, MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.in.Now += 5
	w.in.Reservations = []*record.Reservation{
		{Name: "maint", Start: w.in.Now + 600, End: w.in.Now + 4200, Nodes: []string{"n1", "n2"}, Users: []string{"root"}, Maint: true},
	}
	w.add(2, 3600, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	for _, want := range []string{
		"2 nodes: reserved (maint) before the job's time limit would end it\nexpected on n1\n" +
			"reservation maint delays the start by 01:10:00\nwould start now: with --time=00:09:00, beside this job\n",
		"2 nodes: reserved (maint)\nexpected on n1\nreservation maint delays the start by 00:58:20\n",
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
	w := newWorld(t, record.Params{}, 2, 8)
	w.in.Licenses = []record.License{{Name: "matlab", Count: 3}}
	w.add(1, 100, record.Request{Tasks: 8, MinNodes: 1, MaxNodes: 1})
	w.add(2, 300, record.Request{Tasks: 1, MinNodes: 1, MaxNodes: 1, Licenses: []record.License{{Name: "matlab", Count: 2}}})
	w.plan()
	w.add(3, 50, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1, Licenses: []record.License{{Name: "matlab", Count: 2}}})
	w.plan()
	in := w.in
	x, _ := w.s.Explain(&in, 3)
	const want = `reason: Licenses
1 node: 4 CPUs not free (at most 0)
1 node: has room for the job now
licenses not free: 2 matlab (at most 1 of 3)
expected on n1
would start now if job 2 ended
would start now: without --licenses, beside this job
`
	if x.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", x, want)
	}
}

func TestExplain(t *testing.T) {
	w := newWorld(t, record.Params{}, 4, 4)
	w.in.Nodes[3] = &record.Node{Name: "n4", CPUs: 2, MemMiB: 1000}
	w.in.Nodes[2] = &record.Node{Name: "n3", CPUs: 4, MemMiB: 1000, State: record.NodeDrained, Reason: "fan broken"}
	w.add(1, 100, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.add(2, 300, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.add(3, 100, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.plan()
	in := w.in
	x, ok := w.s.Explain(&in, 3)
	want := `reason: Resources
2 nodes: 4 CPUs not free (at most 0)
1 node: drained (fan broken)
1 node: 4 CPUs not there (at most 2)
expected on n1
would start now if job 1 or 2 ended
would start now: with --ntasks=2, beside this job
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
	}{{6, "job 2 ended"}, {7, "jobs 1 and 2 ended"}, {1, "job 1 or 2 ended"}} {
		w := newWorld(t, record.Params{}, 1, 8)
		w.add(1, 50, record.Request{Tasks: 2, MinNodes: 1, MaxNodes: 1})
		w.add(2, 100, record.Request{Tasks: 6, MinNodes: 1, MaxNodes: 1})
		w.plan()
		w.in.Now += 5
		w.add(3, 10, record.Request{Tasks: tt.cpus, MinNodes: 1, MaxNodes: 1})
		if tt.cpus == 1 {
			w.in.Running[0].End = w.in.Running[1].End
		}
		w.plan()
		in := w.in
		if x, _ := w.s.Explain(&in, 3); !strings.Contains(x.String(), "\nwould start now if "+tt.want+"\n") {
			t.Errorf("%d CPUs: not if %s:\n%s", tt.cpus, tt.want, x)
		}
	}
}

// TestExplainCauses: the cause that keeps a job off a node is named in the terms of the request.
func TestExplainCauses(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 8)
	w.in.Nodes[0] = &record.Node{Name: "n1", CPUs: 8, MemMiB: 1000, Gres: []record.Gres{{Name: "gpu", Type: "a100",
		Devices: []record.Device{{Index: 0}}}}}
	w.in.Nodes[1] = &record.Node{Name: "n2", CPUs: 8, MemMiB: 1000, State: record.NodeMaint}
	w.in.Reservations = []*record.Reservation{{Name: "maint", Start: 900, End: 4600, Nodes: []string{"n2"}, Users: []string{"root"},
		Maint: true}}
	w.add(1, 1000, record.Request{Tasks: 1, MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.add(2, 1000, record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "gpu", Type: "h100", Count: 1}}})
	w.add(3, 2000, record.Request{Tasks: 1, MinNodes: 1, MaxNodes: 1, Exclusive: true, Exclude: []string{"n2"}})
	w.plan()
	for id, want := range map[uint32]string{
		2: "2 nodes: 1 gpu:h100 not there (at most 0)\n",
		3: "1 node: in use by other jobs, and the job needs it exclusively\n1 node: excluded by the job\n",
	} {
		in := w.in
		if x, _ := w.s.Explain(&in, id); !strings.Contains(x.String(), want) {
			t.Errorf("of job %d:\n%s\nwant:\n%s", id, x, want)
		}
	}
	w.add(4, 1000, record.Request{Tasks: 1, NodeList: []string{"n2"}})
	w.plan()
	in := w.in
	x, _ := w.s.Explain(&in, 4)
	const want = "1 node: not in the job's node list\n1 node: under maintenance (maint)\n"
	if !strings.Contains(x.String(), want) || !strings.Contains(x.String(), "\nreservation maint delays the start\n") {
		t.Errorf("of the job on a node under maintenance:\n%s", x)
	}
}

// TestExplainDelays: a reservation that moves the start is named, also where the job waits for something else first; one that does not is
// left out.
func TestExplainDelays(t *testing.T) {
	w := newWorld(t, record.Params{Weights: record.Weights{Basic: true}}, 1, 8)
	w.add(1, 1000, record.Request{Tasks: 8, MinNodes: 1, MaxNodes: 1})
	w.plan()
	at := w.in.Now
	window := func(name string, from, to int64) *record.Reservation {
		return &record.Reservation{Name: name, Start: at + from, End: at + to, Nodes: []string{"n1"}, Users: []string{"root"}}
	}
	w.in.Reservations = []*record.Reservation{window("night", 1500, 5100), window("later", 90_000, 99_000)}
	w.add(2, 600, record.Request{Tasks: 8, MinNodes: 1, MaxNodes: 1})
	w.plan()
	in := w.in
	x, _ := w.s.Explain(&in, 2)
	if len(x.Delays) != 1 || x.Delays[0].ByS != 5100-1000 || fmt.Sprint(x.Reserved) != "[night]" || x.Start != at+5100 {
		t.Errorf("start %d, delays %v, reserved %v\n%s", x.Start, x.Delays, x.Reserved, x)
	}
}

// TestExplainAhead: jobs ahead in the queue are named, and those of them that would have to go.
func TestExplainAhead(t *testing.T) {
	w := newWorld(t, record.Params{Weights: record.Weights{Basic: true}}, 1, 8)
	w.add(1, 1000, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.add(2, 1000, record.Request{Tasks: 8, MinNodes: 1, MaxNodes: 1})
	w.add(3, 5000, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1}) // would delay 2
	w.plan()
	in := w.in
	x, _ := w.s.Explain(&in, 3)
	for _, want := range []string{"ahead of it in the queue: job 2\n", "would start now if waiting job 2 was cancelled\n"} {
		if !strings.Contains(x.String(), want) {
			t.Errorf("not said: %s\n%s", want, x)
		}
	}
	if strings.Contains(x.String(), "job 1 ") {
		t.Errorf("job 1 is not in its way:\n%s", x)
	}
}
