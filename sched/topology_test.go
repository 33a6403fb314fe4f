package sched

import "testing"

func switchedWorld(t *testing.T) *world {
	w := newWorld(t, Params{}, 6, 1)
	for i, n := range w.in.Nodes {
		n.Switch = []string{"s1", "s1", "s1", "s2", "s2", "s3"}[i]
	}
	return w
}

func TestSwitches(t *testing.T) {
	w := switchedWorld(t)
	w.add(1, 100, Request{MinNodes: 2, MaxNodes: 2, Switches: 1}) // s2 is the tightest
	w.add(2, 200, Request{MinNodes: 1, MaxNodes: 1})
	w.want("start 1 n4:1 n5:1; start 2 n1:1")
	w.add(3, 50, Request{MinNodes: 3, MaxNodes: 3, Switches: 1}) // n2, n3, n6 are free: three switches' worth
	w.want("reserve 3 at 200 on n1,n2,n3; 3: Resources")
	w.in.Now += 50
	w.add(4, 50, Request{MinNodes: 3, MaxNodes: 3, Switches: 2})
	w.want("start 4 n2:1 n3:1 n6:1; reserve 3 at 150 on n1,n2,n3")
}

// TestSwitchesGivenUp: after 300 seconds any nodes will do.
func TestSwitchesGivenUp(t *testing.T) {
	w := switchedWorld(t)
	w.add(1, 1000, Request{MinNodes: 1, MaxNodes: 1})
	w.want("start 1 n1:1")
	w.add(2, 50, Request{MinNodes: 3, MaxNodes: 3, Switches: 1})
	in := w.in
	if p := w.s.Plan(&in); p.Wake != 1300 || len(p.Start) > 0 {
		t.Fatalf("wake %d, %s", p.Wake, showPlan(p))
	}
	w.in.Now = 1300
	w.want("start 2 n2:1 n3:1 n4:1")
}

// TestReservedLicenses: what a reservation has is for its jobs.
func TestReservedLicenses(t *testing.T) {
	w := newWorld(t, Params{Policy: Conservative}, 1, 8)
	w.in.Licenses = []License{{"l", 5}}
	w.in.Reservations = []*Reservation{{Name: "r", Start: 1000, End: 1100, Licenses: []License{{"l", 3}}}}
	w.add(1, 20, Request{Tasks: 1, Licenses: []License{{"l", 3}}})
	w.add(2, 50, Request{Tasks: 1, Licenses: []License{{"l", 2}}})
	w.add(3, 40, Request{Tasks: 1, Licenses: []License{{"l", 2}}, Reservation: "r"})
	w.add(4, 10, Request{Tasks: 1, Licenses: []License{{"l", 2}}, Reservation: "r"})
	w.want("start 2 n1:1; start 3 n1:1; reserve 1 at 100 on n1; reserve 4 at 40 on n1; 1: Licenses; 4: Licenses")
}

// TestGPUsPerSocket: two GPUs on each of two sockets, not four anywhere.
func TestGPUsPerSocket(t *testing.T) {
	w := newWorld(t, Params{}, 1, 8)
	n := w.in.Nodes[0]
	n.Sockets, n.CoresPerSocket = 2, 4
	g := Gres{Name: "gpu"}
	for i := range 6 {
		g.Devices = append(g.Devices, Device{Index: i, Cores: BitsOf(i / 3 * 4)})
	}
	n.Gres = []Gres{g}
	w.add(1, 50, Request{Tasks: 1, Gres: []GresRequest{{Name: "gpu", Count: 2}}})
	w.add(2, 100, Request{Tasks: 1, Sockets: 2, Gres: []GresRequest{{Name: "gpu", Count: 2, Per: PerSocket}}}) // 2 and 3-5 are free
	w.add(3, 20, Request{Tasks: 1, Sockets: 2, Gres: []GresRequest{{Name: "gpu", Count: 1, Per: PerSocket}}})
	w.want("start 1 n1:1/gpu[0 1]; start 3 n1:1/gpu[2 3]; reserve 2 at 50 on n1; 2: Resources")
	w.in.Now += 20
	w.end(3)
	w.want("reserve 2 at 30 on n1")
	w.in.Now += 30
	w.end(1)
	w.want("start 2 n1:1/gpu[0 1 3 4]")
}
