package sched

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// usage is what is taken of each node, second by second: another way to know when a job fits than the profiles.
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

// fits: so many nodes have so many CPUs free throughout.
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
		w := newWorld(t, Params{Policy: Conservative, Weights: Weights{Basic: true}}, rapid.IntRange(1, 3).Draw(t, "nodes"), each)
		id := uint32(0)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for range rapid.IntRange(0, 4).Draw(t, "submit") {
				id++
				n := rapid.IntRange(1, len(w.in.Nodes)).Draw(t, "n")
				w.add(id, rapid.Int64Range(1, 20).Draw(t, "limit"), Request{MinNodes: n, MaxNodes: n, TasksPerNode: rapid.IntRange(1, each).Draw(t, "tpn")})
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
			w.in.Running = slices.DeleteFunc(slices.Clone(w.in.Running), func(r *Run) bool {
				return r.End <= w.in.Now || rapid.IntRange(0, 4).Draw(t, "early") == 0
			})
		}
	})
}

// placed is when and where the plan has a job begin.
func placed(p *Plan, id uint32) (at int64, nodes []string) {
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
