package sched

import (
	"math"
	"slices"

	"github.com/sluice-hpc/sluice/sched/fit"
)

// shape is what equal requests of one partition (and reservation) share: which
// nodes can do, what each must have free, and an index of how well each does
// now. Jobs differ from their shape only in time.
type shape struct {
	id     int
	req    *Request
	part   *vpart
	resv   *vresv
	demand demand
	bulk   bulk
	fault  Reason // why it cannot start whatever is free; Code "" when it may
	alts   []candidates
	lic    []int64 // licenses, in the order of Scheduler.licenses
	depth  int64   // jobs that may have one CPU
	whole  bool    // takes its nodes whole
	user   string  // of jobs that take nodes for one user alone
	share  int64   // of the cluster, of the resource it takes most of, in 2^-16
}

// demand is a request with its node and task counts worked out.
type demand struct {
	lo, hi   int // nodes
	counts   []NodeCount
	tasks    int // in all
	perNode  int // tasks on each node when even
	tpnCap   int // most tasks on a node; 0: no limit
	even     bool
	flexible bool // tasks or devices may be spread unevenly
	jobGres  []GresRequest
}

// candidates are the nodes that satisfy one alternative of the constraint,
// with the index over them.
type candidates struct {
	nodes  []*vnode
	pos    []int32 // by node index; -1: not a candidate
	counts []countOf
	must   []int32 // places in nodes that -w names
	lacks  bool    // a node that -w names is none of them
	tasks  int     // on each node; of flexible ones the least
	gpus   int64   // part of the per-job devices, as makeVec takes it
	lo, hi int     // node counts
	flex   bool
	seen   int // position in the log
	cost   []int64
	until  []int64
	caps   []int32 // tasks that fit now, of flexible shapes
	vers   []uint32
	blocks []block
	vecs   map[vecKey]*vec
	even   []*vec    // those of tasks and gpus, by number of the config
	firsts []*firsts // of the pass under way, by length
}

type countOf struct {
	match []bool // by place in nodes
	n     int
}

type block struct{ cost, until int64 }

const blockSize = 64

const noFit = int64(math.MaxInt64)

type vecKey struct {
	cfg   *config
	tasks int
	gpus  int64
}

// vec is what a node of a config must have free.
type vec struct {
	cpu, mem int64
	cpuUnits int64 // cpu in the units of the profile
	cap      int   // dimension of the partition's CPU limit; 0: none
	gres     []vecGres
	whole    bool
}

type vecGres struct {
	groups []int
	count  int64
	shares int64 // of one device; 0: whole devices
	name   string
	cuts   []cut // the instances that the request means
	each   int64 // so many on each of the sockets; 0: anywhere
}

// workOut settles counts: sbatch(1), -N, -n, --ntasks-per-node.
func workOut(r *Request) demand {
	d := demand{lo: max(1, r.MinNodes), hi: r.MaxNodes, tasks: r.Tasks, counts: r.NodeCounts, tpnCap: r.TasksPerNode}
	said := r.MinNodes > 0 || r.MaxNodes > 0
	if d.tasks == 0 {
		d.tasks = d.lo * max(1, r.TasksPerNode)
		if !said && len(r.NodeList) > d.lo {
			d.lo, d.hi = len(r.NodeList), len(r.NodeList)
			d.tasks = d.lo * max(1, r.TasksPerNode)
		}
		d.perNode, d.even = max(1, r.TasksPerNode), true
	}
	if d.tpnCap > 0 {
		d.lo = max(d.lo, ceilDiv(d.tasks, d.tpnCap))
	}
	d.lo = max(d.lo, len(r.NodeList))
	if d.hi == 0 {
		perJob := slices.ContainsFunc(r.Gres, func(g GresRequest) bool { return g.Per == PerJob })
		switch {
		case d.even && (r.MinNodes > 0 || perJob): // devices in all may come from several nodes
			d.hi = math.MaxInt32
		case d.even: // so many tasks on each node, and not so many nodes: those that hold one such share
			d.hi = d.lo
		default:
			d.hi = d.tasks
		}
	}
	d.hi = max(d.hi, d.lo)
	d.settleEven(r)
	for _, g := range r.Gres {
		if g.Per == PerJob {
			d.jobGres = append(d.jobGres, g)
		}
	}
	d.flexible = !d.even || len(d.jobGres) > 0 && d.hi > 1
	if len(d.jobGres) > 0 && d.lo == d.hi {
		d.flexible = !d.even || slices.ContainsFunc(d.jobGres, func(g GresRequest) bool { return g.Count%int64(d.lo) != 0 })
	}
	return d
}

// wide reports whether a request is for as many nodes as there are: --spread-job, or a range (sbatch(1), -N: "as many nodes as
// possible within the range specified and without delaying the initiation of the job"). Devices in all stay together.
func (r *Request) wide() bool {
	ranged := r.MaxNodes > max(r.MinNodes, 1) && !r.UseMinNodes && !slices.ContainsFunc(r.Gres, func(g GresRequest) bool { return g.Per == PerJob })
	return r.Spread || ranged
}

// settleEven recognises requests in which each node has the same share.
func (d *demand) settleEven(r *Request) {
	switch {
	case d.even:
	case d.lo == 1 && d.hi == 1:
		d.perNode, d.even = d.tasks, true
	case d.tpnCap > 0 && d.lo == d.hi && d.tasks == d.lo*d.tpnCap:
		d.perNode, d.even = d.tpnCap, true
	case d.lo == d.hi && d.tasks <= d.lo:
		d.perNode, d.even = 1, true
	case r.Overcommit && d.lo == d.hi:
		d.perNode, d.even = ceilDiv(d.tasks, d.lo), true
	}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// allowed reports whether n nodes is a count that the request permits.
func (d *demand) allowed(n int) bool {
	if n < d.lo || n > d.hi {
		return false
	}
	if len(d.counts) == 0 {
		return true
	}
	return slices.ContainsFunc(d.counts, func(c NodeCount) bool {
		return n >= c.Min && n <= c.Max && (n-c.Min)%max(1, c.Step) == 0
	})
}

// vecFor is the need of tasks tasks (and gpus of the job's devices) on a node.
func (sh *shape) vecFor(c *candidates, cfg *config, tasks int, gpus int64) *vec {
	key := vecKey{cfg, tasks, gpus}
	if v := c.vecs[key]; v != nil {
		return v
	}
	v := makeVec(sh.req, cfg, tasks, gpus)
	if sh.part != nil && sh.part.cap > 0 {
		v.cap = cfg.caps + sh.part.cap - 1
	}
	if sh.whole {
		v.takeAll(sh.req, cfg)
	}
	v.cpuUnits = v.cpu * cfg.scale / sh.depth
	if c.vecs == nil {
		c.vecs = map[vecKey]*vec{}
	}
	c.vecs[key] = v
	return v
}

// vecOn is vecFor with what the alternative has on each node.
func (sh *shape) vecOn(c *candidates, cfg *config) *vec {
	if cfg.num >= len(c.even) {
		c.even = append(c.even, make([]*vec, cfg.num+1-len(c.even))...)
	}
	if c.even[cfg.num] == nil {
		c.even[cfg.num] = sh.vecFor(c, cfg, c.tasks, c.gpus)
	}
	return c.even[cfg.num]
}

// makeVec: gpus is how many of the per-job devices are on the node, or, when
// negative, over how many nodes they are spread evenly. CPUs are tasks times CPUs per task, at least --mincpus and what the
// devices bring; rounded up to whole cores. Memory follows CPUs or devices.
func makeVec(r *Request, cfg *config, tasks int, gpus int64) *vec {
	v := &vec{}
	cpus := int64(tasks) * int64(max(1, r.CPUsPerTask))
	if r.Overcommit {
		cpus = int64(max(1, r.CPUsPerTask))
	}
	cpus = max(cpus, int64(r.MinCPUs))
	devices := int64(0)
	for _, g := range r.Gres {
		count := g.Count
		switch g.Per {
		case PerTask:
			count *= int64(tasks)
		case PerSocket:
			count *= int64(max(1, r.Sockets))
		case PerJob:
			if count = gpus; gpus < 0 {
				count = g.Count / -gpus
			}
		}
		if count > 0 {
			v.gres = append(v.gres, cfg.gresVec(g, count))
			if g.Per == PerSocket {
				last := &v.gres[len(v.gres)-1]
				last.each = g.Count
				last.groups = slices.DeleteFunc(last.groups, func(gi int) bool { return !cfg.reachesSockets(gi, last) })
			}
		}
		if g.Name == "gpu" {
			devices += count
		}
	}
	cpus = max(cpus, devices*int64(r.CPUsPerGPU))
	v.cpu = (cpus + cfg.threads - 1) / cfg.threads * cfg.threads
	switch {
	case r.MemCPUMiB > 0:
		v.mem = v.cpu * r.MemCPUMiB
	case r.MemGPUMiB > 0:
		v.mem = devices * r.MemGPUMiB
	case r.MemSaid && r.MemNodeMiB == 0:
		v.mem = cfg.full[dimMem]
	default:
		v.mem = r.MemNodeMiB
	}
	v.cpuUnits = v.cpu * cfg.scale
	return v
}

// takeAll makes the need that of the whole node: all its CPUs and devices, with the memory that goes with them.
func (v *vec) takeAll(r *Request, cfg *config) {
	v.whole = true
	v.cpu = max(v.cpu, cfg.cpus)
	v.cpuUnits = v.cpu * cfg.scale
	switch {
	case r.MemCPUMiB > 0:
		v.mem = v.cpu * r.MemCPUMiB
	case r.MemGPUMiB > 0:
		v.mem = max(v.mem, cfg.gpus()*r.MemGPUMiB)
	}
}

func (cfg *config) gresVec(g GresRequest, count int64) vecGres {
	out := vecGres{count: count, name: g.Name}
	for i := range cfg.groups {
		have := &cfg.groups[i]
		if p := have.cutOf(g.Type); p >= 0 && have.name == g.Name && have.dev > 0 {
			out.cuts = append(out.cuts, cut{i, p})
			continue
		}
		if !isType(have.typ, g.Type) {
			continue
		}
		if have.name == g.Name {
			out.groups = append(out.groups, i)
		} else if have.shared == g.Name && have.dev > 0 {
			out.groups = append(out.groups, i)
			out.shares = count
		}
	}
	return out
}

// fits reports whether free (in cfg's dimensions) satisfies v.
func (v *vec) fits(cfg *config, free []int64) bool {
	if free[dimCPU] < v.cpuUnits || free[dimMem] < v.mem {
		return false
	}
	if v.cap > 0 && free[v.cap] < v.cpu {
		return false
	}
	for i := range v.gres {
		if !v.gres[i].fits(cfg, free) {
			return false
		}
	}
	return true
}

func (g *vecGres) fits(cfg *config, free []int64) bool {
	left := g.count
	for _, gi := range g.groups {
		grp := &cfg.groups[gi]
		if g.shares > 0 {
			if grp.hasShare(free, g.shares) {
				return true
			}
			continue
		}
		left -= max(0, grp.free(free))
		if left <= 0 {
			return true
		}
	}
	for _, c := range g.cuts {
		left -= cfg.groups[c.gi].cutRoom(c.profile, free)
	}
	return left <= 0 && len(g.cuts) > 0
}

// free is how many whole devices (or units of the count) are free.
func (g *group) free(free []int64) int64 {
	if g.dev == 0 {
		return free[g.dim]
	}
	n := free[g.dim] - g.capacity // promised whole devices, negative
	for _, x := range free[g.dev : g.dev+g.devices] {
		if x == g.shares {
			n++
		}
	}
	return n
}

// hasShare: some device has the shares, and one does even if every promised
// whole device is taken from the untouched ones.
func (g *group) hasShare(free []int64, shares int64) bool {
	if shares > g.shares {
		return false
	}
	whole := free[g.dim] - g.capacity
	for _, x := range free[g.dev : g.dev+g.devices] {
		if x >= shares && x < g.shares {
			return true
		}
		if x == g.shares {
			whole++
		}
	}
	return whole > 0
}

// useOfVec is what a promise of v takes from a node's profile. Devices are not
// chosen yet: whole ones are counted, and a share counts as a whole device.
func (v *vec) promise(cfg *config, free []int64, use []int64) {
	clear(use)
	use[dimCPU], use[dimMem] = v.cpuUnits, v.mem
	if v.cap > 0 {
		use[v.cap] = v.cpu
	}
	for i := range v.gres {
		g := &v.gres[i]
		left := g.count
		if g.shares > 0 {
			left = 1
		}
		for _, gi := range g.groups {
			take := min(left, max(0, cfg.groups[gi].free(free)))
			use[cfg.groups[gi].dim] += take
			left -= take
		}
		for _, c := range g.cuts {
			left = cfg.groups[c.gi].cutPromise(c.profile, left, free, use)
		}
	}
	if v.whole {
		for _, g := range cfg.groups {
			use[g.dim] = g.capacity
		}
	}
}

// shapeKey tells shapes apart.
type shapeKey struct {
	req  int32
	part int32
	resv *vresv
	user string
}

func (s *Scheduler) shapeOf(key shapeKey, req *Request, part *vpart, resv *vresv) *shape {
	if sh := s.shapes[key]; sh != nil {
		return sh
	}
	sh := &shape{id: len(s.shapes), req: req, part: part, resv: resv, demand: workOut(req), user: key.user}
	sh.whole, sh.depth = s.wholeNodes(part, req), part.rec.depth(req)
	s.shapes[key] = sh
	sh.bulk = sh.bulkOf(key)
	sh.lic, sh.share = s.licenseNeed(req), s.cluster.share(req)
	con, err := fit.ParseConstraint(req.Features)
	if err != nil {
		sh.fault = Reason{Code: BadConstraints}
		return sh
	}
	for _, alt := range con.Alternatives {
		sh.addModes(s, &alt)
	}
	return sh
}

// addModes adds the ways to place the job under one alternative. A job whose
// tasks may be spread is tried on one node first.
func (sh *shape) addModes(s *Scheduler, alt *fit.Alternative) {
	d := &sh.demand
	if !d.flexible {
		sh.alts = append(sh.alts, s.candidatesOf(sh, alt, candidates{tasks: d.perNode, gpus: -int64(d.lo), lo: d.lo, hi: d.hi}))
		return
	}
	if d.allowed(1) && !sh.req.wide() {
		sh.alts = append(sh.alts, s.candidatesOf(sh, alt, candidates{tasks: d.tasks, gpus: -1, lo: 1, hi: 1}))
	}
	least := candidates{tasks: 1, lo: d.lo, hi: d.hi, flex: true}
	if d.even {
		least.tasks = d.perNode
	}
	if len(d.jobGres) > 0 {
		least.gpus = 1
	}
	sh.alts = append(sh.alts, s.candidatesOf(sh, alt, least))
}

// candidatesOf are the nodes that could ever hold a part of the job, in node order.
func (s *Scheduler) candidatesOf(sh *shape, alt *fit.Alternative, c candidates) candidates {
	c.pos, c.seen = make([]int32, len(s.nodes.vals)), -1
	for i := range c.pos {
		c.pos[i] = -1
	}
	pool := sh.part.nodes
	if sh.resv != nil && !sh.resv.rec.Flex && !sh.resv.licensesOnly() {
		pool = intersect(pool, sh.resv.nodes)
	}
	excluded := s.nodeSet(sh.req.Exclude)
	required := s.nodeSet(sh.req.NodeList)
	matches := map[*config]bool{}
	for _, i := range pool {
		n := sh.resv.seat(s.nodes.vals[i])
		if n == nil || excluded[i] || len(required) >= c.hi && len(required) > 0 && !required[i] || n.rec.State == NodeFuture {
			continue
		}
		ok, known := matches[n.cfg]
		if !known {
			ok = alt.Each.Match(n.rec.Features) && sh.possible(&c, n.cfg)
			matches[n.cfg] = ok
		}
		if ok {
			c.pos[n.idx] = int32(len(c.nodes))
			if required[i] {
				c.must = append(c.must, c.pos[n.idx])
			}
			c.nodes = append(c.nodes, n)
		}
	}
	c.lacks = len(c.must) < len(slices.Compact(slices.Sorted(slices.Values(sh.req.NodeList))))
	for _, count := range alt.Counts {
		co := countOf{n: count.N}
		for _, n := range c.nodes {
			co.match = append(co.match, count.Of.Match(n.rec.Features))
		}
		c.counts = append(c.counts, co)
	}
	return c
}

// possible reports whether an empty node of this hardware holds the least part
// of the job that any node must hold.
func (sh *shape) possible(c *candidates, cfg *config) bool {
	r := sh.req
	if r.Sockets > max(1, cfg.rec.Sockets) || r.CoresPerSocket > cfg.socket || r.ThreadsPerCore > max(1, cfg.rec.Threads) || r.TmpMiB > cfg.rec.TmpMiB {
		return false
	}
	return sh.vecFor(c, cfg, c.tasks, c.gpus).fits(cfg, cfg.full)
}
