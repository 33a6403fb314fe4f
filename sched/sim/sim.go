// Package sim replays workload traces through the production scheduler in simulated time. It acts as the controller: it hands over
// snapshots, follows plans, and ends jobs when the trace says so. It makes no decisions.
package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/predict"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Options say what to replay and how.
type Options struct {
	SWF   string // path of a trace; or Jobs
	Jobs  []Job
	Procs int // processors of the machine
	// NodeProcs cuts the machine into nodes of this many processors; 0 is one pool. A job larger than a node takes whole nodes' worth of
	// tasks.
	NodeProcs int

	Policy string // a key of Policies; "" is the default
	Exact  bool   // estimates are the run times, not the requests
	Params *record.Params

	// Weights are the weights of multifactor priority; nil is priority/basic. Users, accounts (groups) and QOS (queues) are the trace's.
	Weights *record.Weights
	// QOS are the priorities of queues, for Weights.QOS; a queue without one has 0.
	QOS       map[string]uint32
	HalfLifeS int64 // PriorityDecayHalfLife; 0 means 7 days

	// Progress is called now and then with the number of jobs that have ended.
	Progress func(done, all int)
	// Clock tells wall time for Report.WallS; nil leaves it 0.
	Clock func() time.Time
}

// Policy is a named configuration of the scheduler and how often it runs.
type Policy struct {
	Params record.Params
	// EveryS runs a pass at multiples of this many seconds instead of after each second with an event.
	EveryS int64
	About  string
}

// Policies are the policies by the names that Options.Policy takes.
var Policies = map[string]Policy{
	"default":      {Params: defaults(), About: "what Sluice does unless told otherwise"},
	"fifo":         {Params: record.Params{Weights: basic, Policy: record.FIFO}, About: "strictly in order"},
	"easy":         {Params: record.Params{Weights: basic}, About: "textbook EASY backfill"},
	"easy-sjbf":    {Params: record.Params{Weights: basic, Order: record.ShortestFirst}, About: "EASY, candidates by predicted run time"},
	"conservative": {Params: record.Params{Weights: basic, Policy: record.Conservative}, About: "a promise for every job"},
	"slurm-like": {
		Params: record.Params{Weights: basic, Policy: record.Conservative, Depth: 500, ResolutionS: 60},
		EveryS: 30,
		About:  "conservative, rebuilt every 30 s, first 500 jobs, 60 s resolution",
	},
}

var basic = record.Weights{Basic: true}

func defaults() record.Params {
	p := record.DefaultParams()
	p.Weights = basic
	return p
}

// Record is the outcome of a job.
type Record struct {
	ID, Submit, Start, End int64
}

// world is the simulated controller.
type world struct {
	opts  *Options
	jobs  []Job
	in    record.Snapshot
	s     *sched.Scheduler
	every int64
	ends  endHeap
	runs  map[uint32]*record.Run
	reqs  map[int]*record.Request
	past  predict.History
	fair  *ledger // set with a weight for fair share
	recs  []Record
	next  int // next job to submit
	ended int
	passN int
	probe int64
	queue int
}

// Run replays a trace.
func Run(opts Options) (*Report, error) {
	if opts.Jobs == nil && opts.SWF != "" {
		jobs, _, err := ReadSWF(opts.SWF)
		if err != nil {
			return nil, err
		}
		opts.Jobs = jobs
	}
	w, err := newWorld(&opts)
	if err != nil {
		return nil, err
	}
	var began time.Time
	if opts.Clock != nil {
		began = opts.Clock()
	}
	if err := w.replay(); err != nil {
		return nil, err
	}
	r := w.report()
	if opts.Clock != nil {
		r.WallS = opts.Clock().Sub(began).Seconds()
	}
	return r, nil
}

func newWorld(opts *Options) (*world, error) {
	name := cmp.Or(opts.Policy, "default")
	pol, ok := Policies[name]
	if !ok {
		return nil, fmt.Errorf("cannot simulate policy %q: the policies are %s", opts.Policy, PolicyNames())
	}
	if opts.Params != nil {
		pol.Params = *opts.Params
	}
	if len(opts.Jobs) == 0 {
		return nil, fmt.Errorf("cannot simulate: the trace has no jobs")
	}
	if opts.Procs <= 0 {
		return nil, fmt.Errorf("cannot simulate a machine of %d processors", opts.Procs)
	}
	w := &world{
		opts:  opts,
		jobs:  opts.Jobs,
		every: pol.EveryS,
		runs:  map[uint32]*record.Run{},
		reqs:  map[int]*record.Request{},
	}
	w.weigh(&pol.Params)
	w.recs = make([]Record, len(w.jobs))
	for i := range w.jobs {
		j := &w.jobs[i]
		if j.Procs > opts.Procs {
			return nil, fmt.Errorf("cannot simulate: job %d asks for %d processors, the machine has %d", j.ID, j.Procs, opts.Procs)
		}
		w.recs[i] = Record{ID: j.ID, Submit: j.Submit}
	}
	w.machine(opts.Procs, opts.NodeProcs)
	w.s = sched.New(pol.Params)
	return w, nil
}

// weigh sets the priorities up.
func (w *world) weigh(p *record.Params) {
	if w.opts.Weights == nil {
		return
	}
	p.Weights = *w.opts.Weights
	for _, name := range slices.Sorted(maps.Keys(w.opts.QOS)) {
		w.in.QOS = append(w.in.QOS, &record.QOS{Name: name, Priority: w.opts.QOS[name]})
	}
	if p.Weights.FairShare > 0 {
		half := cmp.Or(w.opts.HalfLifeS, defaultHalfLifeS)
		w.fair = &ledger{halfLife: float64(half), users: map[string]*usage{}, factors: map[string]float64{}}
	}
}

func (w *world) machine(procs, each int) {
	if each <= 0 || each > procs {
		each = procs
	}
	part := &record.Partition{Name: "all"}
	for left, i := procs, 0; left > 0; left, i = left-each, i+1 {
		n := &record.Node{Name: fmt.Sprintf("n%05d", i), CPUs: min(each, left)}
		w.in.Nodes = append(w.in.Nodes, n)
		part.Nodes = append(part.Nodes, n.Name)
	}
	w.in.Partitions = []*record.Partition{part}
}

// PolicyNames lists the policies.
func PolicyNames() string {
	names := make([]string, 0, len(Policies))
	for n := range Policies {
		names = append(names, n)
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

// replay is the event loop: within a second completions come before submissions, then there is one pass.
func (w *world) replay() error {
	wake, due := record.Forever, false
	for w.ended < len(w.jobs) {
		now := min(w.nextEvent(), wake)
		if now >= record.Forever {
			return fmt.Errorf("cannot go on at %d: %d jobs wait and nothing will change", w.in.Now, len(w.in.Pending))
		}
		w.in.Now = now
		happened := w.complete(now) + w.submit(now)
		if due = due || happened > 0 || now == wake; w.every > 0 && now%w.every != 0 {
			wake = w.tick(now, due, wake)
			continue
		}
		if due {
			wake = w.pass()
			due = false
		}
		if w.opts.Progress != nil && w.ended%1024 == 0 {
			w.opts.Progress(w.ended, len(w.jobs))
		}
	}
	if w.opts.Progress != nil {
		w.opts.Progress(w.ended, len(w.jobs))
	}
	return nil
}

// tick returns the next run of a scheduler that runs at intervals.
func (w *world) tick(now int64, due bool, wake int64) int64 {
	if due {
		return (now/w.every + 1) * w.every
	}
	return wake
}

func (w *world) nextEvent() int64 {
	t := record.Forever
	if len(w.ends) > 0 {
		t = w.ends[0].at
	}
	if w.next < len(w.jobs) {
		t = min(t, w.jobs[w.next].Submit)
	}
	return t
}

func (w *world) complete(now int64) int {
	n := 0
	for len(w.ends) > 0 && w.ends[0].at <= now {
		id := heap.Pop(&w.ends).(ending).id
		j := &w.jobs[id-1]
		w.recs[id-1].End = now
		w.past.Ended(j.User, j.Name, j.RunS)
		w.fair.occupy(j.User, -j.Procs, now)
		i, _ := slices.BinarySearchFunc(w.in.Running, id, func(r *record.Run, id uint32) int { return cmp.Compare(r.ID, id) })
		w.in.Running = slices.Delete(w.in.Running, i, i+1)
		n++
		w.ended++
	}
	return n
}

func (w *world) submit(now int64) int {
	n := 0
	for ; w.next < len(w.jobs) && w.jobs[w.next].Submit <= now; w.next++ {
		j := &w.jobs[w.next]
		rec := &record.Job{
			ID:         uint32(w.next + 1),
			User:       j.User,
			Name:       j.Name,
			Account:    j.Account,
			QOS:        j.QOS,
			Partitions: w.partitions(),
			Request:    w.request(j.Procs),
			Submit:     j.Submit,
			LimitS:     j.RequestS,
			PredictedS: w.past.Predict(j.User, j.Name),
			Reason:     reason.Reason{Code: reason.Priority},
		}
		if w.opts.Exact {
			rec.LimitS, rec.PredictedS = j.RunS, j.RunS
		}
		w.in.Pending = append(w.in.Pending, rec)
		n++
	}
	w.queue = max(w.queue, len(w.in.Pending))
	return n
}

var allPartition = []string{"all"}

func (w *world) partitions() []string { return allPartition }

func (w *world) request(procs int) *record.Request {
	r := w.reqs[procs]
	if r == nil {
		r = &record.Request{Tasks: procs}
		if w.opts.NodeProcs <= 0 {
			r.MinNodes, r.MaxNodes = 1, 1
		}
		w.reqs[procs] = r
	}
	return r
}

// pass makes a plan and carries it out.
func (w *world) pass() int64 {
	w.in.Seq++
	if w.fair != nil {
		w.in.Shares = w.fair.shares(w.in.Pending, w.opts.Weights.Period(w.in.Now))
	}
	p := w.s.Plan(&w.in)
	w.passN++
	w.probe += int64(p.Stats.Probes)
	for i := range p.Start {
		w.start(&p.Start[i])
	}
	w.promised(p.Reserve)
	if p.Truncated {
		w.in.Resume = p.Resume
		return w.in.Now + 1
	}
	w.in.Resume = record.Cursor{}
	if len(p.Start) > 0 && w.every > 0 && len(w.in.Pending) > 0 {
		return (w.in.Now/w.every + 1) * w.every
	}
	return p.Wake
}

// promised notes the jobs that were promised a start.
func (w *world) promised(list []record.Reserve) {
	for i := range list {
		at, ok := slices.BinarySearchFunc(w.in.Pending, list[i].ID, func(j *record.Job, id uint32) int { return cmp.Compare(j.ID, id) })
		if ok && list[i].First && !w.in.Pending[at].Promised {
			j := *w.in.Pending[at]
			j.Promised = true
			w.in.Pending[at] = &j
		}
	}
}

func (w *world) start(st *record.Start) {
	id := st.Job.ID
	now := w.in.Now
	j := &w.jobs[id-1]
	w.recs[id-1].Start = now
	i, _ := slices.BinarySearchFunc(w.in.Pending, id, func(j *record.Job, id uint32) int { return cmp.Compare(j.ID, id) })
	w.in.Pending = slices.Delete(w.in.Pending, i, i+1)
	run := &record.Run{ID: id, Task: -1, Job: st.Job, Partition: st.Partition, Start: now, End: now + st.LimitS, Allocs: st.Allocs}
	at, _ := slices.BinarySearchFunc(w.in.Running, id, func(r *record.Run, id uint32) int { return cmp.Compare(r.ID, id) })
	w.in.Running = slices.Insert(w.in.Running, at, run)
	heap.Push(&w.ends, ending{now + j.RunS, id})
	w.fair.occupy(j.User, j.Procs, now)
}

// ending is a job's end; jobs with equal times end in order of id.
type ending struct {
	at int64
	id uint32
}

type endHeap []ending

func (h endHeap) Len() int { return len(h) }
func (h endHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].id < h[j].id
}
func (h endHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *endHeap) Push(x any)   { *h = append(*h, x.(ending)) }
func (h *endHeap) Pop() any {
	n := len(*h) - 1
	x := (*h)[n]
	*h = (*h)[:n]
	return x
}
