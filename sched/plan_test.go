package sched

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// testingT has the methods that testing.T and rapid.T share.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is a small cluster for table tests: its clock, and a controller that
// believes every plan.
type world struct {
	t  testingT
	s  *Scheduler
	in record.Snapshot

	most []int64 // of Limits
}

func newWorld(t testingT, p record.Params, nodes, cpus int) *world {
	w := &world{t: t, s: New(p)}
	w.in.Now = 1000
	part := &record.Partition{Name: "p"}
	for i := range nodes {
		n := &record.Node{Name: fmt.Sprintf("n%d", i+1), CPUs: cpus, MemMiB: 1000}
		w.in.Nodes = append(w.in.Nodes, n)
		part.Nodes = append(part.Nodes, n.Name)
	}
	w.in.Partitions = []*record.Partition{part}
	return w
}

func (w *world) add(id uint32, limit int64, r record.Request) *record.Job {
	j := &record.Job{ID: id, Request: &r, LimitS: limit, Submit: w.in.Now, Partitions: []string{"p"}, User: "u"}
	w.in.Pending = append(w.in.Pending, j)
	return j
}

// plan plans, checks the plan against what every plan must satisfy, applies
// it, and shows it on one line.
func (w *world) plan() string {
	w.t.Helper()
	in := w.in
	p := w.s.Plan(&in)
	checkPlan(w.t, &w.s.params, &in, p)
	fresh := New(w.s.params).Plan(&in)
	if a, b := showPlan(p), showPlan(fresh); a != b {
		w.t.Fatalf("an old scheduler and a fresh one differ:\n%s\n%s", a, b)
	}
	w.apply(p)
	return showPlan(p)
}

func (w *world) apply(p *record.Plan) {
	w.in.Pending = slices.Clone(w.in.Pending)
	for i, j := range w.in.Pending {
		if slices.ContainsFunc(p.Reserve, func(r record.Reserve) bool { return r.First && r.ID == j.ID }) {
			promised := *j
			promised.Promised = true
			w.in.Pending[i] = &promised
		}
	}
	w.in.Running = slices.Clone(w.in.Running)
	for _, st := range p.Start {
		w.in.Running = append(
			w.in.Running,
			&record.Run{
				ID:        st.Job.ID,
				Task:      st.Task,
				Job:       st.Job,
				Partition: st.Partition,
				Start:     w.in.Now,
				End:       record.Add(w.in.Now, st.LimitS+lastWake(&w.in, &st)),
				Allocs:    st.Allocs,
			},
		)
		w.took(st.Job.ID, st.Task)
	}
	slices.SortFunc(w.in.Running, record.CompareRuns)
	for _, r := range p.Reasons {
		for i, j := range w.in.Pending {
			if j.ID == r.ID {
				c := *j
				c.Reason = r.Reason
				w.in.Pending[i] = &c
			}
		}
	}
}

// lastWake is how long, in seconds, the last of the nodes of a start takes to be up.
func lastWake(in *record.Snapshot, st *record.Start) (last int64) {
	for _, n := range in.Nodes {
		if slices.ContainsFunc(st.Allocs, func(a record.Alloc) bool { return a.Node == n.Name }) {
			last = max(last, n.WakeS)
		}
	}
	return last
}

func (w *world) took(id uint32, task int32) {
	i := slices.IndexFunc(w.in.Pending, func(j *record.Job) bool { return j.ID == id })
	j := w.in.Pending[i]
	if j.Array == nil || j.Array.Count() == 1 {
		w.in.Pending = slices.Delete(w.in.Pending, i, i+1)
		return
	}
	c, a := *j, *j.Array
	a.Tasks = slices.Clone(a.Tasks)
	for k := range a.Tasks {
		if a.Tasks[k].First == uint32(task) {
			a.Tasks[k].First += max(1, a.Tasks[k].Step)
			if a.Tasks[k].First > a.Tasks[k].Last {
				a.Tasks = slices.Delete(a.Tasks, k, k+1)
			}
			break
		}
	}
	a.Active++
	c.Array = &a
	w.in.Pending[i] = &c
}

func (w *world) end(id uint32) {
	w.in.Running = slices.DeleteFunc(slices.Clone(w.in.Running), func(r *record.Run) bool { return r.ID == id })
}

func showPlan(p *record.Plan) string {
	var out []string
	for _, s := range p.Start {
		line := fmt.Sprintf("start %d", s.Job.ID)
		if s.Task >= 0 {
			line += fmt.Sprintf("_%d", s.Task)
		}
		for _, a := range s.Allocs {
			line += fmt.Sprintf(" %s:%d", a.Node, a.CPUs)
			for _, g := range a.Gres {
				line += fmt.Sprintf("/%s%v", strings.TrimSuffix(g.Name+":"+g.Type, ":"), g.Devices)
			}
		}
		out = append(out, line)
	}
	for _, x := range p.Preempt {
		out = append(out, fmt.Sprintf("preempt %d for %d", x.ID, x.For))
	}
	for _, r := range p.Reserve {
		out = append(out, fmt.Sprintf("reserve %d at %d on %s", r.ID, r.At-p.Now, strings.Join(r.Nodes, ",")))
	}
	for _, r := range p.Reasons {
		out = append(out, fmt.Sprintf("%d: %s", r.ID, r.Reason))
	}
	return strings.Join(out, "; ")
}

// checkVictims: under PreemptType=preempt/qos a job gives way to those whose QOS may preempt its own, once it has run for the time of that.
func checkVictims(t testingT, params *record.Params, in *record.Snapshot, p *record.Plan) {
	t.Helper()
	if params.Preempt != record.PreemptQOS {
		return
	}
	qos := map[string]*record.QOS{}
	for _, q := range in.QOS {
		qos[q.Name] = q
	}
	for _, x := range p.Preempt {
		by := in.Pending[slices.IndexFunc(in.Pending, func(j *record.Job) bool { return j.ID == x.For })]
		r := in.Running[slices.IndexFunc(in.Running, func(r *record.Run) bool { return r.ID == x.ID && r.Task == x.Task })]
		theirs := qos[r.Job.QOS]
		if !slices.Contains(qos[by.QOS].Preempts, theirs.Name) || theirs.PreemptMode == record.PreemptOff ||
			in.Now-r.Start < theirs.ExemptS {
			t.Fatalf("job %d of QOS %s preempts job %d of QOS %s, which runs for %d s", by.ID, by.QOS, r.ID, theirs.Name, in.Now-r.Start)
		}
	}
}

// checkPlan: no node is oversubscribed by what runs and what starts, cores and
// devices are held once, and every start is of a pending job.
func checkPlan(t testingT, params *record.Params, in *record.Snapshot, p *record.Plan) {
	t.Helper()
	checkUsers(t, in, p)
	checkVictims(t, params, in, p)
	cpus, mem := map[string]float64{}, map[string]int64{}
	held := map[string]string{}
	cores := map[string][]string{} // by core: the partition and depth of each job that has it
	take := func(who string, j *record.Job, partition string, allocs []record.Alloc, suspended bool) {
		depth := int64(1)
		for _, p := range in.Partitions {
			if p.Name == partition {
				depth = p.Depth(j.Request)
			}
		}
		for _, a := range allocs {
			if !suspended {
				cpus[a.Node] += float64(a.CPUs) / float64(depth)
				for _, k := range a.Cores.List() {
					what, mine := fmt.Sprintf("%s core %d", a.Node, k), fmt.Sprintf("%s %d deep", partition, depth)
					cores[what] = append(cores[what], mine)
					if all := cores[what]; all[0] != mine || int64(len(all)) > depth {
						t.Fatalf("%s is held by %v", what, all)
					}
				}
			}
			mem[a.Node] += a.MemMiB
			for _, g := range a.Gres {
				for _, d := range g.Devices {
					if g.Shares == 0 {
						claim(t, held, fmt.Sprintf("%s %s:%s %d", a.Node, g.Name, g.Type, d), who)
					}
				}
			}
		}
	}
	for _, r := range in.Running {
		take(fmt.Sprintf("running %d_%d", r.ID, r.Task), r.Job, r.Partition, r.Allocs, r.Suspended)
	}
	for _, s := range p.Start {
		if !slices.Contains(in.Pending, s.Job) {
			t.Fatalf("job %d starts and is not pending", s.Job.ID)
		}
		take(fmt.Sprintf("start %d_%d", s.Job.ID, s.Task), s.Job, s.Partition, s.Allocs, false)
	}
	for _, n := range in.Nodes {
		if cpus[n.Name] > float64(max(n.CPUs, 1))+1e-6 || !params.NoMemory && mem[n.Name] > n.MemMiB {
			t.Fatalf("node %s: %g of %d CPUs, %d of %d MiB", n.Name, cpus[n.Name], n.CPUs, mem[n.Name], n.MemMiB)
		}
	}
	checkSwitches(t, in, p)
	checkNamed(t, p)
	checkLicenses(t, in, p)
	checkReasons(t, in, p)
	checkReserved(t, in, p)
}

// checkSwitches: the nodes of a job are below one topmost switch, and on no more leaves than it wants, unless it has waited enough.
func checkSwitches(t testingT, in *record.Snapshot, p *record.Plan) {
	t.Helper()
	where, known := map[string]string{}, false
	for _, n := range in.Nodes {
		where[n.Name] = n.Switch
		known = known || n.Switch != ""
	}
	for _, s := range p.Start {
		if !known || len(s.Allocs) == 1 {
			continue
		}
		roots, leaves := map[string]bool{}, map[string]bool{}
		for _, a := range s.Allocs {
			root, _, _ := strings.Cut(where[a.Node], "/")
			if root == "" {
				root = "alone " + a.Node
			}
			roots[root], leaves[where[a.Node]] = true, true
		}
		r := s.Job.Request
		patient := in.Now < record.EligibleAt(s.Job)+min(max(r.SwitchWaitS, 1), 300)
		if len(roots) > 1 || r.Switches > 0 && patient && len(leaves) > r.Switches {
			t.Fatalf("job %d, which wants %d leaves, starts on %v", s.Job.ID, r.Switches, s.Allocs)
		}
	}
}

// checkLicenses: no more are in use than there are.
func checkLicenses(t testingT, in *record.Snapshot, p *record.Plan) {
	t.Helper()
	left := map[string]int64{}
	for _, l := range in.Licenses {
		left[l.Name] = l.Count
	}
	use := func(j *record.Job) {
		for _, l := range j.Request.Licenses {
			left[l.Name] -= l.Count
		}
	}
	for _, r := range in.Running {
		use(r.Job)
	}
	for _, s := range p.Start {
		use(s.Job)
	}
	for name, n := range left {
		if n < 0 {
			t.Fatalf("%d more of license %s are in use than there are", -n, name)
		}
	}
}

// checkNamed: a job has all nodes that it names and none that it excludes.
func checkNamed(t testingT, p *record.Plan) {
	t.Helper()
	for _, s := range p.Start {
		has := func(name string) bool {
			return slices.ContainsFunc(s.Allocs, func(a record.Alloc) bool { return a.Node == name })
		}
		r := s.Job.Request
		if slices.ContainsFunc(r.Exclude, has) || slices.ContainsFunc(r.NodeList, func(name string) bool { return !has(name) }) {
			t.Fatalf("job %d names %v and excludes %v, and starts on %v", s.Job.ID, r.NodeList, r.Exclude, s.Allocs)
		}
	}
}

func claim(t testingT, held map[string]string, what, who string) {
	t.Helper()
	if by, taken := held[what]; taken {
		t.Fatalf("%s is held by %s and %s", what, by, who)
	}
	held[what] = who
}

// checkReasons: a job that still waits has a reason, old or new.
func checkReasons(t testingT, in *record.Snapshot, p *record.Plan) {
	t.Helper()
	started := map[uint32]bool{}
	for _, s := range p.Start {
		started[s.Job.ID] = true
	}
	said := map[uint32]bool{}
	for _, r := range p.Reasons {
		said[r.ID] = r.Code != "" && r.Code != reason.None
	}
	for _, j := range in.Pending {
		if !started[j.ID] && !said[j.ID] && (j.Reason.Code == "" || j.Reason.Code == reason.None) {
			t.Fatalf("job %d waits without a reason", j.ID)
		}
	}
}

func (w *world) want(want string) {
	w.t.Helper()
	if got := w.plan(); got != want {
		w.t.Fatalf("at %d:\n got %s\nwant %s", w.in.Now, got, want)
	}
}

func TestEASY(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 10)
	w.add(1, 100, record.Request{Tasks: 6})
	w.want("start 1 n1:6")
	w.add(2, 100, record.Request{Tasks: 8}) // must wait for 1
	w.add(3, 200, record.Request{Tasks: 3}) // would run past 1's end and 2 would wait: 10-8 = 2 are extra
	w.add(4, 100, record.Request{Tasks: 3}) // ends in time
	w.add(5, 500, record.Request{Tasks: 1}) // fits into what is extra
	w.want("start 4 n1:3; start 5 n1:1; reserve 2 at 100 on n1; 2: Resources; 3: Priority")
	w.in.Now += 100
	w.end(1)
	w.end(4)
	w.want("start 2 n1:8; reserve 3 at 100 on n1; 3: Resources")
}

func TestAllOrNothing(t *testing.T) {
	w := newWorld(t, record.Params{}, 4, 4)
	w.add(1, 50, record.Request{MinNodes: 2, MaxNodes: 2, TasksPerNode: 3})
	w.add(2, 60, record.Request{MinNodes: 3, MaxNodes: 3, TasksPerNode: 2})
	w.add(3, 100, record.Request{Tasks: 1})
	w.add(4, 10, record.Request{Tasks: 4})
	w.want("start 1 n1:3 n2:3; start 3 n1:1; start 4 n3:4; reserve 2 at 50 on n1,n2,n3; 2: Resources")
}

func TestFlexibleTasks(t *testing.T) {
	w := newWorld(t, record.Params{}, 3, 4)
	w.add(1, 50, record.Request{Tasks: 6})
	w.want("start 1 n1:4 n2:2")
	w.add(2, 50, record.Request{Tasks: 2})
	w.want("start 2 n2:2")
	w.add(3, 50, record.Request{Tasks: 8})
	w.want("reserve 3 at 50 on n1,n2; 3: Resources")
}

func TestMemoryAndHold(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.add(1, 50, record.Request{Tasks: 1, MemSaid: true}) // --mem=0
	w.add(2, 50, record.Request{Tasks: 1, MemSaid: true, MemNodeMiB: 600})
	w.add(3, 50, record.Request{Tasks: 1, MemSaid: true, MemNodeMiB: 600})
	j := w.add(4, 50, record.Request{Tasks: 1})
	j.Hold = record.HeldUser
	w.add(5, 50, record.Request{Tasks: 2, MemCPUMiB: 200})
	w.want("start 1 n1:1; start 2 n2:1; start 5 n2:2; reserve 3 at 50 on n1; 3: Resources; 4: JobHeldUser")
}

func TestArray(t *testing.T) {
	w := newWorld(t, record.Params{}, 1, 4)
	j := w.add(1, 50, record.Request{Tasks: 1})
	j.Array = &record.Array{Tasks: []record.TaskRange{{First: 3, Last: 99, Step: 2}}, Limit: 2}
	w.want("start 1_3 n1:1; start 1_5 n1:1; 1: JobArrayTaskLimit")
	w.want("")
}

func TestPartitions(t *testing.T) {
	w := newWorld(t, record.Params{}, 4, 2)
	w.in.Partitions = []*record.Partition{
		{Name: "p", Nodes: []string{"n1", "n2"}},
		{Name: "down", Nodes: []string{"n1"}, State: record.PartitionDown},
		{Name: "fast", Nodes: []string{"n1", "n2", "n3", "n4"}, PriorityTier: 9, MaxTimeS: 100, MaxNodes: 2},
	}
	w.add(1, 50, record.Request{Tasks: 2, CPUsPerTask: 1, MinNodes: 1, MaxNodes: 1})
	w.add(2, 50, record.Request{Tasks: 2}).Partitions = []string{"p", "fast"}
	w.add(3, 500, record.Request{Tasks: 1}).Partitions = []string{"fast"}
	w.add(4, 50, record.Request{MinNodes: 3, MaxNodes: 3}).Partitions = []string{"fast"}
	w.add(5, 50, record.Request{Tasks: 1}).Partitions = []string{"down"}
	w.want("start 2 n1:2; start 1 n2:2; 3: PartitionTimeLimit; 4: PartitionNodeLimit; 5: PartitionDown")
}

func TestNodesGone(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 2)
	w.in.Nodes[1] = &record.Node{Name: "n2", CPUs: 2, MemMiB: 1000, State: record.NodeDown}
	w.add(1, 50, record.Request{Tasks: 1, NodeList: []string{"n2"}})
	w.add(2, 50, record.Request{MinNodes: 2, MaxNodes: 2})
	w.add(3, 50, record.Request{Tasks: 1})
	w.want(
		"start 3 n1:1; 1: ReqNodeNotAvail, UnavailableNodes:n2; 2: Nodes required for job are DOWN, DRAINED or reserved for jobs in " +
			"higher priority partitions",
	)
	w.in.Nodes = slices.Clone(w.in.Nodes)
	w.in.Nodes[1] = &record.Node{Name: "n2", CPUs: 2, MemMiB: 1000}
	w.want("start 1 n2:1; start 2 n1:1 n2:1")
}

func TestFIFO(t *testing.T) {
	w := newWorld(t, record.Params{Policy: record.FIFO}, 1, 4)
	w.add(1, 50, record.Request{Tasks: 3})
	w.add(2, 50, record.Request{Tasks: 2})
	w.add(3, 50, record.Request{Tasks: 1})
	w.want("start 1 n1:3; 2: Resources; 3: Priority")
}

func TestConservative(t *testing.T) {
	w := newWorld(t, record.Params{Policy: record.Conservative}, 1, 4)
	w.add(1, 50, record.Request{Tasks: 3})
	w.add(2, 50, record.Request{Tasks: 2})
	w.add(3, 50, record.Request{Tasks: 4})
	w.add(4, 60, record.Request{Tasks: 1})
	w.add(5, 60, record.Request{Tasks: 1})
	w.want(
		"start 1 n1:3; start 4 n1:1; reserve 2 at 50 on n1; reserve 3 at 100 on n1; reserve 5 at 150 on n1; 2: Resources; 3: Priority; " +
			"5: Priority",
	)
}

func TestPolicyOrder(t *testing.T) {
	w := newWorld(t, record.Params{Order: record.ShortestFirst}, 1, 4)
	w.add(1, 100, record.Request{Tasks: 2})
	w.want("start 1 n1:2")
	w.add(2, 100, record.Request{Tasks: 4})
	w.add(3, 90, record.Request{Tasks: 2}).PredictedS = 80
	w.add(4, 90, record.Request{Tasks: 2}).PredictedS = 10
	w.want("start 4 n1:2; reserve 2 at 100 on n1; 2: Resources; 3: Priority")
}

func TestReservation(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 2)
	w.in.Reservations = []*record.Reservation{
		{Name: "r", Start: 1100, End: 1200, Nodes: []string{"n1", "n9"}, Users: []string{"v"}},
		{Name: "upside-down", Start: 9, End: 3, Nodes: []string{"n2"}},
	}
	w.add(1, 200, record.Request{Tasks: 2})
	w.add(2, 100, record.Request{Tasks: 2})
	w.add(3, 50, record.Request{Tasks: 1, Reservation: "r"}).User = "v"
	w.add(4, 50, record.Request{Tasks: 1, Reservation: "r"})
	w.add(5, 50, record.Request{Tasks: 1, Reservation: "gone"})
	w.want("start 1 n2:2; start 2 n1:2; 3: Reservation; 4: Reservation; 5: ReservationDeleted")
	w.in.Now = 1100
	w.end(2)
	w.want("start 3 n1:1")
}

func TestLicenses(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.in.Licenses = []record.License{{Name: "m", Count: 3}}
	for id := uint32(1); id <= 3; id++ {
		w.add(id, 50, record.Request{Tasks: 1, Licenses: []record.License{{Name: "m", Count: 2}}})
	}
	w.add(4, 500, record.Request{Tasks: 1, Licenses: []record.License{{Name: "m", Count: 1}}})
	w.want("start 1 n1:1; start 4 n1:1; reserve 2 at 50 on n1; 2: Licenses; 3: Licenses")
}

// TestNothingChanged: a snapshot with equal content in another order leaves the index as it is.
func TestNothingChanged(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 4)
	w.in.Licenses = []record.License{{Name: "m", Count: 3}, {Name: "a", Count: 2}}
	w.in.QOS = []*record.QOS{{Name: "urgent"}, {Name: "normal"}}
	w.in.Partitions = append([]*record.Partition{{Name: "z", Nodes: []string{"n2", "n1"}}}, w.in.Partitions...)
	w.in.Reservations = []*record.Reservation{
		{Name: "y", Nodes: []string{"n2"}, Start: 1 << 30, End: 1<<30 + 60},
		{Name: "x", Nodes: []string{"n1"}, Start: 1 << 30, End: 1<<30 + 60},
	}
	w.add(1, 50, record.Request{Tasks: 9, MinNodes: 1, MaxNodes: 1})
	s := New(record.Params{})
	if n := s.Plan(&w.in).Stats.Changed; n == 0 {
		t.Fatal("the first snapshot changed nothing")
	}
	if n := s.Plan(&w.in).Stats.Changed; n != 0 {
		t.Errorf("the same snapshot changed %d records", n)
	}
	w.add(2, 50, record.Request{Tasks: 1, Licenses: []record.License{{Name: "m", Count: 2}}})
	if n := s.Plan(&w.in).Stats.Changed; n != 1 {
		t.Errorf("one more job changed %d records", n)
	}
}

func TestGPUs(t *testing.T) {
	w := newWorld(t, record.Params{}, 2, 8)
	gpus := func(typ string, n int) record.Gres {
		g := record.Gres{Name: "gpu", Type: typ}
		for i := range n {
			g.Devices = append(g.Devices, record.Device{Index: i})
		}
		return g
	}
	w.in.Nodes[0] = &record.Node{Name: "n1", CPUs: 8, MemMiB: 1000, Gres: []record.Gres{gpus("a", 4)}}
	w.in.Nodes[1] = &record.Node{Name: "n2", CPUs: 8, MemMiB: 1000, Gres: []record.Gres{gpus("b", 2)}}
	gres := func(typ string, n int64, per record.GresPer) []record.GresRequest {
		return []record.GresRequest{{Name: "gpu", Type: typ, Count: n, Per: per}}
	}
	w.add(1, 100, record.Request{Tasks: 1, Gres: gres("", 1, record.PerNode)})
	w.add(2, 100, record.Request{Tasks: 1, Gres: gres("a", 3, record.PerNode)})
	w.add(3, 100, record.Request{Tasks: 1, Gres: gres("a", 2, record.PerNode)})
	w.add(4, 1000, record.Request{Tasks: 1, Gres: gres("a", 1, record.PerNode)})
	w.add(5, 1000, record.Request{Tasks: 1, Gres: gres("a", 1, record.PerNode)})
	w.add(6, 10, record.Request{Tasks: 1, Gres: gres("", 3, record.PerJob)})
	w.want(
		"start 1 n2:1/gpu:b[0]; start 2 n1:1/gpu:a[0 1 2]; start 4 n1:1/gpu:a[3]; reserve 3 at 100 on n1; 3: Resources; 5: Priority; 6: " +
			"Priority",
	)
}

// TestBudget: a pass with a small budget still gets through a queue in which only the last job can start.
func TestBudget(t *testing.T) {
	for _, order := range []record.Order{record.QueueOrder, record.Merit} {
		w := newWorld(t, record.Params{Order: order}, 8, 4)
		for i := range 8 {
			w.add(uint32(i+1), 1000, record.Request{Tasks: 3})
		}
		w.plan()
		for i := range 20 {
			w.add(
				uint32(i+10),
				int64(2000+i),
				record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1, CPUsPerTask: 1, Exclude: []string{fmt.Sprint("x", i)}},
			) // not comparable with each other
		}
		w.add(99, 10, record.Request{Tasks: 1})
		w.in.Budget = 50
		passes := 0
		for {
			in := w.in
			p := w.s.Plan(&in)
			if passes++; len(p.Start) > 0 {
				break
			}
			if !p.Truncated || passes > 50 {
				t.Fatalf("order %d: pass %d: truncated %v and nothing started: %s", order, passes, p.Truncated, showPlan(p))
			}
			w.in.Resume = p.Resume
		}
		if passes == 1 {
			t.Fatalf("order %d: the budget did not bound the pass", order)
		}
	}
}

func TestPreempt(t *testing.T) {
	w := newWorld(t, record.Params{Preempt: record.PreemptPartition, PreemptMode: record.PreemptRequeue}, 2, 4)
	w.in.Partitions[0].GraceTimeS = 30
	w.in.Partitions = append(w.in.Partitions, &record.Partition{Name: "high", Nodes: []string{"n1", "n2"}, PriorityTier: 5})
	w.add(1, 1000, record.Request{Tasks: 3})
	w.add(2, 1000, record.Request{Tasks: 2, MinNodes: 1, MaxNodes: 1})
	w.plan()
	w.in.Now += 50
	w.add(3, 1000, record.Request{Tasks: 2})
	w.want("start 3 n2:2")
	w.in.Now += 50
	w.add(4, 100, record.Request{Tasks: 2, MinNodes: 1, MaxNodes: 1}).Partitions = []string{"high"}
	w.want("preempt 3 for 4; reserve 4 at 30 on n2; 4: Resources") // one has to go, and 3 has run for the shortest time
	gone := *w.in.Running[2]
	gone.NotPreemptable, gone.End = true, w.in.Now+30
	w.in.Running = append(slices.Clone(w.in.Running[:2]), &gone)
	w.in.Now++
	w.want("reserve 4 at 1 on n2") // its place is being made: nobody else has to go
	w.end(3)
	w.want("start 4 n2:2")
	w.add(5, 100, record.Request{Tasks: 5, MinNodes: 1, MaxNodes: 1}).Partitions = []string{"high"}
	w.want("5: BadConstraints")
	w.add(6, 100, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1}).Partitions = []string{"high"}
	w.want("preempt 1 for 6; reserve 6 at 30 on n1; 6: Resources") // 4 is of the same tier
}

// TestRangeOfNodes: a range of nodes is for as many as there are, without waiting for more (sbatch(1), -N).
func TestRangeOfNodes(t *testing.T) {
	w := newWorld(t, record.Params{}, 4, 4)
	w.add(1, 50, record.Request{Tasks: 3, MinNodes: 2, MaxNodes: 4})
	w.want("start 1 n1:1 n2:1 n3:1")
	w.add(2, 50, record.Request{Tasks: 6, MinNodes: 1, MaxNodes: 4})
	w.want("start 2 n1:3 n2:1 n3:1 n4:1")
	w.add(3, 50, record.Request{Tasks: 2, MinNodes: 1, MaxNodes: 3, UseMinNodes: true})
	w.add(4, 50, record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 4}) // three nodes have one CPU left or two
	w.want("start 3 n2:2; start 4 n3:2 n4:2")
	for id := range uint32(4) {
		w.end(id + 1)
	}
	w.add(5, 50, record.Request{Tasks: 8, NodeCounts: []record.NodeCount{{Min: 2, Max: 2}, {Min: 8, Max: 8}}, MinNodes: 2, MaxNodes: 8})
	w.want("start 5 n1:4 n2:4")
}
