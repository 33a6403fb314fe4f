package node

import (
	"math/bits"
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
)

// TakeGres chooses devices and returns the cores near them. share is the index of the device of which to take a share; -1 is best fit.
func (n *Node) TakeGres(v *Need, a *record.Alloc, share int) (record.Bits, bool) {
	var near record.Bits
	taken, mine := make(map[int][]int, 1), overlay{}
	var pieces []piece
	if v.Whole {
		for gi := range n.Config.Groups {
			near = n.grant(gi, n.Config.Groups[gi].Capacity, 0, a, taken, near, -1)
		}
		return near, true
	}
	for i := range v.Gres {
		g := &v.Gres[i]
		left := g.Count
		for _, gi := range g.Groups {
			if left <= 0 {
				break
			}
			if g.Shares > 0 {
				if n.ShareDevice(gi, g.Shares) >= 0 {
					near = n.grant(gi, 1, g.Shares, a, taken, near, share)
					left = 0
				}
				continue
			}
			if g.Each > 0 && !n.hasSockets(gi, g) {
				continue
			}
			k := min(left, n.FreeNow(gi, taken[gi]))
			near = n.grantOn(gi, k, g.Each, a, taken, near)
			left -= k
		}
		if len(g.Cuts) > 0 {
			pieces = append(pieces, piece{g.Cuts, left})
			continue
		}
		if left > 0 {
			return nil, false
		}
	}
	for _, p := range pieces { // after whole devices, so that none of those is cut
		if p.count, near = n.takeCuts(p.cuts, p.count, a, mine, taken, near); p.count > 0 {
			return nil, false
		}
	}
	return near, true
}

// piece is a number of instances to take.
type piece struct {
	cuts  []Cut
	count int64
}

// FreeNow returns how many devices (or how much of the count) are free.
func (n *Node) FreeNow(gi int, taken []int) int64 {
	g := &n.Config.Groups[gi]
	if g.Devices == 0 {
		return n.Prof.Now()[g.Dim]
	}
	free := int64(0)
	for i, used := range n.Used[gi] {
		if used == 0 && !slices.Contains(taken, i) {
			free++
		}
	}
	return free
}

// grant adds count of a group to the allocation.
func (n *Node) grant(gi int, count, shares int64, a *record.Alloc, taken map[int][]int, near record.Bits, share int) record.Bits {
	if count <= 0 {
		return near
	}
	g := &n.Config.Groups[gi]
	out := record.GresAlloc{Name: g.Name, Type: g.Type, Count: count, Shares: shares}
	var places []int
	switch {
	case g.Devices == 0:
	case shares > 0:
		out.Name, out.Count = g.Shared, shares
		if share < 0 || n.Used[gi][share]+shares > g.Shares { // the best one belongs to a reservation
			share = n.ShareDevice(gi, shares)
		}
		places = []int{share}
	default:
		places = n.wholeDevices(gi, int(count), taken[gi])
	}
	taken[gi] = append(taken[gi], places...)
	devs := n.Rec.Gres[gi].Devices
	for _, i := range places {
		out.Devices = append(out.Devices, devs[i].Index)
		near = n.near(near, &devs[i])
	}
	slices.Sort(out.Devices)
	a.Gres = append(a.Gres, out)
	return near
}

// grantOn is grant of whole devices, with each of them on every socket used when each > 0.
func (n *Node) grantOn(gi int, count, each int64, a *record.Alloc, taken map[int][]int, near record.Bits) record.Bits {
	if each == 0 || n.Config.Groups[gi].Devices == 0 {
		return n.grant(gi, count, 0, a, taken, near, -1)
	}
	// Hide all others for the moment, so that grant takes these.
	places := n.socketDevices(gi, count, each, taken[gi])
	mine := taken[gi]
	for i := range n.Used[gi] {
		if !slices.Contains(places, i) {
			taken[gi] = append(taken[gi], i)
		}
	}
	near = n.grant(gi, count, 0, a, taken, near, -1)
	taken[gi] = append(mine, places...)
	return near
}

// ShareDevice returns the device with the fewest free shares that suffice: best fit.
func (n *Node) ShareDevice(gi int, shares int64) int {
	g := &n.Config.Groups[gi]
	best, at := int64(1)<<62, -1
	for i, used := range n.Used[gi] {
		if left := g.Shares - used - shares; left >= 0 && left < best {
			best, at = left, i
		}
	}
	return at
}

// wholeDevices chooses count free devices: with known links, the best connected group, grown from the best pair; otherwise the first ones.
func (n *Node) wholeDevices(gi, count int, taken []int) []int {
	var free []int
	for i, used := range n.Used[gi] {
		if used == 0 && !slices.Contains(taken, i) {
			free = append(free, i)
		}
	}
	devs := n.Rec.Gres[gi].Devices
	linked := slices.ContainsFunc(devs, func(d record.Device) bool { return len(d.Links) == len(devs) })
	if len(free) <= count || !linked {
		return free[:min(count, len(free))]
	}
	return bestGroup(free, count, devs)
}

// bestGroup grows a group from each free device in turn, always by the device with most links to the group. It keeps the group with the
// most links inside and, among equals, the fewest links to devices that stay free, so that a pair does not break a quad.
func bestGroup(free []int, count int, devs []record.Device) []int {
	link := func(i, j int) int {
		if len(devs[i].Links) != len(devs) || i == j {
			return 0
		}
		return max(0, devs[i].Links[j])
	}
	links := func(i int, group []int) int {
		sum := 0
		for _, j := range group {
			sum += link(i, j)
		}
		return sum
	}
	var best []int
	inside, outside := -1, 0
	for _, seed := range free {
		group, in := []int{seed}, 0
		for len(group) < count {
			next, most := -1, -1
			for _, i := range free {
				if l := links(i, group); !slices.Contains(group, i) && l > most {
					next, most = i, l
				}
			}
			group, in = append(group, next), in+most
		}
		out := 0
		for _, i := range free {
			if !slices.Contains(group, i) {
				out += links(i, group)
			}
		}
		if in > inside || in == inside && out < outside {
			best, inside, outside = group, in, out
		}
	}
	slices.Sort(best)
	return best
}

// TakeCores chooses count allocation units: near the devices first (only those, when binding), else in the socket where they fit tightest,
// else from the emptiest sockets. It reports whether there were enough.
func (n *Node) TakeCores(how Sharing, count int, near, shut record.Bits, binding bool, a *record.Alloc) bool {
	cfg := n.Config
	free := n.Takeable(how, shut)
	a.Cores = make(record.Bits, (cfg.Cores+63)/64)
	left := count
	if len(near) > 0 && near.Count() < cfg.Cores {
		for _, free := range free {
			for w := range min(len(free), len(near)) {
				left -= move(a.Cores, free, w, near[w]&free[w], left)
			}
		}
		if binding && left > 0 {
			return false
		}
	}
	for _, free := range free {
		left = n.takeSockets(left, free, a.Cores)
	}
	return left <= 0 || cfg.Cores == 0
}

// move takes up to most of the given bits of word w from free.
func move(to, free record.Bits, w int, which uint64, most int) int {
	n := 0
	for ; which != 0 && n < most; n++ {
		bit := which & -which
		which &^= bit
		to[w] |= bit
		free[w] &^= bit
	}
	return n
}

// takeSockets takes left units and returns how many were missing.
func (n *Node) takeSockets(left int, free, to record.Bits) int {
	cfg := n.Config
	sockets := (cfg.Cores + cfg.Socket - 1) / cfg.Socket
	for left > 0 {
		best, bestFree := -1, 0
		for k := range sockets {
			f := countRange(free, k*cfg.Socket, min(cfg.Cores, (k+1)*cfg.Socket))
			if f == 0 {
				continue
			}
			better := best < 0 || f >= left && (bestFree < left || f < bestFree) || bestFree < left && f > bestFree
			if better {
				best, bestFree = k, f
			}
		}
		if best < 0 {
			break // CPUs that are counted but have no core of their own
		}
		for i := best * cfg.Socket; i < min(cfg.Cores, (best+1)*cfg.Socket) && left > 0; i++ {
			left -= move(to, free, i>>6, free[i>>6]&(1<<(uint(i)&63)), 1)
		}
	}
	return left
}

func countRange(b record.Bits, from, to int) int {
	n := 0
	for from < to {
		w := b[from>>6] >> (uint(from) & 63)
		span := min(64-from&63, to-from)
		if span < 64 {
			w &= 1<<span - 1
		}
		n += bits.OnesCount64(w)
		from += span
	}
	return n
}
