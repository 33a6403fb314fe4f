package sched

import (
	"math/bits"
	"slices"
	"strings"
)

// Cutting devices into instances (NVIDIA's MIG). A device has memory slices, at most 64; a profile is an instance of Size slices that
// may begin at some of them (MIG User Guide, "Supported MIG profiles"). How many compute slices an instance takes follows: there are
// no placements that fit by memory and not by compute.
//
// In the profile of a node's resources over time each device has its slices as a resource divided shares have; which slices they
// are is looked at only for what starts now.

// MigProfile is a way to cut an instance out of a device.
type MigProfile struct {
	Name   string // "3g.20gb"
	Size   int
	Starts []int // ascending
}

// span is the slices of an instance that begins at start.
func (p *MigProfile) span(start int) uint64 { return (1<<p.Size - 1) << start }

// packs is how many instances of the profile still find a place on a device of which the slices used are taken. To take the first
// place that is free each time is best, because all are equally long.
func (p *MigProfile) packs(used uint64) int {
	n := 0
	for _, s := range p.Starts {
		if used&p.span(s) == 0 {
			used |= p.span(s)
			n++
		}
	}
	return n
}

// slicesOf is how many slices a device with these profiles has.
func slicesOf(profiles []MigProfile) int {
	n := 0
	for i := range profiles {
		for _, s := range profiles[i].Starts {
			n = max(n, s+profiles[i].Size)
		}
	}
	return n
}

// ChooseCut chooses the device and the slice at which an instance of profiles[want] costs least, where used are the slices taken of
// each device: it leaves as many as possible of the largest profile, then of the next, and so on. Of equal choices the one on the
// device that is cut most already, so that whole devices stay whole. ok is false when there is no place.
func ChooseCut(profiles []MigProfile, want int, used []uint64) (device, start int, ok bool) {
	order := bySize(profiles)
	p := &profiles[want]
	var best []int
	fullest := 0
	for i, u := range used {
		for _, s := range p.Starts {
			if u&p.span(s) != 0 {
				continue
			}
			lost := loss(profiles, order, u, u|p.span(s))
			c := -1
			if ok {
				c = slices.Compare(lost, best)
			}
			full := bits.OnesCount64(u)
			if c < 0 || c == 0 && full > fullest {
				device, start, ok, best, fullest = i, s, true, lost, full
			}
		}
	}
	return device, start, ok
}

// bySize are the places of the profiles, the largest first.
func bySize(profiles []MigProfile) []int {
	order := make([]int, len(profiles))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return profiles[b].Size - profiles[a].Size })
	return order
}

// loss is how many instances of each profile no longer find a place; the first figure is whether a device is no longer whole.
func loss(profiles []MigProfile, order []int, before, after uint64) []int {
	out := make([]int, 1, len(order)+1)
	if before == 0 {
		out[0] = 1
	}
	for _, i := range order {
		out = append(out, profiles[i].packs(before)-profiles[i].packs(after))
	}
	return out
}

// cut is a profile of a group that a request asks for.
type cut struct{ gi, profile int }

// cutOf finds the profile that a request for a type means: "3g.20gb" or "a100_3g.20gb"; -1 when there is none.
func (g *group) cutOf(typ string) int {
	return slices.IndexFunc(g.mig, func(p MigProfile) bool { return typ != "" && (typ == p.Name || typ == g.cutType(&p)) })
}

// cutType is the type of an instance.
func (g *group) cutType(p *MigProfile) string {
	if g.typ == "" {
		return p.Name
	}
	return g.typ + "_" + p.Name
}

// isType reports whether devices of a type are what a request for want means; instances may be asked for without the GPU's type.
func isType(typ, want string) bool {
	return want == "" || typ == want || strings.Contains(want, ".") && strings.HasSuffix(typ, "_"+want)
}

// cutRoom is how many instances of a profile free has, at most: on a device that is cut the slices are counted, not their places.
func (g *group) cutRoom(profile int, free []int64) int64 {
	p := &g.mig[profile]
	each := int64(p.packs(0))
	whole, room := free[g.dim]-g.capacity, int64(0) // promised whole devices, negative
	for _, x := range free[g.dev : g.dev+g.devices] {
		if x == g.shares {
			whole++
		} else {
			room += min(each, max(0, x)/int64(p.Size))
		}
	}
	return room + max(0, whole)*each
}

// cutPromise takes whole devices for count instances, and returns how many of the instances that leaves.
func (g *group) cutPromise(profile int, count int64, free, use []int64) int64 {
	each := int64(g.mig[profile].packs(0))
	take := min(ceilDiv64(count, each), max(0, g.free(free)-use[g.dim]))
	use[g.dim] += take
	return max(0, count-take*each)
}

// overlay is what an allocation that is being made has taken: slices by group and place.
type overlay map[[2]int]uint64

// slicesUsed are the slices taken of each device of a group, all of them of devices that are not to be cut.
func (n *vnode) slicesUsed(gi int, mine overlay, skip []int) []uint64 {
	g := &n.cfg.groups[gi]
	out := make([]uint64, g.devices)
	for i, used := range n.dev[gi] {
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

// takeCuts chooses places for count instances and adds them to the allocation. It returns how many it found no place for.
func (n *vnode) takeCuts(cuts []cut, count int64, a *Alloc, mine overlay, taken map[int][]int, near Bits) (int64, Bits) {
	for _, c := range cuts {
		g := &n.cfg.groups[c.gi]
		p := &g.mig[c.profile]
		out := GresAlloc{Name: g.name, Type: g.cutType(p), Shares: int64(p.Size)}
		for ; count > 0; count-- {
			at, start, ok := ChooseCut(g.mig, c.profile, n.slicesUsed(c.gi, mine, taken[c.gi]))
			if !ok {
				break
			}
			mine[[2]int{c.gi, at}] |= p.span(start)
			d := &n.rec.Gres[c.gi].Devices[at]
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

// cutsNow is how many of count instances find a place now.
func (n *vnode) cutsNow(cuts []cut, count int64) int64 {
	var a Alloc
	left, _ := n.takeCuts(cuts, count, &a, overlay{}, nil, nil)
	return count - left
}

// lacksCuts: by count there is room for the instances, but their places are taken.
func (n *vnode) lacksCuts(v *vec) bool {
	for i := range v.gres {
		g := &v.gres[i]
		if len(g.cuts) == 0 || v.whole {
			continue
		}
		whole := int64(0)
		for _, gi := range g.groups {
			whole += n.freeNow(gi, nil)
		}
		if whole+n.cutsNow(g.cuts, g.count) < g.count {
			return true
		}
	}
	return false
}

// holdCut keeps count of the slices in use.
func (n *vnode) holdCut(gi, at int, a *GresAlloc, i int, sign int64) {
	if i >= len(a.Starts) {
		return
	}
	for len(n.cuts) <= gi {
		n.cuts = append(n.cuts, nil)
	}
	if n.cuts[gi] == nil {
		n.cuts[gi] = make([]uint64, n.cfg.groups[gi].devices)
	}
	span := (uint64(1)<<a.Shares - 1) << a.Starts[i]
	if sign > 0 {
		n.cuts[gi][at] |= span
	} else {
		n.cuts[gi][at] &^= span
	}
}
