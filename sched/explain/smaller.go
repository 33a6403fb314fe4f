package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// trial asks the scheduler, of a copy of a job that wants less, whether it
// would start at once if it were submitted now. What it says is true, because
// a plan says it; plans that differ in one job cost little.
type trial struct {
	plans  plans
	in     record.Snapshot
	others []*record.Job
	rec    record.Job // what would be submitted
}

// newTrial is for a copy of j, submitted in its place or in addition to it.
func newTrial(plans plans, in *record.Snapshot, j *queue.Job, instead bool) *trial {
	t := &trial{plans: plans, in: *in, rec: *j.Rec}
	t.in.Resume = record.Cursor{}
	for _, o := range in.Pending {
		t.rec.ID = max(t.rec.ID, o.ID+1)
		if !instead || o.ID != j.Rec.ID {
			t.others = append(t.others, o)
		}
	}
	t.rec.Array, t.rec.Submit, t.rec.Eligible, t.rec.Begin, t.rec.Priority = nil, in.Now, 0, 0, 0
	return t
}

func (t *trial) starts(change func(*record.Job, *record.Request)) bool {
	rec, req := t.rec, *t.rec.Request
	rec.Request = &req
	change(&rec, &req)
	t.in.Pending = append(t.others[:len(t.others):len(t.others)], &rec)
	return slices.ContainsFunc(t.plans.Plan(&t.in).Start, func(st record.Start) bool { return st.Job == &rec })
}

// knob is one thing that a job may ask less of.
type knob struct {
	from int64 // what it asks for
	set  func(j *record.Job, r *record.Request, v int64)
	say  func(v int64) string
}

// most is the most below k.from with which the job starts, besides what is
// already changed; 0 when there is none.
func (t *trial) most(k *knob, already func(*record.Job, *record.Request)) int64 {
	ok := func(v int64) bool {
		return t.starts(func(j *record.Job, r *record.Request) {
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
func (ex *explainer) smaller(in *record.Snapshot, e *queue.Entry) []string {
	if beside := ex.changes(newTrial(ex.plans, in, e.Job, false), e); len(beside) > 0 {
		return beside
	}
	out := ex.changes(newTrial(ex.plans, in, e.Job, true), e)
	for i := range out {
		out[i] += ", in place of this job"
	}
	return out
}

func (ex *explainer) changes(t *trial, e *queue.Entry) []string {
	var out []string
	knobs := ex.knobs(e)
	for i := range knobs {
		if v := t.most(&knobs[i], func(*record.Job, *record.Request) {}); v > 0 {
			out = append(out, "with "+knobs[i].say(v))
		}
	}
	for _, w := range waivers(e.Class.Shape.Request) {
		if t.starts(func(_ *record.Job, r *record.Request) { w.drop(r) }) {
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
	others := func(except int) func(*record.Job, *record.Request) {
		return func(j *record.Job, r *record.Request) {
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
func (ex *explainer) knobs(e *queue.Entry) []knob {
	r := e.Class.Shape.Request
	const year = 365 * 24 * 60
	out := []knob{
		{
			(min(e.Limit, 60*year) + 59) / 60,
			func(j *record.Job, _ *record.Request, v int64) { j.LimitS, j.TimeMinS = 60*v, 0 },
			func(v int64) string { return "--time=" + timespec.Clock(60*v) },
		},
	}
	out = append(out, sizeKnobs(r)...)
	number := func(from int64, field func(*record.Request) *int64, option, unit string) {
		out = append(
			out,
			knob{
				from,
				func(_ *record.Job, r *record.Request, v int64) { *field(r) = v },
				func(v int64) string { return fmt.Sprintf("--%s=%d%s", option, v, unit) },
			},
		)
	}
	whole := r.MemNodeMiB
	if r.MemSaid && whole == 0 {
		for _, i := range e.Class.Part.Nodes {
			whole = max(whole, ex.ix.Nodes.Vals[i].Rec.MemMiB)
		}
	}
	number(whole, func(r *record.Request) *int64 { return &r.MemNodeMiB }, "mem", "M")
	number(r.MemCPUMiB, func(r *record.Request) *int64 { return &r.MemCPUMiB }, "mem-per-cpu", "M")
	number(r.MemGPUMiB, func(r *record.Request) *int64 { return &r.MemGPUMiB }, "mem-per-gpu", "M")
	for i := range r.Gres {
		out = append(out, knob{r.Gres[i].Count, func(_ *record.Job, r *record.Request, v int64) {
			r.Gres = slices.Clone(r.Gres)
			r.Gres[i].Count = v
		}, func(v int64) string { return gresOption(&r.Gres[i], v) }})
	}
	return slices.DeleteFunc(out, func(k knob) bool { return k.from <= 1 })
}

// gresOption is how v of the resource are asked for.
func gresOption(g *record.GresRequest, v int64) string {
	name, typed := g.Name, ""
	if g.Type != "" {
		typed = g.Type + ":"
	}
	switch {
	case g.Name != "gpu" || g.Per == record.PerNode:
		return fmt.Sprintf("--gres=%s:%s%d", name, typed, v)
	case g.Per == record.PerTask:
		return fmt.Sprintf("--gpus-per-task=%s%d", typed, v)
	case g.Per == record.PerSocket:
		return fmt.Sprintf("--gpus-per-socket=%s%d", typed, v)
	}
	return fmt.Sprintf("--gpus=%s%d", typed, v)
}

// sizeKnobs are nodes, with their tasks, or tasks, and CPUs.
func sizeKnobs(r *record.Request) []knob {
	d := sizing.WorkOut(r)
	var out []knob
	switch {
	case d.Lo > 1 && len(r.NodeList) <= 1:
		tasks := func(v int64) int { return int(max(v, int64(r.Tasks)*v/int64(d.Lo))) }
		out = append(out, knob{int64(d.Lo), func(_ *record.Job, q *record.Request, v int64) {
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
		out = append(
			out,
			knob{
				int64(r.Tasks),
				func(_ *record.Job, q *record.Request, v int64) { q.Tasks = int(v) },
				func(v int64) string { return fmt.Sprintf("--ntasks=%d", v) },
			},
		)
	case r.Tasks == 0:
		out = append(
			out,
			knob{
				int64(r.TasksPerNode),
				func(_ *record.Job, q *record.Request, v int64) { q.TasksPerNode = int(v) },
				func(v int64) string { return fmt.Sprintf("--ntasks-per-node=%d", v) },
			},
		)
	}
	return append(
		out,
		knob{
			int64(r.CPUsPerTask),
			func(_ *record.Job, q *record.Request, v int64) { q.CPUsPerTask = int(v) },
			func(v int64) string { return fmt.Sprintf("--cpus-per-task=%d", v) },
		},
		knob{
			int64(r.MinCPUs),
			func(_ *record.Job, q *record.Request, v int64) { q.MinCPUs = int(v) },
			func(v int64) string { return fmt.Sprintf("--mincpus=%d", v) },
		},
	)
}

// waiver is a condition that a job may do without.
type waiver struct {
	option string
	drop   func(*record.Request)
}

func waivers(r *record.Request) []waiver {
	var out []waiver
	add := func(said bool, option string, drop func(*record.Request)) {
		if said {
			out = append(out, waiver{option, drop})
		}
	}
	add(r.Exclusive, "--exclusive", func(q *record.Request) { q.Exclusive = false })
	add(r.Contiguous, "--contiguous", func(q *record.Request) { q.Contiguous = false })
	add(r.Switches > 0, "--switches", func(q *record.Request) { q.Switches = 0 })
	add(r.Features != "", "--constraint="+r.Features, func(q *record.Request) { q.Features = "" })
	add(len(r.NodeList) > 0, "--nodelist", func(q *record.Request) { q.NodeList = nil })
	add(len(r.Exclude) > 0, "--exclude", func(q *record.Request) { q.Exclude = nil })
	add(len(r.Licenses) > 0, "--licenses", func(q *record.Request) { q.Licenses = nil })
	return out
}
