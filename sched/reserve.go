package sched

import (
	"cmp"
	"slices"
)

// promise finds the earliest start from from on for a job that cannot start now, takes the
// resources from then on, and adds the Reserve. It reports false when that is
// later than by, or the job could never start as far as the plan reaches; at is
// then 0.
func (p *pass) promise(c *class, e *entry, from, by int64) (at int64, ok bool) {
	s := p.s
	early := from <= s.now
	if e.limit >= c.lasting {
		from = max(from, c.reserved)
	}
	at, ch := s.earliest(c.shape, from, e.limit)
	if ch == nil || s.params.WindowS > 0 && at > s.now+s.params.WindowS {
		return 0, false
	}
	if at > by {
		return at, false
	}
	if early {
		c.reserved, c.lasting = at, e.limit
	}
	end := add(at, e.limit)
	r := Reserve{ID: e.job.rec.ID, Task: -1, Partition: c.part.rec.Name, At: at, End: end, Promised: true}
	if a := e.job.rec.Array; a != nil {
		r.Task = int32(a.nth(e.job.taken))
	}
	for i, place := range ch.places {
		n := ch.c.nodes[place]
		r.Nodes = append(r.Nodes, n.rec.Name)
		p.holdFor(n, c.shape.vecFor(ch.c, n.cfg, ch.tasks[i], ch.gpus[i]), at, end)
	}
	if c.shape.lic != nil {
		s.lic.Use(at, end, c.shape.lic)
		p.heldLic = append(p.heldLic, licHeld{at, end, c.shape.lic})
	}
	p.plan.Reserve = append(p.plan.Reserve, r)
	return at, true
}

// holdFor takes v from n for a promise.
func (p *pass) holdFor(n *vnode, v *vec, from, to int64) {
	free := p.s.scratch(n.cfg.dims)
	n.prof.Min(from, to, free)
	use := make([]int64, n.cfg.dims)
	v.promise(n.cfg, free, use)
	n.prof.Use(from, to, use)
	n.planned++
	p.s.touch(n)
	p.held = append(p.held, promised{n, from, to, use})
}

// earliest is the first time from which the shape can be placed for lengthS
// seconds, and how.
func (s *Scheduler) earliest(sh *shape, from, lengthS int64) (int64, *choice) {
	if r := sh.resv; r != nil && !r.rec.Flex {
		from = max(from, r.rec.Start)
	}
	for range maxRounds {
		at, ch := s.earliestNodes(sh, from, lengthS)
		if ch == nil {
			return 0, nil
		}
		later := s.licensesFrom(sh, s.roundUp(at), lengthS)
		if later == at {
			return at, ch
		}
		if later >= Forever {
			return 0, nil
		}
		from = later
	}
	return 0, nil
}

// maxRounds bounds the search for a time that suits nodes, licenses and the
// resolution at once.
const maxRounds = 64

func (s *Scheduler) roundUp(t int64) int64 {
	res := s.params.ResolutionS
	if res <= 1 || t == s.now {
		return t
	}
	return (t + res - 1) / res * res
}

// licensesFrom is the first time from t at which the licenses are free for so long.
func (s *Scheduler) licensesFrom(sh *shape, t, lengthS int64) int64 {
	if sh.lic == nil {
		return t
	}
	begin, _, ok := s.lic.Window(t, lengthS, Forever, s.scratch(len(sh.lic)), func(free []int64) bool { return s.covers(free, sh.lic) })
	if !ok {
		return Forever
	}
	return begin
}

func (s *Scheduler) earliestNodes(sh *shape, from, lengthS int64) (int64, *choice) {
	best, chosen := Forever, (*choice)(nil)
	for i := range sh.alts {
		c := &sh.alts[i]
		if c.lacks {
			continue
		}
		var at int64
		var ch *choice
		if c.flex {
			at, ch = s.earliestFlexible(sh, c, from, lengthS, best)
		} else {
			at, ch = s.earliestEven(sh, c, from, lengthS)
		}
		if ch != nil && (chosen == nil || at < best) {
			best, chosen = at, ch
		}
	}
	return best, chosen
}

// stretch is a time during which a start on a node is possible; end 0: the next
// one of the node begins then or later.
type stretch struct {
	begin, end int64
	place      int32
}

// stretchFrom is the first time from from on at which v could start on the
// node and stay for lengthS seconds; false when there is none that begins by
// latest.
func (s *Scheduler) stretchFrom(sh *shape, c *candidates, place int32, from, lengthS, latest int64) (stretch, bool) {
	n := c.nodes[place]
	if n.rec.State != NodeUsable {
		return stretch{}, false
	}
	v := sh.vecOn(c, n.cfg)
	fits := func(free []int64) bool { return v.fits(n.cfg, free) }
	for from < Forever {
		s.probes++
		begin, end, ok := n.prof.Window(from, lengthS, latest, s.scratch(n.cfg.dims), fits)
		if !ok {
			break
		}
		begin, end, again := n.clip(sh.resv, begin, end, lengthS)
		if again > 0 {
			from = again
			continue
		}
		if sh.resv != nil && !sh.resv.rec.Flex {
			end = min(end, sh.resv.rec.End-lengthS+1)
		}
		if begin <= s.now && (s.lacksPlaces(sh, n, v) || s.openUntil(sh, n, v) < add(s.now, lengthS)) {
			from = n.nextEnd()
			continue
		}
		return stretch{begin, end, place}, begin < end && begin <= latest
	}
	return stretch{}, false
}

// clip shortens a stretch to what other reservations on the node leave; again
// is where to look next when they leave nothing of it.
func (n *vnode) clip(resv *vresv, begin, end, lengthS int64) (int64, int64, int64) {
	for moved := true; moved; {
		moved = false
		for _, w := range n.reserved() {
			if w.end <= begin || resv.passes(w.resv) {
				continue
			}
			if begin >= w.start || add(begin, lengthS) > w.start+w.delay {
				return 0, 0, w.end
			}
			end = min(end, w.start, w.start+w.delay-lengthS+1)
		}
	}
	return begin, end, 0
}

// earliestEven sweeps over the nodes' stretches for the first time at which
// enough of them overlap. Each node's next stretch is worked out only when the
// sweep has come to the end of the one before: until then that end stands for
// it.
func (s *Scheduler) earliestEven(sh *shape, c *candidates, from, lengthS int64) (int64, *choice) {
	need := s.leastCount(sh, c)
	f := s.remember(c, from, lengthS)
	next := s.firstStretches(sh, c, f, from, lengthS, need)
	s.open = s.open[:0]
	for len(next) > 0 {
		t := next[0].begin
		s.open = slices.DeleteFunc(s.open, func(st stretch) bool { return st.end <= t })
		opened := false
		for len(next) > 0 && next[0].begin == t {
			top := &next[0]
			switch {
			case top.end == 0:
				st, ok := s.stretchFrom(sh, c, top.place, t, lengthS, Forever)
				f.note(top.place, c.nodes[top.place], st, ok, Forever)
				if !ok {
					next.drop()
					continue
				}
				*top = st
			case need > 1 && top.end < Forever:
				s.open, opened = append(s.open, *top), true
				*top = stretch{begin: top.end, place: top.place}
			default:
				s.open, opened = append(s.open, *top), true
				next.drop()
				continue
			}
			next.down(0)
		}
		if !opened || len(s.open) < need {
			continue
		}
		if ch := s.chooseAt(sh, c, s.open, need); ch != nil {
			f.from = t
			return t, ch
		}
	}
	f.from = Forever
	return 0, nil
}

// firsts are the first stretches of the nodes of candidates, by place, from a
// time on, as they were worked out for the last promise in a pass: the next one
// of that length asks only about the nodes that have changed since.
type firsts struct {
	from, lengthS int64
	known         []known
}

// known is a node's first stretch, of that version of the node; end 0: none begins before begin.
type known struct {
	begin, end int64
	version    uint32
}

// note takes down what was found out: the node's stretch, or that none begins by latest.
func (f *firsts) note(place int32, n *vnode, st stretch, ok bool, latest int64) {
	switch {
	case f.known == nil:
	case ok:
		f.known[place] = known{st.begin, st.end, n.version}
	default:
		f.known[place] = known{add(latest, 1), 0, n.version}
	}
}

// first is the first stretch on a node that begins by latest.
func (s *Scheduler) first(sh *shape, c *candidates, f *firsts, place int32, from, lengthS, latest int64) (stretch, bool) {
	n := c.nodes[place]
	if f.known != nil && f.known[place].version == n.version && len(n.rivals()) == 0 { // what becomes of rivals changes what is open here
		switch k := &f.known[place]; {
		case k.end > from:
			begin := max(from, k.begin)
			return stretch{begin, k.end, place}, begin <= latest
		case k.end == 0 && (k.begin > latest || k.begin >= Forever):
			return stretch{}, false
		}
	}
	st, ok := s.stretchFrom(sh, c, place, from, lengthS, latest)
	f.note(place, n, st, ok, latest)
	return st, ok
}

// lengths is of how many lengths first stretches are remembered.
const lengths = 8

// remember finds what is known of that length. There is room for it from the
// second promise in a pass on: most passes make one.
func (s *Scheduler) remember(c *candidates, from, lengthS int64) *firsts {
	i := slices.IndexFunc(c.firsts, func(f *firsts) bool { return f.lengthS == lengthS })
	if i < 0 {
		if len(c.firsts) == 0 {
			s.remembering = append(s.remembering, c)
		}
		if len(c.firsts) == lengths {
			c.firsts = slices.Delete(c.firsts, 0, 1)
		}
		f := &firsts{from: from, lengthS: lengthS}
		c.firsts = append(c.firsts, f)
		return f
	}
	f := c.firsts[i]
	if f.known == nil || from < f.from {
		f.known = make([]known, len(c.nodes))
	}
	f.from = from
	return f
}

// forgetFirsts ends with a pass: what was remembered is much, and soon stale.
func (s *Scheduler) forgetFirsts() {
	for _, c := range s.remembering {
		c.firsts = nil
	}
	clear(s.remembering)
	s.remembering = s.remembering[:0]
}

// firstStretches are the nodes' first ones. When a single node will do, none
// that begins after another matters.
func (s *Scheduler) firstStretches(sh *shape, c *candidates, f *firsts, from, lengthS int64, need int) stretchHeap {
	next := s.next[:0]
	single := need == 1 && len(c.must) == 0 && len(c.counts) == 0
	latest := Forever
	for place := range c.nodes {
		st, ok := s.first(sh, c, f, int32(place), from, lengthS, latest)
		if !ok {
			continue
		}
		if single && st.begin < latest {
			latest = st.begin
			next = next[:0]
		}
		next = append(next, st)
	}
	s.next = next
	for i := len(next)/2 - 1; i >= 0; i-- {
		next.down(i)
	}
	return next
}

// stretchHeap has the earliest first.
type stretchHeap []stretch

func (h stretchHeap) down(i int) {
	for {
		k := 2*i + 1
		if k+1 < len(h) && h[k+1].begin < h[k].begin {
			k++
		}
		if k >= len(h) || h[i].begin <= h[k].begin {
			return
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
}

func (h *stretchHeap) drop() {
	last := len(*h) - 1
	(*h)[0] = (*h)[last]
	*h = (*h)[:last]
	h.down(0)
}

func (s *Scheduler) leastCount(sh *shape, c *candidates) int {
	n := max(1, c.lo)
	for n < c.hi && n < len(c.nodes) && !sh.demand.allowed(n) {
		n++
	}
	return n
}

// chooseAt chooses need nodes among those free at t: those that -w names, those
// the constraint counts, then those that become free last, so that the promise
// leaves what is free now to others.
func (s *Scheduler) chooseAt(sh *shape, c *candidates, open []stretch, need int) *choice {
	if s.switches > 0 && c.hi > 1 {
		places := make([]int32, len(open))
		for i := range open {
			places[i] = open[i].place
		}
		if sets, ok := s.switchSets(sh, c, places); ok {
			for _, set := range sets {
				in := make([]bool, len(c.nodes))
				for _, p := range set {
					in[p] = true
				}
				on := slices.DeleteFunc(slices.Clone(open), func(st stretch) bool { return !in[st.place] })
				if len(on) < need {
					continue
				}
				if ch := s.chooseAmong(sh, c, on, need); ch != nil {
					return ch
				}
			}
			return nil
		}
	}
	return s.chooseAmong(sh, c, open, need)
}

func (s *Scheduler) chooseAmong(sh *shape, c *candidates, open []stretch, need int) *choice {
	slices.SortFunc(open, func(a, b stretch) int {
		return cmp.Or(cmp.Compare(b.begin, a.begin), cmp.Compare(c.nodes[a.place].rec.Weight, c.nodes[b.place].rec.Weight), cmp.Compare(a.place, b.place))
	})
	var places []int32
	take := func(want int, ok func(int32) bool) bool {
		for i := 0; i < len(open) && want > 0; i++ {
			if pl := open[i].place; ok(pl) && !slices.Contains(places, pl) {
				places = append(places, pl)
				want--
			}
		}
		return want <= 0
	}
	ok := take(len(c.must), func(p int32) bool { return slices.Contains(c.must, p) })
	for i := range c.counts {
		match := c.counts[i].match
		ok = ok && take(c.counts[i].n, func(p int32) bool { return match[p] })
	}
	if sh.req.Contiguous {
		places = c.consecutiveAt(open, need)
		ok = len(places) == need
	}
	if len(places) == 0 && ok { // the common case, without looking for duplicates
		for _, st := range open[:need] {
			places = append(places, st.place)
		}
	}
	ok = ok && take(need-len(places), func(int32) bool { return true })
	if !ok {
		return nil
	}
	slices.Sort(places)
	ch := &choice{c: c, places: places, until: Forever}
	for range places {
		ch.tasks, ch.gpus = append(ch.tasks, c.tasks), append(ch.gpus, c.gpus)
	}
	return ch
}

// consecutiveAt is the first run of need nodes in a row among the open ones.
func (c *candidates) consecutiveAt(open []stretch, need int) []int32 {
	places := make([]int32, len(open))
	for i := range open {
		places[i] = open[i].place
	}
	slices.Sort(places)
	run := 0
	for i, p := range places {
		if i > 0 && c.nodes[p].idx != c.nodes[places[i-1]].idx+1 {
			run = 0
		}
		if run++; run == need {
			return slices.Clone(places[i-need+1 : i+1])
		}
	}
	return nil
}

// earliestFlexible looks for the first moment at which something ends or
// begins from which on the nodes together hold the job. Without promises in
// the way more is free at each later moment, so the search is binary.
func (s *Scheduler) earliestFlexible(sh *shape, c *candidates, from, lengthS, before int64) (int64, *choice) {
	times := []int64{from}
	for _, n := range c.nodes {
		for i := 1; i < n.prof.Steps(); i++ {
			if t := n.prof.Begin(i); t > from && t < before {
				times = append(times, t)
			}
		}
		for _, w := range n.reserved() {
			if w.end > from && w.end < before {
				times = append(times, w.end)
			}
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	i, _ := slices.BinarySearchFunc(times, true, func(t int64, _ bool) int {
		if s.flexibleAt(sh, c, t, lengthS) != nil {
			return 1
		}
		return -1
	})
	if i == len(times) {
		return 0, nil
	}
	return times[i], s.flexibleAt(sh, c, times[i], lengthS)
}

// flexibleAt places the job from t on, or returns nil.
func (s *Scheduler) flexibleAt(sh *shape, c *candidates, t, lengthS int64) *choice {
	caps := make([]int, len(c.nodes))
	rooms := make([]int64, len(c.nodes))
	var places []int32
	for p, n := range c.nodes {
		if n.rec.State != NodeUsable {
			continue
		}
		s.probes++
		if _, _, again := n.clip(sh.resv, t, t+1, lengthS); again > 0 {
			continue
		}
		free := s.scratch(n.cfg.dims)
		n.prof.Min(t, add(t, lengthS), free)
		if !sh.vecFor(c, n.cfg, c.tasks, c.gpus).fits(n.cfg, free) {
			continue
		}
		caps[p], rooms[p] = sh.capOf(c, n, free), sh.deviceRoom(c, n.cfg, free)
		places = append(places, int32(p))
	}
	chosen, tasks, gpus := s.spreadOnSwitches(sh, c, places, func(p int32) int { return caps[p] }, func(p int32) int64 { return rooms[p] },
		func(p int32) int64 { return int64(c.nodes[p].rec.Weight) })
	if chosen == nil {
		return nil
	}
	return &choice{c: c, places: chosen, tasks: tasks, gpus: gpus, until: Forever}
}
