package sched

import (
	"cmp"
	"math"
	"slices"
)

// refresh brings the index of c up to date with the nodes that changed since
// it was last used.
func (s *Scheduler) refresh(sh *shape, c *candidates) {
	end := s.logBase + len(s.log)
	if c.cost == nil || c.seen < s.logBase {
		c.build(s, sh)
		c.seen = end
		return
	}
	for _, idx := range s.log[c.seen-s.logBase:] {
		p := c.pos[idx]
		if p < 0 || c.vers[p] == c.nodes[p].version {
			continue
		}
		c.leaf(s, sh, int(p))
		c.raise(int(p) / blockSize)
	}
	c.seen = end
}

func (c *candidates) build(s *Scheduler, sh *shape) {
	n := len(c.nodes)
	c.cost, c.until, c.vers = make([]int64, n), make([]int64, n), make([]uint32, n)
	c.blocks = make([]block, (n+blockSize-1)/blockSize)
	if c.flex {
		c.caps = make([]int32, n)
	}
	for p := range c.nodes {
		c.leaf(s, sh, p)
	}
	for b := range c.blocks {
		c.raise(b)
	}
}

// raise works out a block from its leaves.
func (c *candidates) raise(b int) {
	out := block{noFit, 0}
	for p := b * blockSize; p < min(len(c.cost), (b+1)*blockSize); p++ {
		out.cost = min(out.cost, c.cost[p])
		out.until = max(out.until, c.until[p])
	}
	c.blocks[b] = out
}

// leaf asks whether the shape fits on a node now, how well, and until when.
func (c *candidates) leaf(s *Scheduler, sh *shape, p int) {
	s.probes++
	n := c.nodes[p]
	c.vers[p] = n.version
	c.cost[p], c.until[p] = noFit, 0
	if n.rec.State != NodeUsable {
		return
	}
	blocked, until := n.blocked(sh.resv, s.now)
	free := n.prof.Now()
	v := sh.vecFor(c, n.cfg, c.tasks, c.gpus)
	if blocked || !v.fits(n.cfg, free) || sh.stranger(n, v) || s.lacksPlaces(sh, n, v) {
		return
	}
	if until = min(until, s.openUntil(sh, n, v)); until <= s.now {
		return
	}
	if n.planned > 0 || len(n.subs) > 0 {
		fits := func(free []int64) bool { return v.fits(n.cfg, free) }
		until = min(until, n.prof.Until(0, s.scratch(n.cfg.dims), fits))
	}
	c.until[p] = until
	c.cost[p] = s.costOf(sh, n, v, free)
	if c.flex {
		c.caps[p] = int32(sh.capOf(c, n, free))
	}
}

// stranger reports whether jobs on n keep this one away: a job that takes the
// whole node wants it empty; one for a single user wants no other user's.
func (sh *shape) stranger(n *vnode, v *vec) bool {
	if v.whole {
		return len(n.runs) > 0
	}
	if sh.user == "" && !sh.exclusiveUser() {
		return false
	}
	return slices.ContainsFunc(n.runs, sh.strange)
}

// strange: r and the job do not share a node, because one of them shares none
// with other users.
func (sh *shape) strange(r *vrun) bool {
	if sh.user == "" && !sh.exclusiveUser() {
		return false // nobody asks for nodes of his own
	}
	return (sh.exclusiveUser() || r.alone) && (r.rec.Job == nil || r.rec.Job.User != sh.user)
}

// capOf is how many tasks fit on n with free, at most all of them.
func (sh *shape) capOf(c *candidates, n *vnode, free []int64) int {
	most := sh.demand.tasks
	if sh.demand.tpnCap > 0 {
		most = min(most, sh.demand.tpnCap)
	}
	if sh.demand.even {
		return c.tasks
	}
	per := int64(max(1, sh.req.CPUsPerTask))
	if !sh.req.Overcommit {
		most = min(most, int(free[dimCPU]*sh.depth/n.cfg.scale/per))
	}
	lo, hi := c.tasks, most+1 // fits at lo, not at hi
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if sh.vecFor(c, n.cfg, mid, c.gpus).fits(n.cfg, free) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// costOf ranks the nodes on which a shape fits; lower is better, and the
// node's place decides between equals.
//
// Pack: weight, then how few whole devices are left over, then nodes in use
// before idle ones, then how few CPUs and how little memory are left over. So
// a job without devices goes where devices are gone already, and whole groups
// of devices and whole nodes stay free for large jobs.
func (s *Scheduler) costOf(sh *shape, n *vnode, v *vec, free []int64) int64 {
	weight := int64(min(max(n.rec.Weight, 0), 4095)) << 50
	if s.params.LLN || sh.part.rec.LLN || sh.req.Spread {
		return weight | (n.cfg.cpus-free[dimCPU]/n.cfg.scale)<<30/max(1, n.cfg.cpus)
	}
	if s.params.Placement != Pack {
		return s.placementCost(n, v, free, weight)
	}
	idle := int64(0)
	if len(n.runs) == 0 {
		idle = 1
	}
	left := int64(0)
	for i := range n.cfg.groups {
		if g := &n.cfg.groups[i]; g.devices > 0 {
			left += g.free(free)
		}
	}
	for i := range v.gres {
		if v.gres[i].shares == 0 {
			left -= v.gres[i].count
		}
	}
	cpu := min(max((free[dimCPU]-v.cpuUnits)/n.cfg.scale, 0), 1<<16-1)
	mem := min(max(free[dimMem]-v.mem, 0)>>4, 1<<23-1)
	return weight | min(max(left, 0), 1023)<<40 | idle<<39 | cpu<<23 | mem
}

// exclusiveUser: its nodes are for one user alone, by the job's wish (--exclusive=user) or the partition's (ExclusiveUser).
func (sh *shape) exclusiveUser() bool { return sh.req.ExclusiveUser || sh.part.rec.ExclusiveUser }

// exclusiveUser says the same of what runs.
func (s *Scheduler) exclusiveUser(rec *Run) bool {
	if part := s.partition(rec.Partition); part != nil && part.rec.ExclusiveUser {
		return true
	}
	return rec.Job != nil && rec.Job.Request != nil && rec.Job.Request.ExclusiveUser
}

// choice is a way to place a job: places in candidates.nodes, and the tasks
// and per-job devices on each.
type choice struct {
	c      *candidates
	places []int32
	tasks  []int
	gpus   []int64
	until  int64 // how long the nodes stay free
}

// pick chooses nodes on which the shape fits from now until end, or nil.
func (s *Scheduler) pick(sh *shape, end int64) *choice {
	for i := range sh.alts {
		c := &sh.alts[i]
		if c.lacks {
			continue
		}
		s.refresh(sh, c)
		var ch *choice
		if c.flex {
			ch = s.pickFlexible(sh, c, end)
		} else {
			ch = s.pickEven(sh, c, end)
		}
		if ch != nil {
			return ch
		}
	}
	return nil
}

func (s *Scheduler) pickEven(sh *shape, c *candidates, end int64) *choice {
	if s.switches > 0 && c.hi > 1 {
		if sets, ok := s.switchSets(sh, c, c.fitting(end)); ok {
			return s.pickOnSwitches(sh, c, end, sets)
		}
	}
	return s.pickAny(sh, c, end)
}

// pickAny is pickEven with no regard to switches.
func (s *Scheduler) pickAny(sh *shape, c *candidates, end int64) *choice {
	want := c.hi
	if sh.req.UseMinNodes {
		want = c.lo
	}
	ch := &choice{c: c, until: Forever}
	taken := c.take(&ch.places, c.must, end)
	ok := taken == len(c.must)
	for i := range c.counts {
		ok = ok && c.takeCount(&ch.places, &c.counts[i], end)
	}
	if ok && sh.req.Contiguous {
		ok = c.consecutive(&ch.places, want, end)
	}
	for ok && len(ch.places) < want {
		p := c.best(end, nil)
		if p < 0 {
			break
		}
		c.take(&ch.places, []int32{p}, end)
	}
	c.putBack(s, sh, ch.places)
	n := min(len(ch.places), want)
	for n > 0 && !sh.demand.allowed(n) && !(c.lo == 1 && c.hi == 1) {
		n--
	}
	if !ok || n < max(1, c.lo) {
		return nil
	}
	ch.places = ch.places[:n]
	slices.Sort(ch.places)
	left := sh.demand.tasks
	for _, p := range ch.places {
		tasks := c.tasks
		if n == c.lo && c.lo == c.hi { // the last of 4 nodes for 3 tasks still has one
			tasks = min(tasks, max(1, left))
		}
		left -= tasks
		ch.tasks, ch.gpus = append(ch.tasks, tasks), append(ch.gpus, c.gpus)
		ch.until = min(ch.until, c.until[p])
	}
	return ch
}

// take moves places that fit until end to list, and hides them from best.
func (c *candidates) take(list *[]int32, places []int32, end int64) int {
	n := 0
	for _, p := range places {
		if c.cost[p] == noFit || c.until[p] < end {
			continue
		}
		*list = append(*list, p)
		c.cost[p] = noFit
		c.raise(int(p) / blockSize)
		n++
	}
	return n
}

// putBack undoes take.
func (c *candidates) putBack(s *Scheduler, sh *shape, places []int32) {
	for _, p := range places {
		n := c.nodes[p]
		c.cost[p] = s.costOf(sh, n, sh.vecFor(c, n.cfg, c.tasks, c.gpus), n.prof.Now())
		c.raise(int(p) / blockSize)
	}
}

func (c *candidates) takeCount(list *[]int32, count *countOf, end int64) bool {
	have := 0
	for _, p := range *list {
		if count.match[p] {
			have++
		}
	}
	for ; have < count.n; have++ {
		p := c.best(end, count.match)
		if p < 0 {
			return false
		}
		c.take(list, []int32{p}, end)
	}
	return true
}

// best is the place with the lowest cost among those that fit until end.
func (c *candidates) best(end int64, match []bool) int32 {
	best, at := noFit, int32(-1)
	for b := range c.blocks {
		if c.blocks[b].cost >= best || c.blocks[b].until < end {
			continue
		}
		for p := b * blockSize; p < min(len(c.cost), (b+1)*blockSize); p++ {
			if c.cost[p] < best && c.until[p] >= end && (match == nil || match[p]) {
				best, at = c.cost[p], int32(p)
			}
		}
	}
	return at
}

// consecutive replaces list by the first want consecutive nodes.
func (c *candidates) consecutive(list *[]int32, want int, end int64) bool {
	if len(*list) > 0 {
		return false // -w or counts with --contiguous: the nodes were hidden
	}
	if want == math.MaxInt32 {
		want = c.lo
	}
	run := 0
	for p := range c.nodes {
		fits := c.cost[p] != noFit && c.until[p] >= end
		if p > 0 && c.nodes[p].idx != c.nodes[p-1].idx+1 {
			run = 0
		}
		if !fits {
			run = 0
			continue
		}
		if run++; run == want {
			places := make([]int32, want)
			for i := range places {
				places[i] = int32(p - want + 1 + i)
			}
			return c.take(list, places, end) == want
		}
	}
	return false
}

// pickFlexible spreads tasks and per-job devices over as few nodes as will do.
func (s *Scheduler) pickFlexible(sh *shape, c *candidates, end int64) *choice {
	places := c.fitting(end)
	caps := func(p int32) int { return int(c.caps[p]) }
	room := func(p int32) int64 { return sh.deviceRoom(c, c.nodes[p].cfg, c.nodes[p].prof.Now()) }
	chosen, tasks, gpus := s.spreadOnSwitches(sh, c, places, caps, room, func(p int32) int64 { return c.cost[p] })
	if chosen == nil {
		return nil
	}
	ch := &choice{c: c, places: chosen, tasks: tasks, gpus: gpus, until: Forever}
	for i, p := range chosen {
		ch.until = min(ch.until, c.until[p])
		n := c.nodes[p]
		v := sh.vecFor(c, n.cfg, tasks[i], gpus[i])
		need := end
		if !v.fits(n.cfg, n.prof.Now()) {
			return nil
		}
		if n.planned > 0 || len(n.subs) > 0 {
			until := n.prof.Until(0, s.scratch(n.cfg.dims), func(f []int64) bool { return v.fits(n.cfg, f) })
			until = min(until, s.openUntil(sh, n, v))
			if ch.until = min(ch.until, until); until < need {
				return nil
			}
		}
	}
	return ch
}

// deviceRoom is how many of the per-job devices free has.
func (sh *shape) deviceRoom(c *candidates, cfg *config, free []int64) int64 {
	if len(sh.demand.jobGres) == 0 {
		return 0
	}
	v := sh.vecFor(c, cfg, c.tasks, 1)
	room := int64(math.MaxInt64)
	for i := range v.gres {
		if !slices.ContainsFunc(sh.demand.jobGres, func(g GresRequest) bool { return g.Name == v.gres[i].name }) {
			continue
		}
		here := int64(0)
		for _, gi := range v.gres[i].groups {
			here += cfg.groups[gi].free(free)
		}
		for _, k := range v.gres[i].cuts {
			here += cfg.groups[k.gi].cutRoom(k.profile, free)
		}
		room = min(room, here)
	}
	return room
}

// spread chooses the fewest allowed places whose caps and rooms suffice (the most, where the request is for as many as there are),
// and shares the tasks and devices out: one each, then filling up in node order.
func (sh *shape) spread(c *candidates, places []int32, caps func(int32) int, room, cost func(int32) int64) ([]int32, []int, []int64) {
	d := &sh.demand
	devices := int64(0)
	if len(d.jobGres) > 0 {
		devices = d.jobGres[0].Count
	}
	must := func(p int32) bool { return slices.Contains(c.must, p) }
	slices.SortStableFunc(places, func(a, b int32) int {
		if ma, mb := must(a), must(b); ma != mb {
			return map[bool]int{true: -1, false: 1}[ma]
		}
		if devices > 0 && room(a) != room(b) {
			return int(min(max(room(b)-room(a), -1), 1))
		}
		if caps(a) != caps(b) && !sh.req.Spread {
			return caps(b) - caps(a)
		}
		return cmp.Compare(cost(a), cost(b))
	})
	tasks, rooms, named, best := 0, int64(0), 0, 0
	most := 0
	if sh.req.wide() {
		most = min(d.hi, d.tasks)
	}
	for i, p := range places {
		if must(p) {
			named++
		}
		tasks += caps(p)
		rooms += room(p)
		n := i + 1
		enough := tasks >= d.tasks && rooms >= devices && named == len(c.must) && sh.satisfied(c, places[:n])
		if enough && d.allowed(n) {
			best = n
		}
		if best > 0 && n >= most {
			break
		}
	}
	if best == 0 {
		return nil, nil, nil
	}
	chosen := slices.Clone(places[:best])
	slices.Sort(chosen)
	t, g := share(chosen, max(d.tasks, best), devices, caps, room)
	return chosen, t, g
}

// satisfied checks the feature counts.
func (sh *shape) satisfied(c *candidates, places []int32) bool {
	for i := range c.counts {
		have := 0
		for _, p := range places {
			if c.counts[i].match[p] {
				have++
			}
		}
		if have < c.counts[i].n {
			return false
		}
	}
	return true
}

func share(places []int32, tasks int, devices int64, caps func(int32) int, room func(int32) int64) ([]int, []int64) {
	t, g := make([]int, len(places)), make([]int64, len(places))
	tasks -= len(places)
	for i := range places {
		t[i] = 1
	}
	if devices > 0 {
		devices -= int64(len(places))
		for i := range places {
			g[i] = 1
		}
	}
	for i, p := range places {
		more := min(tasks, caps(p)-1)
		t[i] += more
		tasks -= more
		extra := min(devices, room(p)-1)
		if devices > 0 && extra > 0 {
			g[i] += extra
			devices -= extra
		}
	}
	return t, g
}
