package explain

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Way is a set of jobs without which the job would start now. A plan without the whole set starts the job, and a plan with any of them does
// not.
type Way struct {
	Runs    []uint32 // running jobs that would have to end
	Waiting []uint32 // pending jobs that would have to be cancelled
	Any     bool     // one of them suffices; else all are needed
}

// obstacle is a job that may be in the way.
type obstacle struct {
	running bool
	id      uint32
}

// obstacles are the jobs that may be in the way of another: those that run on nodes of its partition or hold licenses that it needs, the
// first to end first, and those before it in any queue.
type obstacles struct {
	runs    []*record.Run
	waiting []obstacle
}

func (ex *explainer) obstacles(in *record.Snapshot, e *queue.Entry, others []*queue.Entry) (o obstacles) {
	nodes := map[string]bool{}
	for _, i := range e.Class.Part.Nodes {
		nodes[ex.ix.Nodes.Vals[i].Rec.Name] = true
	}
	wants := e.Class.Shape.Request.Licenses
	for _, r := range in.Running {
		if slices.ContainsFunc(r.Allocs, func(a record.Alloc) bool { return nodes[a.Node] }) ||
			len(wants) > 0 && r.Job != nil && r.Job.Request != nil && len(r.Job.Request.Licenses) > 0 {
			o.runs = append(o.runs, r)
		}
	}
	slices.SortStableFunc(o.runs, func(a, b *record.Run) int { return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.ID, b.ID)) })
	for _, w := range others {
		if queue.CompareEntries(w, e) < 0 {
			o.waiting = append(o.waiting, obstacle{false, w.Job.Rec.ID})
		}
	}
	return o
}

// others returns the other jobs of the queue by their primary entries, in order.
func (ex *explainer) others(e *queue.Entry) (out []*queue.Entry) {
	for _, j := range ex.q.Jobs.Vals {
		if j != e.Job && j.Wait.Code == "" {
			out = append(out, j.Primary())
		}
	}
	slices.SortFunc(out, queue.CompareEntries)
	return out
}

// ahead returns those of the others that come before e in the queue of its partition.
func ahead(e *queue.Entry, others []*queue.Entry) (ids []uint32) {
	for _, w := range others {
		if slices.ContainsFunc(w.Job.Entries, func(o *queue.Entry) bool {
			return o.Class.Part == e.Class.Part && queue.CompareEntries(o, e) < 0
		}) {
			ids = append(ids, w.Job.Rec.ID)
		}
	}
	return ids
}

// search looks for the jobs that are in the way of a job, with plans of snapshots without some of the jobs.
type search struct {
	plans Plans
	in    *record.Snapshot
	id    uint32
	left  int // probes
}

const (
	// mostNeeded bounds the jobs in a Way: nobody reads more.
	mostNeeded = 16
	// mostEqual bounds the jobs that are tried in place of a single one.
	mostEqual = 32
	// mostAhead bounds the jobs ahead for which ways are computed: behind more of them no single job matters, and a plan without many
	// running jobs starts too many of them.
	mostAhead = 200
	// mostRuns bounds the running jobs that are considered.
	mostRuns = 1000
)

// ways fills in the sets of jobs without which the job would start now: running jobs, pending jobs, or, where neither is enough, both.
func (ex *explainer) ways(in *record.Snapshot, id uint32, o obstacles, x *Explanation) {
	s := &search{ex.plans, in, id, explainBudget}
	if len(o.waiting) > mostAhead || s.starts() {
		return
	}
	soon, all := o.running(x)
	runs := s.smallest(soon)
	if runs == nil && len(all) > len(soon) {
		runs = s.smallest(all)
	}
	for _, w := range []*Way{s.way(runs, all), s.way(s.smallest(o.waiting), o.waiting)} {
		if w != nil {
			x.Ways = append(x.Ways, *w)
		}
	}
	if len(x.Ways) == 0 && len(o.waiting) > 0 {
		if both := s.way(s.smallest(slices.Concat(all, o.waiting)), nil); both != nil {
			x.Ways = append(x.Ways, *both)
		}
	}
}

// running returns the running jobs in the way: those that end before the expected start on the expected nodes, and all, with these first.
func (o *obstacles) running(x *Explanation) (soon, all []obstacle) {
	var later []obstacle
	for _, r := range o.runs {
		if job := (obstacle{true, r.ID}); r.End <= x.Start && slices.ContainsFunc(r.Allocs, func(a record.Alloc) bool {
			return slices.Contains(x.Where, a.Node)
		}) {
			soon = append(soon, job)
		} else {
			later = append(later, job)
		}
	}
	soon, all = unique(soon), unique(append(soon[:len(soon):len(soon)], later...))
	return soon[:min(len(soon), mostRuns)], all[:min(len(all), mostRuns)]
}

// unique drops repeated tasks of an array.
func unique(all []obstacle) (out []obstacle) {
	seen := map[obstacle]bool{}
	for _, o := range all {
		if !seen[o] {
			out, seen[o] = append(out, o), true
		}
	}
	return out
}

// starts reports whether the job would start now without some others.
func (s *search) starts(without ...obstacle) bool {
	if s.left <= 0 {
		return false
	}
	gone := make(map[obstacle]bool, len(without))
	for _, o := range without {
		gone[o] = true
	}
	in := *s.in
	in.Resume, in.Budget = record.Cursor{}, cmp.Or(in.Budget, explainBudget)
	in.Running = slices.DeleteFunc(slices.Clone(in.Running), func(r *record.Run) bool { return gone[obstacle{true, r.ID}] })
	in.Pending = slices.DeleteFunc(slices.Clone(in.Pending), func(j *record.Job) bool { return gone[obstacle{false, j.ID}] })
	plan := s.plans.Plan(&in)
	s.left -= 1 + plan.Stats.Probes
	return slices.ContainsFunc(plan.Start, func(st record.Start) bool { return st.Job.ID == s.id })
}

// way makes a Way from need, with jobs of a list that would do in place of a single job.
func (s *search) way(need, list []obstacle) *Way {
	if len(need) == 0 {
		return nil
	}
	w := &Way{Any: len(need) == 1}
	if w.Any {
		for _, o := range list[:min(len(list), mostEqual)] {
			if o != need[0] && s.starts(o) {
				need = append(need, o)
			}
		}
	}
	for _, o := range need {
		if o.running {
			w.Runs = append(w.Runs, o.id)
		} else {
			w.Waiting = append(w.Waiting, o.id)
		}
	}
	slices.Sort(w.Runs)
	slices.Sort(w.Waiting)
	return w
}

// smallest returns a minimal set of jobs of the list without which the job starts; nil if there is none, or it is too large. Jobs at the
// front of the list are preferred: the last job of the shortest sufficient prefix is needed; then the part before it is searched in the
// same way.
func (s *search) smallest(list []obstacle) (need []obstacle) {
	if len(list) == 0 || !s.starts(list...) {
		return nil
	}
	for len(need) == 0 || !s.starts(need...) {
		low, high := 0, len(list)
		for high-low > 1 {
			if mid := low + (high-low)/2; s.starts(slices.Concat(need, list[:mid])...) {
				high = mid
			} else {
				low = mid
			}
		}
		if high == 0 || len(need) == mostNeeded {
			return nil
		}
		need, list = append(need, list[high-1]), list[:high-1]
	}
	for i := 0; i < len(need); {
		if less := slices.Delete(slices.Clone(need), i, i+1); len(less) > 0 && s.starts(less...) {
			need, i = less, 0 // nothing is monotonic in a scheduler
		} else {
			i++
		}
	}
	if s.left <= 0 {
		return nil // the search is incomplete
	}
	return need
}

// Delay is a set of others' reservations without which the job would be expected to start earlier.
type Delay struct {
	Reservations []string
	ByS          int64 // seconds; Forever when it is not expected to start at all
}

// mostReservations bounds the reservations that are examined one by one.
const mostReservations = 8

// windows returns others' reservations on nodes of the partition that are not over, by name.
func (ex *explainer) windows(e *queue.Entry) (names []string) {
	for _, i := range e.Class.Part.Nodes {
		for _, w := range ex.ix.Nodes.Vals[i].Reserved() {
			if w.End > ex.ix.Now && !e.Class.Shape.Resv.Passes(w.Resv) {
				names = append(names, w.Resv.Rec.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// delays fills in the reservations that delay the expected start: each that does so alone, or all of them together.
func (ex *explainer) delays(in *record.Snapshot, id uint32, names []string, x *Explanation) {
	if x.Start == 0 || x.TooFar || len(names) == 0 {
		return
	}
	without := func(gone ...string) {
		at, _, _ := ex.planTo(unreserved(in, gone), id)
		switch {
		case at >= x.Start:
		case x.Start == record.Forever:
			x.Delays = append(x.Delays, Delay{gone, record.Forever})
		default:
			x.Delays = append(x.Delays, Delay{gone, x.Start - at})
		}
	}
	if len(names) <= mostReservations {
		for _, name := range names {
			without(name)
		}
	}
	if len(x.Delays) == 0 && len(names) > 1 {
		without(names...)
	}
	for _, d := range x.Delays {
		x.Reserved = append(x.Reserved, d.Reservations...)
	}
	slices.Sort(x.Reserved)
	x.Reserved = slices.Compact(x.Reserved)
}

// unreserved returns a snapshot without some reservations, and without the maintenance that is on for them.
func unreserved(in *record.Snapshot, gone []string) *record.Snapshot {
	out := *in
	out.Reservations, out.Nodes = nil, slices.Clone(in.Nodes)
	for _, r := range in.Reservations {
		if !slices.Contains(gone, r.Name) {
			out.Reservations = append(out.Reservations, r)
			continue
		}
		for i, n := range out.Nodes {
			if r.Maint && n.State == record.NodeMaint && slices.Contains(r.Nodes, n.Name) {
				up := *n
				up.State = record.NodeUsable
				out.Nodes[i] = &up
			}
		}
	}
	return &out
}
