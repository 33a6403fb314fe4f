package sched

import (
	"slices"
	"strings"
)

// buildReservations puts each reservation as a window on its nodes. One that
// ends before it begins is none.
func (s *Scheduler) buildReservations(in []*Reservation) {
	recs := slices.Clone(in)
	slices.SortFunc(recs, func(a, b *Reservation) int { return strings.Compare(a.Name, b.Name) })
	for _, rec := range recs {
		r := &vresv{rec: rec, nodes: s.nodeList(rec.Nodes)}
		s.resvs = append(s.resvs, r)
		if rec.End <= rec.Start {
			continue
		}
		for _, i := range r.nodes {
			n := s.nodes.vals[i]
			n.windows = append(n.windows, window{rec.Start, rec.End, r})
		}
	}
}

// reservationOf is the reservation a job asks for.
func (s *Scheduler) reservationOf(j *Job) (*vresv, Reason) {
	if j.Request == nil || j.Request.Reservation == "" {
		return nil, Reason{}
	}
	for _, r := range s.resvs {
		if r.rec.Name != j.Request.Reservation {
			continue
		}
		if !r.rec.admits(j) {
			return nil, Reason{Code: WaitReservation}
		}
		return r, Reason{}
	}
	return nil, Reason{Code: ReservationDeleted}
}

func (r *Reservation) admits(j *Job) bool {
	if len(r.Users) == 0 && len(r.Accounts) == 0 {
		return true
	}
	return slices.Contains(r.Users, j.User) || slices.Contains(r.Accounts, j.Account)
}

// licensesOnly: the reservation sets no nodes aside, so its jobs may use any.
func (r *vresv) licensesOnly() bool { return len(r.rec.Nodes) == 0 && len(r.rec.Licenses) > 0 }

// crossWindows touches the nodes on which a reservation began or ended since
// the last pass, and starts a new epoch for what waits for one.
func (s *Scheduler) crossWindows(last int64) {
	crossed := func(t int64) bool { return t > last && t <= s.now }
	for _, r := range s.resvs {
		if !crossed(r.rec.Start) && !crossed(r.rec.End) {
			continue
		}
		s.epoch++
		for _, i := range r.nodes {
			s.touch(s.nodes.vals[i])
		}
	}
}

// nextWindow is when a reservation next begins or ends.
func (s *Scheduler) nextWindow() int64 {
	next := Forever
	for _, r := range s.resvs {
		for _, t := range []int64{r.rec.Start, r.rec.End} {
			if t > s.now {
				next = min(next, t)
			}
		}
	}
	return next
}
