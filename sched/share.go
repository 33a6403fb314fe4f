package sched

// shareScale is how many units a CPU has in a cluster where jobs share CPUs:
// one that shares it d deep takes shareScale/d of them. It is divisible by
// every number up to 16. Where nobody shares, a CPU is one unit.
const shareScale = 720720

// maxShare is the deepest that CPUs can be shared (OverSubscribe=FORCE:n).
const maxShare = 64

// depth is how many jobs of the partition may have a CPU that a job with
// request r has: OverSubscribe= in slurm.conf(5). FORCE leaves users no way
// out; under YES a job has to ask, with --oversubscribe.
func (p *Partition) depth(r *Request) int64 {
	n := p.MaxShare
	if n <= 0 {
		n = 4
	}
	switch {
	case p.Share == ShareForce, p.Share == ShareYes && r != nil && r.Oversubscribe && !r.Exclusive:
		return int64(min(n, maxShare))
	}
	return 1
}

// wholeNodes: a job with request r takes its nodes whole in this partition.
func (s *Scheduler) wholeNodes(p *vpart, r *Request) bool {
	return s.params.WholeNodes || p.rec.Share == ShareExclusive || r.Exclusive && p.rec.Share != ShareForce
}

// depthOf is the depth of what runs.
func (s *Scheduler) depthOf(rec *Run) (depth int64, part *vpart) {
	part = s.partition(rec.Partition)
	if part == nil || s.scale == 1 {
		return 1, nil
	}
	if rec.Job == nil {
		return part.rec.depth(nil), part
	}
	return part.rec.depth(rec.Job.Request), part
}

// coreUse is who has a core: how many jobs, and of which partition they are
// (its place plus one) when they share it.
type coreUse struct {
	jobs int16
	pool int32
}

// takeable are the cores that a job of the shape may have, in the order in
// which they are to be taken: idle ones, then those that the fewest jobs have.
// A partition in which jobs may also want CPUs for themselves shares as few
// cores as it can instead: it begins with those that the most jobs have.
// Those in shut are left out.
func (n *vnode) takeable(sh *shape, shut Bits) []Bits {
	cfg := n.cfg
	out := make([]Bits, sh.depth)
	for i := range out {
		out[i] = make(Bits, (cfg.cores+63)/64)
	}
	idle := out[0]
	for w := range idle {
		idle[w] = ^uint64(0)
		if w < len(n.units) {
			idle[w] &^= n.units[w]
		}
		if w < len(shut) {
			idle[w] &^= shut[w]
		}
	}
	if tail := cfg.cores & 63; tail != 0 {
		idle[len(idle)-1] &= 1<<tail - 1
	}
	if sh.depth == 1 {
		return out
	}
	for k := range n.cores {
		if u := &n.cores[k]; u.jobs > 0 && int64(u.jobs) < sh.depth && u.pool == sh.part.idx+1 && !shut.Has(k) {
			out[u.jobs] = out[u.jobs].Set(k)
		}
	}
	if sh.part.rec.Share == ShareYes {
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}

// lacksCores: where CPUs are shared, enough of them may be free by count while
// the cores are not those that this job may have.
func (s *Scheduler) lacksCores(sh *shape, n *vnode, v *vec) bool {
	if s.scale == 1 || n.cfg.cores == 0 || v.whole {
		return false
	}
	count := 0
	for _, b := range n.takeable(sh, n.shut(s.now, s.now+1)) {
		count += b.Count()
	}
	return int64(count) < v.cpu/n.cfg.threads
}

// lacksPlaces: by count the job would fit on the node now, but not by which
// cores and devices are free.
func (s *Scheduler) lacksPlaces(sh *shape, n *vnode, v *vec) bool {
	return s.lacksCores(sh, n, v) || n.lacksSockets(v) || n.lacksCuts(v)
}

// nextEnd is when the first job on the node has ended at the latest.
func (n *vnode) nextEnd() int64 {
	t := Forever
	for _, r := range n.runs {
		t = min(t, r.end)
	}
	return t
}

// holdCores keeps count of the jobs on each core.
func (n *vnode) holdCores(p *vpartOf, sign int16) {
	for _, k := range p.cores.List() {
		for len(n.cores) <= k {
			n.cores = append(n.cores, coreUse{})
		}
		u := &n.cores[k]
		if u.jobs == 0 {
			u.pool = p.pool
		}
		if u.jobs += sign; u.jobs > 0 {
			n.units = n.units.Set(k)
		} else if w := k >> 6; w < len(n.units) {
			n.units[w] &^= 1 << (uint(k) & 63)
		}
	}
}
