package sched

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/sched/profile"
)

// config is what nodes with the same hardware share: the meaning of the
// dimensions of their profiles.
//
// Dimension 0 is CPUs, 1 is memory; then each gres has one (its free devices,
// or its free count), or, when its devices can be shared, one for promises of
// whole devices and one per device for its free shares; then one for each
// partition that limits CPUs per node.
type config struct {
	rec     *Node // an example
	num     int   // among the configs
	cpus    int64 // that can be allocated
	threads int64
	cores   int // allocation units
	socket  int // units per socket
	perCore int // units per core: more than one where CPUs are given one by one
	groups  []group
	scale   int64 // units of a CPU
	caps    int   // first of the partition dimensions
	dims    int
	full    []int64
}

// group is one Gres of a config.
type group struct {
	name, typ string
	shared    string
	shares    int64
	devices   int
	dim       int // whole devices or count
	dev       int // first of the shares' dimensions; 0: not shared
	capacity  int64
	mig       []MigProfile
}

const (
	dimCPU = 0
	dimMem = 1
)

// vnode is a node with what is free on it over time.
type vnode struct {
	rec     *Node
	idx     int32
	cfg     *config
	prof    *profile.Profile
	version uint32
	units   Bits // cores in use
	cores   []coreUse
	dev     [][]int64
	cuts    [][]uint64 // slices in use of devices that are cut, as dev; missing: none
	runs    []*vrun
	above   []int32 // numbers of its switches, the topmost first; nil: no switches are known
	planned int     // promises on it in this pass
	yields  uint64  // the pass in which jobs on it were told to go
	windows []window

	subs  []*vnode // parts that reservations set aside
	whole *vnode   // of a part: the node; nil for a node
	resv  *vresv   // of a part: whose it is
	share *Alloc   // of a part: what it is
}

// window is a reservation on a node.
type window struct {
	start, end int64
	delay      int64 // jobs of others may go on for so long after start
	resv       *vresv
}

// vrun is a running job, or one started by the pass that is under way.
type vrun struct {
	rec   *Run
	end   int64 // as the profiles have it
	parts []vpartOf
	lic   []int64
	late  bool // over its limit
	alone bool // its nodes are for its user alone
	fresh bool // started or told to go by the pass under way
	heap  int
}

// vpartOf is a run's part on one node.
type vpartOf struct {
	node  *vnode
	use   []int64
	cores Bits
	pool  int32 // place plus one of the partition whose jobs share the cores
	alloc *Alloc
	backs []back // what reservations of parts of the node have taken as well
}

func (s *Scheduler) configOf(n *Node) *config {
	key := configKey(n)
	if c := s.configs[key]; c != nil {
		return c
	}
	c := &config{rec: n, num: len(s.configs), scale: s.scale, threads: int64(max(1, n.Threads))}
	c.layoutCPUs(n, s.params.WholeCores)
	c.full = []int64{c.cpus * c.scale, max(0, n.MemMiB-n.SpecMemMiB)}
	for i := range n.Gres {
		c.addGroup(&n.Gres[i])
	}
	c.caps = len(c.full)
	for range s.capped {
		c.full = append(c.full, profile.Forever)
	}
	for i, p := range s.capped {
		c.full[c.caps+i] = int64(p.rec.MaxCPUsPerNode)
	}
	c.dims = len(c.full)
	s.configs[key] = c
	return c
}

// layoutCPUs settles the unit of allocation: a core with its threads, or a
// single CPU. A node whose CPUs are not cores times threads is counted by CPU.
func (c *config) layoutCPUs(n *Node, wholeCores bool) {
	sockets := max(1, n.Sockets)
	cores := n.CoresPerSocket * sockets
	cpus := n.CPUs
	if cpus == 0 {
		cpus = max(1, cores) * int(c.threads)
	}
	if cores == 0 {
		cores = max(1, cpus/int(c.threads))
	}
	if cores*int(c.threads) != cpus {
		c.threads = 1
		cores = cpus
	}
	c.cores, c.perCore = cores, 1
	if !wholeCores {
		c.perCore = max(1, cpus/max(1, cores))
		c.cores, c.threads = cpus, 1
	}
	if c.cores > maxCores {
		c.cores = 0
	}
	c.socket = max(1, c.cores/sockets)
	spec := 0
	for _, k := range n.SpecCores.List() {
		if k < cores {
			spec++
		}
	}
	c.cpus = int64(cpus) - int64(spec*max(1, cpus/max(1, cores)))
}

// maxCores is how many allocation units of a node have numbers; a node with
// more (CPUs in thousandths, a whole machine as one node) has its CPUs counted.
const maxCores = 4096

func (c *config) addGroup(g *Gres) {
	out := group{name: g.Name, typ: g.Type, shared: g.Shared, shares: g.Shares, devices: len(g.Devices), dim: len(c.full), capacity: g.Count}
	if out.devices > 0 {
		out.capacity = int64(out.devices)
	}
	if len(g.Profiles) > 0 {
		out.mig, out.shared, out.shares = g.Profiles, "", int64(slicesOf(g.Profiles))
	}
	c.full = append(c.full, out.capacity)
	if (g.Shared != "" || out.mig != nil) && out.shares > 0 && out.devices > 0 {
		out.dev = len(c.full)
		for range g.Devices {
			c.full = append(c.full, out.shares)
		}
	}
	c.groups = append(c.groups, out)
}

// gpus are all that a node has.
func (c *config) gpus() (n int64) {
	for i := range c.groups {
		if c.groups[i].name == "gpu" {
			n += c.groups[i].capacity
		}
	}
	return n
}

// configKey is equal for nodes that differ in name and state only.
func configKey(n *Node) string {
	b := fmt.Appendf(nil, "%d %d %d %d %v %d %d %d %d %q %q", n.CPUs, n.Sockets, n.CoresPerSocket, n.Threads, n.SpecCores.List(), n.MemMiB, n.SpecMemMiB, n.TmpMiB, n.Weight, n.Features, n.Switch)
	for i := range n.Gres {
		g := &n.Gres[i]
		b = fmt.Appendf(b, " %q %q %d %q %d %v", g.Name, g.Type, g.Count, g.Shared, g.Shares, g.Profiles)
		for _, d := range g.Devices {
			b = fmt.Appendf(b, "/%d %v %v", d.Index, []uint64(d.Cores), d.Links)
		}
	}
	return string(b)
}

func (s *Scheduler) newNode(rec *Node) *vnode {
	n := &vnode{rec: rec, cfg: s.configOf(rec)}
	n.prof = profile.New(n.cfg.full)
	for _, g := range n.cfg.groups {
		n.dev = append(n.dev, make([]int64, g.devices))
	}
	for _, k := range rec.SpecCores.List() {
		n.units = n.units.Set(k)
	}
	return n
}

// touch notes that the node changed, for the shapes to look at again.
func (s *Scheduler) touch(n *vnode) {
	n.version++
	s.log = append(s.log, n.idx)
}

// useOf is an allocation in the dimensions of its node.
func (s *Scheduler) useOf(n *vnode, a *Alloc, rec *Run) []int64 {
	use := make([]int64, n.cfg.dims)
	if !rec.Suspended {
		depth, _ := s.depthOf(rec)
		use[dimCPU] = int64(a.CPUs) * s.scale / depth
		for i, p := range s.capped {
			if p.rec.Name == rec.Partition {
				use[n.cfg.caps+i] = int64(a.CPUs)
			}
		}
	}
	if !s.params.NoMemory {
		use[dimMem] = a.MemMiB
	}
	for i := range a.Gres {
		n.gresUse(&a.Gres[i], use)
	}
	return use
}

// gresUse adds a held gres to use. What the node no longer has is ignored.
func (n *vnode) gresUse(a *GresAlloc, use []int64) {
	if len(a.Devices) == 0 {
		if gi := slices.IndexFunc(n.cfg.groups, func(g group) bool { return g.devices == 0 && g.name == a.Name && g.typ == a.Type }); gi >= 0 {
			use[n.cfg.groups[gi].dim] += a.Count
		}
		return
	}
	for _, d := range a.Devices {
		gi, at := n.find(a, d)
		switch {
		case gi < 0:
		case n.cfg.groups[gi].dev == 0:
			use[n.cfg.groups[gi].dim]++
		default:
			use[n.cfg.groups[gi].dev+at] += n.cfg.groups[gi].part(a)
		}
	}
}

// part is what a holder has of one device of the group.
func (g *group) part(a *GresAlloc) int64 {
	if a.Shares == 0 {
		return max(1, g.shares)
	}
	return a.Shares
}

// find is the group and the place in it of a device that is held; -1 when the node has it no more.
func (n *vnode) find(a *GresAlloc, index int) (gi, at int) {
	for gi := range n.cfg.groups {
		g := &n.cfg.groups[gi]
		if g.devices == 0 || g.name != a.Name && g.shared != a.Name {
			continue
		}
		if at := n.deviceAt(gi, index); at >= 0 {
			return gi, at
		}
	}
	return -1, -1
}

// deviceAt is the place of the device with an index, or -1.
func (n *vnode) deviceAt(gi, index int) int {
	devs := n.rec.Gres[gi].Devices
	if index < len(devs) && index >= 0 && devs[index].Index == index {
		return index
	}
	return slices.IndexFunc(devs, func(d Device) bool { return d.Index == index })
}

// hold and release keep the identity of cores and devices in use.
func (n *vnode) hold(p *vpartOf, sign int64) {
	n.holdCores(p, int16(sign))
	for i := range p.alloc.Gres {
		a := &p.alloc.Gres[i]
		for k, d := range a.Devices {
			if gi, at := n.find(a, d); gi >= 0 {
				n.dev[gi][at] += sign * n.cfg.groups[gi].part(a)
				n.holdCut(gi, at, a, k, sign)
			}
		}
	}
}

// blocked reports whether the node cannot be used now by jobs of resv (nil:
// of none), and until when it stays as it is.
func (n *vnode) blocked(resv *vresv, now int64) (bool, int64) {
	until := Forever
	for _, w := range n.reserved() {
		if w.end <= now || resv.passes(w.resv) {
			continue
		}
		if w.start <= now {
			return true, w.end
		}
		until = min(until, w.start+w.delay)
	}
	return false, until
}

// reserved are the times for which the node is reserved whole.
func (n *vnode) reserved() []window {
	if n.whole != nil {
		return n.whole.windows
	}
	return n.windows
}
