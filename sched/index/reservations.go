package index

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// buildReservations adds each reservation as windows on its nodes, or as parts of its nodes. A reservation that ends before it begins is
// ignored.
func (ix *Index) buildReservations(in []*record.Reservation) {
	recs := slices.Clone(in)
	slices.SortFunc(recs, func(a, b *record.Reservation) int { return strings.Compare(a.Name, b.Name) })
	for _, rec := range recs {
		r := &node.Reservation{Rec: rec, Nodes: ix.NodeList(rec.Nodes), Parts: map[int32]*node.Node{}}
		ix.Reservations = append(ix.Reservations, r)
		for i := range rec.Parts {
			ix.addPart(r, &rec.Parts[i])
		}
		if len(rec.Parts) > 0 {
			continue
		}
		for _, w := range r.Spans() {
			for _, i := range r.Nodes {
				n := ix.Nodes.Vals[i]
				n.Windows = append(n.Windows, node.Window{Start: w.Start, End: w.End, Delay: rec.MaxStartDelayS, Resv: r})
			}
		}
	}
	for _, n := range ix.Nodes.Vals {
		slices.SortStableFunc(n.Windows, func(a, b node.Window) int { return int(min(max(a.Start-b.Start, -1), 1)) })
	}
}

// Reservations are the reservations of the snapshot, by name.
type Reservations []*node.Reservation

// Of returns the reservation that a job requests.
func (rs Reservations) Of(j *record.Job) (*node.Reservation, reason.Reason) {
	if j.Request == nil || j.Request.Reservation == "" {
		return nil, reason.Reason{}
	}
	r := rs.Named(j.Request.Reservation)
	switch {
	case r == nil:
		return nil, reason.Reason{Code: reason.ReservationDeleted}
	case !r.Rec.Admits(j):
		return nil, reason.Reason{Code: reason.Reservation}
	}
	return r, reason.Reason{}
}

// Named returns a reservation, or nil.
func (rs Reservations) Named(name string) *node.Reservation {
	for _, r := range rs {
		if r.Rec.Name == name {
			return r
		}
	}
	return nil
}

// Attracting returns the reservations that j may use without a request.
func (rs Reservations) Attracting(j *record.Job) []*node.Reservation {
	if j.Request == nil || j.Request.Reservation != "" {
		return nil
	}
	var out []*node.Reservation
	for _, r := range rs {
		if r.Rec.Magnetic && r.Rec.Admits(j) {
			out = append(out, r)
		}
	}
	return out
}

// crossWindows touches the nodes on which a reservation began or ended since the last pass, and starts a new epoch for jobs that wait for
// one.
func (ix *Index) crossWindows(last int64) {
	crossed := func(t int64) bool { return t > last && t <= ix.Now }
	for _, r := range ix.Reservations {
		if !slices.ContainsFunc(r.Spans(), func(w record.Span) bool { return crossed(w.Start) || crossed(w.End) }) {
			continue
		}
		ix.Epoch++
		for _, i := range r.Nodes {
			ix.touch(ix.Nodes.Vals[i])
			if part := r.Parts[i]; part != nil {
				ix.touch(part)
			}
		}
	}
}

// Next returns the next time after now at which a reservation begins or ends; Forever: never.
func (rs Reservations) Next(now int64) int64 {
	next := record.Forever
	for _, r := range rs {
		for _, w := range r.Spans() {
			for _, t := range []int64{w.Start, w.End} {
				if t > now {
					next = min(next, t)
				}
			}
		}
	}
	return next
}

// Maintained reports whether a maintenance reservation is active on the node.
func (ix *Index) Maintained(n *node.Node, resv *node.Reservation) bool {
	for _, w := range n.Reserved() {
		if !resv.Passes(w.Resv) && w.Resv.Rec.Maint && w.Start <= ix.Now && ix.Now < w.End {
			return true
		}
	}
	return false
}
