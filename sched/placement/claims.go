package placement

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Allocate turns a choice of nodes into cores and devices. It returns false when a node cannot provide them after all (enforce-binding).
func (pl *Placer) Allocate(sh *Shape, ch *Choice) ([]record.Alloc, bool) {
	out := make([]record.Alloc, 0, len(ch.Places))
	until := record.Add(ch.Until, ch.WakeS)
	for i, place := range ch.Places {
		n := ch.Of.Nodes[place]
		v := sh.NeedFor(ch.Of, n.Config, ch.Tasks[i], ch.GPUs[i])
		a := record.Alloc{Node: n.Rec.Name, Tasks: ch.Tasks[i], CPUs: int(v.CPUs), MemMiB: v.MemMiB}
		device := -1
		if pl.params.Placement == record.FGD {
			_, device = pl.frag.growth(n, v, n.Prof.Now())
		}
		n.Hide(pl.ix.Now, until, 1)
		near, ok := n.TakeGres(v, &a, device)
		n.Hide(pl.ix.Now, until, -1)
		if !ok ||
			!n.TakeCores(sh.sharing(), int(v.CPUs/n.Config.Threads), near, n.Shut(pl.ix.Now, until), sh.Request.Binding, &a) &&
				(sh.Request.Binding || pl.ix.Scale > 1 || len(n.Subs) > 0 || n.Whole != nil) {
			return nil, false
		}
		out = append(out, a)
	}
	return out, true
}

// KeptAway returns the time by which jobs of the shape have to end to start now, because of others' reservations and regardless of running
// jobs, with the reason for longer jobs; Forever when there is none.
func (pl *Placer) KeptAway(sh *Shape) (int64, reason.Reason) {
	var starts []int64
	for i := range sh.Alts {
		for _, n := range sh.Alts[i].Nodes {
			for _, w := range n.Reserved() {
				if w.End > pl.ix.Now && !sh.Resv.Passes(w.Resv) {
					starts = append(starts, max(pl.ix.Now, w.Start+w.Delay))
				}
			}
			if len(starts) > maxStarts {
				break
			}
		}
	}
	slices.Sort(starts)
	for _, t := range slices.Compact(starts) {
		maint, ok := false, false
		for i := range sh.Alts {
			ok = ok || sh.enough(&sh.Alts[i], func(n *node.Node) bool {
				m, free := pl.freeOfOthers(sh, n, t)
				maint = maint || m
				return n.Rec.State == record.NodeUsable && free
			})
		}
		if ok {
			continue
		}
		r := reason.Reason{Code: reason.ReqNodeNotAvail, Text: "ReqNodeNotAvail, May be reserved for other job"}
		if maint {
			r.Text = "ReqNodeNotAvail, Reserved for maintenance"
		}
		return t, r
	}
	return record.Forever, reason.Reason{}
}

// maxStarts bounds the windows that are examined for a reason.
const maxStarts = 4096

// freeOfOthers reports whether no reservation of others is on the node until after t, and whether one that is, is for maintenance.
func (pl *Placer) freeOfOthers(sh *Shape, n *node.Node, t int64) (maint, free bool) {
	free = true
	for _, w := range n.Reserved() {
		if w.End > pl.ix.Now && w.Start+w.Delay <= t && !sh.Resv.Passes(w.Resv) {
			free, maint = false, maint || w.Resv.Rec.Maint
		}
	}
	return maint, free
}

// OpenUntil returns until when a job of the shape could keep the cores and devices that are free now; now when there are not enough. Counts
// are not sufficient: free ones may belong to a reservation.
func (pl *Placer) OpenUntil(sh *Shape, n *node.Node, v *node.Need) int64 {
	rivals := n.Rivals()
	if len(rivals) == 0 {
		return record.Forever
	}
	var ends []int64
	for _, sub := range rivals {
		for _, w := range sub.Resv.Spans() {
			if w.End > pl.ix.Now {
				ends = append(ends, max(w.Start, pl.ix.Now))
			}
		}
	}
	slices.Sort(ends)
	for _, t := range slices.Compact(ends) {
		if !pl.placesFor(sh, n, v, t+1) {
			return t
		}
	}
	return record.Forever
}

// placesFor reports whether enough of the cores and devices that a job may have until before end are free.
func (pl *Placer) placesFor(sh *Shape, n *node.Node, v *node.Need, end int64) bool {
	count := 0
	for _, b := range n.Takeable(sh.sharing(), n.Shut(pl.ix.Now, end)) {
		count += b.Count()
	}
	if int64(count) < v.CPUs/n.Config.Threads {
		return false
	}
	n.Hide(pl.ix.Now, end, 1)
	defer n.Hide(pl.ix.Now, end, -1)
	for i := range v.Gres {
		g := &v.Gres[i]
		free := int64(0)
		for _, gi := range g.Groups {
			switch {
			case n.Config.Groups[gi].Devices == 0:
				free += n.Prof.Now()[n.Config.Groups[gi].Dim]
			case g.Shares > 0 && n.ShareDevice(gi, g.Shares) >= 0:
				free += g.Shares
			case g.Shares == 0:
				free += n.FreeNow(gi, nil)
			}
		}
		if free < g.Count && len(g.Cuts) > 0 {
			free += n.CutsNow(g.Cuts, g.Count-free)
		}
		if free < g.Count {
			return false
		}
	}
	return true
}

// wholeNodes reports whether a job with request r takes its nodes whole in this partition.
func (pl *Placer) wholeNodes(p *index.Partition, r *record.Request) bool {
	return pl.params.WholeNodes || p.Rec.Share == record.ShareExclusive || r.Exclusive && p.Rec.Share != record.ShareForce
}

// sharing returns how jobs of the shape share CPUs.
func (sh *Shape) sharing() node.Sharing {
	return node.Sharing{Depth: sh.depth, Pool: sh.part.Index + 1, Mixed: sh.part.Rec.Share == record.ShareYes}
}

// LacksCores reports whether, where CPUs are shared, enough are free by count, but not enough cores are open to this job.
func (pl *Placer) LacksCores(sh *Shape, n *node.Node, v *node.Need) bool {
	if pl.ix.Scale == 1 || n.Config.Cores == 0 || v.Whole {
		return false
	}
	count := 0
	for _, b := range n.Takeable(sh.sharing(), n.Shut(pl.ix.Now, pl.ix.Now+1)) {
		count += b.Count()
	}
	return int64(count) < v.CPUs/n.Config.Threads
}

// lacksPlaces reports whether the job fits on the node now by count, but not by the cores and devices that are free.
func (pl *Placer) lacksPlaces(sh *Shape, n *node.Node, v *node.Need) bool {
	return pl.LacksCores(sh, n, v) || n.LacksSockets(v) || n.LacksCuts(v)
}
