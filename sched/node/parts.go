package node

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
)

// A reservation of a part of a node (CoreCnt= and TRES= in scontrol(1)) is a Node of its own beside the real one, with the reserved cores
// and devices and all of the memory. Its jobs see that node. All others see the real one, whose profile lacks the part while the
// reservation lasts. A job's resources are taken from both: memory counts on either, cores and devices count where they are. Rejected: two
// kinds of CPUs in one profile, because every question about a node would then depend on who asks.

// taken marks a device as absent, whatever is given back.
const taken = int64(1) << 40

// PartOf returns the hardware of a part: the node's, with fewer CPUs and devices.
func (c *Config) PartOf(n *Node, a *record.Alloc) *Config {
	p := *c
	p.CPUs = int64(a.Cores.Count()) * c.Threads
	p.Full = slices.Clone(c.Full)
	p.Full[DimCPU] = p.CPUs * c.Scale
	p.Groups = slices.Clone(c.Groups)
	for gi := range p.Groups {
		g := &p.Groups[gi]
		devices := reservedDevices(n, gi, a)
		g.Capacity = int64(len(devices))
		if g.Devices == 0 {
			g.Capacity = reservedCount(g, a)
		}
		p.Full[g.Dim] = g.Capacity
		for i := range g.Devices {
			if g.ShareDim > 0 && !slices.Contains(devices, i) {
				p.Full[g.ShareDim+i] = 0
			}
		}
	}
	return &p
}

func reservedCount(g *Group, a *record.Alloc) int64 {
	sum := int64(0)
	for i := range a.Gres {
		if a.Gres[i].Name == g.Name && a.Gres[i].Type == g.Type {
			sum += a.Gres[i].Count
		}
	}
	return sum
}

// reservedDevices returns the places of the devices of a group that a names.
func reservedDevices(n *Node, gi int, a *record.Alloc) []int {
	g := &n.Config.Groups[gi]
	var out []int
	for i := range a.Gres {
		if a.Gres[i].Name != g.Name || a.Gres[i].Type != g.Type {
			continue
		}
		for _, d := range a.Gres[i].Devices {
			if at := n.deviceAt(gi, d); at >= 0 {
				out = append(out, at)
			}
		}
	}
	return out
}

// Mark closes everything that is not in the part.
func (n *Node) Mark(a *record.Alloc) {
	for k := range n.Config.Cores {
		if !a.Cores.Has(k) {
			n.Units = n.Units.Set(k)
		}
	}
	for gi := range n.Config.Groups {
		in := reservedDevices(n, gi, a)
		n.Used = append(n.Used, make([]int64, n.Config.Groups[gi].Devices))
		for i := range n.Used[gi] {
			if !slices.Contains(in, i) {
				n.Used[gi][i] = taken
			}
		}
	}
}

// Spans returns the times of a reservation, the present or next one first.
func (r *Reservation) Spans() []record.Span {
	var out []record.Span
	for _, w := range append([]record.Span{{Start: r.Rec.Start, End: r.Rec.End}}, r.Rec.Again...) {
		if w.End > w.Start {
			out = append(out, w)
		}
	}
	return out
}

// partial reports whether the reservation sets parts of nodes aside.
func (r *Reservation) partial() bool { return r != nil && len(r.Parts) > 0 }

// Seat returns the Node on which jobs of a reservation see a node; nil when they do not.
func (r *Reservation) Seat(n *Node) *Node {
	if !r.partial() || n.Whole != nil {
		return n
	}
	return r.Parts[n.Index]
}

// Overlap returns the part of an allocation on the node that lies in this part.
func (n *Node) Overlap(a *record.Alloc) *record.Alloc {
	both := &record.Alloc{Node: a.Node, Cores: a.Cores.And(n.Share.Cores)}
	both.CPUs = both.Cores.Count() * int(n.Config.Threads)
	for i := range a.Gres {
		g := a.Gres[i]
		if len(g.Devices) == 0 {
			continue // counted: the devices are not known
		}
		g.Devices = slices.DeleteFunc(slices.Clone(g.Devices), func(d int) bool {
			return !slices.ContainsFunc(n.Share.Gres, func(have record.GresAlloc) bool {
				return have.Type == g.Type && slices.Contains(have.Devices, d)
			})
		})
		if g.Count = int64(len(g.Devices)); g.Count > 0 {
			both.Gres = append(both.Gres, g)
		}
	}
	return both
}

// Back is what a run on reserved cores returns to the node's profile, because they have already been taken there once.
type Back struct {
	From, To int64
	Use      []int64
}

// GiveBack adds (or with sign -1 subtracts) what is counted twice over [from, to).
func (p *Part) GiveBack(from, to, sign int64) {
	for _, b := range p.Backs {
		lo, hi := max(from, b.From), min(to, b.To)
		if sign > 0 {
			p.Node.Prof.Free(lo, hi, b.Use)
		} else {
			p.Node.Prof.Use(lo, hi, b.Use)
		}
	}
}

// Rivals returns the parts that a job on n must keep off: all of a node's; on a part those of reservations that share its cores (MAINT,
// OVERLAP) and do not give way.
func (n *Node) Rivals() []*Node {
	if n.Whole == nil {
		return n.Subs
	}
	if len(n.Whole.Subs) == 1 {
		return nil
	}
	var out []*Node
	for _, sub := range n.Whole.Subs {
		if sub != n && !n.Resv.Passes(sub.Resv) {
			out = append(out, sub)
		}
	}
	return out
}

// Shut returns the cores that parts of the node withhold from a job that runs from now until before end.
func (n *Node) Shut(now, end int64) record.Bits {
	var out record.Bits
	for _, sub := range n.Rivals() {
		if sub.meets(now, end) {
			out = out.Or(sub.Share.Cores)
		}
	}
	return out
}

// meets reports whether the reservation of the part is active at some time in [from, to).
func (n *Node) meets(from, to int64) bool {
	return slices.ContainsFunc(n.Resv.Spans(), func(w record.Span) bool { return w.Start < to && w.End > from })
}

// Hide closes (or with sign -1 opens) the devices of such parts.
func (n *Node) Hide(now, end, sign int64) {
	for _, sub := range n.Rivals() {
		if !sub.meets(now, end) {
			continue
		}
		for gi := range n.Used {
			for _, i := range reservedDevices(n, gi, sub.Share) {
				n.Used[gi][i] += sign * taken
			}
		}
	}
}

// Passes reports whether jobs of r may ignore the other reservation: it is their own, or theirs may overlap others (MAINT, OVERLAP in
// scontrol(1)).
func (r *Reservation) Passes(other *Reservation) bool {
	if r == nil {
		return false
	}
	return r == other || r.Rec.Maint || r.Rec.Overlap && !other.Rec.Maint
}

// LicensesOnly reports whether the reservation sets no nodes aside, so that its jobs may use any.
func (r *Reservation) LicensesOnly() bool { return len(r.Rec.Nodes) == 0 && len(r.Rec.Licenses) > 0 }

// SoonReserved reports whether a part of the node is reserved at some time in [from, to).
func (n *Node) SoonReserved(from, to int64) bool {
	return slices.ContainsFunc(n.Rivals(), func(sub *Node) bool { return sub.meets(from, to) })
}

// Clip shortens a stretch to the time that other reservations leave on the node; again is the time at which to look next when nothing is
// left.
func (n *Node) Clip(resv *Reservation, begin, end, lengthS int64) (int64, int64, int64) {
	for moved := true; moved; {
		moved = false
		for _, w := range n.Reserved() {
			if w.End <= begin || resv.Passes(w.Resv) {
				continue
			}
			if begin >= w.Start || record.Add(begin, lengthS) > w.Start+w.Delay {
				return 0, 0, w.End
			}
			end = min(end, w.Start, w.Start+w.Delay-lengthS+1)
		}
	}
	return begin, end, 0
}
