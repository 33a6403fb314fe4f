package placement

import (
	"cmp"
	"math"
	"slices"
)

// LeafOf returns the switch of the node at a place.
func (c *Candidates) LeafOf(p int32) int32 { a := c.Nodes[p].Above; return a[len(a)-1] }

// RootOf returns the topmost switch above the node at a place.
func (c *Candidates) RootOf(p int32) int32 { return c.Nodes[p].Above[0] }

// Roots returns the topmost switches of the candidates, for a job of n nodes; -1 where it does not matter.
func (c *Candidates) Roots(n int) []int32 {
	if n == 1 || len(c.Nodes) == 0 || c.Nodes[0].Above == nil {
		return []int32{-1}
	}
	var out []int32
	for p := range c.Nodes {
		if r := c.RootOf(int32(p)); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// SwitchSets returns the sets of places to try for a job of several nodes, each connected by some switch: the switches nearest to the nodes
// first, and among those the ones of which the job leaves the least. A job with a maximum of leaves only has sets within it. ok is false
// when switches do not matter.
func (pl *Placer) SwitchSets(sh *Shape, c *Candidates, places []int32) (sets [][]int32, ok bool) {
	if pl.ix.Switches == 0 || c.Hi == 1 || len(c.Nodes) == 0 {
		return nil, false
	}
	need := max(1, c.Lo)
	if sh.Request.Switches > 0 {
		return pl.leafSets(sh, c, places, need), true
	}
	if c.Hi < math.MaxInt32 && !sh.Request.UseMinNodes && !c.Flex {
		need = c.Hi
	}
	if sets = pl.nearSets(c, places, need); len(sets) == 0 && need > c.Lo {
		sets = pl.nearSets(c, places, max(1, c.Lo))
	}
	return sets, true
}

// nearSets returns the places below each switch that has at least need of them, lower switches first, then those with the fewest.
func (pl *Placer) nearSets(c *Candidates, places []int32, need int) [][]int32 {
	type below struct {
		id, height int32
		places     []int32
	}
	count := make([]int32, pl.ix.Switches)
	for _, p := range places {
		for _, id := range c.Nodes[p].Above {
			count[id]++
		}
	}
	at := make([]int32, pl.ix.Switches)
	var found []below
	for _, p := range places {
		above := c.Nodes[p].Above
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

// leafSets returns the places on single leaves, those that the job fills best first, then the places on the largest leaves of each fabric
// together, as many leaves as the job allows.
func (pl *Placer) leafSets(sh *Shape, c *Candidates, places []int32, need int) [][]int32 {
	by := make([][]int32, pl.ix.Switches)
	var leaves []int32
	for _, p := range places {
		id := c.LeafOf(p)
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
		root := c.RootOf(by[id][0])
		if fabrics[root] == nil {
			roots = append(roots, root)
		}
		fabrics[root] = append(fabrics[root], id)
	}
	for k := 2; k <= sh.Request.Switches; k++ {
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

// Fitting returns the places that fit until end.
func (c *Candidates) Fitting(end int64) []int32 {
	var out []int32
	for p := range c.Nodes {
		if c.cost[p] != noFit && c.until[p] >= end {
			out = append(out, int32(p))
		}
	}
	return out
}

// pickOnSwitches is pickEven with few switches: each set is tried with the
// other places hidden.
func (pl *Placer) pickOnSwitches(sh *Shape, c *Candidates, end int64, sets [][]int32) *Choice {
	all := c.Fitting(end)
	for _, set := range sets {
		on := make([]bool, len(c.Nodes))
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
		ch := pl.pickAny(sh, c, end)
		c.putBack(pl, sh, hidden)
		if ch != nil {
			return ch
		}
	}
	return nil
}

// spreadOnSwitches is spread that minimises switches.
func (pl *Placer) spreadOnSwitches(
	sh *Shape,
	c *Candidates,
	places []int32,
	caps func(int32) int,
	room, cost func(int32) int64,
) ([]int32, []int, []int64) {
	sets, ok := pl.SwitchSets(sh, c, places)
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
