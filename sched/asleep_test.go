package sched

import (
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// TestAsleepNodes: of nodes with the same weight, those that are up are given first; a lower weight counts before that.
func TestAsleepNodes(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.in.Nodes[0] = &record.Node{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60}
	w.add(1, 50, record.Request{Tasks: 1})
	w.want("start 1 n2:1")
	w.add(2, 50, record.Request{Tasks: 4})
	w.want("start 2 n1:4")
	w.end(1)
	w.end(2)
	w.in.Nodes = slices.Clone(w.in.Nodes)
	w.in.Nodes[1] = &record.Node{Name: "n2", CPUs: 4, MemMiB: 1000, Weight: 5}
	w.add(3, 50, record.Request{Tasks: 1})
	w.want("start 3 n1:1")
}

// TestAsleepBeforeReservation: the power-up time of its node delays the end of a job, which does not start if it would then run into
// another user's reservation.
func TestAsleepBeforeReservation(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 4)
	w.in.Nodes[0] = &record.Node{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60}
	w.in.Reservations = []*record.Reservation{{Name: "r", Start: 1100, End: 1200, Nodes: []string{"n1"}, Users: []string{"v"}}}
	w.add(1, 41, record.Request{Tasks: 1})
	w.add(2, 40, record.Request{Tasks: 1})
	w.want("start 2 n1:1; reserve 1 at 200 on n1; 1: Resources")
}

// TestPlannedOnNodesThatGoDown: a node that is powering down is available when that has ended, not earlier, also if it is overdue.
func TestPlannedOnNodesThatGoDown(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 4)
	w.in.Nodes[0] = &record.Node{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60, AwayUntil: 1030}
	w.add(1, 50, record.Request{Tasks: 4})
	w.want("reserve 1 at 30 on n1; 1: Resources")
	w.in.Now = 1040
	w.want("reserve 1 at 1 on n1")
	w.in.Nodes = []*record.Node{{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60, AwayUntil: 1070}} // once more
	w.want("reserve 1 at 30 on n1")
	w.in.Nodes = []*record.Node{{Name: "n1", CPUs: 4, MemMiB: 1000, WakeS: 60}}
	w.want("start 1 n1:4")
}

// asleepWorld has nodes of 4 CPUs; wake is the seconds that each takes to wake up, 0 if it is up.
func asleepWorld(t testingT, p record.Params, wake ...int64) *world {
	w := newWorld(t, p, len(wake), 4)
	for i, s := range wake {
		w.in.Nodes[i].WakeS = s
	}
	return w
}

// reservedFor reserves a node for another user; from and to are seconds after the start of the world.
func (w *world) reservedFor(node string, from, to int64) {
	w.in.Reservations = append(w.in.Reservations,
		&record.Reservation{Name: "r" + node, Start: 1000 + from, End: 1000 + to, Nodes: []string{node}, Users: []string{"v"}})
}

// TestAwakeBesideAsleep: a job on one node that is up and one that is not begins when both are up, so it occupies the first for longer.
// Neither a start nor a promise may run into another user's reservation.
func TestAwakeBesideAsleep(t *testing.T) {
	two := record.Request{MinNodes: 2, MaxNodes: 2}
	w := asleepWorld(t, record.Params{}, 0, 60)
	w.reservedFor("n1", 100, 200)
	w.add(1, 41, two)
	w.want("reserve 1 at 200 on n1,n2; 1: Resources")
	w.add(2, 40, two)
	w.want("start 2 n1:1 n2:1; reserve 1 at 200 on n1,n2")

	w = asleepWorld(t, record.Params{}, 0, 60) // and what starts before a promise
	w.add(1, 100, record.Request{Tasks: 4, NodeList: []string{"n1"}})
	w.want("start 1 n1:4")
	w.in.Now += 50
	w.add(2, 30, record.Request{MinNodes: 2, MaxNodes: 2, TasksPerNode: 4})
	w.reservedFor("n1", 180, 200)
	w.want("reserve 2 at 150 on n1,n2; 2: Resources")
	w.in.Now += 50
	w.end(1)
	w.want("reserve 2 at 100 on n1,n2")
}

// TestAllAwakeWhereMixedIsTooLong: the node with the least weight is asleep, and the job would take too long with it: it goes where all are
// up. In a plan, too.
func TestAllAwakeWhereMixedIsTooLong(t *testing.T) {
	for _, r := range []record.Request{
		{MinNodes: 2, MaxNodes: 2},
		{Tasks: 8},
		{MinNodes: 2, MaxNodes: 2, Contiguous: true},
	} {
		w := asleepWorld(t, record.Params{}, 60, 0, 0, 60)
		for _, n := range w.in.Nodes[1:3] {
			n.Weight = 5
		}
		w.reservedFor("n2", 100, 200)
		w.add(1, 90, r)
		w.plan()
		if _, on := placedAt(w, 1); !slices.Equal(on, []string{"n2", "n3"}) && !slices.Equal(on, []string{"n1", "n4"}) {
			t.Errorf("%+v: the job runs on %v", r, on)
		}
		w = asleepWorld(t, record.Params{}, 60, 0, 0, 60)
		w.in.Now = 990
		w.add(1, 20, record.Request{MinNodes: 4, MaxNodes: 4, Exclusive: true}) // all of them, until 1070, by the time of the last
		w.want("start 1 n1:4 n2:4 n3:4 n4:4")
		for _, n := range w.in.Nodes {
			w.reservedFor(n.Name, 100+60*n.WakeS, 8000)
		}
		w.add(2, 30, r)
		w.want("reserve 2 at 80 on n2,n3; 2: Resources")
	}
}

// placedAt is where a job runs, since when.
func placedAt(w *world, id uint32) (at int64, nodes []string) {
	for _, r := range w.in.Running {
		if r.ID == id {
			for _, a := range r.Allocs {
				nodes = append(nodes, a.Node)
			}
			return r.Start, nodes
		}
	}
	return 0, nil
}

// TestWakingHoldsLicenses: licenses are used until the end of the job, which is later by as long as its node takes to wake.
func TestWakingHoldsLicenses(t *testing.T) {
	w := asleepWorld(t, record.Params{}, 60)
	w.in.Licenses = []record.License{{Name: "l", Count: 1}}
	one := []record.License{{Name: "l", Count: 1}}
	w.in.Reservations = []*record.Reservation{{Name: "r", Start: 1100, End: 1200, Licenses: one, Users: []string{"v"}}}
	r := record.Request{Tasks: 1, Licenses: one}
	w.add(1, 41, r)
	w.want("reserve 1 at 200 on n1; 1: Resources")
	w.add(2, 80, r).TimeMinS = 40
	w.want("start 2 n1:1; reserve 1 at 200 on n1")
	if got := w.in.Running[0].End; got != 1100 {
		t.Errorf("the job may run until %d", got)
	}
}

// TestWakingInReservation: a job that was started shortly before the end of its reservation, of cores, on a node that has to wake has it
// for longer; when it has ended all of the node is free.
func TestWakingInReservation(t *testing.T) {
	w := asleepWorld(t, record.Params{}, 7)
	part := record.Alloc{Node: "n1", CPUs: 4, Cores: record.BitsOf(0, 1, 2, 3)}
	w.in.Reservations = []*record.Reservation{
		{Name: "r", Start: 990, End: 1040, Nodes: []string{"n1"}, Parts: []record.Alloc{part}, Users: []string{"u"}},
	}
	w.in.Now = 1035
	w.add(1, 5, record.Request{Tasks: 4, Reservation: "r"})
	w.want("start 1 n1:4")
	w.in.Now = 1036
	w.want("")
	w.in.Now = 1040
	w.end(1)
	w.add(2, 5, record.Request{Tasks: 4})
	w.want("start 2 n1:4")
}

// TestNoneGiveWayForWhatIsTooLong: no job is preempted for one that could not start then, because a node has to be powered up.
func TestNoneGiveWayForWhatIsTooLong(t *testing.T) {
	for _, test := range []struct {
		limit int64
		want  string
	}{
		{40, "preempt 1 for 2; reserve 2 at 1 on n1,n2; 2: Resources"},
		{41, "reserve 2 at 200 on n1,n2; 2: Resources"},
	} {
		w := lowWorld(t, 2, 4)
		w.in.Nodes[1].WakeS = 60
		w.add(1, 50, record.Request{Tasks: 4})
		w.want("start 1 n1:4")
		w.reservedFor("n1", 100, 200)
		w.add(2, test.limit, record.Request{MinNodes: 2, MaxNodes: 2, TasksPerNode: 4}).Partitions = []string{"high"}
		w.want(test.want)
	}
}

// TestPromisesOfSleepingNodes: under the conservative rule each job is promised the first moment at which its nodes are free behind those
// before it until the last of them is up and its time is over, by a count of every second.
func TestPromisesOfSleepingNodes(t *testing.T) {
	const each = 4
	rapid.Check(t, func(t *rapid.T) {
		wake := rapid.SliceOfN(rapid.SampledFrom([]int64{0, 0, 3, 9}), 1, 4).Draw(t, "wake")
		w := asleepWorld(t, record.Params{Policy: record.Conservative, Weights: record.Weights{Basic: true}}, wake...)
		wakes := map[string]int64{}
		for _, n := range w.in.Nodes {
			n.Weight = rapid.IntRange(0, 1).Draw(t, "weight")
			wakes[n.Name] = n.WakeS
			if rapid.IntRange(0, 2).Draw(t, "reserved") == 0 {
				from := rapid.Int64Range(1, 40).Draw(t, "from")
				w.reservedFor(n.Name, from, from+10)
			}
		}
		u := &usage{now: w.in.Now, cpus: map[string]*[400]int{}}
		for _, n := range w.in.Nodes {
			u.cpus[n.Name] = &[400]int{}
		}
		for _, r := range w.in.Reservations {
			u.take(r.Nodes, r.Start, r.End, each)
		}
		for id := range uint32(rapid.IntRange(1, 8).Draw(t, "jobs")) {
			n := rapid.IntRange(1, len(wake)).Draw(t, "n")
			tpn := rapid.IntRange(1, each).Draw(t, "tpn")
			r := record.Request{MinNodes: n, MaxNodes: n, TasksPerNode: tpn}
			if rapid.IntRange(0, 2).Draw(t, "flexible") == 0 {
				r = record.Request{MinNodes: n, MaxNodes: n, Tasks: n*tpn - n/2}
			}
			w.add(id+1, rapid.Int64Range(1, 15).Draw(t, "limit"), r)
		}
		in := w.in
		plan := w.s.Plan(&in)
		for _, j := range in.Pending { // in the order of the queue
			at, nodes := placed(plan, j.ID)
			if nodes == nil {
				t.Fatalf("job %d is neither started nor promised a start: %s", j.ID, showPlan(plan))
			}
			last := int64(0)
			for _, n := range nodes {
				last = max(last, wakes[n])
			}
			if r := j.Request; r.TasksPerNode > 0 {
				for early := in.Now; early < at; early++ {
					for _, up := range wake { // with those that are up by then
						awake := &usage{now: u.now, cpus: map[string]*[400]int{}}
						for n, taken := range u.cpus {
							if wakes[n] <= up {
								awake.cpus[n] = taken
							}
						}
						if awake.fits(early, up+j.LimitS, r.MinNodes, r.TasksPerNode, each) {
							t.Fatalf("job %d is promised %d and fits at %d: %s", j.ID, at-in.Now, early-in.Now, showPlan(plan))
						}
					}
				}
				u.take(nodes, at, at+last+j.LimitS, r.TasksPerNode)
				continue
			}
			if !some(u, nodes, at, at+last+j.LimitS, each) {
				t.Fatalf("job %d is placed at %d on %v, where nothing is free until it ends: %s", j.ID, at-in.Now, nodes, showPlan(plan))
			}
			return // how its tasks are spread is not known
		}
		for _, n := range in.Nodes {
			if slices.Max(u.cpus[n.Name][:]) > each {
				t.Fatalf("%s is promised to more than it has room for: %s", n.Name, showPlan(plan))
			}
		}
	})
}

// some: each of the nodes has a CPU free throughout.
func some(u *usage, nodes []string, at, end int64, each int) bool {
	return !slices.ContainsFunc(nodes, func(n string) bool { return slices.Max(u.cpus[n][at-u.now:end-u.now]) >= each })
}
