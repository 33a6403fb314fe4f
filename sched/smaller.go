package sched

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// trial asks the scheduler, of a copy of a job that wants less, whether it
// would start at once if it were submitted now. What it says is true, because
// a plan says it; plans that differ in one job cost little.
type trial struct {
	s      *Scheduler
	in     Snapshot
	others []*Job
	rec    Job // what would be submitted
}

// newTrial is for a copy of j in place of it, or beside it.
func newTrial(s *Scheduler, in *Snapshot, j *vjob, instead bool) *trial {
	t := &trial{s: s, in: *in, rec: *j.rec}
	t.in.Resume = Cursor{}
	for _, o := range in.Pending {
		t.rec.ID = max(t.rec.ID, o.ID+1)
		if !instead || o.ID != j.rec.ID {
			t.others = append(t.others, o)
		}
	}
	t.rec.Array, t.rec.Submit, t.rec.Eligible, t.rec.Begin, t.rec.Priority = nil, in.Now, 0, 0, 0
	return t
}

func (t *trial) starts(change func(*Job, *Request)) bool {
	rec, req := t.rec, *t.rec.Request
	rec.Request = &req
	change(&rec, &req)
	t.in.Pending = append(t.others[:len(t.others):len(t.others)], &rec)
	return slices.ContainsFunc(t.s.Plan(&t.in).Start, func(st Start) bool { return st.Job == &rec })
}

// knob is one thing that a job may ask less of.
type knob struct {
	from int64 // what it asks for
	set  func(j *Job, r *Request, v int64)
	say  func(v int64) string
}

// most is the most below k.from with which the job starts, besides what is
// already changed; 0 when there is none.
func (t *trial) most(k *knob, already func(*Job, *Request)) int64 {
	ok := func(v int64) bool {
		return t.starts(func(j *Job, r *Request) {
			already(j, r)
			k.set(j, r, v)
		})
	}
	low, high := int64(1), k.from
	if high <= low || !ok(low) {
		return 0
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; ok(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// smaller lists changes to e's request with each of which it would start now:
// one thing less, or, where none of that is enough, less of several.
func (s *Scheduler) smaller(in *Snapshot, e *entry) []string {
	if beside := s.changes(newTrial(s, in, e.job, false), e); len(beside) > 0 {
		return beside
	}
	out := s.changes(newTrial(s, in, e.job, true), e)
	for i := range out {
		out[i] += ", in place of this job"
	}
	return out
}

func (s *Scheduler) changes(t *trial, e *entry) []string {
	var out []string
	knobs := s.knobs(e)
	for i := range knobs {
		if v := t.most(&knobs[i], func(*Job, *Request) {}); v > 0 {
			out = append(out, "with "+knobs[i].say(v))
		}
	}
	for _, w := range waivers(e.class.shape.req) {
		if t.starts(func(_ *Job, r *Request) { w.drop(r) }) {
			out = append(out, "without "+w.option)
		}
	}
	if len(out) == 0 {
		if all := t.combined(knobs); all != "" {
			out = append(out, "with "+all)
		}
	}
	return out
}

// combined takes the least of everything and, one after the other, as much of
// each as still starts; "" when not even the least does.
func (t *trial) combined(knobs []knob) string {
	values := make([]int64, len(knobs))
	for i := range values {
		values[i] = 1
	}
	others := func(except int) func(*Job, *Request) {
		return func(j *Job, r *Request) {
			for i := range knobs {
				if i != except && values[i] < knobs[i].from {
					knobs[i].set(j, r, values[i])
				}
			}
		}
	}
	if len(knobs) < 2 || !t.starts(others(-1)) {
		return ""
	}
	var words []string
	for i := range knobs {
		if values[i] = knobs[i].from; t.starts(others(i)) {
			continue
		}
		values[i] = t.most(&knobs[i], others(i))
		words = append(words, knobs[i].say(values[i]))
	}
	return strings.Join(words, " ")
}

// knobs are what e asks for more than one of.
func (s *Scheduler) knobs(e *entry) []knob {
	r := e.class.shape.req
	const year = 365 * 24 * 60
	out := []knob{{(min(e.limit, 60*year) + 59) / 60, func(j *Job, _ *Request, v int64) { j.LimitS, j.TimeMinS = 60*v, 0 }, func(v int64) string { return "--time=" + timespec.Clock(60*v) }}}
	out = append(out, sizeKnobs(r)...)
	number := func(from int64, field func(*Request) *int64, option, unit string) {
		out = append(out, knob{from, func(_ *Job, r *Request, v int64) { *field(r) = v }, func(v int64) string { return fmt.Sprintf("--%s=%d%s", option, v, unit) }})
	}
	whole := r.MemNodeMiB
	if r.MemSaid && whole == 0 {
		for _, i := range e.class.part.nodes {
			whole = max(whole, s.nodes.vals[i].rec.MemMiB)
		}
	}
	number(whole, func(r *Request) *int64 { return &r.MemNodeMiB }, "mem", "M")
	number(r.MemCPUMiB, func(r *Request) *int64 { return &r.MemCPUMiB }, "mem-per-cpu", "M")
	number(r.MemGPUMiB, func(r *Request) *int64 { return &r.MemGPUMiB }, "mem-per-gpu", "M")
	for i := range r.Gres {
		out = append(out, knob{r.Gres[i].Count, func(_ *Job, r *Request, v int64) {
			r.Gres = slices.Clone(r.Gres)
			r.Gres[i].Count = v
		}, func(v int64) string { return r.Gres[i].option(v) }})
	}
	return slices.DeleteFunc(out, func(k knob) bool { return k.from <= 1 })
}

// option is how v of the resource are asked for.
func (g *GresRequest) option(v int64) string {
	name, typed := g.Name, ""
	if g.Type != "" {
		typed = g.Type + ":"
	}
	switch {
	case g.Name != "gpu" || g.Per == PerNode:
		return fmt.Sprintf("--gres=%s:%s%d", name, typed, v)
	case g.Per == PerTask:
		return fmt.Sprintf("--gpus-per-task=%s%d", typed, v)
	case g.Per == PerSocket:
		return fmt.Sprintf("--gpus-per-socket=%s%d", typed, v)
	}
	return fmt.Sprintf("--gpus=%s%d", typed, v)
}

// sizeKnobs are nodes, with their tasks, or tasks, and CPUs.
func sizeKnobs(r *Request) []knob {
	d := workOut(r)
	var out []knob
	switch {
	case d.lo > 1 && len(r.NodeList) <= 1:
		tasks := func(v int64) int { return int(max(v, int64(r.Tasks)*v/int64(d.lo))) }
		out = append(out, knob{int64(d.lo), func(_ *Job, q *Request, v int64) {
			q.NodeCounts, q.MinNodes = nil, int(v)
			if q.MaxNodes > 0 {
				q.MaxNodes = int(v)
			}
			if q.Tasks > 0 {
				q.Tasks = tasks(v)
			}
		}, func(v int64) string {
			if r.Tasks > 0 {
				return fmt.Sprintf("--nodes=%d --ntasks=%d", v, tasks(v))
			}
			return fmt.Sprintf("--nodes=%d", v)
		}})
	case r.Tasks > 1:
		out = append(out, knob{int64(r.Tasks), func(_ *Job, q *Request, v int64) { q.Tasks = int(v) }, func(v int64) string { return fmt.Sprintf("--ntasks=%d", v) }})
	case r.Tasks == 0:
		out = append(out, knob{int64(r.TasksPerNode), func(_ *Job, q *Request, v int64) { q.TasksPerNode = int(v) }, func(v int64) string { return fmt.Sprintf("--ntasks-per-node=%d", v) }})
	}
	return append(out,
		knob{int64(r.CPUsPerTask), func(_ *Job, q *Request, v int64) { q.CPUsPerTask = int(v) }, func(v int64) string { return fmt.Sprintf("--cpus-per-task=%d", v) }},
		knob{int64(r.MinCPUs), func(_ *Job, q *Request, v int64) { q.MinCPUs = int(v) }, func(v int64) string { return fmt.Sprintf("--mincpus=%d", v) }})
}

// waiver is a condition that a job may do without.
type waiver struct {
	option string
	drop   func(*Request)
}

func waivers(r *Request) []waiver {
	var out []waiver
	add := func(said bool, option string, drop func(*Request)) {
		if said {
			out = append(out, waiver{option, drop})
		}
	}
	add(r.Exclusive, "--exclusive", func(q *Request) { q.Exclusive = false })
	add(r.Contiguous, "--contiguous", func(q *Request) { q.Contiguous = false })
	add(r.Switches > 0, "--switches", func(q *Request) { q.Switches = 0 })
	add(r.Features != "", "--constraint="+r.Features, func(q *Request) { q.Features = "" })
	add(len(r.NodeList) > 0, "--nodelist", func(q *Request) { q.NodeList = nil })
	add(len(r.Exclude) > 0, "--exclude", func(q *Request) { q.Exclude = nil })
	add(len(r.Licenses) > 0, "--licenses", func(q *Request) { q.Licenses = nil })
	return out
}
