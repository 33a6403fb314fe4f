package node

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/sched/profile"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Config holds the common hardware of nodes, and the meaning of the dimensions of their profiles.
//
// Dimension 0 is CPUs, 1 is memory; then each gres has one (its free devices, or its free count), or, when its devices can be shared, one
// for promises of whole devices and one per device for its free shares; then one for each partition that limits CPUs per node.
type Config struct {
	Rec     *record.Node // an example
	Num     int          // its index among the configs
	CPUs    int64        // those that can be allocated
	Threads int64
	Cores   int // allocation units
	Socket  int // units per socket
	perCore int // units per core: more than one where CPUs are allocated singly
	Groups  []Group
	Scale   int64 // units of a CPU
	Caps    int   // first of the partitions' dimensions
	Dims    int
	Full    []int64
}

// Group is one Gres of a config.
type Group struct {
	Name, Type string
	Shared     string
	Shares     int64
	Devices    int
	Dim        int // whole devices or count
	ShareDim   int // first of the shares' dimensions; 0: not shared
	Capacity   int64
	Profiles   []record.MigProfile
}

const (
	DimCPU = 0
	DimMem = 1
)

// Node is a node with its free resources over time.
type Node struct {
	Rec     *record.Node
	Index   int32
	Config  *Config
	Prof    *profile.Profile
	Version uint32
	Units   record.Bits // cores in use
	cores   []coreUse
	Used    [][]int64
	cuts    [][]uint64 // slices in use of cut devices, by group and device; missing: none
	Runs    []*Run
	Above   []int32 // numbers of its switches, from the top down; nil: no switches are known
	Planned int     // promises on it in this pass
	Away    int64   // time until which the node is unavailable and all of it is taken; 0: it is available
	Windows []Window

	Subs  []*Node       // parts set aside by reservations
	Whole *Node         // of a part: the node; nil for a node
	Resv  *Reservation  // of a part: its reservation
	Share *record.Alloc // of a part: its resources
}

// Window is a reservation on a node.
type Window struct {
	Start, End int64
	Delay      int64 // time for which other jobs may continue after Start
	Resv       *Reservation
}

// Reservation is a reservation.
type Reservation struct {
	Rec   *record.Reservation
	Nodes []int32
	Parts map[int32]*Node // if it reserves parts of nodes: by the node's number
	Lic   int             // first of its dimensions in the profile of licenses; 0: it has none
}

// LayoutCPUs determines the unit of allocation: a core with its threads, or a single CPU. A node whose CPUs are not cores times threads is
// counted by CPU.
func (c *Config) LayoutCPUs(n *record.Node, wholeCores bool) {
	sockets := max(1, n.Sockets)
	cores := n.CoresPerSocket * sockets
	cpus := n.CPUs
	if cpus == 0 {
		cpus = max(1, cores) * int(c.Threads)
	}
	if cores == 0 {
		cores = max(1, cpus/int(c.Threads))
	}
	if cores*int(c.Threads) != cpus {
		c.Threads = 1
		cores = cpus
	}
	c.Cores, c.perCore = cores, 1
	if !wholeCores {
		c.perCore = max(1, cpus/max(1, cores))
		c.Cores, c.Threads = cpus, 1
	}
	if c.Cores > maxCores {
		c.Cores = 0
	}
	c.Socket = max(1, c.Cores/sockets)
	spec := 0
	for _, k := range n.SpecCores.List() {
		if k < cores {
			spec++
		}
	}
	c.CPUs = int64(cpus) - int64(spec*max(1, cpus/max(1, cores)))
}

// maxCores is the largest number of allocation units that get numbers; on a node with more (CPUs in thousandths, a whole machine as one
// node) CPUs are only counted.
const maxCores = 4096

// AddGroup adds the dimensions of a Gres.
func (c *Config) AddGroup(g *record.Gres) {
	out := Group{
		Name:     g.Name,
		Type:     g.Type,
		Shared:   g.Shared,
		Shares:   g.Shares,
		Devices:  len(g.Devices),
		Dim:      len(c.Full),
		Capacity: g.Count,
	}
	if out.Devices > 0 {
		out.Capacity = int64(out.Devices)
	}
	if len(g.Profiles) > 0 {
		out.Profiles, out.Shared, out.Shares = g.Profiles, "", int64(slicesOf(g.Profiles))
	}
	c.Full = append(c.Full, out.Capacity)
	if (g.Shared != "" || out.Profiles != nil) && out.Shares > 0 && out.Devices > 0 {
		out.ShareDim = len(c.Full)
		for range g.Devices {
			c.Full = append(c.Full, out.Shares)
		}
	}
	c.Groups = append(c.Groups, out)
}

// gpus returns the number of GPUs of a node.
func (c *Config) gpus() (n int64) {
	for i := range c.Groups {
		if c.Groups[i].Name == "gpu" {
			n += c.Groups[i].Capacity
		}
	}
	return n
}

// ConfigKey is equal for nodes that differ only in name and state.
func ConfigKey(n *record.Node) string {
	b := fmt.Appendf(
		nil,
		"%d %d %d %d %v %d %d %d %d %q %q %v %d",
		n.CPUs,
		n.Sockets,
		n.CoresPerSocket,
		n.Threads,
		n.SpecCores.List(),
		n.MemMiB,
		n.SpecMemMiB,
		n.TmpMiB,
		n.Weight,
		n.Features,
		n.Switch,
		n.RefusesRoot,
		n.RefusesBelow,
	)
	for i := range n.Gres {
		g := &n.Gres[i]
		b = fmt.Appendf(b, " %q %q %d %q %d %v", g.Name, g.Type, g.Count, g.Shared, g.Shares, g.Profiles)
		for _, d := range g.Devices {
			b = fmt.Appendf(b, "/%d %v %v", d.Index, []uint64(d.Cores), d.Links)
		}
	}
	return string(b)
}

// GresUse adds a held gres to use. Devices that the node no longer has are ignored.
func (n *Node) GresUse(a *record.GresAlloc, use []int64) {
	if len(a.Devices) == 0 {
		counted := func(g Group) bool { return g.Devices == 0 && g.Name == a.Name && g.Type == a.Type }
		if gi := slices.IndexFunc(n.Config.Groups, counted); gi >= 0 {
			use[n.Config.Groups[gi].Dim] += a.Count
		}
		return
	}
	for _, d := range a.Devices {
		gi, at := n.Find(a, d)
		switch {
		case gi < 0:
		case n.Config.Groups[gi].ShareDim == 0:
			use[n.Config.Groups[gi].Dim]++
		default:
			use[n.Config.Groups[gi].ShareDim+at] += n.Config.Groups[gi].part(a)
		}
	}
}

// part returns a holder's part of one device of the group.
func (g *Group) part(a *record.GresAlloc) int64 {
	if a.Shares == 0 {
		return max(1, g.Shares)
	}
	return a.Shares
}

// Find returns the group of a held device and its place in it; -1 when the node no longer has it.
func (n *Node) Find(a *record.GresAlloc, index int) (gi, at int) {
	for gi := range n.Config.Groups {
		g := &n.Config.Groups[gi]
		if g.Devices == 0 || g.Name != a.Name && g.Shared != a.Name {
			continue
		}
		if at := n.deviceAt(gi, index); at >= 0 {
			return gi, at
		}
	}
	return -1, -1
}

// deviceAt returns the place of the device with an index, or -1.
func (n *Node) deviceAt(gi, index int) int {
	devs := n.Rec.Gres[gi].Devices
	if index < len(devs) && index >= 0 && devs[index].Index == index {
		return index
	}
	return slices.IndexFunc(devs, func(d record.Device) bool { return d.Index == index })
}

// Hold tracks which cores and devices are in use; sign -1 releases them.
func (n *Node) Hold(p *Part, sign int64) {
	n.holdCores(p, int16(sign))
	for i := range p.Alloc.Gres {
		a := &p.Alloc.Gres[i]
		for k, d := range a.Devices {
			if gi, at := n.Find(a, d); gi >= 0 {
				n.Used[gi][at] += sign * n.Config.Groups[gi].part(a)
				n.holdCut(gi, at, a, k, sign)
			}
		}
	}
}

// Blocked reports whether the node cannot be used now by jobs of resv (nil: of none), and how long that stays so.
func (n *Node) Blocked(resv *Reservation, now int64) (bool, int64) {
	until := record.Forever
	for _, w := range n.Reserved() {
		if w.End <= now || resv.Passes(w.Resv) {
			continue
		}
		if w.Start <= now {
			return true, w.End
		}
		until = min(until, w.Start+w.Delay)
	}
	return false, until
}

// Reserved returns the times for which the whole node is reserved.
func (n *Node) Reserved() []Window {
	if n.Whole != nil {
		return n.Whole.Windows
	}
	return n.Windows
}
