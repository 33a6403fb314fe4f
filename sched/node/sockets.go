package node

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
)

// socketOf returns the socket of a device: that of the first core near it; -1 when unknown.
func (n *Node) socketOf(d *record.Device) int {
	for w, word := range d.Cores {
		if word != 0 {
			return (w<<6 + bits.TrailingZeros64(word)) * n.Config.perCore / max(1, n.Config.Socket)
		}
	}
	return -1
}

// reachesSockets reports whether enough sockets have enough devices of a group when all are free.
func (cfg *Config) reachesSockets(gi int, g *GresNeed) bool {
	n := &Node{Config: cfg}
	devices := map[int]int64{}
	for i := range cfg.Rec.Gres[gi].Devices {
		k := n.socketOf(&cfg.Rec.Gres[gi].Devices[i])
		if k < 0 {
			return true
		}
		devices[k]++
	}
	sockets := int64(0)
	for _, have := range devices {
		if have >= g.Each {
			sockets++
		}
	}
	return len(devices) == 0 || sockets >= ceilDiv64(g.Count, g.Each)
}

// near adds the allocation units of the cores near a device.
func (n *Node) near(to record.Bits, d *record.Device) record.Bits {
	for _, k := range d.Cores.List() {
		for i := range n.Config.perCore {
			to = to.Set(k*n.Config.perCore + i)
		}
	}
	return to
}

// socketDevices chooses count free devices, each of them on as few sockets as hold exactly that many each (--gpus-per-socket in sbatch(1)),
// the tightest sockets first. It returns nil when there are not enough such sockets. Devices with an unknown socket fit anywhere.
func (n *Node) socketDevices(gi int, count, each int64, taken []int) []int {
	devs := n.Rec.Gres[gi].Devices
	free := map[int][]int{}
	var sockets []int
	for i, used := range n.Used[gi] {
		k := n.socketOf(&devs[i])
		if k < 0 {
			return n.wholeDevices(gi, int(count), taken)
		}
		if used != 0 || slices.Contains(taken, i) {
			continue
		}
		if free[k] == nil {
			sockets = append(sockets, k)
		}
		free[k] = append(free[k], i)
	}
	sockets = slices.DeleteFunc(sockets, func(k int) bool { return int64(len(free[k])) < each })
	slices.SortFunc(sockets, func(a, b int) int { return cmp.Or(cmp.Compare(len(free[a]), len(free[b])), cmp.Compare(a, b)) })
	if int64(len(sockets)) < ceilDiv64(count, each) {
		return nil
	}
	var out []int
	for _, k := range sockets[:ceilDiv64(count, each)] {
		out = append(out, free[k][:each]...)
	}
	slices.Sort(out)
	return out
}

func ceilDiv64(a, b int64) int64 { return (a + b - 1) / b }

// LacksSockets reports whether enough devices are free, but not the number on each socket.
func (n *Node) LacksSockets(v *Need) bool {
	for i := range v.Gres {
		g := &v.Gres[i]
		if g.Each == 0 || g.Shares > 0 || len(g.Cuts) > 0 || v.Whole {
			continue
		}
		if !slices.ContainsFunc(g.Groups, func(gi int) bool { return n.hasSockets(gi, g) }) {
			return true
		}
	}
	return false
}

func (n *Node) hasSockets(gi int, g *GresNeed) bool {
	return n.Config.Groups[gi].Devices == 0 || int64(len(n.socketDevices(gi, g.Count, g.Each, nil))) >= g.Count
}
