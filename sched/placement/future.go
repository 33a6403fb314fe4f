package placement

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Future finds when and where a job that cannot start now could, and reserves that for the duration of a pass.
type Future struct {
	params *record.Params
	ix     *index.Index
	pl     *Placer

	held    []promised
	heldLic []licHeld

	open        []stretch // used by earliestEven
	next        stretchHeap
	remembering []*Candidates // candidates with first stretches
}

// NewFuture makes a Future for the nodes of an index.
func NewFuture(params *record.Params, ix *index.Index, pl *Placer) *Future {
	return &Future{params: params, ix: ix, pl: pl}
}

// promised is a promise's part on one node.
type promised struct {
	node     *node.Node
	from, to int64
	use      []int64
}

type licHeld struct {
	from, to int64
	need     []int64
}

// Hold reserves v on n for a promise.
func (fu *Future) Hold(n *node.Node, v *node.Need, from, to int64) {
	free := fu.pl.scratch(n.Config.Dims)
	n.Prof.Min(from, to, free)
	use := make([]int64, n.Config.Dims)
	v.Promise(n.Config, free, use)
	fu.ix.Promise(n, from, to, use)
	fu.held = append(fu.held, promised{n, from, to, use})
}

// HoldLicenses reserves licenses for a promise.
func (fu *Future) HoldLicenses(need []int64, from, to int64) {
	fu.ix.Licenses.Prof.Use(from, to, need)
	fu.heldLic = append(fu.heldLic, licHeld{from, to, need})
}

// LetGo ends with a pass: its reservations are released.
func (fu *Future) LetGo() {
	for i := range fu.held {
		h := &fu.held[i]
		fu.ix.Release(h.node, h.from, h.to, h.use)
	}
	for _, h := range fu.heldLic {
		fu.ix.Licenses.Prof.Free(h.from, h.to, h.need)
	}
	clear(fu.held)
	fu.held, fu.heldLic = fu.held[:0], nil
}

// Earliest returns the first time from which the shape can be placed for lengthS seconds, and how.
func (fu *Future) Earliest(sh *Shape, from, lengthS int64) (int64, *Choice) {
	if r := sh.Resv; r != nil && !r.Rec.Flex {
		from = max(from, r.Rec.Start)
		lengthS = min(lengthS, max(1, r.Rec.End-from)) // it ends with the reservation
	}
	for range maxRounds {
		at, ch := fu.earliestNodes(sh, from, lengthS)
		if ch == nil {
			return 0, nil
		}
		later := fu.licensesFrom(sh, fu.roundUp(at), record.Add(lengthS, ch.WakeS))
		if later == at {
			return at, ch
		}
		if later >= record.Forever {
			return 0, nil
		}
		from = later
	}
	return 0, nil
}

// maxRounds bounds the search for a time that suits nodes, licenses and the resolution at once.
const maxRounds = 64

func (fu *Future) roundUp(t int64) int64 {
	res := fu.params.ResolutionS
	if res <= 1 || t == fu.ix.Now {
		return t
	}
	return (t + res - 1) / res * res
}

// licensesFrom returns the first time from t at which the licenses are free for lengthS seconds.
func (fu *Future) licensesFrom(sh *Shape, t, lengthS int64) int64 {
	if sh.Lic == nil {
		return t
	}
	return fu.ix.Licenses.From(t, lengthS, sh.Lic, fu.pl.scratch(len(sh.Lic)))
}

func (fu *Future) earliestNodes(sh *Shape, from, lengthS int64) (int64, *Choice) {
	best, chosen := record.Forever, (*Choice)(nil)
	for i := range sh.Alts {
		c := &sh.Alts[i]
		if c.Lacks {
			continue
		}
		var at int64
		var ch *Choice
		if c.Flex {
			at, ch = fu.earliestFlexible(sh, c, from, lengthS, best)
		} else {
			at, ch = fu.earliestAwake(sh, c, from, lengthS)
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

// stretchFrom returns the first stretch from from on in which the shape could start on the node and stay; false when there is none that
// begins by latest.
func (fu *Future) stretchFrom(sh *Shape, c *Candidates, place int32, from int64, s stay, latest int64) (stretch, bool) {
	n := c.Nodes[place]
	lengthS, ok := s.on(n)
	if n.Rec.State != record.NodeUsable || !ok {
		return stretch{}, false
	}
	v := sh.NeedOn(c, n.Config)
	fits := func(free []int64) bool { return v.Fits(n.Config, free) }
	for from < record.Forever {
		fu.pl.Ask()
		begin, end, ok := n.Prof.Window(from, lengthS, latest, fu.pl.scratch(n.Config.Dims), fits)
		if !ok {
			break
		}
		begin, end, again := n.Clip(sh.Resv, begin, end, lengthS)
		if again > 0 {
			from = again
			continue
		}
		if sh.Resv != nil && !sh.Resv.Rec.Flex {
			end = min(end, sh.Resv.Rec.End) // it may begin as long as the reservation lasts
		}
		if begin <= fu.ix.Now && (fu.pl.lacksPlaces(sh, n, v) || fu.pl.OpenUntil(sh, n, v) < record.Add(fu.ix.Now, lengthS)) {
			from = n.NextEnd()
			continue
		}
		return stretch{begin, end, place}, begin < end && begin <= latest
	}
	return stretch{}, false
}

// earliestEven sweeps over the nodes' stretches for the first time at which enough of them overlap. A node's next stretch is only computed
// when the sweep has reached the end of the previous one: until then that end stands for it.
func (fu *Future) earliestEven(sh *Shape, c *Candidates, from int64, s stay) (int64, *Choice) {
	need := fu.pl.LeastCount(sh, c)
	f := fu.remember(c, from, s)
	next := fu.firstStretches(sh, c, f, from, need)
	fu.open = fu.open[:0]
	for len(next) > 0 {
		t := next[0].begin
		fu.open = slices.DeleteFunc(fu.open, func(st stretch) bool { return st.end <= t })
		opened := false
		for len(next) > 0 && next[0].begin == t {
			top := &next[0]
			switch {
			case top.end == 0:
				st, ok := fu.stretchFrom(sh, c, top.place, t, s, record.Forever)
				f.note(top.place, c.Nodes[top.place], st, ok, record.Forever)
				if !ok {
					next.drop()
					continue
				}
				*top = st
			case need > 1 && top.end < record.Forever:
				fu.open, opened = append(fu.open, *top), true
				*top = stretch{begin: top.end, place: top.place}
			default:
				fu.open, opened = append(fu.open, *top), true
				next.drop()
				continue
			}
			next.down(0)
		}
		if !opened || len(fu.open) < need {
			continue
		}
		if ch := fu.chooseAt(sh, c, fu.open, need); ch != nil {
			f.from = t
			return t, ch
		}
	}
	f.from = record.Forever
	return 0, nil
}

// firsts caches the first stretches of candidates' nodes from a time on, by place, as computed for the last promise in a pass: the next
// promise of that length only looks at nodes that have changed since.
type firsts struct {
	from  int64
	of    stay
	known []known
}

// known is the first stretch of one version of a node; end 0: none begins before begin.
type known struct {
	begin, end int64
	version    uint32
}

// note stores a result: the node's stretch, or that none begins by latest.
func (f *firsts) note(place int32, n *node.Node, st stretch, ok bool, latest int64) {
	switch {
	case f.known == nil:
	case ok:
		f.known[place] = known{st.begin, st.end, n.Version}
	default:
		f.known[place] = known{record.Add(latest, 1), 0, n.Version}
	}
}

// first returns the first stretch on a node that begins by latest.
func (fu *Future) first(sh *Shape, c *Candidates, f *firsts, place int32, from, latest int64) (stretch, bool) {
	n := c.Nodes[place]
	if f.known != nil && f.known[place].version == n.Version && len(n.Rivals()) == 0 { // changes of rivals affect this node
		switch k := &f.known[place]; {
		case k.end > from:
			begin := max(from, k.begin)
			return stretch{begin, k.end, place}, begin <= latest
		case k.end == 0 && (k.begin > latest || k.begin >= record.Forever):
			return stretch{}, false
		}
	}
	st, ok := fu.stretchFrom(sh, c, place, from, f.of, latest)
	f.note(place, n, st, ok, latest)
	return st, ok
}

// lengths is the number of lengths for which first stretches are cached.
const lengths = 8

// remember returns the cache for that length. It exists from the second promise in a pass on: most passes make one.
func (fu *Future) remember(c *Candidates, from int64, s stay) *firsts {
	i := slices.IndexFunc(c.firsts, func(f *firsts) bool { return f.of == s })
	if i < 0 {
		if len(c.firsts) == 0 {
			fu.remembering = append(fu.remembering, c)
		}
		if len(c.firsts) == lengths {
			c.firsts = slices.Delete(c.firsts, 0, 1)
		}
		f := &firsts{from: from, of: s}
		c.firsts = append(c.firsts, f)
		return f
	}
	f := c.firsts[i]
	if f.known == nil || from < f.from {
		f.known = make([]known, len(c.Nodes))
	}
	f.from = from
	return f
}

// ForgetFirsts ends with a pass: the caches are large, and soon stale.
func (fu *Future) ForgetFirsts() {
	for _, c := range fu.remembering {
		c.firsts = nil
	}
	clear(fu.remembering)
	fu.remembering = fu.remembering[:0]
}

// firstStretches returns the nodes' first stretches. When a single node suffices, none that begins after another matters.
func (fu *Future) firstStretches(sh *Shape, c *Candidates, f *firsts, from int64, need int) stretchHeap {
	next := fu.next[:0]
	single := need == 1 && len(c.Must) == 0 && len(c.Counts) == 0
	latest := record.Forever
	for place := range c.Nodes {
		st, ok := fu.first(sh, c, f, int32(place), from, latest)
		if !ok {
			continue
		}
		if single && st.begin < latest {
			latest = st.begin
			next = next[:0]
		}
		next = append(next, st)
	}
	fu.next = next
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

// LeastCount returns the least number of nodes that the request permits.
func (pl *Placer) LeastCount(sh *Shape, c *Candidates) int {
	n := max(1, c.Lo)
	for n < c.Hi && n < len(c.Nodes) && !sh.Demand.Allowed(n) {
		n++
	}
	return n
}

// chooseAt chooses need nodes among those free at t: those that -w names, those that the constraint counts, then those that become free
// last, so that the promise leaves nodes that are free now to others.
func (fu *Future) chooseAt(sh *Shape, c *Candidates, open []stretch, need int) *Choice {
	if fu.ix.Switches > 0 && c.Hi > 1 {
		places := make([]int32, len(open))
		for i := range open {
			places[i] = open[i].place
		}
		if sets, ok := fu.pl.SwitchSets(sh, c, places); ok {
			for _, set := range sets {
				in := make([]bool, len(c.Nodes))
				for _, p := range set {
					in[p] = true
				}
				on := slices.DeleteFunc(slices.Clone(open), func(st stretch) bool { return !in[st.place] })
				if len(on) < need {
					continue
				}
				if ch := fu.chooseAmong(sh, c, on, need); ch != nil {
					return ch
				}
			}
			return nil
		}
	}
	return fu.chooseAmong(sh, c, open, need)
}

func (fu *Future) chooseAmong(sh *Shape, c *Candidates, open []stretch, need int) *Choice {
	slices.SortFunc(open, func(a, b stretch) int {
		return cmp.Or(
			cmp.Compare(b.begin, a.begin),
			cmp.Compare(c.Nodes[a.place].Rec.Weight, c.Nodes[b.place].Rec.Weight),
			cmp.Compare(a.place, b.place),
		)
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
	ok := take(len(c.Must), func(p int32) bool { return slices.Contains(c.Must, p) })
	for i := range c.Counts {
		match := c.Counts[i].Match
		ok = ok && take(c.Counts[i].N, func(p int32) bool { return match[p] })
	}
	if sh.Request.Contiguous {
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
	ch := &Choice{Of: c, Places: places}
	for range places {
		ch.Tasks, ch.GPUs = append(ch.Tasks, c.Tasks), append(ch.GPUs, c.GPUs)
	}
	ch.settle(func(int, int32) int64 { return record.Forever })
	return ch
}

// consecutiveAt returns the first run of need consecutive nodes among the open ones.
func (c *Candidates) consecutiveAt(open []stretch, need int) []int32 {
	places := make([]int32, len(open))
	for i := range open {
		places[i] = open[i].place
	}
	slices.Sort(places)
	run := 0
	for i, p := range places {
		if i > 0 && c.Nodes[p].Index != c.Nodes[places[i-1]].Index+1 {
			run = 0
		}
		if run++; run == need {
			return slices.Clone(places[i-need+1 : i+1])
		}
	}
	return nil
}

// earliestFlexible looks for the first event from which on the nodes together hold the job. Without promises in the way more is free at
// each later time, so the search is binary.
func (fu *Future) earliestFlexible(sh *Shape, c *Candidates, from, lengthS, before int64) (int64, *Choice) {
	times := []int64{from}
	for _, n := range c.Nodes {
		for i := 1; i < n.Prof.Steps(); i++ {
			if t := n.Prof.Begin(i); t > from && t < before {
				times = append(times, t)
			}
		}
		for _, w := range n.Reserved() {
			if w.End > from && w.End < before {
				times = append(times, w.End)
			}
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	i, _ := slices.BinarySearchFunc(times, true, func(t int64, _ bool) int {
		if fu.flexibleAwake(sh, c, t, lengthS) != nil {
			return 1
		}
		return -1
	})
	if i == len(times) {
		return 0, nil
	}
	return times[i], fu.flexibleAwake(sh, c, times[i], lengthS)
}

// flexibleAt places the job from t on, or returns nil.
func (fu *Future) flexibleAt(sh *Shape, c *Candidates, t int64, s stay) *Choice {
	caps := make([]int, len(c.Nodes))
	rooms := make([]int64, len(c.Nodes))
	var places []int32
	for p, n := range c.Nodes {
		lengthS, ok := s.on(n)
		if n.Rec.State != record.NodeUsable || !ok {
			continue
		}
		fu.pl.Ask()
		if _, _, again := n.Clip(sh.Resv, t, t+1, lengthS); again > 0 {
			continue
		}
		free := fu.pl.scratch(n.Config.Dims)
		n.Prof.Min(t, record.Add(t, lengthS), free)
		if !sh.NeedFor(c, n.Config, c.Tasks, c.GPUs).Fits(n.Config, free) {
			continue
		}
		caps[p], rooms[p] = sh.capOf(c, n, free), sh.deviceRoom(c, n.Config, free)
		places = append(places, int32(p))
	}
	chosen, tasks, gpus := fu.pl.spreadOnSwitches(
		sh,
		c,
		places,
		func(p int32) int { return caps[p] },
		func(p int32) int64 { return rooms[p] },
		func(p int32) int64 { return int64(c.Nodes[p].Rec.Weight) },
	)
	if chosen == nil {
		return nil
	}
	ch := &Choice{Of: c, Places: chosen, Tasks: tasks, GPUs: gpus}
	ch.settle(func(int, int32) int64 { return record.Forever })
	return ch
}
