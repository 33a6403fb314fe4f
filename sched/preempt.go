package sched

import (
	"cmp"
	"fmt"
	"slices"
)

// endingS: a run that was told to go and ends so soon counts as gone when
// victims are looked for, so that a job does not take a second set of victims
// while the first is still leaving.
const endingS = 600

// preempt looks for running jobs that give way to e: the fewest over all of the
// nodes it needs, and among as many the least progressed. None goes unless all
// that is needed can be had, and none whose going is not needed. It reports
// whether the job will have nodes.
func (p *pass) preempt(c *class, e *entry) bool {
	s := p.s
	if s.params.Preempt == PreemptNone || e.job.rec.NoPreemptors || s.licensesUntil(c.shape) <= s.now {
		return false
	}
	var best *eviction
	for i := range c.shape.alts {
		if c.shape.alts[i].lacks {
			continue
		}
		for _, ev := range p.evictions(c, e, &c.shape.alts[i]) {
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

// eviction is a search for nodes and for the jobs on them that have to go.
type eviction struct {
	p      *pass
	c      *class
	e      *entry
	alt    *candidates
	tasks  int // on each node
	gpus   int64
	need   int
	wide   bool           // begin with jobs that hold many nodes
	root   int32          // the topmost switch below which the nodes are; -1: no matter
	nodes  []int32        // that may be had at all
	chosen []int32        // places
	gone   map[*vrun]bool // victims
	able   map[*vrun]bool // who may be told to go
}

// evictions are the ways to place the job under an alternative. Tasks that may
// be spread are tried evenly over each number of nodes, up to maxSpread.
func (p *pass) evictions(c *class, e *entry, alt *candidates) []*eviction {
	d := &c.shape.demand
	var out []*eviction
	try := func(n, tasks int, gpus int64) {
		for _, root := range alt.roots(n) {
			for _, wide := range []bool{false, true}[:min(n, 2)] {
				out = append(out, &eviction{p: p, c: c, e: e, alt: alt, tasks: tasks, gpus: gpus, need: n, wide: wide, root: root, gone: map[*vrun]bool{}, able: map[*vrun]bool{}})
			}
		}
	}
	if !alt.flex {
		try(p.s.leastCount(c.shape, alt), alt.tasks, alt.gpus)
		return out
	}
	for n := d.lo; n <= min(d.hi, len(alt.nodes), d.lo+maxSpread); n++ {
		each := ceilDiv(d.tasks, n)
		if !d.allowed(n) || d.tpnCap > 0 && each > d.tpnCap || slices.ContainsFunc(d.jobGres, func(g GresRequest) bool { return g.Count%int64(n) != 0 }) {
			continue
		}
		try(n, each, -int64(n))
	}
	return out
}

// maxSpread bounds the numbers of nodes over which tasks are tried.
const maxSpread = 16

// cheaper: fewer have to go, or they have done less.
func (ev *eviction) cheaper(than *eviction) bool {
	return cmp.Or(cmp.Compare(len(ev.gone), len(than.gone)), cmp.Compare(ev.progress(ev.gone), than.progress(than.gone))) < 0
}

func (ev *eviction) progress(runs map[*vrun]bool) int64 {
	sum := int64(0)
	for r := range runs {
		sum += ev.p.s.now - r.rec.Start
	}
	return sum
}

// choose takes the nodes that -w names, then those that the constraint counts,
// then others, always the one for which the fewest more have to go; then it
// spares everyone who can be spared.
func (ev *eviction) choose() bool {
	s := ev.p.s
	for place, n := range ev.alt.nodes {
		blocked, until := n.blocked(ev.c.shape.resv, s.now)
		if ev.root >= 0 && n.above[0] != ev.root {
			continue
		}
		if n.rec.State == NodeUsable && !blocked && until >= add(s.now, ev.e.least) && n.yields != s.pass && n.planned == 0 && !n.soonReserved(s.now, add(s.now, ev.e.least)) {
			ev.nodes = append(ev.nodes, int32(place))
			for _, r := range n.runs {
				ev.able[r] = ev.p.mayPreempt(ev.c, ev.e, r)
			}
		}
	}
	if !ev.takeNodes(len(ev.alt.must), func(p int32) bool { return slices.Contains(ev.alt.must, p) }) {
		return false
	}
	for i := range ev.alt.counts {
		count := &ev.alt.counts[i]
		have := 0
		for _, p := range ev.chosen {
			if count.match[p] {
				have++
			}
		}
		if !ev.takeNodes(count.n-have, func(p int32) bool { return count.match[p] }) {
			return false
		}
	}
	if !ev.takeNodes(ev.need-len(ev.chosen), func(int32) bool { return true }) {
		return false
	}
	ev.spare()
	return true
}

// takeNodes adds want nodes for which ok holds. What a node costs is worked out
// again only when one of its jobs has become a victim meanwhile.
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
			if slices.ContainsFunc(o.victims, func(r *vrun) bool { return slices.Contains(ev.alt.nodes[list[i].place].runs, r) }) {
				list[i], _ = ev.offer(list[i].place)
			}
		}
	}
	return true
}

// offer is a node with those who have to go for it, besides those who go anyway.
type offer struct {
	place    int32
	victims  []*vrun
	progress int64
	nodes    int // that would be free when the victim alone goes; 0: not counted
}

// cover counts for each job how many nodes its going alone would free.
func cover(list []offer) {
	count := map[*vrun]int{}
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
	return cmp.Or(cmp.Compare(len(o.victims)*max(1, than.nodes), len(than.victims)*max(1, o.nodes)), cmp.Compare(len(o.victims), len(than.victims)), cmp.Compare(o.progress, than.progress), cmp.Compare(o.place, than.place))
}

// offer looks for the smallest set on a node: nobody, one alone, or as few as
// are found by taking the least progressed and by taking the largest first.
func (ev *eviction) offer(place int32) (offer, bool) {
	n := ev.alt.nodes[place]
	ev.p.s.probes++
	var able []*vrun
	for _, r := range n.runs {
		if ev.able[r] && !ev.gone[r] {
			able = append(able, r)
		}
	}
	slices.SortFunc(able, func(a, b *vrun) int {
		return cmp.Or(cmp.Compare(ev.p.tierOf(a), ev.p.tierOf(b)), cmp.Compare(b.rec.Start, a.rec.Start), cmp.Compare(a.rec.Priority, b.rec.Priority), compareRuns(a.rec, b.rec))
	})
	o := offer{place: place}
	if ev.fitsWithout(n, nil) {
		return o, true
	}
	for _, r := range able {
		if ev.fitsWithout(n, []*vrun{r}) {
			o.victims = []*vrun{r}
			break
		}
	}
	if o.victims == nil {
		if o.victims = ev.fewest(n, able); o.victims == nil {
			return o, false
		}
	}
	for _, r := range o.victims {
		o.progress += ev.p.s.now - r.rec.Start
	}
	return o, true
}

// fewest tries two orders, and spares whom it can, the most progressed first.
func (ev *eviction) fewest(n *vnode, able []*vrun) []*vrun {
	large := slices.Clone(able)
	cpus := func(r *vrun) int64 {
		for i := range r.parts {
			if r.parts[i].node == n {
				return r.parts[i].use[dimCPU]
			}
		}
		return 0
	}
	slices.SortStableFunc(large, func(a, b *vrun) int {
		return cmp.Or(cmp.Compare(ev.p.tierOf(a), ev.p.tierOf(b)), cmp.Compare(cpus(b), cpus(a)))
	})
	var best []*vrun
	for _, order := range [][]*vrun{able, large} {
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

// fitsWithout reports whether the job's part fits on n once those who leave
// anyway, the victims so far and these are gone.
func (ev *eviction) fitsWithout(n *vnode, these []*vrun) bool {
	v := ev.c.shape.vecFor(ev.alt, n.cfg, ev.tasks, ev.gpus)
	free := append(ev.p.s.free[:0], n.prof.Now()...)
	ev.p.s.free = free
	for _, r := range n.runs {
		switch {
		case ev.p.leaving(r) || ev.gone[r] || slices.Contains(these, r):
			ev.p.release(free, r, n, 1)
		case v.whole || ev.c.shape.strange(r):
			return false
		}
	}
	return v.fits(n.cfg, free)
}

// spare lets everyone stay without whom the chosen nodes do as well, the most
// progressed first.
func (ev *eviction) spare() {
	list := make([]*vrun, 0, len(ev.gone))
	for r := range ev.gone {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *vrun) int { return cmp.Or(cmp.Compare(a.rec.Start, b.rec.Start), compareRuns(a.rec, b.rec)) })
	for _, r := range list {
		delete(ev.gone, r)
		if slices.ContainsFunc(ev.chosen, func(p int32) bool { return !ev.fitsWithout(ev.alt.nodes[p], nil) }) {
			ev.gone[r] = true
		}
	}
}

// release gives to free what r would give up on n: a suspended job only its CPUs.
func (p *pass) release(free []int64, r *vrun, n *vnode, sign int64) {
	mode, _ := p.modeOf(r)
	for i := range r.parts {
		if r.parts[i].node != n {
			continue
		}
		for d, u := range r.parts[i].use {
			if mode == PreemptSuspend && !p.leaving(r) && d != dimCPU {
				continue
			}
			free[d] += sign * u
		}
	}
}

func (p *pass) leaving(r *vrun) bool {
	_, grace := p.modeOf(r)
	return r.late || r.rec.NotPreemptable && r.rec.End <= p.s.now+max(endingS, grace)
}

func (p *pass) tierOf(r *vrun) uint16 {
	if part := p.s.partition(r.rec.Partition); part != nil {
		return part.rec.PriorityTier
	}
	return 0
}

// mayPreempt: PreemptType says whose jobs give way to whose.
func (p *pass) mayPreempt(c *class, e *entry, r *vrun) bool {
	if r.fresh || r.rec.NotPreemptable || r.rec.Suspended || r.rec.Job == nil {
		return false
	}
	mode, _ := p.modeOf(r)
	if mode == PreemptOff {
		return false
	}
	if p.s.params.Preempt == PreemptPartition {
		return c.part.rec.PriorityTier > p.tierOf(r)
	}
	mine, theirs := p.qosOf(e.job.rec.QOS), p.qosOf(r.rec.Job.QOS)
	if mine == nil || theirs == nil || p.s.now-r.rec.Start < theirs.ExemptS {
		return false
	}
	return slices.Contains(mine.Preempts, theirs.Name)
}

func (p *pass) qosOf(name string) *QOS {
	for _, q := range p.s.qos {
		if q.Name == name {
			return q
		}
	}
	return nil
}

// modeOf is what happens to r, and the grace it has: its QOS or partition says,
// else the cluster.
func (p *pass) modeOf(r *vrun) (PreemptMode, int64) {
	mode, grace := p.s.params.PreemptMode, p.s.params.GraceTimeS
	if p.s.params.Preempt == PreemptQOS && r.rec.Job != nil {
		if q := p.qosOf(r.rec.Job.QOS); q != nil {
			return cmp.Or(q.PreemptMode, mode), cmp.Or(q.GraceTimeS, grace)
		}
		return mode, grace
	}
	if part := p.s.partition(r.rec.Partition); part != nil {
		return cmp.Or(part.rec.PreemptMode, mode), cmp.Or(part.rec.GraceTimeS, grace)
	}
	return mode, grace
}

// giveWay tells the victims to go, and keeps the nodes for the job.
func (p *pass) giveWay(c *class, e *entry, ev *eviction) {
	at := p.s.now + 1
	slices.Sort(ev.chosen)
	told := map[*vrun]bool{}
	for _, place := range ev.chosen {
		n := ev.alt.nodes[place]
		n.yields = p.s.pass
		victims := slices.DeleteFunc(slices.Clone(n.runs), func(r *vrun) bool { return !ev.gone[r] || told[r] })
		slices.SortFunc(victims, func(a, b *vrun) int { return compareRuns(a.rec, b.rec) })
		for _, r := range victims {
			told[r] = true
			r.fresh = true // not twice in one pass
			mode, grace := p.modeOf(r)
			at = max(at, p.s.now+grace)
			p.plan.Preempt = append(p.plan.Preempt, Preempt{ID: r.rec.ID, Task: r.rec.Task, Mode: mode, GraceS: grace, For: e.job.rec.ID,
				Why: fmt.Sprintf("preempted by job %d of %s in partition %s on %s", e.job.rec.ID, e.job.rec.User, c.part.rec.Name, n.rec.Name)})
		}
	}
	end := add(at, e.limit)
	res := Reserve{ID: e.job.rec.ID, Task: -1, Partition: c.part.rec.Name, At: at, End: end, Promised: true}
	for _, place := range ev.chosen {
		n := ev.alt.nodes[place]
		res.Nodes = append(res.Nodes, n.rec.Name)
		p.holdFor(n, c.shape.vecFor(ev.alt, n.cfg, ev.tasks, ev.gpus), at, end)
	}
	p.plan.Reserve = append(p.plan.Reserve, res)
}
