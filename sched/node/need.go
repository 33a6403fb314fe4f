package node

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Need is the free amount that a job requires on a node of a config.
type Need struct {
	CPUs, MemMiB int64
	CPUUnits     int64 // CPUs in the units of the profile
	Cap          int   // dimension of the partition's CPU limit; 0: none
	Gres         []GresNeed
	Whole        bool
}

// GresNeed is the part of a Need for one generic resource.
type GresNeed struct {
	Groups []int
	Count  int64
	Shares int64 // of one device; 0: whole devices
	Name   string
	Type   string // as requested
	Cuts   []Cut  // profiles of the requested instances
	Each   int64  // number on each of the sockets; 0: anywhere
}

// MostCPUs bounds the CPUs that are counted in units of the profile: no node has that many.
const MostCPUs = int64(1) << 28

// Units converts CPUs to the units of the profile.
func (cfg *Config) Units(cpus int64) int64 { return min(cpus, MostCPUs) * cfg.Scale }

// NeedOf returns the need of tasks on a node of cfg: gpus is the number of the per-job devices there, or, when negative, the number of
// nodes over which they are spread evenly. CPUs are rounded up to whole cores.
func NeedOf(r *record.Request, cfg *Config, tasks int, gpus int64) *Need {
	use := sizing.On(r, int64(tasks), gpus, cfg.Threads)
	v := &Need{CPUs: use.CPUs, CPUUnits: cfg.Units(use.CPUs), MemMiB: use.MemMiB}
	for _, g := range r.Gres {
		if count := sizing.Devices(r, &g, int64(tasks), gpus); count > 0 {
			v.Gres = append(v.Gres, cfg.gresNeed(g, count))
			if g.Per == record.PerSocket {
				last := &v.Gres[len(v.Gres)-1]
				last.Each = g.Count
				last.Groups = slices.DeleteFunc(last.Groups, func(gi int) bool { return !cfg.reachesSockets(gi, last) })
			}
		}
	}
	if sizing.WholeMemory(r) {
		v.MemMiB = cfg.Full[DimMem]
	}
	return v
}

// TakeAll extends the need to the whole node: all its CPUs and devices, with the memory that goes with them.
func (v *Need) TakeAll(r *record.Request, cfg *Config) {
	use := sizing.Use{CPUs: v.CPUs, MemMiB: v.MemMiB}.All(r, cfg.CPUs, cfg.gpus())
	v.Whole, v.CPUs, v.CPUUnits = true, use.CPUs, cfg.Units(use.CPUs)
	if !sizing.WholeMemory(r) {
		v.MemMiB = use.MemMiB
	}
}

func (cfg *Config) gresNeed(g record.GresRequest, count int64) GresNeed {
	out := GresNeed{Count: count, Name: g.Name, Type: g.Type}
	for i := range cfg.Groups {
		have := &cfg.Groups[i]
		if p := have.cutOf(g.Type); p >= 0 && have.Name == g.Name && have.ShareDim > 0 {
			out.Cuts = append(out.Cuts, Cut{i, p})
			continue
		}
		if !IsType(have.Type, g.Type) {
			continue
		}
		if have.Name == g.Name {
			out.Groups = append(out.Groups, i)
		} else if have.Shared == g.Name && have.ShareDim > 0 {
			out.Groups = append(out.Groups, i)
			out.Shares = count
		}
	}
	return out
}

// Fits reports whether free (in cfg's dimensions) satisfies v.
func (v *Need) Fits(cfg *Config, free []int64) bool {
	if free[DimCPU] < v.CPUUnits || free[DimMem] < v.MemMiB {
		return false
	}
	if v.Cap > 0 && free[v.Cap] < v.CPUs {
		return false
	}
	for i := range v.Gres {
		if !v.Gres[i].Fits(cfg, free) {
			return false
		}
	}
	return true
}

// Fits reports whether free has enough of the resource.
func (g *GresNeed) Fits(cfg *Config, free []int64) bool {
	left := g.Count
	for _, gi := range g.Groups {
		grp := &cfg.Groups[gi]
		if g.Shares > 0 {
			if grp.hasShare(free, g.Shares) {
				return true
			}
			continue
		}
		left -= max(0, grp.Free(free))
		if left <= 0 {
			return true
		}
	}
	for _, c := range g.Cuts {
		left -= cfg.Groups[c.Group].CutRoom(c.Profile, free)
	}
	return left <= 0 && len(g.Cuts) > 0
}

// Free returns how many whole devices (or units of the count) are free.
func (g *Group) Free(free []int64) int64 {
	if g.ShareDim == 0 {
		return free[g.Dim]
	}
	n := free[g.Dim] - g.Capacity // minus the promised whole devices
	for _, x := range free[g.ShareDim : g.ShareDim+g.Devices] {
		if x == g.Shares {
			n++
		}
	}
	return n
}

// hasShare reports whether a device has the shares, even if every promised whole device is taken from the untouched ones.
func (g *Group) hasShare(free []int64, shares int64) bool {
	if shares > g.Shares {
		return false
	}
	whole := free[g.Dim] - g.Capacity
	for _, x := range free[g.ShareDim : g.ShareDim+g.Devices] {
		if x >= shares && x < g.Shares {
			return true
		}
		if x == g.Shares {
			whole++
		}
	}
	return whole > 0
}

// Promise computes what a promise of v takes from a node's profile. Devices are not chosen yet: whole ones are counted, and a share counts
// as a whole device.
func (v *Need) Promise(cfg *Config, free []int64, use []int64) {
	clear(use)
	use[DimCPU], use[DimMem] = v.CPUUnits, v.MemMiB
	if v.Cap > 0 {
		use[v.Cap] = v.CPUs
	}
	for i := range v.Gres {
		g := &v.Gres[i]
		left := g.Count
		if g.Shares > 0 {
			left = 1
		}
		for _, gi := range g.Groups {
			take := min(left, max(0, cfg.Groups[gi].Free(free)))
			use[cfg.Groups[gi].Dim] += take
			left -= take
		}
		for _, c := range g.Cuts {
			left = cfg.Groups[c.Group].cutPromise(c.Profile, left, free, use)
		}
	}
	if v.Whole {
		for _, g := range cfg.Groups {
			use[g.Dim] = g.Capacity
		}
	}
}
