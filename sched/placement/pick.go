package placement

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Refresh brings the index of c up to date with the nodes that changed since
// it was last used.
func (pl *Placer) Refresh(sh *Shape, c *Candidates) {
	changed, end, known := pl.ix.ChangedSince(c.seen)
	if c.cost == nil || !known {
		c.build(pl, sh)
		c.seen = end
		return
	}
	for _, idx := range changed {
		p := c.Pos[idx]
		if p < 0 || c.vers[p] == c.Nodes[p].Version {
			continue
		}
		c.leaf(pl, sh, int(p))
		c.raise(int(p) / blockSize)
	}
	c.seen = end
}

func (c *Candidates) build(pl *Placer, sh *Shape) {
	n := len(c.Nodes)
	c.cost, c.until, c.vers = make([]int64, n), make([]int64, n), make([]uint32, n)
	c.blocks = make([]block, (n+blockSize-1)/blockSize)
	if c.Flex {
		c.caps = make([]int32, n)
	}
	for p := range c.Nodes {
		c.leaf(pl, sh, p)
	}
	for b := range c.blocks {
		c.raise(b)
	}
}

// raise computes a block from its leaves.
func (c *Candidates) raise(b int) {
	out := block{noFit, 0}
	for p := b * blockSize; p < min(len(c.cost), (b+1)*blockSize); p++ {
		out.cost = min(out.cost, c.cost[p])
		out.until = max(out.until, c.until[p])
	}
	c.blocks[b] = out
}

// leaf computes whether the shape fits on a node now, how well, and until when.
func (c *Candidates) leaf(pl *Placer, sh *Shape, p int) {
	pl.Ask()
	n := c.Nodes[p]
	c.vers[p] = n.Version
	c.cost[p], c.until[p] = noFit, 0
	if n.Rec.State != record.NodeUsable {
		return
	}
	blocked, until := n.Blocked(sh.Resv, pl.ix.Now)
	free := n.Prof.Now()
	v := sh.NeedFor(c, n.Config, c.Tasks, c.GPUs)
	if blocked || !v.Fits(n.Config, free) || sh.Stranger(n, v) || pl.lacksPlaces(sh, n, v) {
		return
	}
	if until = min(until, pl.OpenUntil(sh, n, v)); until <= pl.ix.Now {
		return
	}
	if n.Planned > 0 || len(n.Subs) > 0 {
		fits := func(free []int64) bool { return v.Fits(n.Config, free) }
		until = min(until, n.Prof.Until(0, pl.scratch(n.Config.Dims), fits))
	}
	if n.Rec.WakeS > 0 && until < record.Forever { // what starts there begins and ends later
		if until -= n.Rec.WakeS; until <= pl.ix.Now {
			return
		}
	}
	c.until[p] = until
	c.cost[p] = pl.costOf(sh, n, v, free)
	if c.Flex {
		c.caps[p] = int32(sh.capOf(c, n, free))
	}
}

// Stranger reports whether jobs on n exclude this one: a job that takes the whole node needs it empty; one for a single user accepts no
// other user's.
func (sh *Shape) Stranger(n *node.Node, v *node.Need) bool {
	if v.Whole {
		return len(n.Runs) > 0
	}
	if sh.user == "" && !sh.exclusiveUser() {
		return false
	}
	return slices.ContainsFunc(n.Runs, sh.Strange)
}

// Strange reports whether r and the job must not share a node, because one of them shares none with other users.
func (sh *Shape) Strange(r *node.Run) bool {
	if sh.user == "" && !sh.exclusiveUser() {
		return false // no job requests nodes for one user
	}
	return (sh.exclusiveUser() || r.Alone) && (r.Rec.Job == nil || r.Rec.Job.User != sh.user)
}

// capOf returns how many tasks fit on n with free, at most all of them.
func (sh *Shape) capOf(c *Candidates, n *node.Node, free []int64) int {
	most := sh.Demand.Tasks
	if sh.Demand.MaxPerNode > 0 {
		most = min(most, sh.Demand.MaxPerNode)
	}
	if sh.Demand.Even {
		return c.Tasks
	}
	most = sizing.TasksOf(sh.Request, free[node.DimCPU]*sh.depth/n.Config.Scale, most)
	return sizing.Most(c.Tasks, most, func(tasks int) bool { return sh.NeedFor(c, n.Config, tasks, c.GPUs).Fits(n.Config, free) })
}

// costOf ranks the nodes on which a shape fits; lower is better, and the node's place decides ties.
//
// The node's weight comes first, and then whether it is up already.
//
// Pack: the number of whole devices left over, then nodes in use before idle ones, then the CPUs and memory left over. So a job without
// devices goes where devices are in use already, and whole groups of devices and whole nodes stay free for large jobs.
func (pl *Placer) costOf(sh *Shape, n *node.Node, v *node.Need, free []int64) int64 {
	weight := int64(min(max(n.Rec.Weight, 0), 4094)) << 51
	if n.Rec.WakeS > 0 {
		weight |= 1 << 50
	}
	if pl.params.LLN || sh.part.Rec.LLN || sh.Request.Spread {
		return weight | (n.Config.CPUs-free[node.DimCPU]/n.Config.Scale)<<30/max(1, n.Config.CPUs)
	}
	if pl.params.Placement != record.Pack {
		return pl.frag.cost(n, v, free, weight)
	}
	idle := int64(0)
	if len(n.Runs) == 0 {
		idle = 1
	}
	left := int64(0)
	for i := range n.Config.Groups {
		if g := &n.Config.Groups[i]; g.Devices > 0 {
			left += g.Free(free)
		}
	}
	for i := range v.Gres {
		if v.Gres[i].Shares == 0 {
			left -= v.Gres[i].Count
		}
	}
	cpu := min(max((free[node.DimCPU]-v.CPUUnits)/n.Config.Scale, 0), 1<<16-1)
	mem := min(max(free[node.DimMem]-v.MemMiB, 0)>>4, 1<<23-1)
	return weight | min(max(left, 0), 1023)<<40 | idle<<39 | cpu<<23 | mem
}

// exclusiveUser reports whether its nodes are for one user alone, at the job's request (--exclusive=user) or by the partition's setting
// (ExclusiveUser).
func (sh *Shape) exclusiveUser() bool { return sh.Request.ExclusiveUser || sh.part.Rec.ExclusiveUser }

// Choice is a way to place a job: places in Of.Nodes, and the tasks and per-job devices on each.
type Choice struct {
	Of     *Candidates
	Places []int32
	Tasks  []int
	GPUs   []int64
	WakeS  int64 // seconds until the last node is up
	Until  int64 // latest end of a job that begins now, rather than WakeS later
}

// Pick chooses nodes on which the shape fits from now until end, or nil.
func (pl *Placer) Pick(sh *Shape, end int64) *Choice {
	for i := range sh.Alts {
		c := &sh.Alts[i]
		if c.Lacks {
			continue
		}
		pl.Refresh(sh, c)
		ch := pl.pickFrom(sh, c, end)
		if ch != nil && ch.Until < end && ch.WakeS > 0 {
			ch = pl.pickAwake(sh, c, end)
		}
		if ch != nil && ch.Until >= end {
			return ch
		}
	}
	return nil
}

// pickFrom chooses among candidates. Not all of the nodes need stay free until end: see Choice.Until.
func (pl *Placer) pickFrom(sh *Shape, c *Candidates, end int64) *Choice {
	if c.Flex {
		return pl.pickFlexible(sh, c, end)
	}
	return pl.pickEven(sh, c, end)
}

func (pl *Placer) pickEven(sh *Shape, c *Candidates, end int64) *Choice {
	if pl.ix.Switches > 0 && c.Hi > 1 {
		if sets, ok := pl.SwitchSets(sh, c, c.Fitting(end)); ok {
			return pl.pickOnSwitches(sh, c, end, sets)
		}
	}
	return pl.pickAny(sh, c, end)
}

// pickAny is pickEven regardless of switches.
func (pl *Placer) pickAny(sh *Shape, c *Candidates, end int64) *Choice {
	want := c.Hi
	if sh.Request.UseMinNodes {
		want = c.Lo
	}
	ch := &Choice{Of: c}
	taken := c.take(&ch.Places, c.Must, end)
	ok := taken == len(c.Must)
	for i := range c.Counts {
		ok = ok && c.takeCount(&ch.Places, &c.Counts[i], end) && len(ch.Places) <= want
	}
	if ok && sh.Request.Contiguous {
		ok = c.consecutive(&ch.Places, want, end)
	}
	for ok && len(ch.Places) < want {
		p := c.best(end, nil)
		if p < 0 {
			break
		}
		c.take(&ch.Places, []int32{p}, end)
	}
	c.putBack(pl, sh, ch.Places)
	n := min(len(ch.Places), want)
	for n > 0 && !sh.Demand.Allowed(n) && !(c.Lo == 1 && c.Hi == 1) {
		n--
	}
	if !ok || n < max(1, c.Lo) {
		return nil
	}
	ch.Places = ch.Places[:n]
	slices.Sort(ch.Places)
	left := sh.Demand.Tasks
	for range ch.Places {
		tasks := c.Tasks
		if n == c.Lo && c.Lo == c.Hi { // the last of 4 nodes for 3 tasks still has one
			tasks = min(tasks, max(1, left))
		}
		left -= tasks
		ch.Tasks, ch.GPUs = append(ch.Tasks, tasks), append(ch.GPUs, c.GPUs)
	}
	ch.settle(func(_ int, p int32) int64 { return c.until[p] })
	return ch
}

// take moves places that fit until end to list, and hides them from best.
func (c *Candidates) take(list *[]int32, places []int32, end int64) int {
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
func (c *Candidates) putBack(pl *Placer, sh *Shape, places []int32) {
	for _, p := range places {
		n := c.Nodes[p]
		c.cost[p] = pl.costOf(sh, n, sh.NeedFor(c, n.Config, c.Tasks, c.GPUs), n.Prof.Now())
		c.raise(int(p) / blockSize)
	}
}

func (c *Candidates) takeCount(list *[]int32, count *countOf, end int64) bool {
	have := 0
	for _, p := range *list {
		if count.Match[p] {
			have++
		}
	}
	for ; have < count.N; have++ {
		p := c.best(end, count.Match)
		if p < 0 {
			return false
		}
		c.take(list, []int32{p}, end)
	}
	return true
}

// best returns the place with the lowest cost among those that fit until end.
func (c *Candidates) best(end int64, match []bool) int32 {
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

// consecutive replaces list by the first want consecutive nodes. Nodes that are in it already, by -w or counts, are all of them.
func (c *Candidates) consecutive(list *[]int32, want int, end int64) bool {
	if want == math.MaxInt32 {
		want = c.Lo
	}
	if len(*list) > 0 {
		return len(*list) == want && c.inARow(*list)
	}
	run := 0
	for p := range c.Nodes {
		fits := c.cost[p] != noFit && c.until[p] >= end
		if p > 0 && c.Nodes[p].Index != c.Nodes[p-1].Index+1 {
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

// inARow reports whether places are consecutive nodes.
func (c *Candidates) inARow(places []int32) bool {
	places = slices.Sorted(slices.Values(places))
	for i := 1; i < len(places); i++ {
		if c.Nodes[places[i]].Index != c.Nodes[places[i-1]].Index+1 {
			return false
		}
	}
	return true
}

// pickFlexible spreads tasks and per-job devices over as few nodes as possible.
func (pl *Placer) pickFlexible(sh *Shape, c *Candidates, end int64) *Choice {
	places := c.Fitting(end)
	caps := func(p int32) int { return int(c.caps[p]) }
	room := func(p int32) int64 { return sh.deviceRoom(c, c.Nodes[p].Config, c.Nodes[p].Prof.Now()) }
	chosen, tasks, gpus := pl.spreadOnSwitches(sh, c, places, caps, room, func(p int32) int64 { return c.cost[p] })
	if chosen == nil {
		return nil
	}
	ch := &Choice{Of: c, Places: chosen, Tasks: tasks, GPUs: gpus}
	needs := make([]*node.Need, len(chosen))
	for i, p := range chosen {
		n := c.Nodes[p]
		needs[i] = sh.NeedFor(c, n.Config, tasks[i], gpus[i])
		if !needs[i].Fits(n.Config, n.Prof.Now()) {
			return nil
		}
	}
	ch.settle(func(i int, p int32) int64 {
		n, v, until := c.Nodes[p], needs[i], c.until[p]
		if n.Planned > 0 || len(n.Subs) > 0 {
			open := n.Prof.Until(0, pl.scratch(n.Config.Dims), func(f []int64) bool { return v.Fits(n.Config, f) })
			if open = min(open, pl.OpenUntil(sh, n, v)); open < record.Forever {
				until = min(until, open-c.lead(p))
			}
		}
		return until
	})
	return ch
}

// deviceRoom returns how many of the per-job devices free has.
func (sh *Shape) deviceRoom(c *Candidates, cfg *node.Config, free []int64) int64 {
	if len(sh.Demand.JobGres) == 0 {
		return 0
	}
	v := sh.NeedFor(c, cfg, c.Tasks, 1)
	room := int64(math.MaxInt64)
	for i := range v.Gres {
		if !slices.ContainsFunc(sh.Demand.JobGres, func(g record.GresRequest) bool { return g.Name == v.Gres[i].Name }) {
			continue
		}
		here := int64(0)
		for _, gi := range v.Gres[i].Groups {
			here += cfg.Groups[gi].Free(free)
		}
		for _, k := range v.Gres[i].Cuts {
			here += cfg.Groups[k.Group].CutRoom(k.Profile, free)
		}
		room = min(room, here)
	}
	if sh.Request.CPUsPerGPU > 0 || sh.Request.MemGPUMiB > 0 { // CPUs and memory that go with devices may be scarcer than the devices
		room = int64(sort.Search(int(min(room, sh.Demand.JobGres[0].Count)), func(i int) bool {
			return !sh.NeedFor(c, cfg, c.Tasks, int64(i)+1).Fits(cfg, free)
		}))
	}
	return room
}

// spread chooses the fewest allowed places whose caps and rooms suffice (the most for a request that takes as many as there are), and
// distributes tasks and devices: one each, then filling up in node order.
func (sh *Shape) spread(c *Candidates, places []int32, caps func(int32) int, room, cost func(int32) int64) ([]int32, []int, []int64) {
	d := &sh.Demand
	devices := int64(0)
	if len(d.JobGres) > 0 {
		devices = d.JobGres[0].Count
	}
	perDevice := d.PerDevice
	if perDevice > 0 {
		all := room
		room = func(p int32) int64 { return min(all(p), int64(caps(p)/perDevice)) }
		places = slices.DeleteFunc(slices.Clone(places), func(p int32) bool { return room(p) == 0 })
	}
	must := func(p int32) bool { return slices.Contains(c.Must, p) }
	slices.SortStableFunc(places, func(a, b int32) int {
		if ma, mb := must(a), must(b); ma != mb {
			return map[bool]int{true: -1, false: 1}[ma]
		}
		if devices > 0 && room(a) != room(b) {
			return int(min(max(room(b)-room(a), -1), 1))
		}
		if caps(a) != caps(b) && !sh.Request.Spread {
			return caps(b) - caps(a)
		}
		return cmp.Compare(cost(a), cost(b))
	})
	tasks, rooms, named, best := 0, int64(0), 0, 0
	most := 0
	if sh.Request.Wide() {
		most = min(d.Hi, d.Tasks)
	}
	for i, p := range places {
		if must(p) {
			named++
		}
		tasks += caps(p)
		rooms += room(p)
		n := i + 1
		enough := tasks >= d.Tasks && rooms >= devices && named == len(c.Must) && sh.satisfied(c, places[:n])
		if enough && d.Allowed(n) {
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
	t, g := share(chosen, d.TasksOn(best), devices, caps, room)
	for i := range g {
		if perDevice > 0 {
			t[i] = perDevice * int(g[i])
		}
	}
	return chosen, t, g
}

// satisfied checks the feature counts.
func (sh *Shape) satisfied(c *Candidates, places []int32) bool {
	for i := range c.Counts {
		have := 0
		for _, p := range places {
			if c.Counts[i].Match[p] {
				have++
			}
		}
		if have < c.Counts[i].N {
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
