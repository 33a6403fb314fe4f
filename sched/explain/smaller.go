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

// trial asks the scheduler whether a copy of a job with a smaller request would start at once if it were submitted, now or a little later.
// The answer is exact, because it is a plan; plans that differ in one job are cheap.
type trial struct {
	at     [2]moment
	others []*record.Job
	rec    record.Job // the record to submit
}

// moment is the time of a trial. Each has a scheduler of its own, because a scheduler starts over when time goes back.
type moment struct {
	plans Plans
	in    record.Snapshot
}

// marginS is the time in seconds by which the changed job may be submitted later and still start: users type. Jobs that end within it have
// not ended in the trial.
const marginS = 60

// change modifies the submitted record.
type change func(*record.Job, *record.Request)

func nothing(*record.Job, *record.Request) {}

// newTrial makes a trial with a copy of j, submitted in its place or in addition to it.
func (ex *explainer) newTrial(in *record.Snapshot, j *queue.Job, later Plans, instead bool) *trial {
	t := &trial{at: [2]moment{{ex.plans, *in}, {later, *in}}, rec: *j.Rec}
	t.at[0].in.Resume, t.at[1].in.Resume = record.Cursor{}, record.Cursor{}
	t.at[1].in.Now += marginS
	for _, o := range in.Pending {
		t.rec.ID = max(t.rec.ID, o.ID+1)
		if !instead || o.ID != j.Rec.ID {
			t.others = append(t.others, o)
		}
	}
	for _, r := range in.Running {
		t.rec.ID = max(t.rec.ID, r.ID+1)
	}
	t.rec.Array, t.rec.Eligible, t.rec.Begin, t.rec.Priority, t.rec.Promised = nil, 0, 0, 0, false
	return t
}

func (t *trial) starts(to change) bool {
	rec, req := t.rec, *t.rec.Request
	rec.Request = &req
	to(&rec, &req)
	for i := range t.at {
		m, submitted := &t.at[i], rec
		submitted.Submit = m.in.Now
		m.in.Pending = append(t.others[:len(t.others):len(t.others)], &submitted)
		if !slices.ContainsFunc(m.plans.Plan(&m.in).Start, func(st record.Start) bool { return st.Job == &submitted }) {
			return false
		}
	}
	return true
}

// knob is a quantity that a job may request less of.
type knob struct {
	from int64 // requested amount
	set  func(j *record.Job, r *record.Request, v int64)
	say  func(v int64) string
}

// most returns the largest value below k.from with which the job starts, given the changes already made; 0 when it does not start with low.
func (t *trial) most(k *knob, low int64, already change) int64 {
	ok := func(v int64) bool {
		return t.starts(func(j *record.Job, r *record.Request) {
			already(j, r)
			k.set(j, r, v)
		})
	}
	high := k.from
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

// smaller lists changes to e's request, each of which would let it start now: less of one quantity, or, if none of these is enough, of
// several.
func (ex *explainer) smaller(in *record.Snapshot, e *queue.Entry, knobs []knob, faulty bool) (out []string) {
	later := ex.fresh()
	beside, instead := ex.newTrial(in, e.Job, later, false), ex.newTrial(in, e.Job, later, true)
	trials := []*trial{beside, instead}
	if faulty {
		trials = trials[1:] // the faulty job would only be left in the queue
	}
	if beside.starts(nothing) || instead.starts(nothing) {
		return nil // no change needed
	}
	for _, several := range []bool{false, true} {
		for _, t := range trials {
			var found []option
			if several {
				found = t.combined(knobs)
			} else {
				found = t.changes(knobs, e.Class.Shape.Request)
			}
			for _, o := range found {
				out = append(out, o.text+whereOf(e.Job.Rec, t == instead))
			}
			if len(out) > 0 {
				return out
			}
		}
	}
	return nil
}

// whereOf says whether the changed job is an additional one, and that for an array it is a single task.
func whereOf(j *record.Job, instead bool) string {
	switch {
	case instead && j.Array != nil:
		return ", for a single task in place of this job"
	case instead:
		return ", in place of this job"
	case j.Array != nil:
		return ", for a single task beside this job"
	}
	return ", beside this job"
}

// option is a change and its text.
type option struct {
	text string
	change
}

// changes returns changes of a single quantity each.
func (t *trial) changes(knobs []knob, r *record.Request) (out []option) {
	for i := range knobs {
		k := &knobs[i]
		if v := t.most(k, 1, nothing); v > 0 {
			out = append(out, option{"with " + k.say(v), func(j *record.Job, r *record.Request) { k.set(j, r, v) }})
		}
	}
	for _, w := range waivers(r) {
		drop := func(_ *record.Job, r *record.Request) { w.drop(r) }
		if t.starts(drop) {
			out = append(out, option{"without " + w.option, drop})
		}
	}
	return out
}

// combined starts from the least of every quantity and raises one after the other as far as the job still starts; it returns nothing when
// not even the least starts.
func (t *trial) combined(knobs []knob) []option {
	values := make([]int64, len(knobs))
	for i := range values {
		values[i] = 1
	}
	others := func(except int) change {
		return func(j *record.Job, r *record.Request) {
			for i := range knobs {
				if i != except && values[i] < knobs[i].from {
					knobs[i].set(j, r, values[i])
				}
			}
		}
	}
	if len(knobs) < 2 || !t.starts(others(-1)) {
		return nil
	}
	for i := range knobs {
		if values[i] = knobs[i].from; !t.starts(others(i)) {
			values[i] = max(1, t.most(&knobs[i], 1, others(i)))
		}
	}
	for again := true; again; { // after the others were lowered, more of the first may do
		again = false
		for i := range knobs {
			if more := t.most(&knobs[i], values[i]+1, others(i)); more > 0 {
				values[i], again = more, true
			}
		}
	}
	var words []string
	for i := range knobs {
		if values[i] < knobs[i].from {
			words = append(words, knobs[i].say(values[i]))
		}
	}
	if len(words) == 0 || !t.starts(others(-1)) {
		return nil
	}
	return []option{{"with " + strings.Join(words, " "), others(-1)}}
}

// knobs returns the quantities of e's request that might be reduced.
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

// gresOption formats a request for v of the resource.
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

// sizeKnobs returns the knobs for nodes, with their tasks, or tasks, and CPUs.
func sizeKnobs(r *record.Request) []knob {
	d := sizing.WorkOut(r)
	var out []knob
	switch {
	case d.Lo > 1 && len(r.NodeList) <= 1:
		tasks := func(v int64) int { return int(max(v, int64(r.Tasks)*v/int64(d.Lo))) }
		out = append(out, knob{int64(d.Lo), func(_ *record.Job, q *record.Request, v int64) {
			q.NodeCounts, q.MinNodes, q.MaxNodes = nil, int(v), int(v)
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

// waiver is a condition that a job may give up.
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
