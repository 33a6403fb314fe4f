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

// preempt looks for running jobs that give way to e: on as many nodes as it
// needs, where the fewest and least progressed have to go. None goes unless
// all that is needed can be had. It reports whether the job will have nodes.
func (p *pass) preempt(c *class, e *entry) bool {
	s := p.s
	if s.params.Preempt == PreemptNone || e.job.rec.NoPreemptors || s.licensesUntil(c.shape) <= s.now {
		return false
	}
	for i := range c.shape.alts {
		alt := &c.shape.alts[i]
		if alt.flex || len(alt.counts) > 0 {
			continue
		}
		if nodes := p.victimNodes(c, e, alt); nodes != nil {
			p.giveWay(c, e, alt, nodes)
			return true
		}
	}
	return false
}

// yielding is a node with those of its jobs that have to go.
type yielding struct {
	place    int32
	victims  []*vrun
	progress int64
}

func (p *pass) victimNodes(c *class, e *entry, alt *candidates) []yielding {
	var nodes []yielding
	for place, n := range alt.nodes {
		blocked, until := n.blocked(c.shape.resv, p.s.now)
		if n.rec.State != NodeUsable || blocked || until < add(p.s.now, c.least) || n.yields == p.s.pass || n.planned > 0 {
			continue
		}
		p.s.probes++
		if y, ok := p.victimsOn(c, e, alt, n); ok {
			y.place = int32(place)
			nodes = append(nodes, y)
		}
	}
	need := p.s.leastCount(c.shape, alt)
	if len(nodes) < need {
		return nil
	}
	must := func(y yielding) int {
		if slices.Contains(alt.must, y.place) {
			return 0
		}
		return 1
	}
	slices.SortFunc(nodes, func(a, b yielding) int {
		return cmp.Or(cmp.Compare(must(a), must(b)), cmp.Compare(len(a.victims), len(b.victims)), cmp.Compare(a.progress, b.progress), cmp.Compare(a.place, b.place))
	})
	for _, m := range alt.must {
		if !slices.ContainsFunc(nodes, func(y yielding) bool { return y.place == m }) {
			return nil
		}
	}
	return nodes[:need]
}

// victimsOn is the smallest set found on n: jobs are added, the least
// important and least progressed first, until the job fits, and then each is
// spared again if it can be.
func (p *pass) victimsOn(c *class, e *entry, alt *candidates, n *vnode) (yielding, bool) {
	v := c.shape.vecFor(alt, n.cfg, alt.tasks, alt.gpus)
	free := append([]int64(nil), n.prof.Now()...)
	var able []*vrun
	for _, r := range n.runs {
		switch {
		case p.leaving(r):
			p.release(free, r, n, 1)
		case p.mayPreempt(c, e, r):
			able = append(able, r)
		case v.whole:
			return yielding{}, false
		}
	}
	slices.SortFunc(able, func(a, b *vrun) int {
		return cmp.Or(cmp.Compare(p.tierOf(a), p.tierOf(b)), cmp.Compare(a.rec.Priority, b.rec.Priority), cmp.Compare(b.rec.Start, a.rec.Start), compareRuns(a.rec, b.rec))
	})
	k := 0
	for ; k < len(able) && !v.fits(n.cfg, free); k++ {
		p.release(free, able[k], n, 1)
	}
	if !v.fits(n.cfg, free) {
		return yielding{}, false
	}
	y := yielding{}
	for i := k - 1; i >= 0; i-- {
		p.release(free, able[i], n, -1)
		if !v.fits(n.cfg, free) {
			p.release(free, able[i], n, 1)
			y.victims = append(y.victims, able[i])
			y.progress += p.s.now - able[i].rec.Start
		}
	}
	return y, true
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
	return r.late || r.rec.NotPreemptable && r.rec.End <= p.s.now+endingS
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
func (p *pass) giveWay(c *class, e *entry, alt *candidates, nodes []yielding) {
	at := p.s.now + 1
	told := map[*vrun]bool{}
	for _, y := range nodes {
		n := alt.nodes[y.place]
		n.yields = p.s.pass
		for _, r := range y.victims {
			if told[r] {
				continue
			}
			told[r] = true
			r.fresh = true // not twice in one pass
			mode, grace := p.modeOf(r)
			at = max(at, p.s.now+grace)
			p.plan.Preempt = append(p.plan.Preempt, Preempt{ID: r.rec.ID, Task: r.rec.Task, Mode: mode, GraceS: grace, For: e.job.rec.ID,
				Why: fmt.Sprintf("preempted by job %d of %s in partition %s on %s", e.job.rec.ID, e.job.rec.User, c.part.rec.Name, n.rec.Name)})
		}
	}
	end := add(at, c.limit)
	res := Reserve{ID: e.job.rec.ID, Task: -1, Partition: c.part.rec.Name, At: at, End: end, Promised: true}
	for _, y := range nodes {
		n := alt.nodes[y.place]
		res.Nodes = append(res.Nodes, n.rec.Name)
		p.holdFor(n, c.shape.vecFor(alt, n.cfg, alt.tasks, alt.gpus), at, end)
	}
	p.plan.Reserve = append(p.plan.Reserve, res)
}
