package node

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/sched/record"
)

// slicesOf returns the number of slices of a device with these profiles.
func slicesOf(profiles []record.MigProfile) int {
	n := 0
	for i := range profiles {
		for _, s := range profiles[i].Starts {
			n = max(n, s+profiles[i].Size)
		}
	}
	return n
}

// Cut is a requested profile of a group.
type Cut struct{ Group, Profile int }

// cutOf finds the profile for a requested type: "3g.20gb" or "a100_3g.20gb"; -1 when there is none.
func (g *Group) cutOf(typ string) int {
	return slices.IndexFunc(g.Profiles, func(p record.MigProfile) bool { return typ != "" && (typ == p.Name || typ == g.CutType(&p)) })
}

// CutType is the type of an instance.
func (g *Group) CutType(p *record.MigProfile) string {
	if g.Type == "" {
		return p.Name
	}
	return g.Type + "_" + p.Name
}

// IsType reports whether devices of a type satisfy a request for want; instances may be requested without the GPU's type.
func IsType(typ, want string) bool {
	return want == "" || typ == want || strings.Contains(want, ".") && strings.HasSuffix(typ, "_"+want)
}

// CutRoom returns an upper bound for the instances of a profile that fit in free: on a cut device it counts slices, not their places.
func (g *Group) CutRoom(profile int, free []int64) int64 {
	p := &g.Profiles[profile]
	each := int64(p.Packs(0))
	whole, room := free[g.Dim]-g.Capacity, int64(0) // minus the promised whole devices
	for _, x := range free[g.ShareDim : g.ShareDim+g.Devices] {
		if x == g.Shares {
			whole++
		} else {
			room += min(each, max(0, x)/int64(p.Size))
		}
	}
	return room + max(0, whole)*each
}

// cutPromise takes whole devices for count instances, and returns the number of instances left without one.
func (g *Group) cutPromise(profile int, count int64, free, use []int64) int64 {
	each := int64(g.Profiles[profile].Packs(0))
	take := min(ceilDiv64(count, each), max(0, g.Free(free)-use[g.Dim]))
	use[g.Dim] += take
	return max(0, count-take*each)
}

// overlay holds the slices taken by an allocation under construction, by group and place.
type overlay map[[2]int]uint64

// slicesUsed returns the taken slices of each device of a group; devices that must not be cut count as full.
func (n *Node) slicesUsed(gi int, mine overlay, skip []int) []uint64 {
	g := &n.Config.Groups[gi]
	out := make([]uint64, g.Devices)
	for i, used := range n.Used[gi] {
		if gi < len(n.cuts) && i < len(n.cuts[gi]) {
			out[i] = n.cuts[gi][i]
		}
		if used > int64(bits.OnesCount64(out[i])) || slices.Contains(skip, i) {
			out[i] = ^uint64(0) // held whole, in shares, or by a reservation
			continue
		}
		out[i] |= mine[[2]int{gi, i}]
	}
	return out
}

// takeCuts chooses places for count instances and adds them to the allocation. It returns the number without a place.
func (n *Node) takeCuts(
	cuts []Cut,
	count int64,
	a *record.Alloc,
	mine overlay,
	taken map[int][]int,
	near record.Bits,
) (int64, record.Bits) {
	for _, c := range cuts {
		g := &n.Config.Groups[c.Group]
		p := &g.Profiles[c.Profile]
		out := record.GresAlloc{Name: g.Name, Type: g.CutType(p), Shares: int64(p.Size)}
		for ; count > 0; count-- {
			at, start, ok := record.ChooseCut(g.Profiles, c.Profile, n.slicesUsed(c.Group, mine, taken[c.Group]))
			if !ok {
				break
			}
			mine[[2]int{c.Group, at}] |= p.Span(start)
			d := &n.Rec.Gres[c.Group].Devices[at]
			out.Devices, out.Starts = append(out.Devices, d.Index), append(out.Starts, start)
			out.Count++
			near = n.near(near, d)
		}
		if out.Count > 0 {
			a.Gres = append(a.Gres, out)
		}
	}
	return count, near
}

// CutsNow returns how many of count instances have a place now.
func (n *Node) CutsNow(cuts []Cut, count int64) int64 {
	var a record.Alloc
	left, _ := n.takeCuts(cuts, count, &a, overlay{}, nil, nil)
	return count - left
}

// LacksCuts reports whether the instances fit by count but not by place.
func (n *Node) LacksCuts(v *Need) bool {
	for i := range v.Gres {
		g := &v.Gres[i]
		if len(g.Cuts) == 0 || v.Whole {
			continue
		}
		whole := int64(0)
		for _, gi := range g.Groups {
			whole += n.FreeNow(gi, nil)
		}
		if whole+n.CutsNow(g.Cuts, g.Count) < g.Count {
			return true
		}
	}
	return false
}

// holdCut keeps count of the slices in use.
func (n *Node) holdCut(gi, at int, a *record.GresAlloc, i int, sign int64) {
	if i >= len(a.Starts) {
		return
	}
	for len(n.cuts) <= gi {
		n.cuts = append(n.cuts, nil)
	}
	if n.cuts[gi] == nil {
		n.cuts[gi] = make([]uint64, n.Config.Groups[gi].Devices)
	}
	span := (uint64(1)<<a.Shares - 1) << a.Starts[i]
	if sign > 0 {
		n.cuts[gi][at] |= span
	} else {
		n.cuts[gi][at] &^= span
	}
}
