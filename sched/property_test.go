package sched

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// randomWorld draws a small cluster with devices, features, partitions,
// licenses and reservations.
func randomWorld(t *rapid.T) *world {
	params := record.Params{
		Policy:       record.Policy(rapid.IntRange(0, 2).Draw(t, "policy")),
		Reservations: rapid.IntRange(0, 3).Draw(t, "reservations"),
		Order:        record.Order(rapid.IntRange(0, 2).Draw(t, "order")),
		GuardS:       rapid.Int64Range(0, 100).Draw(t, "guard"),
		HeadGuardS:   rapid.Int64Range(0, 30).Draw(t, "headGuard"),
		MaxWaitS:     rapid.Int64Range(0, 100).Draw(t, "maxWait"),
		Preempt:      record.PreemptType(rapid.IntRange(0, 2).Draw(t, "preempt")),
		PreemptMode:  record.PreemptMode(rapid.IntRange(int(record.PreemptRequeue), int(record.PreemptSuspend)).Draw(t, "preemptMode")),
		Placement:    record.Placement(rapid.IntRange(0, 2).Draw(t, "placement")),
		Weights:      record.Weights{Basic: rapid.Bool().Draw(t, "basic"), Age: 1000, JobSize: 500, CalcPeriodS: 20},
	}
	w := &world{t: t, s: New(params)}
	w.in.Now = 1000
	p, q := &record.Partition{
		Name:     "p",
		Share:    record.ShareMode(rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "share")),
		MaxShare: rapid.IntRange(0, 3).Draw(t, "maxShare"),
	}, &record.Partition{
		Name:          "q",
		PriorityTier:  2,
		MaxTimeS:      60,
		ExclusiveUser: rapid.IntRange(0, 3).Draw(t, "alone") == 0,
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		n := &record.Node{
			Name:     fmt.Sprintf("n%d", i),
			CPUs:     rapid.IntRange(1, 8).Draw(t, "cpus"),
			MemMiB:   100,
			Features: []string{string(rune('a' + i%2))},
			WakeS:    rapid.SampledFrom([]int64{0, 0, 0, 7, 40}).Draw(t, "wake"),
		}
		if gpus := rapid.IntRange(0, 3).Draw(t, "gpus"); gpus > 0 {
			g := record.Gres{Name: "gpu", Type: "t"}
			for d := range gpus {
				g.Devices = append(g.Devices, record.Device{Index: d})
			}
			if rapid.Bool().Draw(t, "shared") {
				g.Shared, g.Shares = "shard", 4
			}
			n.Gres = []record.Gres{g}
		}
		w.in.Nodes = append(w.in.Nodes, n)
		p.Nodes = append(p.Nodes, n.Name)
		if i%2 == 0 {
			q.Nodes = append(q.Nodes, n.Name)
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "switches") == 0 {
		for _, n := range w.in.Nodes {
			n.Switch = rapid.SampledFrom([]string{"x/s1", "x/s2", "x/y/s3", "z", ""}).Draw(t, "switch")
		}
	}
	w.in.Partitions = []*record.Partition{p, q}
	w.in.Licenses = []record.License{{Name: "l", Count: 3}}
	w.in.QOS = []*record.QOS{{Name: "normal", ExemptS: rapid.Int64Range(-1, 30).Draw(t, "exempt")},
		{Name: "high", Preempts: []string{"normal", "kept"}},
		{Name: "kept", PreemptMode: record.PreemptOff}}
	if rapid.Bool().Draw(t, "resv") {
		start := rapid.Int64Range(990, 1100).Draw(t, "start")
		r := &record.Reservation{
			Name:  "r",
			Start: start,
			End:   start + 50,
			Nodes: []string{"n0", "n1"},
			Users: []string{"v"},
			Flex:  rapid.Bool().Draw(t, "flex"),
		}
		w.in.Reservations = []*record.Reservation{r}
		if rapid.Bool().Draw(t, "again") {
			r.Again = []record.Span{{Start: start + 100, End: start + 150}, {Start: start + 200, End: start + 250}}
		}
		r.Magnetic = rapid.Bool().Draw(t, "magnetic")
		if rapid.Bool().Draw(t, "parts") {
			r.Flex = false
			w.reserveParts(t, r)
		}
	}
	return w
}

// limit draws limits of accounts and QOS.
func (w *world) limit(t *rapid.T) {
	all := []string{"jobs", "jobs", "cpu", "gres/gpu", "node", "cpu", "wall", record.LimitLeast + "cpu"}
	for _, what := range rapid.SampledFrom([][]string{nil, all}).Draw(t, "limits") {
		each := len(w.in.Limits) > 4
		w.in.Limits = append(w.in.Limits, record.Limit{What: what, PerJob: each,
			Reason: reason.Code(fmt.Sprint("limit ", len(w.in.Limits)))})
		w.most = append(w.most, w.drawMost(t, len(w.most)))
	}
	w.measure()
}

// drawMost draws how much a limit allows, or of a minimum how much it asks for.
func (w *world) drawMost(t *rapid.T, i int) int64 {
	if strings.HasPrefix(w.in.Limits[i].What, record.LimitLeast) {
		return -rapid.Int64Range(0, 3).Draw(t, "least")
	}
	return rapid.Int64Range(0, 6).Draw(t, "most")
}

// measure says what is left under the limits.
func (w *world) measure() {
	w.in.Left = slices.Clone(w.most)
	for _, r := range w.in.Running {
		for _, i := range r.Job.Limits {
			if l := &w.in.Limits[i]; !l.PerJob {
				w.in.Left[i] -= heldOf(l.What, r.Allocs)
			}
		}
	}
}

// heldOf is how much of what is limited is allocated.
func heldOf(what string, allocs []record.Alloc) (n int64) {
	for _, a := range allocs {
		switch what {
		case "cpu":
			n += int64(a.CPUs)
		case "node":
			n++
		case "jobs":
			n = 1
		}
		for _, g := range a.Gres {
			if what == "gres/gpu" && g.Name == "gpu" && g.Shares == 0 {
				n += g.Count
			}
		}
	}
	return n
}

// reserveParts reserves some cores and devices of the nodes.
func (w *world) reserveParts(t *rapid.T, r *record.Reservation) {
	r.Nodes = nil
	for _, n := range w.in.Nodes[:min(2, len(w.in.Nodes))] {
		cpus := rapid.IntRange(1, n.CPUs).Draw(t, "reserved")
		part := record.Alloc{Node: n.Name, CPUs: cpus}
		for k := range cpus {
			part.Cores = part.Cores.Set(k)
		}
		if len(n.Gres) > 0 && rapid.Bool().Draw(t, "device") {
			part.Gres = []record.GresAlloc{{Name: "gpu", Type: "t", Count: 1, Devices: []int{0}}}
		}
		r.Nodes, r.Parts = append(r.Nodes, n.Name), append(r.Parts, part)
	}
}

func (w *world) randomJob(t *rapid.T, id uint32) *record.Job {
	nodes := rapid.IntRange(0, 3).Draw(t, "n")
	r := record.Request{
		MinNodes:      nodes,
		MaxNodes:      nodes,
		Tasks:         rapid.IntRange(0, 6).Draw(t, "tasks"),
		CPUsPerTask:   rapid.IntRange(0, 2).Draw(t, "c"),
		MemSaid:       true,
		MemNodeMiB:    rapid.Int64Range(0, 60).Draw(t, "mem"),
		Oversubscribe: rapid.Bool().Draw(t, "s"),
		Exclusive:     rapid.IntRange(0, 9).Draw(t, "excl") == 0,
		ExclusiveUser: rapid.IntRange(0, 19).Draw(t, "exclu") == 0,
	}
	switch rapid.IntRange(0, 5).Draw(t, "gres") {
	case 0:
		r.Gres = []record.GresRequest{
			{Name: "gpu", Count: rapid.Int64Range(1, 3).Draw(t, "g"),
				Per: record.GresPer(rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "per"))},
		}
	case 1:
		r.Gres = []record.GresRequest{{Name: "shard", Count: rapid.Int64Range(1, 4).Draw(t, "s")}}
	}
	r.Switches, r.SwitchWaitS = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "leaves"), 15
	if rapid.IntRange(0, 9).Draw(t, "named") == 0 {
		r.NodeList = []string{"n0"}
	}
	if rapid.IntRange(0, 9).Draw(t, "excluded") == 0 {
		r.Exclude = []string{"n1"}
	}
	r.Features = rapid.SampledFrom([]string{"", "", "", "a", "a|b", "[a|b]", "b*1"}).Draw(t, "features")
	if rapid.IntRange(0, 4).Draw(t, "lic") == 0 {
		r.Licenses = []record.License{{Name: "l", Count: 2}}
	}
	if rapid.IntRange(0, 9).Draw(t, "inresv") == 0 {
		r.Reservation = "r"
	}
	j := w.add(id, rapid.Int64Range(1, 80).Draw(t, "limit"), r)
	j.QOS = rapid.SampledFrom([]string{"normal", "normal", "high", "kept"}).Draw(t, "qos")
	j.User = rapid.SampledFrom([]string{"u", "v"}).Draw(t, "user")
	j.PredictedS = rapid.Int64Range(0, 50).Draw(t, "predicted")
	for i := range w.in.Limits {
		if rapid.IntRange(0, 3).Draw(t, "under") == 0 {
			j.Limits = append(j.Limits, int32(i))
		}
	}
	j.Partitions = rapid.SampledFrom([][]string{{"p"}, {"q"}, {"p", "q"}, {"q", "p"}}).Draw(t, "parts")
	if rapid.IntRange(0, 5).Draw(t, "array") == 0 {
		j.Array = &record.Array{
			Tasks: []record.TaskRange{{First: 1, Last: uint32(rapid.IntRange(1, 5).Draw(t, "last"))}},
			Limit: rapid.IntRange(0, 2).Draw(t, "throttle"),
		}
	}
	if rapid.IntRange(0, 7).Draw(t, "begin") == 0 {
		j.Begin = w.in.Now + 20
	}
	if rapid.IntRange(0, 9).Draw(t, "min") == 0 {
		j.TimeMinS = 1
	}
	return j
}

// TestRandomWorlds runs random clusters for a while. Each plan is checked by
// checkPlan, against a fresh scheduler, and against the same snapshot in
// another order.
func TestRandomWorlds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		w.limit(t)
		id := uint32(0)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			for range rapid.IntRange(0, 4).Draw(t, "submit") {
				id++
				w.randomJob(t, id)
			}
			in := w.in
			made := w.s.Plan(&in)
			checkTrue(t, &w.s.params, &in, made)
			plan := showPlan(made)
			shuffled := w.shuffled(rapid.Int64().Draw(t, "seed"))
			if other := showPlan(New(w.s.params).Plan(&shuffled)); other != plan {
				t.Fatalf("in another order the plan differs:\n%s\n%s\n%s", plan, other, showPlan(New(w.s.params).Plan(&in)))
			}
			w.plan()
			w.measure()
			for _, st := range made.Start {
				for _, i := range st.Job.Limits {
					if l := &w.in.Limits[i]; !l.PerJob && w.in.Left[i] < 0 {
						t.Fatalf("job %d has started, and too much of %s is used: %d", st.Job.ID, l.Reason, w.in.Left[i])
					}
					tres, least := strings.CutPrefix(w.in.Limits[i].What, record.LimitLeast)
					if least && -heldOf(tres, st.Allocs) > in.Left[i] {
						t.Fatalf("job %d has started with less than %d of %s", st.Job.ID, -in.Left[i], tres)
					}
				}
			}
			w.in.Now += rapid.Int64Range(0, 30).Draw(t, "pass")
			w.endSome(t)
			for i := range w.most {
				if rapid.IntRange(0, 9).Draw(t, "changed") == 0 {
					w.most[i] = w.drawMost(t, i)
				}
			}
			w.measure()
			w.flap(t)
		}
	})
}

func (w *world) shuffled(seed int64) record.Snapshot {
	r := rand.New(rand.NewSource(seed))
	in := w.in
	in.Nodes, in.Partitions, in.Pending, in.Running = slices.Clone(
		in.Nodes,
	), slices.Clone(
		in.Partitions,
	), slices.Clone(
		in.Pending,
	), slices.Clone(
		in.Running,
	)
	r.Shuffle(len(in.Nodes), func(i, j int) { in.Nodes[i], in.Nodes[j] = in.Nodes[j], in.Nodes[i] })
	r.Shuffle(len(in.Partitions), func(i, j int) { in.Partitions[i], in.Partitions[j] = in.Partitions[j], in.Partitions[i] })
	r.Shuffle(len(in.Pending), func(i, j int) { in.Pending[i], in.Pending[j] = in.Pending[j], in.Pending[i] })
	r.Shuffle(len(in.Running), func(i, j int) { in.Running[i], in.Running[j] = in.Running[j], in.Running[i] })
	return in
}

// endSome ends what is over its limit, most of the time, and some of the rest.
func (w *world) endSome(t *rapid.T) {
	w.in.Running = slices.DeleteFunc(slices.Clone(w.in.Running), func(r *record.Run) bool {
		if r.End <= w.in.Now {
			return rapid.IntRange(0, 9).Draw(t, "late") > 0
		}
		return rapid.IntRange(0, 3).Draw(t, "early") == 0
	})
}

func (w *world) flap(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "flap") > 0 {
		return
	}
	w.in.Running = slices.Clone(w.in.Running)
	for i, r := range w.in.Running {
		if rapid.IntRange(0, 3).Draw(t, "suspend") == 0 {
			c := *r
			c.Suspended = true
			w.in.Running[i] = &c
		}
	}
	i := rapid.IntRange(0, len(w.in.Nodes)-1).Draw(t, "node")
	n := *w.in.Nodes[i]
	n.State = record.NodeState(rapid.IntRange(0, 3).Draw(t, "state"))
	w.in.Nodes = slices.Clone(w.in.Nodes)
	w.in.Nodes[i] = &n
}

// TestPromiseKept: with nothing but later submissions and jobs that run to
// their limits, the first job that was promised a start has it by then, also
// where the first that waits is promised one only after a time, or while few do.
func TestPromiseKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, record.Params{Weights: record.Weights{Basic: true}, Order: record.Order(rapid.IntRange(0, 2).Draw(t, "order")),
			HeadGuardS: rapid.SampledFrom(
				[]int64{0, 20, 1000},
			).Draw(
				t,
				"guard",
			), ShortQueue: rapid.IntRange(0, 3).Draw(t, "short"), MaxWaitS: rapid.Int64Range(0, 60).Draw(t, "maxWait")},
			rapid.IntRange(1, 4).Draw(t, "nodes"), 4)
		id, promised := uint32(0), map[uint32]int64{}
		for range rapid.IntRange(2, 25).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "submit") {
				id++
				nodes := rapid.IntRange(1, len(w.in.Nodes)).Draw(t, "n")
				w.add(
					id,
					rapid.Int64Range(1, 60).Draw(t, "limit"),
					record.Request{MinNodes: nodes, MaxNodes: nodes, TasksPerNode: rapid.IntRange(1, 4).Draw(t, "tpn")},
				)
			}
			in := w.in
			p := w.s.Plan(&in)
			for _, r := range p.Reserve[:min(1, len(p.Reserve))] {
				if !r.First {
					continue
				}
				if at, known := promised[r.ID]; known && r.At > at {
					t.Fatalf("job %d was promised %d, and is now promised %d", r.ID, at, r.At)
				}
				promised[r.ID] = r.At
			}
			for _, st := range p.Start {
				if at, known := promised[st.Job.ID]; known && w.in.Now > at {
					t.Fatalf("job %d was promised %d and starts at %d", st.Job.ID, at, w.in.Now)
				}
			}
			w.plan()
			next := w.in.Now + rapid.Int64Range(1, 20).Draw(t, "dt")
			for _, r := range w.in.Running { // never past an end: the pass there is due
				next = min(next, r.End)
			}
			w.in.Now = next
			w.in.Running = slices.DeleteFunc(slices.Clone(w.in.Running), func(r *record.Run) bool { return r.End <= next })
		}
	})
}
