package pass

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// endingS: a run that is being preempted and ends within this time counts as gone when victims are chosen, so that a job does not take a
// second set of victims while the first is still leaving.
const endingS = 600

// preempt looks for running jobs to preempt for e: the fewest over all of the nodes it needs, and among equally many the least progressed.
// Nothing is preempted unless the job then gets all it needs, and no job without need. It reports whether the job will have nodes.
func (p *pass) preempt(c *turn, e *queue.Entry) bool {
	if p.params.Preempt == record.PreemptNone || e.Job.Rec.NoPreemptors || p.pl.LicensesUntil(c.Shape) <= p.ix.Now {
		return false
	}
	var best *eviction
	for i := range c.Shape.Alts {
		if c.Shape.Alts[i].Lacks {
			continue
		}
		for _, ev := range p.evictions(c, e, &c.Shape.Alts[i]) {
			if ev.choose() && (best == nil || ev.cheaper(best)) {
				best = ev
			}
		}
	}
	if best == nil {
		return false
	}
	p.giveWay(c, e, best)
	return true
}

// mayPreempt reports whether jobs of c may preempt any job.
func (p *pass) mayPreempt(c *turn) bool {
	switch p.params.Preempt {
	case record.PreemptPartition:
		return c.Part.Rec.PriorityTier > p.ix.LowTier
	case record.PreemptQOS:
		q := p.preemption.qosOf(c.Root.Job.Rec.QOS)
		return q != nil && len(q.Preempts) > 0
	}
	return false
}

// preemption decides which running jobs may be preempted by which pending ones, and how.
type preemption struct {
	params *record.Params
	ix     *index.Index
	fresh  map[*node.Run]bool // started or preempted in this pass
	// exempt is the time when the first of the jobs that are still exempt from preemption no longer is.
	exempt int64
}

// freshen notes that r must not be preempted in this pass.
func (pr *preemption) freshen(r *node.Run) {
	if pr.params.Preempt == record.PreemptNone {
		return
	}
	if pr.fresh == nil {
		pr.fresh = map[*node.Run]bool{}
	}
	pr.fresh[r] = true
}

// eviction is a search for nodes and for the jobs on them that have to be preempted.
type eviction struct {
	p      *pass
	c      *turn
	e      *queue.Entry
	alt    *placement.Candidates
	tasks  int // on each node
	gpus   int64
	need   int
	wide   bool               // begin with jobs that hold many nodes
	root   int32              // topmost switch of the nodes; -1: any
	wake   int64              // in seconds; nodes that take longer to wake are left out
	nodes  []int32            // nodes that are available at all
	chosen []int32            // places
	gone   map[*node.Run]bool // victims
	able   map[*node.Run]bool // jobs that may be preempted
}

// evictions returns the ways to place the job under an alternative. Tasks that may be spread are tried evenly over each number of nodes, up
// to maxSpread.
func (p *pass) evictions(c *turn, e *queue.Entry, alt *placement.Candidates) []*eviction {
	d := &c.Shape.Demand
	var out []*eviction
	wakes := alt.Wakes()
	try := func(n, tasks int, gpus int64) {
		for _, root := range alt.Roots(n) {
			for _, wide := range []bool{false, true}[:min(n, 2)] {
				for _, wake := range wakes {
					out = append(
						out,
						&eviction{
							p:     p,
							c:     c,
							e:     e,
							alt:   alt,
							tasks: tasks,
							gpus:  gpus,
							need:  n,
							wide:  wide,
							root:  root,
							wake:  wake,
							gone:  map[*node.Run]bool{},
							able:  map[*node.Run]bool{},
						},
					)
				}
			}
		}
	}
	if !alt.Flex {
		try(p.pl.LeastCount(c.Shape, alt), alt.Tasks, alt.GPUs)
		return out
	}
	for n := d.Lo; n <= min(d.Hi, len(alt.Nodes), d.Lo+maxSpread); n++ {
		each := sizing.CeilDiv(d.TasksOn(n), n)
		if !d.Allowed(n) || d.MaxPerNode > 0 && each > d.MaxPerNode ||
			slices.ContainsFunc(d.JobGres, func(g record.GresRequest) bool { return g.Count%int64(n) != 0 }) {
			continue
		}
		try(n, each, -int64(n))
	}
	return out
}

// maxSpread bounds the numbers of nodes over which tasks are tried.
const maxSpread = 16

// cheaper reports whether fewer jobs are preempted, or ones that have progressed less.
func (ev *eviction) cheaper(than *eviction) bool {
	return cmp.Or(cmp.Compare(len(ev.gone), len(than.gone)), cmp.Compare(ev.progress(ev.gone), than.progress(than.gone))) < 0
}

func (ev *eviction) progress(runs map[*node.Run]bool) int64 {
	sum := int64(0)
	for r := range runs {
		sum += ev.p.ix.Now - r.Rec.Start
	}
	return sum
}

// choose takes the nodes that -w names, then those that the constraint counts, then others, always the one that adds the fewest victims;
// then it spares every victim that is not needed.
func (ev *eviction) choose() bool {
	end := record.Add(ev.p.ix.Now, record.Add(ev.e.Least, ev.wake)) // it begins on all nodes when the last is up
	for place, n := range ev.alt.Nodes {
		blocked, until := n.Blocked(ev.c.Shape.Resv, ev.p.ix.Now)
		if ev.root >= 0 && n.Above[0] != ev.root {
			continue
		}
		if n.Rec.State == record.NodeUsable && n.Rec.WakeS <= ev.wake && !blocked && until >= end && !ev.p.yields[n] &&
			n.Planned == 0 &&
			!n.SoonReserved(ev.p.ix.Now, end) {
			ev.nodes = append(ev.nodes, int32(place))
			for _, r := range n.Runs {
				ev.able[r] = ev.p.preemption.may(ev.c, ev.e, r)
			}
		}
	}
	if !ev.takeNodes(len(ev.alt.Must), func(p int32) bool { return slices.Contains(ev.alt.Must, p) }) {
		return false
	}
	for i := range ev.alt.Counts {
		count := &ev.alt.Counts[i]
		have := 0
		for _, p := range ev.chosen {
			if count.Match[p] {
				have++
			}
		}
		if !ev.takeNodes(count.N-have, func(p int32) bool { return count.Match[p] }) {
			return false
		}
	}
	if !ev.takeNodes(ev.need-len(ev.chosen), func(int32) bool { return true }) {
		return false
	}
	ev.spare()
	return true
}

// takeNodes adds want nodes for which ok holds. A node's cost is only recomputed when one of its jobs has become a victim meanwhile.
func (ev *eviction) takeNodes(want int, ok func(int32) bool) bool {
	if want <= 0 {
		return true
	}
	var list []offer
	for _, place := range ev.nodes {
		if ok(place) && !slices.Contains(ev.chosen, place) {
			if o, good := ev.offer(place); good {
				list = append(list, o)
			}
		}
	}
	for ; want > 0; want-- {
		if len(list) == 0 {
			return false
		}
		at := 0
		if ev.wide {
			cover(list)
		}
		for i := range list {
			if list[i].compare(&list[at]) < 0 {
				at = i
			}
		}
		o := list[at]
		ev.chosen = append(ev.chosen, o.place)
		list = slices.Delete(list, at, at+1)
		for _, r := range o.victims {
			ev.gone[r] = true
		}
		for i := range list {
			if slices.ContainsFunc(o.victims, func(r *node.Run) bool { return slices.Contains(ev.alt.Nodes[list[i].place].Runs, r) }) {
				list[i], _ = ev.offer(list[i].place)
			}
		}
	}
	return true
}

// offer is a node with its victims beyond those chosen already.
type offer struct {
	place    int32
	victims  []*node.Run
	progress int64
	nodes    int // nodes that this victim alone would free; 0: not counted
}

// cover counts for each job how many nodes its end alone would free.
func cover(list []offer) {
	count := map[*node.Run]int{}
	for i := range list {
		if len(list[i].victims) == 1 {
			count[list[i].victims[0]]++
		}
	}
	for i := range list {
		if list[i].nodes = 1; len(list[i].victims) == 1 {
			list[i].nodes = count[list[i].victims[0]]
		}
	}
}

func (o *offer) compare(than *offer) int {
	return cmp.Or(
		cmp.Compare(len(o.victims)*max(1, than.nodes), len(than.victims)*max(1, o.nodes)),
		cmp.Compare(len(o.victims), len(than.victims)),
		cmp.Compare(o.progress, than.progress),
		cmp.Compare(o.place, than.place),
	)
}

// offer looks for the smallest set of victims on a node: none, a single one, or the smaller result of taking the least progressed first and
// taking the largest first.
func (ev *eviction) offer(place int32) (offer, bool) {
	n := ev.alt.Nodes[place]
	ev.p.pl.Ask()
	var able []*node.Run
	for _, r := range n.Runs {
		if ev.able[r] && !ev.gone[r] {
			able = append(able, r)
		}
	}
	slices.SortFunc(able, func(a, b *node.Run) int {
		return cmp.Or(
			cmp.Compare(ev.p.preemption.tierOf(a), ev.p.preemption.tierOf(b)),
			cmp.Compare(b.Rec.Start, a.Rec.Start),
			cmp.Compare(a.Rec.Priority, b.Rec.Priority),
			record.CompareRuns(a.Rec, b.Rec),
		)
	})
	o := offer{place: place}
	if ev.fitsWithout(n, nil) {
		return o, true
	}
	for _, r := range able {
		if ev.fitsWithout(n, []*node.Run{r}) {
			o.victims = []*node.Run{r}
			break
		}
	}
	if o.victims == nil {
		if o.victims = ev.fewest(n, able); o.victims == nil {
			return o, false
		}
	}
	for _, r := range o.victims {
		o.progress += ev.p.ix.Now - r.Rec.Start
	}
	return o, true
}

// fewest tries two orders, and spares those that it can, the most progressed first.
func (ev *eviction) fewest(n *node.Node, able []*node.Run) []*node.Run {
	large := slices.Clone(able)
	cpus := func(r *node.Run) int64 {
		for i := range r.Parts {
			if r.Parts[i].Node == n {
				return r.Parts[i].Use[node.DimCPU]
			}
		}
		return 0
	}
	slices.SortStableFunc(large, func(a, b *node.Run) int {
		return cmp.Or(cmp.Compare(ev.p.preemption.tierOf(a), ev.p.preemption.tierOf(b)), cmp.Compare(cpus(b), cpus(a)))
	})
	var best []*node.Run
	for _, order := range [][]*node.Run{able, large} {
		k := 1
		for k <= len(order) && !ev.fitsWithout(n, order[:k]) {
			k++
		}
		if k > len(order) {
			return nil
		}
		set := slices.Clone(order[:k])
		for i := len(set) - 1; i >= 0; i-- {
			if less := slices.Delete(slices.Clone(set), i, i+1); ev.fitsWithout(n, less) {
				set = less
			}
		}
		if best == nil || len(set) < len(best) {
			best = set
		}
	}
	return best
}

// fitsWithout reports whether the job's part fits on n once the leaving jobs, the victims so far and these are gone.
func (ev *eviction) fitsWithout(n *node.Node, these []*node.Run) bool {
	v := ev.c.Shape.NeedFor(ev.alt, n.Config, ev.tasks, ev.gpus)
	free := append(ev.p.room[:0], n.Prof.Now()...)
	ev.p.room = free
	for _, r := range n.Runs {
		switch {
		case ev.p.preemption.leaving(r) || ev.gone[r] || slices.Contains(these, r):
			ev.p.preemption.release(free, r, n, 1)
		case v.Whole || ev.c.Shape.Strange(r):
			return false
		}
	}
	return v.Fits(n.Config, free)
}

// spare keeps every victim that the chosen nodes do not need, the most progressed first.
func (ev *eviction) spare() {
	list := make([]*node.Run, 0, len(ev.gone))
	for r := range ev.gone {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *node.Run) int {
		return cmp.Or(cmp.Compare(a.Rec.Start, b.Rec.Start), record.CompareRuns(a.Rec, b.Rec))
	})
	for _, r := range list {
		delete(ev.gone, r)
		if slices.ContainsFunc(ev.chosen, func(p int32) bool { return !ev.fitsWithout(ev.alt.Nodes[p], nil) }) {
			ev.gone[r] = true
		}
	}
}

// release adds to free what r would release on n: a suspended job only its CPUs.
func (pr *preemption) release(free []int64, r *node.Run, n *node.Node, sign int64) {
	mode, _ := pr.modeOf(r)
	for i := range r.Parts {
		if r.Parts[i].Node != n {
			continue
		}
		for d, u := range r.Parts[i].Use {
			if mode == record.PreemptSuspend && !pr.leaving(r) && d != node.DimCPU {
				continue
			}
			free[d] += sign * u
		}
	}
}

func (pr *preemption) leaving(r *node.Run) bool {
	_, grace := pr.modeOf(r)
	return r.Late || r.Rec.NotPreemptable && r.Rec.End <= pr.ix.Now+max(endingS, grace)
}

func (pr *preemption) tierOf(r *node.Run) uint16 {
	if part := pr.ix.Partition(r.Rec.Partition); part != nil {
		return part.Rec.PriorityTier
	}
	return 0
}

// may reports whether PreemptType lets e preempt r.
func (pr *preemption) may(c *turn, e *queue.Entry, r *node.Run) bool {
	if pr.fresh[r] || r.Rec.NotPreemptable || r.Rec.Suspended || r.Rec.Job == nil {
		return false
	}
	mode, _ := pr.modeOf(r)
	if mode == record.PreemptOff || mode == record.PreemptInherit {
		return false
	}
	if !pr.above(c, e, r) {
		return false
	}
	from := r.Rec.Start + pr.exemptOf(r)
	if from > pr.ix.Now {
		pr.exempt = min(pr.exempt, from)
	}
	return from <= pr.ix.Now
}

// above reports whether jobs like e rank above jobs like r, regardless of when it started.
func (pr *preemption) above(c *turn, e *queue.Entry, r *node.Run) bool {
	if pr.params.Preempt == record.PreemptPartition {
		return c.Part.Rec.PriorityTier > pr.tierOf(r)
	}
	mine := pr.qosOf(e.Job.Rec.QOS)
	return mine != nil && slices.Contains(mine.Preempts, r.Rec.Job.QOS)
}

// exemptOf returns the run time before r can be preempted: its QOS's, or else the cluster's.
func (pr *preemption) exemptOf(r *node.Run) int64 {
	exempt := pr.params.ExemptS
	if q := pr.qosOf(r.Rec.Job.QOS); q != nil {
		exempt = cmp.Or(q.ExemptS, exempt)
	}
	return max(exempt, 0)
}

func (pr *preemption) qosOf(name string) *record.QOS {
	for _, q := range pr.ix.QOS {
		if q.Name == name {
			return q
		}
	}
	return nil
}

// modeOf returns the mode of preemption for r, and its grace time: those of its QOS or partition; otherwise the cluster's mode and no grace
// time.
func (pr *preemption) modeOf(r *node.Run) (record.PreemptMode, int64) {
	mode := pr.params.PreemptMode
	if pr.params.Preempt == record.PreemptQOS && r.Rec.Job != nil {
		if q := pr.qosOf(r.Rec.Job.QOS); q != nil {
			return cmp.Or(q.PreemptMode, mode), q.GraceTimeS
		}
		return mode, 0
	}
	if part := pr.ix.Partition(r.Rec.Partition); part != nil {
		return cmp.Or(part.Rec.PreemptMode, mode), part.Rec.GraceTimeS
	}
	return mode, 0
}

// giveWay preempts the victims, and keeps the nodes for the job.
func (p *pass) giveWay(c *turn, e *queue.Entry, ev *eviction) {
	at := p.ix.Now + 1
	slices.Sort(ev.chosen)
	told := map[*node.Run]bool{}
	for _, place := range ev.chosen {
		n := ev.alt.Nodes[place]
		if p.yields == nil {
			p.yields = map[*node.Node]bool{}
		}
		p.yields[n] = true
		victims := slices.DeleteFunc(slices.Clone(n.Runs), func(r *node.Run) bool { return !ev.gone[r] || told[r] })
		slices.SortFunc(victims, func(a, b *node.Run) int { return record.CompareRuns(a.Rec, b.Rec) })
		for _, r := range victims {
			told[r] = true
			p.preemption.freshen(r) // not twice in one pass
			mode, grace := p.preemption.modeOf(r)
			at = max(at, p.ix.Now+grace)
			p.plan.Preempt = append(
				p.plan.Preempt,
				record.Preempt{ID: r.Rec.ID, Task: r.Rec.Task, Mode: mode, GraceS: grace, For: e.Job.Rec.ID,
					Why: fmt.Sprintf(
						"preempted by job %d of %s in partition %s on %s",
						e.Job.Rec.ID,
						e.Job.Rec.User,
						c.Part.Rec.Name,
						n.Rec.Name,
					)},
			)
		}
	}
	end := record.Add(at, record.Add(e.Limit, ev.wake))
	res := record.Reserve{ID: e.Job.Rec.ID, Task: -1, Partition: c.Part.Rec.Name, At: at, End: end, Promised: true}
	for _, place := range ev.chosen {
		n := ev.alt.Nodes[place]
		res.Nodes = append(res.Nodes, n.Rec.Name)
		p.fu.Hold(n, c.Shape.NeedFor(ev.alt, n.Config, ev.tasks, ev.gpus), at, end)
	}
	p.plan.Reserve = append(p.plan.Reserve, res)
}
