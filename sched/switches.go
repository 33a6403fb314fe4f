package sched

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// switchWaitS is how long a job waits for the switches it asked for at most when
// nothing else is said (max_switch_wait in slurm.conf(5)).
const switchWaitS = 300

// requestOf is what the job asks for now: once it has waited long enough for
// few switches, any nodes will do (--switches in sbatch(1)).
func (s *Scheduler) requestOf(j *vjob) *Request {
	r := j.rec.Request
	if r == nil || r.Switches <= 0 {
		return r
	}
	wait := s.params.MaxSwitchWaitS
	if wait == 0 {
		wait = switchWaitS
	}
	if r.SwitchWaitS > 0 {
		wait = min(wait, r.SwitchWaitS)
	}
	if at := add(eligibleAt(j.rec), wait); at > s.now {
		j.when = at
		s.timers.add(at, j)
		return r
	}
	any := *r
	any.Switches = 0
	return &any
}

// connect numbers the switches and tells each node which are above it, the topmost first. A node without a switch is a fabric of its own
// where others have one.
func (s *Scheduler) connect() {
	s.switches = 0
	if !slices.ContainsFunc(s.nodes.vals, func(n *vnode) bool { return n.rec.Switch != "" }) {
		return
	}
	numbers := map[string]int32{}
	for _, n := range s.nodes.vals {
		name := n.rec.Switch
		if name == "" {
			name = "//" + n.rec.Name
		}
		n.above = nil
		for at := range len(name) + 1 {
			if n.rec.Switch != "" && at < len(name) && name[at] != '/' || n.rec.Switch == "" && at < len(name) {
				continue
			}
			if _, known := numbers[name[:at]]; !known {
				numbers[name[:at]] = int32(len(numbers))
			}
			n.above = append(n.above, numbers[name[:at]])
		}
	}
	s.switches = len(numbers)
}

// leafOf is the switch that the node at a place hangs on, rootOf the topmost above it.
func (c *candidates) leafOf(p int32) int32 { a := c.nodes[p].above; return a[len(a)-1] }
func (c *candidates) rootOf(p int32) int32 { return c.nodes[p].above[0] }

// roots are the topmost switches of the candidates, for a job of n nodes; -1 where it does not matter.
func (c *candidates) roots(n int) []int32 {
	if n == 1 || len(c.nodes) == 0 || c.nodes[0].above == nil {
		return []int32{-1}
	}
	var out []int32
	for p := range c.nodes {
		if r := c.rootOf(int32(p)); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// switchSets are the sets of places to try for a job of several nodes, each connected by some switch: the switches nearest to the
// nodes first, and among those the ones of which the job leaves the least. A job that asks for at most so many leaves has sets of
// those only. ok is false when the switches do not matter.
func (s *Scheduler) switchSets(sh *shape, c *candidates, places []int32) (sets [][]int32, ok bool) {
	if s.switches == 0 || c.hi == 1 || len(c.nodes) == 0 {
		return nil, false
	}
	need := max(1, c.lo)
	if sh.req.Switches > 0 {
		return s.leafSets(sh, c, places, need), true
	}
	if c.hi < math.MaxInt32 && !sh.req.UseMinNodes && !c.flex {
		need = c.hi
	}
	if sets = s.nearSets(c, places, need); len(sets) == 0 && need > c.lo {
		sets = s.nearSets(c, places, max(1, c.lo))
	}
	return sets, true
}

// nearSets are the places below each switch that has need of them, lower switches first, then those with the fewest.
func (s *Scheduler) nearSets(c *candidates, places []int32, need int) [][]int32 {
	type below struct {
		id, height int32
		places     []int32
	}
	count := make([]int32, s.switches)
	for _, p := range places {
		for _, id := range c.nodes[p].above {
			count[id]++
		}
	}
	at := make([]int32, s.switches)
	var found []below
	for _, p := range places {
		above := c.nodes[p].above
		for i, id := range above {
			if int(count[id]) < need {
				continue
			}
			if at[id] == 0 {
				found = append(found, below{id: id, places: make([]int32, 0, count[id])})
				at[id] = int32(len(found))
			}
			b := &found[at[id]-1]
			b.height = max(b.height, int32(len(above)-1-i))
			b.places = append(b.places, p)
		}
	}
	slices.SortFunc(found, func(a, b below) int {
		return cmp.Or(cmp.Compare(a.height, b.height), cmp.Compare(len(a.places), len(b.places)), cmp.Compare(a.id, b.id))
	})
	sets := make([][]int32, len(found))
	for i := range found {
		sets[i] = found[i].places
	}
	return sets
}

// leafSets are the places on single leaves, those first that the job leaves the least of, then on the largest of each fabric together,
// as many as the job allows.
func (s *Scheduler) leafSets(sh *shape, c *candidates, places []int32, need int) [][]int32 {
	by := make([][]int32, s.switches)
	var leaves []int32
	for _, p := range places {
		id := c.leafOf(p)
		if by[id] == nil {
			leaves = append(leaves, id)
		}
		by[id] = append(by[id], p)
	}
	slices.SortFunc(leaves, func(a, b int32) int { return cmp.Or(cmp.Compare(len(by[a]), len(by[b])), cmp.Compare(a, b)) })
	var sets [][]int32
	for _, id := range leaves {
		if len(by[id]) >= need {
			sets = append(sets, by[id])
		}
	}
	fabrics := map[int32][]int32{}
	var roots []int32
	for _, id := range slices.Backward(leaves) {
		root := c.rootOf(by[id][0])
		if fabrics[root] == nil {
			roots = append(roots, root)
		}
		fabrics[root] = append(fabrics[root], id)
	}
	for k := 2; k <= sh.req.Switches; k++ {
		grew := false
		for _, root := range roots {
			if k > len(fabrics[root]) {
				continue
			}
			grew = true
			var all []int32
			for _, id := range slices.Backward(fabrics[root][:k]) {
				all = append(all, by[id]...)
			}
			if len(all) >= need {
				sets = append(sets, all)
			}
		}
		if !grew {
			break
		}
	}
	return sets
}

// fitting are the places that fit until end.
func (c *candidates) fitting(end int64) []int32 {
	var out []int32
	for p := range c.nodes {
		if c.cost[p] != noFit && c.until[p] >= end {
			out = append(out, int32(p))
		}
	}
	return out
}

// pickOnSwitches is pickEven with few switches: each set is tried with the
// other places hidden.
func (s *Scheduler) pickOnSwitches(sh *shape, c *candidates, end int64, sets [][]int32) *choice {
	all := c.fitting(end)
	for _, set := range sets {
		on := make([]bool, len(c.nodes))
		for _, p := range set {
			on[p] = true
		}
		var hidden, none []int32
		for _, p := range all {
			if !on[p] {
				hidden = append(hidden, p)
			}
		}
		c.take(&none, hidden, end)
		ch := s.pickAny(sh, c, end)
		c.putBack(s, sh, hidden)
		if ch != nil {
			return ch
		}
	}
	return nil
}

// spreadOnSwitches is spread with regard to switches.
func (s *Scheduler) spreadOnSwitches(sh *shape, c *candidates, places []int32, caps func(int32) int, room, cost func(int32) int64) ([]int32, []int, []int64) {
	sets, ok := s.switchSets(sh, c, places)
	if !ok {
		return sh.spread(c, places, caps, room, cost)
	}
	for _, set := range sets {
		if chosen, tasks, gpus := sh.spread(c, set, caps, room, cost); chosen != nil {
			return chosen, tasks, gpus
		}
	}
	return nil, nil, nil
}

// scattered says so when enough nodes could take a part of the job now and it is their switches that keep it from starting.
func (s *Scheduler) scattered(e *entry) string {
	sh := e.class.shape
	if s.switches == 0 || len(sh.alts) == 0 {
		return ""
	}
	c := &sh.alts[len(sh.alts)-1]
	if c.lacks || c.hi == 1 {
		return ""
	}
	s.refresh(sh, c)
	places := c.fitting(add(s.now, e.least))
	sets, ok := s.switchSets(sh, c, places)
	if !ok || len(places) < c.lo || len(sets) > 0 {
		return ""
	}
	leaves, roots := map[int32]bool{}, map[int32]bool{}
	for _, p := range places {
		leaves[c.leafOf(p)], roots[c.rootOf(p)] = true, true
	}
	what := fmt.Sprintf("%d nodes could take a part of the job now, on %d leaf switches", len(places), len(leaves))
	if len(roots) > 1 {
		what += fmt.Sprintf(" of %d networks without a connection", len(roots))
	}
	if sh.req.Switches > 0 {
		return what + fmt.Sprintf("; the job waits for %d nodes on at most %d (--switches)", c.lo, sh.req.Switches)
	}
	return what + fmt.Sprintf("; the job needs %d nodes that are connected", c.lo)
}
