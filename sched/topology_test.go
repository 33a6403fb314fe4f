package sched

import (
	"github.com/sluice-hpc/sluice/sched/record"
	"testing"
)

func switchedWorld(t *testing.T) *world {
	w := newWorld(t, record.Params{}, 6, 1)
	for i, n := range w.in.Nodes {
		n.Switch = []string{"top/s1", "top/s1", "top/s1", "top/s2", "top/s2", "top/s3"}[i]
	}
	return w
}

func TestSwitches(t *testing.T) {
	w := switchedWorld(t)
	w.add(1, 100, record.Request{MinNodes: 2, MaxNodes: 2, Switches: 1}) // s2 is the tightest
	w.add(2, 200, record.Request{MinNodes: 1, MaxNodes: 1})
	w.want("start 1 n4:1 n5:1; start 2 n1:1")
	w.add(3, 50, record.Request{MinNodes: 3, MaxNodes: 3, Switches: 1}) // n2, n3, n6 are free: three switches' worth
	w.want("reserve 3 at 200 on n1,n2,n3; 3: Resources")
	w.in.Now += 50
	w.add(4, 50, record.Request{MinNodes: 3, MaxNodes: 3, Switches: 2})
	w.want("start 4 n2:1 n3:1 n6:1; reserve 3 at 150 on n1,n2,n3")
}

// TestSwitchesGivenUp: after 300 seconds any nodes will do.
func TestSwitchesGivenUp(t *testing.T) {
	w := switchedWorld(t)
	w.add(1, 1000, record.Request{MinNodes: 1, MaxNodes: 1})
	w.want("start 1 n1:1")
	w.add(2, 50, record.Request{MinNodes: 3, MaxNodes: 3, Switches: 1})
	in := w.in
	if p := w.s.Plan(&in); p.Wake != 1300 || len(p.Start) > 0 {
		t.Fatalf("wake %d, %s", p.Wake, showPlan(p))
	}
	w.in.Now = 1300
	w.want("start 2 n2:1 n3:1 n4:1")
}

// TestReservedLicenses: only a reservation's jobs get its licenses.
func TestReservedLicenses(t *testing.T) {
	w := newWorld(t, record.Params{Policy: record.Conservative}, 1, 8)
	w.in.Licenses = []record.License{{Name: "l", Count: 5}}
	w.in.Reservations = []*record.Reservation{{Name: "r", Start: 1000, End: 1100, Licenses: []record.License{{Name: "l", Count: 3}}}}
	w.add(1, 20, record.Request{Tasks: 1, Licenses: []record.License{{Name: "l", Count: 3}}})
	w.add(2, 50, record.Request{Tasks: 1, Licenses: []record.License{{Name: "l", Count: 2}}})
	w.add(3, 40, record.Request{Tasks: 1, Licenses: []record.License{{Name: "l", Count: 2}}, Reservation: "r"})
	w.add(4, 10, record.Request{Tasks: 1, Licenses: []record.License{{Name: "l", Count: 2}}, Reservation: "r"})
	w.want("start 2 n1:1; start 3 n1:1; reserve 1 at 100 on n1; reserve 4 at 40 on n1; 1: Licenses; 4: Licenses")
}

// TestGPUsPerSocket: two GPUs on each of two sockets, not four anywhere.
func TestGPUsPerSocket(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 8)
	n := w.in.Nodes[0]
	n.Sockets, n.CoresPerSocket = 2, 4
	g := record.Gres{Name: "gpu"}
	for i := range 6 {
		g.Devices = append(g.Devices, record.Device{Index: i, Cores: record.BitsOf(i / 3 * 4)})
	}
	n.Gres = []record.Gres{g}
	w.add(1, 50, record.Request{Tasks: 1, Gres: []record.GresRequest{{Name: "gpu", Count: 2}}})
	w.add(2, 100, record.Request{Tasks: 1, Sockets: 2, Gres: []record.GresRequest{{Name: "gpu", Count: 2,
		Per: record.PerSocket}}}) // 2 and 3-5 are free
	w.add(3, 20, record.Request{Tasks: 1, Sockets: 2, Gres: []record.GresRequest{{Name: "gpu", Count: 1, Per: record.PerSocket}}})
	w.want("start 1 n1:1/gpu[0 1]; start 3 n1:1/gpu[2 3]; reserve 2 at 50 on n1; 2: Resources")
	w.in.Now += 20
	w.end(3)
	w.want("reserve 2 at 30 on n1")
	w.in.Now += 30
	w.end(1)
	w.want("start 2 n1:1/gpu[0 1 3 4]")
	w.end(2)
	// All near one socket: never.
	for i := range g.Devices {
		g.Devices[i].Cores = record.BitsOf(1)
	}
	w.in.Nodes[0] = &record.Node{Name: "n1", CPUs: 8, MemMiB: 1000, Sockets: 2, CoresPerSocket: 4, Gres: []record.Gres{g}}
	for sockets, want := range map[int]bool{1: true, 2: false} {
		j := &record.Job{
			Request: &record.Request{Tasks: 1, Sockets: sockets, Gres: []record.GresRequest{{Name: "gpu", Count: 1,
				Per: record.PerSocket}}},
			Partitions: []string{"p"},
		}
		if ok, why := admissible(j, w.in.Nodes, w.in.Partitions); ok != want {
			t.Errorf("one near each of %d sockets: %v %s", sockets, ok, why)
		}
	}
}

// TestGPUsInAll: a total of GPUs comes from as few nodes as have them, unless the request gives a number of nodes or tasks (sbatch --gpus,
// compared with a real Slurm).
func TestGPUsInAll(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 8)
	for i := range w.in.Nodes {
		n := *w.in.Nodes[i]
		n.Gres = []record.Gres{{Name: "gpu", Devices: []record.Device{{Index: 0}, {Index: 1}}}}
		w.in.Nodes[i] = &n
	}
	in := func(count int64, r record.Request) *record.Job {
		r.Gres = []record.GresRequest{{Name: "gpu", Count: count, Per: record.PerJob}}
		return &record.Job{Request: &r, Partitions: []string{"p"}}
	}
	for _, c := range []struct {
		j    *record.Job
		want bool
	}{
		{in(4, record.Request{}), true},
		{in(5, record.Request{}), false},
		{in(3, record.Request{Tasks: 1}), false},
		{in(3, record.Request{MinNodes: 1, MaxNodes: 1}), false},
		{in(3, record.Request{Tasks: 2}), true},
		{in(3, record.Request{CPUsPerTask: 3}), true},
	} {
		if ok, why := admissible(c.j, w.in.Nodes, w.in.Partitions); ok != c.want {
			t.Errorf("%+v: %v %s", c.j.Request, ok, why)
		}
	}
	w.add(1, 10, *in(3, record.Request{}).Request)
	w.add(2, 10, *in(1, record.Request{}).Request)
	w.want("start 1 n1:1/gpu[0 1] n2:1/gpu[0]; start 2 n2:1/gpu[1]")
}

// TestSwitchesPreferred: without being asked a job of several nodes goes below the lowest switch that can hold it.
func TestSwitchesPreferred(t *testing.T) {
	w := newWorld(t, record.Params{}, 8, 1)
	for i, n := range w.in.Nodes {
		n.Switch = []string{"top/a/s1", "top/a/s1", "top/a/s2", "top/a/s2", "top/b/s3", "top/b/s3", "top/b/s3", "top/b/s4"}[i]
	}
	w.add(1, 100, record.Request{MinNodes: 1, MaxNodes: 1})
	w.add(2, 100, record.Request{MinNodes: 2, MaxNodes: 2}) // s2 has two and is left none
	w.add(3, 100, record.Request{Tasks: 4})                 // a has one left, b four
	w.want("start 1 n1:1; start 2 n3:1 n4:1; start 3 n5:1 n6:1 n7:1 n8:1")
	w.add(4, 100, record.Request{MinNodes: 3, MaxNodes: 3})
	w.want("reserve 4 at 100 on n5,n6,n7; 4: Resources") // all on s3
}

// TestFabrics: a job runs on nodes that some switch connects.
func TestFabrics(t *testing.T) {
	w := newWorld(t, record.Params{}, 5, 1)
	for i, n := range w.in.Nodes {
		n.Switch = []string{"a/s1", "a/s2", "b", "b", ""}[i]
	}
	w.add(1, 100, record.Request{MinNodes: 2, MaxNodes: 2}) // b is a leaf
	w.add(2, 100, record.Request{MinNodes: 2, MaxNodes: 2}) // a is above two leaves
	w.add(3, 100, record.Request{MinNodes: 2, MaxNodes: 2})
	w.add(4, 100, record.Request{MinNodes: 3, MaxNodes: 3}) // never: no fabric has three
	w.want("start 1 n3:1 n4:1; start 2 n1:1 n2:1; reserve 3 at 100 on n3,n4; 3: Resources; 4: BadConstraints")
	job := &record.Job{ID: 9, Partitions: []string{"p"}, Request: &record.Request{MinNodes: 3}}
	if ok, why := admissible(job, w.in.Nodes, w.in.Partitions); ok {
		t.Error("a job across fabrics is accepted")
	} else if why != "3 nodes were asked for; of the 5 nodes of partition p that could hold a part of the job, no 3 are connected by "+
		"switches" {
		t.Error(why)
	}
}

// TestSwitchesNeverRefuse: --switches is a wish with a time limit, so that a request that no so few switches can hold is admitted all
// the same, waits as long as it asked to, and then starts.
func TestSwitchesNeverRefuse(t *testing.T) {
	w := switchedWorld(t)
	r := record.Request{MinNodes: 4, MaxNodes: 4, Switches: 1, SwitchWaitS: 10}
	if ok, why := admissible(&record.Job{Request: &r, Partitions: []string{"p"}}, w.in.Nodes, w.in.Partitions); !ok {
		t.Error(why)
	}
	tooMany := record.Request{MinNodes: 7, MaxNodes: 7, Switches: 1}
	if ok, _ := admissible(&record.Job{Request: &tooMany, Partitions: []string{"p"}}, w.in.Nodes, w.in.Partitions); ok {
		t.Error("more nodes than there are")
	}
	w.add(1, 100, r)
	in := w.in
	p := w.s.Plan(&in)
	if len(p.Start) > 0 || p.Wake != 1010 {
		t.Errorf("at once: %s, wake %d", showPlan(p), p.Wake)
	}
	w.in.Now = 1010
	w.want("start 1 n1:1 n2:1 n3:1 n4:1")
}

// TestSwitchWait: as long as the job says, and no longer than max_switch_wait.
func TestSwitchWait(t *testing.T) {
	for wait, want := range map[int64]int64{0: 1060, 20: 1020, 1000: 1060} {
		w := switchedWorld(t)
		w.s = New(record.Params{MaxSwitchWaitS: 60})
		w.add(1, 5000, record.Request{MinNodes: 1, MaxNodes: 1})
		w.want("start 1 n1:1")
		w.add(2, 50, record.Request{MinNodes: 3, MaxNodes: 3, Switches: 1, SwitchWaitS: wait})
		in := w.in
		if p := w.s.Plan(&in); p.Wake != want || len(p.Start) > 0 {
			t.Errorf("wait %d: wake %d, want %d; %s", wait, p.Wake, want, showPlan(p))
		}
	}
}

// TestNamedNodesOfSpreadTasks: nodes that -w names are among those of a job whose tasks may be spread, or it waits.
func TestNamedNodesOfSpreadTasks(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 2)
	w.add(1, 100, record.Request{Tasks: 2, NodeList: []string{"n1"}})
	w.add(2, 100, record.Request{Tasks: 2, NodeList: []string{"n1"}})
	w.want("start 1 n1:2; reserve 2 at 100 on n1; 2: Resources")
}

func TestExplainSwitches(t *testing.T) {
	w := switchedWorld(t)
	w.add(1, 1000, record.Request{MinNodes: 1, MaxNodes: 1})
	w.want("start 1 n1:1")
	w.add(2, 50, record.Request{MinNodes: 3, MaxNodes: 3, Switches: 1})
	w.want("reserve 2 at 1000 on n1,n2,n3; 2: Resources")
	in := w.in
	x, ok := New(record.Params{}).Explain(&in, 2)
	const want = `reason: Resources
5 nodes: could take part of the job now
1 node: 1 CPU not free (at most 0)
5 nodes could take part of the job now, on 3 leaf switches; the job waits for 3 nodes on at most 1 (--switches)
expected on n[1-3]
would start now if job 1 ended
would start now: with --nodes=2, beside this job
would start now: without --switches, beside this job
`
	if !ok || x.String() != want {
		t.Errorf("got\n%swant\n%s", x, want)
	}
}
