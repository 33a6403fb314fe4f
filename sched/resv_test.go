package sched

import (
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
)

// checkReserved: nothing that starts has what a reservation of others has while
// that lasts, and a job in a reservation has nothing else. Judged by counting.
func checkReserved(t testingT, in *record.Snapshot, p *record.Plan) {
	t.Helper()
	for i := range p.Start {
		st := &p.Start[i]
		end := record.Add(in.Now, st.LimitS)
		for _, r := range in.Reservations {
			if r.Flex || len(r.Nodes) == 0 {
				continue
			}
			for k := range st.Allocs {
				a := &st.Allocs[k]
				if st.Reservation == r.Name {
					if in.Now < r.Start || end > r.End || !slices.Contains(r.Nodes, a.Node) || !has(r, a, true) {
						t.Fatalf(
							"job %d starts on %s (cores %v) for %d s, outside of its reservation %+v",
							st.Job.ID,
							a.Node,
							a.Cores.List(),
							st.LimitS,
							r,
						)
					}
					continue
				}
				last := record.Add(end, lastWake(in, st))
				for _, w := range append([]record.Span{{Start: r.Start, End: r.End}}, r.Again...) {
					if w.Start < last && in.Now < w.End && slices.Contains(r.Nodes, a.Node) && has(r, a, false) {
						t.Fatalf(
							"job %d starts on %s (cores %v) for %d s, which reservation %+v has",
							st.Job.ID,
							a.Node,
							a.Cores.List(),
							st.LimitS,
							r,
						)
					}
				}
			}
		}
	}
}

// has: all of an allocation is the reservation's, or any of it.
func has(r *record.Reservation, a *record.Alloc, all bool) bool {
	if len(r.Parts) == 0 {
		return true
	}
	for i := range r.Parts {
		part := &r.Parts[i]
		if part.Node != a.Node {
			continue
		}
		in := a.Cores.And(part.Cores).Count()
		if all {
			return in == a.Cores.Count() && a.Cores.Count() == a.CPUs
		}
		for _, g := range a.Gres {
			for _, have := range part.Gres {
				if slices.ContainsFunc(g.Devices, func(d int) bool { return slices.Contains(have.Devices, d) }) {
					return true
				}
			}
		}
		return in > 0
	}
	return all
}

func TestReservationOfCores(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 8)
	w.in.Reservations = []*record.Reservation{
		{
			Name:  "r",
			Start: 1000,
			End:   1200,
			Nodes: []string{"n1"},
			Users: []string{"v"},
			Parts: []record.Alloc{{Node: "n1", CPUs: 3, Cores: record.BitsOf(0, 1, 2)}},
		},
	}
	w.add(1, 50, record.Request{Tasks: 4})
	w.add(2, 50, record.Request{Tasks: 2}) // one core is left to it until 1200
	w.add(3, 50, record.Request{Tasks: 2, Reservation: "r"}).User = "v"
	w.add(4, 50, record.Request{Tasks: 2, Reservation: "r"}).User = "v"
	w.add(5, 500, record.Request{Tasks: 1, Reservation: "r"}).User = "v" // longer than the reservation
	w.add(6, 500, record.Request{Tasks: 1})
	in := w.in
	p := w.s.Plan(&in)
	checkReserved(t, &in, p)
	for _, s := range p.Start {
		if s.Job.ID == 5 && s.LimitS != 200 {
			t.Errorf("a job that is longer than its reservation may run for %d s, want 200: to the end of it", s.LimitS)
		}
	}
	w.want("start 1 n1:4; start 3 n1:2; start 5 n1:1; start 6 n1:1; reserve 2 at 50 on n1; 2: Resources; 4: Priority")
	w.in.Now = 1200 // over: its jobs have to end, and the rest is everybody's
	w.end(3)
	w.end(5)
	w.want("start 2 n1:2; 4: Reservation")
}

// TestBeforeReservationOfCores: until the reservation begins, its cores are free only for jobs that end by then.
func TestBeforeReservationOfCores(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 4)
	w.in.Reservations = []*record.Reservation{
		{
			Name:  "r",
			Start: 1100,
			End:   1200,
			Nodes: []string{"n1"},
			Users: []string{"v"},
			Parts: []record.Alloc{{Node: "n1", CPUs: 2, Cores: record.BitsOf(0, 1)}},
		},
	}
	w.add(1, 500, record.Request{Tasks: 1})
	w.add(2, 100, record.Request{Tasks: 2})
	w.add(3, 101, record.Request{Tasks: 2})
	in := w.in
	p := w.s.Plan(&in)
	checkReserved(t, &in, p)
	for _, st := range p.Start {
		if st.Job.ID == 1 && st.Allocs[0].Cores.And(record.BitsOf(0, 1)).Count() > 0 {
			t.Errorf("job 1 would hold reserved cores: %v", st.Allocs[0].Cores.List())
		}
	}
	w.want("start 1 n1:1; start 2 n1:2; reserve 3 at 200 on n1; 3: Resources")
}

// TestReservedDevices: only the reservation's jobs get reserved devices.
func TestReservedDevices(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 8)
	w.in.Nodes[0].Gres = []record.Gres{{Name: "gpu", Devices: []record.Device{{Index: 0}, {Index: 1}, {Index: 2}}}}
	w.in.Reservations = []*record.Reservation{{Name: "r", Start: 1000, End: 1200, Nodes: []string{"n1"}, Users: []string{"v"},
		Parts: []record.Alloc{{Node: "n1", CPUs: 2, Cores: record.BitsOf(0, 1),
			Gres: []record.GresAlloc{{Name: "gpu", Devices: []int{0, 1}}}}}}}
	gpus := func(n int64) []record.GresRequest { return []record.GresRequest{{Name: "gpu", Count: n}} }
	w.add(1, 50, record.Request{Tasks: 1, Gres: gpus(1)})
	w.add(2, 50, record.Request{Tasks: 1, Gres: gpus(1)})
	w.add(3, 50, record.Request{Tasks: 1, Gres: gpus(2), Reservation: "r"}).User = "v"
	in := w.in
	p := w.s.Plan(&in)
	checkReserved(t, &in, p)
	for _, st := range p.Start {
		want := map[uint32][]int{1: {2}, 3: {0, 1}}[st.Job.ID]
		if got := st.Allocs[0].Gres[0].Devices; !slices.Equal(got, want) {
			t.Errorf("job %d has devices %v, want %v", st.Job.ID, got, want)
		}
	}
	w.want("start 1 n1:1/gpu[2]; start 3 n1:1/gpu[0 1]; reserve 2 at 50 on n1; 2: Resources")
}

// TestRecurring: a job does not start into the repetition after the next, at the moment when one is over least of all.
func TestRecurring(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 4)
	w.in.Reservations = []*record.Reservation{
		{
			Name:  "r",
			Start: 900,
			End:   1000,
			Again: []record.Span{{Start: 1100, End: 1200}, {Start: 1300, End: 1400}},
			Nodes: []string{"n1"},
			Users: []string{"v"},
		},
	}
	w.add(1, 150, record.Request{Tasks: 1})
	w.add(2, 100, record.Request{Tasks: 1})
	w.want("start 2 n1:1; reserve 1 at 400 on n1; 1: ReqNodeNotAvail, May be reserved for other job")
}

func TestMagnetic(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.in.Reservations = []*record.Reservation{{Name: "r", Start: 900, End: 1500, Nodes: []string{"n2"}, Users: []string{"v"},
		Magnetic: true}}
	w.add(1, 100, record.Request{Tasks: 4}).User = "v"
	w.add(2, 100, record.Request{Tasks: 4}).User = "v"
	w.add(3, 100, record.Request{Tasks: 4}).User = "v"
	w.add(4, 100, record.Request{Tasks: 4})
	w.want("start 1 n2:4; start 2 n1:4; reserve 3 at 100 on n1; 3: Resources; 4: Priority")
}

// TestWhoMayUseIt: users or groups, and accounts (scontrol(1)).
func TestWhoMayUseIt(t *testing.T) {
	for _, c := range []struct {
		r    record.Reservation
		want bool
	}{
		{record.Reservation{Users: []string{"v"}}, true},
		{record.Reservation{Users: []string{"u"}}, false},
		{record.Reservation{Users: []string{"v"}, Accounts: []string{"other"}}, false},
		{record.Reservation{Users: []string{"v"}, Accounts: []string{"acct"}}, true},
		{record.Reservation{NotUsers: []string{"v"}}, false},
		{record.Reservation{NotUsers: []string{"u"}}, true},
		{record.Reservation{Groups: []uint32{7}}, true},
		{record.Reservation{Groups: []uint32{8}}, false},
		{record.Reservation{NotAccounts: []string{"acct"}}, false},
	} {
		if got := c.r.Admits(&record.Job{User: "v", Account: "acct", Groups: []uint32{6, 7}}); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}

// TestReservedReasons: only jobs that a reservation keeps away have it as their reason.
func TestReservedReasons(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.in.Reservations = []*record.Reservation{
		{Name: "m", Start: 1100, End: 1200, Nodes: []string{"n1", "n2"}, Users: []string{"root"}, Maint: true},
	}
	w.add(1, 100, record.Request{Tasks: 4})
	w.add(2, 101, record.Request{Tasks: 1})
	w.want("start 1 n1:4; reserve 2 at 200 on n1; 2: ReqNodeNotAvail, Reserved for maintenance")

	w = newWorld(t, record.Params{}, 2, 4)
	w.in.Reservations = []*record.Reservation{{Name: "r", Start: 1000, End: 1200, Nodes: []string{"n1"}, Users: []string{"root"}}}
	w.add(1, 100, record.Request{Tasks: 1, NodeList: []string{"n1"}})
	w.add(2, 100, record.Request{Tasks: 1})
	w.want("start 2 n2:1; reserve 1 at 200 on n1; 1: ReqNodeNotAvail, May be reserved for other job")
}

// TestMaxStartDelay: jobs of others may reach so far into a reservation, and may not begin in it.
func TestMaxStartDelay(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 4)
	w.in.Reservations = []*record.Reservation{{Name: "r", Start: 1100, End: 1200, Nodes: []string{"n1"}, Users: []string{"v"},
		MaxStartDelayS: 30}}
	w.add(1, 130, record.Request{Tasks: 1})
	w.add(2, 131, record.Request{Tasks: 1})
	in := w.in
	if p := w.s.Plan(&in); len(p.Start) != 1 || p.Start[0].Job.ID != 1 || len(p.Reserve) != 1 || p.Reserve[0].At != 1200 {
		t.Errorf("before: %s", showPlan(p))
	}
	w.in.Now = 1100
	in = w.in
	if p := New(w.s.params).Plan(&in); len(p.Start) != 0 {
		t.Errorf("in it: %s", showPlan(p))
	}
}
