package sched

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/profile"
)

// A reservation of a part of a node (CoreCnt= and TRES= in scontrol(1)) is a
// node of its own beside the real one: a vnode with the reserved cores and
// devices and all of the memory. Its jobs see that one, all others the real
// one, of whose profile the part is taken while the reservation lasts. What a
// job takes is taken from both: its memory counts on either, and cores and
// devices count where they are. The alternative, two kinds of CPUs in one
// profile, would have every question about a node ask who is asking.

// taken marks a device that is not there, whatever is given back.
const taken = int64(1) << 40

// addPart makes the part of a node that r sets aside.
func (s *Scheduler) addPart(r *vresv, a *Alloc) {
	at, ok := s.nodeByName[a.Node]
	if !ok || s.nodes.vals[at].cfg.cores == 0 {
		return
	}
	n := s.nodes.vals[at]
	part := &vnode{rec: n.rec, idx: int32(len(s.nodes.vals)), whole: n, above: n.above, resv: r, share: a}
	part.cfg = n.cfg.partOf(n, a)
	part.prof = profile.New(part.cfg.full)
	part.mark(a)
	s.nodes.vals = append(s.nodes.vals, part)
	r.parts[at] = part
	n.subs = append(n.subs, part)
	use := s.useOf(n, &Alloc{CPUs: a.CPUs, Gres: a.Gres}, &Run{})
	for _, w := range r.spans() {
		n.prof.Use(w.Start, w.End, use)
	}
}

// partOf is the hardware of a part: the node's, with fewer CPUs and devices.
func (c *config) partOf(n *vnode, a *Alloc) *config {
	p := *c
	p.cpus = int64(a.Cores.Count()) * c.threads
	p.full = slices.Clone(c.full)
	p.full[dimCPU] = p.cpus * c.scale
	p.groups = slices.Clone(c.groups)
	for gi := range p.groups {
		g := &p.groups[gi]
		devices := reservedDevices(n, gi, a)
		g.capacity = int64(len(devices))
		if g.devices == 0 {
			g.capacity = reservedCount(g, a)
		}
		p.full[g.dim] = g.capacity
		for i := range g.devices {
			if g.dev > 0 && !slices.Contains(devices, i) {
				p.full[g.dev+i] = 0
			}
		}
	}
	return &p
}

func reservedCount(g *group, a *Alloc) int64 {
	sum := int64(0)
	for i := range a.Gres {
		if a.Gres[i].Name == g.name && a.Gres[i].Type == g.typ {
			sum += a.Gres[i].Count
		}
	}
	return sum
}

// reservedDevices are the places of the devices of a group that a names.
func reservedDevices(n *vnode, gi int, a *Alloc) []int {
	g := &n.cfg.groups[gi]
	var out []int
	for i := range a.Gres {
		if a.Gres[i].Name != g.name || a.Gres[i].Type != g.typ {
			continue
		}
		for _, d := range a.Gres[i].Devices {
			if at := n.deviceAt(gi, d); at >= 0 {
				out = append(out, at)
			}
		}
	}
	return out
}

// mark closes what is not in the part.
func (n *vnode) mark(a *Alloc) {
	for k := range n.cfg.cores {
		if !a.Cores.Has(k) {
			n.units = n.units.Set(k)
		}
	}
	for gi := range n.cfg.groups {
		in := reservedDevices(n, gi, a)
		n.dev = append(n.dev, make([]int64, n.cfg.groups[gi].devices))
		for i := range n.dev[gi] {
			if !slices.Contains(in, i) {
				n.dev[gi][i] = taken
			}
		}
	}
}

// spans are the times of a reservation, the present or next one first.
func (r *vresv) spans() []Span {
	var out []Span
	for _, w := range append([]Span{{r.rec.Start, r.rec.End}}, r.rec.Again...) {
		if w.End > w.Start {
			out = append(out, w)
		}
	}
	return out
}

// partial: the reservation sets parts of nodes aside.
func (r *vresv) partial() bool { return r != nil && len(r.parts) > 0 }

// seat is where jobs of a reservation see a node; nil when they do not.
func (r *vresv) seat(n *vnode) *vnode {
	if !r.partial() || n.whole != nil {
		return n
	}
	return r.parts[n.idx]
}

// runParts are what a run takes of the real node and of its parts.
func (s *Scheduler) runParts(r *vrun, n *vnode, a *Alloc, pool int32) {
	cores := a.Cores
	if r.rec.Suspended {
		cores = nil
	}
	real := vpartOf{node: n, use: s.useOf(n, a, r.rec), cores: cores, pool: pool, alloc: a}
	for _, sub := range n.subs {
		both := sub.overlap(a)
		part := vpartOf{node: sub, use: s.useOf(sub, both, r.rec), cores: both.Cores, pool: pool, alloc: both}
		part.use[dimMem] = real.use[dimMem]
		if r.rec.Suspended {
			part.cores = nil
		}
		r.parts = append(r.parts, part)
		if both.CPUs > 0 || len(both.Gres) > 0 {
			use := s.useOf(n, both, r.rec)
			clear(use[n.cfg.caps:]) // what a partition may use is not the reservation's
			real.backs = append(real.backs, back{sub.resv.rec.Start, sub.resv.rec.End, use})
		}
	}
	r.parts = append(r.parts, real)
}

// overlap is what of an allocation on the node is of the part.
func (n *vnode) overlap(a *Alloc) *Alloc {
	both := &Alloc{Node: a.Node, Cores: a.Cores.And(n.share.Cores)}
	both.CPUs = both.Cores.Count() * int(n.cfg.threads)
	for i := range a.Gres {
		g := a.Gres[i]
		if len(g.Devices) == 0 {
			continue // counted: nobody can tell which
		}
		g.Devices = slices.DeleteFunc(slices.Clone(g.Devices), func(d int) bool {
			return !slices.ContainsFunc(n.share.Gres, func(have GresAlloc) bool {
				return have.Type == g.Type && slices.Contains(have.Devices, d)
			})
		})
		if g.Count = int64(len(g.Devices)); g.Count > 0 {
			both.Gres = append(both.Gres, g)
		}
	}
	return both
}

// back is what a run that is on reserved cores gives back to the node's
// profile, from which they are taken once already.
type back struct {
	from, to int64
	use      []int64
}

// giveBack adds (or with sign -1 takes away) what is counted twice over [from, to).
func (p *vpartOf) giveBack(from, to, sign int64) {
	for _, b := range p.backs {
		lo, hi := max(from, b.from), min(to, b.to)
		if sign > 0 {
			p.node.prof.Free(lo, hi, b.use)
		} else {
			p.node.prof.Use(lo, hi, b.use)
		}
	}
}

// rivals are the parts that a job on n has to keep off: all of a node's; on a part those of reservations that share its cores
// (MAINT, OVERLAP) and do not give way.
func (n *vnode) rivals() []*vnode {
	if n.whole == nil {
		return n.subs
	}
	if len(n.whole.subs) == 1 {
		return nil
	}
	var out []*vnode
	for _, sub := range n.whole.subs {
		if sub != n && !n.resv.passes(sub.resv) {
			out = append(out, sub)
		}
	}
	return out
}

// shut are the cores that parts of the node keep from a job that runs from now
// until before end, and with hide their devices.
func (n *vnode) shut(now, end int64) Bits {
	var out Bits
	for _, sub := range n.rivals() {
		if sub.meets(now, end) {
			out = out.Or(sub.share.Cores)
		}
	}
	return out
}

// meets: the reservation of the part is in force at some time from from until before to.
func (n *vnode) meets(from, to int64) bool {
	return slices.ContainsFunc(n.resv.spans(), func(w Span) bool { return w.Start < to && w.End > from })
}

// hide closes (or with sign -1 opens) the devices of such parts.
func (n *vnode) hide(now, end, sign int64) {
	for _, sub := range n.rivals() {
		if !sub.meets(now, end) {
			continue
		}
		for gi := range n.dev {
			for _, i := range reservedDevices(n, gi, sub.share) {
				n.dev[gi][i] += sign * taken
			}
		}
	}
}

// openUntil is how long a job of the shape could stay with the cores and
// devices that are free now; now when there are not enough. Counts say less:
// what is free may be what a reservation has.
func (s *Scheduler) openUntil(sh *shape, n *vnode, v *vec) int64 {
	rivals := n.rivals()
	if len(rivals) == 0 {
		return Forever
	}
	var ends []int64
	for _, sub := range rivals {
		for _, w := range sub.resv.spans() {
			if w.End > s.now {
				ends = append(ends, max(w.Start, s.now))
			}
		}
	}
	slices.Sort(ends)
	for _, t := range slices.Compact(ends) {
		if !s.placesFor(sh, n, v, t+1) {
			return t
		}
	}
	return Forever
}

// placesFor: enough cores and devices are free of those that a job that runs
// until before end may have.
func (s *Scheduler) placesFor(sh *shape, n *vnode, v *vec, end int64) bool {
	count := 0
	for _, b := range n.takeable(sh, n.shut(s.now, end)) {
		count += b.Count()
	}
	if int64(count) < v.cpu/n.cfg.threads {
		return false
	}
	n.hide(s.now, end, 1)
	defer n.hide(s.now, end, -1)
	for i := range v.gres {
		g := &v.gres[i]
		free := int64(0)
		for _, gi := range g.groups {
			switch {
			case n.cfg.groups[gi].devices == 0:
				free += n.prof.Now()[n.cfg.groups[gi].dim]
			case g.shares > 0 && n.shareDevice(gi, g.shares) >= 0:
				free += g.shares
			case g.shares == 0:
				free += n.freeNow(gi, nil)
			}
		}
		if free < g.count && len(g.cuts) > 0 {
			free += n.cutsNow(g.cuts, g.count-free)
		}
		if free < g.count {
			return false
		}
	}
	return true
}
