package sched

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

// usage counts what is taken of each node, second by second, to find out whether a job fits without the profiles.
type usage struct {
	now  int64
	cpus map[string]*[400]int
}

func (u *usage) take(nodes []string, at, end int64, cpus int) {
	for _, n := range nodes {
		for t := max(at, u.now); t < end; t++ {
			u.cpus[n][t-u.now] += cpus
		}
	}
}

// fits reports whether that many nodes have that many CPUs free throughout.
func (u *usage) fits(at, length int64, nodes, cpus, each int) bool {
	free := 0
	for _, taken := range u.cpus {
		if !slices.ContainsFunc(taken[at-u.now:at-u.now+length], func(n int) bool { return n+cpus > each }) {
			free++
		}
	}
	return free >= nodes
}

// TestPromisesAreEarliest: under the conservative rule each job is promised the first moment at which it fits behind those before it,
// by a count of every second.
func TestPromisesAreEarliest(t *testing.T) {
	const each = 4
	rapid.Check(t, func(t *rapid.T) {
		longest := rapid.SampledFrom([]int64{2, 20}).Draw(t, "longest") // with few limits what was found out for one job serves the next
		w := newWorld(t, record.Params{Policy: record.Conservative, Weights: record.Weights{Basic: true}},
			rapid.IntRange(1, 3).Draw(t, "nodes"), each)
		id := uint32(0)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for range rapid.IntRange(0, 4).Draw(t, "submit") {
				id++
				n := rapid.IntRange(1, len(w.in.Nodes)).Draw(t, "n")
				w.add(
					id,
					rapid.Int64Range(1, longest).Draw(t, "limit"),
					record.Request{MinNodes: n, MaxNodes: n, TasksPerNode: rapid.IntRange(1, each).Draw(t, "tpn")},
				)
			}
			in := w.in
			plan := w.s.Plan(&in)
			u := &usage{now: in.Now, cpus: map[string]*[400]int{}}
			for _, n := range in.Nodes {
				u.cpus[n.Name] = &[400]int{}
			}
			for _, r := range in.Running {
				for _, a := range r.Allocs {
					u.take([]string{a.Node}, in.Now, max(r.End, in.Now+1), a.CPUs)
				}
			}
			for _, j := range in.Pending { // in the order of the queue
				at, nodes := placed(plan, j.ID)
				if nodes == nil {
					t.Fatalf("job %d is neither started nor promised a start: %s", j.ID, showPlan(plan))
				}
				r := j.Request
				for early := in.Now; early < at; early++ {
					if u.fits(early, j.LimitS, r.MinNodes, r.TasksPerNode, each) {
						t.Fatalf("job %d is promised %d and fits at %d: %s", j.ID, at-in.Now, early-in.Now, showPlan(plan))
					}
				}
				u.take(nodes, at, at+j.LimitS, r.TasksPerNode)
			}
			for _, n := range in.Nodes {
				if slices.Max(u.cpus[n.Name][:]) > each {
					t.Fatalf("%s is promised to more than it has room for: %s", n.Name, showPlan(plan))
				}
			}
			w.plan()
			w.in.Now += rapid.Int64Range(1, 10).Draw(t, "dt")
			w.in.Running = slices.DeleteFunc(slices.Clone(w.in.Running), func(r *record.Run) bool {
				return r.End <= w.in.Now || rapid.IntRange(0, 4).Draw(t, "early") == 0
			})
		}
	})
}

// placed is when and where the plan has a job begin.
func placed(p *record.Plan, id uint32) (at int64, nodes []string) {
	for i := range p.Start {
		if s := &p.Start[i]; s.Job.ID == id {
			for _, a := range s.Allocs {
				nodes = append(nodes, a.Node)
			}
			return p.Now, nodes
		}
	}
	for i := range p.Reserve {
		if p.Reserve[i].ID == id {
			return p.Reserve[i].At, p.Reserve[i].Nodes
		}
	}
	return 0, nil
}

// TestPlanToIsThePlan: as far as a job, and to the word what the whole plan says of it; of those behind it nothing.
func TestPlanToIsThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, record.Params{Weights: record.Weights{Basic: true}}, rapid.IntRange(1, 4).Draw(t, "nodes"), 4)
		parts := []string{"p"}
		if rapid.Bool().Draw(t, "two") {
			w.in.Partitions = append(w.in.Partitions, &record.Partition{Name: "q", Nodes: []string{"n1"}})
			parts = append(parts, "q")
		}
		for id := range uint32(rapid.IntRange(1, 12).Draw(t, "jobs")) {
			n := rapid.IntRange(1, len(w.in.Nodes)).Draw(t, "n")
			j := w.add(
				id+1,
				rapid.Int64Range(1, 3).Draw(t, "limit"),
				record.Request{MinNodes: n, MaxNodes: n, TasksPerNode: rapid.IntRange(1, 4).Draw(t, "tpn")},
			)
			j.Partitions = parts[:rapid.IntRange(1, len(parts)).Draw(t, "parts")]
		}
		in := w.in
		whole := New(record.Params{Policy: record.Conservative, Weights: record.Weights{Basic: true}}).Plan(&in)
		for i, j := range in.Pending { // in the order of the queue
			p := w.s.PlanTo(&in, j.ID)
			at, nodes := placed(whole, j.ID)
			if to, on := placed(p, j.ID); to != at || !slices.Equal(on, nodes) {
				t.Fatalf("job %d: %d on %s, the whole plan says %d on %s", j.ID, to, on, at, nodes)
			}
			if len(parts) > 1 {
				continue // of two queues one may be ahead of the other
			}
			for _, later := range in.Pending[i+1:] {
				if _, on := placed(p, later.ID); on != nil {
					t.Fatalf("a plan as far as job %d speaks of job %d", j.ID, later.ID)
				}
			}
		}
	})
}

// A job that the budget does not reach is said to be too far down the queue.
func TestExplainTooFar(t *testing.T) {
	w := newWorld(t, record.Params{Weights: record.Weights{Basic: true}}, 4, 4)
	for id := uint32(1); id <= 40; id++ {
		w.add(id, int64(100+id), record.Request{Tasks: 4, MinNodes: 1, MaxNodes: 1})
	}
	w.plan()
	in := w.in
	in.Budget = 40
	x, ok := w.s.Explain(&in, 6)
	if !ok || x.TooFar || x.Start != w.in.Now+102 {
		t.Errorf("of the second that waits: start %d, too far %v", x.Start, x.TooFar)
	}
	x, ok = w.s.Explain(&in, 40)
	if !ok || !x.TooFar || x.Start != record.Forever ||
		!strings.Contains(x.String(), "expected start not computed: too many jobs are ahead of this one\n") {
		t.Errorf("of the last: start %d\n%s", x.Start, x)
	}
}
