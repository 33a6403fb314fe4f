package sched

import (
	"slices"
	"strings"
)

// buildReservations puts each reservation as windows on its nodes, or beside
// them what it takes of each. One that ends before it begins is none.
func (s *Scheduler) buildReservations(in []*Reservation) {
	recs := slices.Clone(in)
	slices.SortFunc(recs, func(a, b *Reservation) int { return strings.Compare(a.Name, b.Name) })
	for _, rec := range recs {
		r := &vresv{rec: rec, nodes: s.nodeList(rec.Nodes), parts: map[int32]*vnode{}}
		s.resvs = append(s.resvs, r)
		for i := range rec.Parts {
			s.addPart(r, &rec.Parts[i])
		}
		if len(rec.Parts) > 0 {
			continue
		}
		for _, w := range r.spans() {
			for _, i := range r.nodes {
				n := s.nodes.vals[i]
				n.windows = append(n.windows, window{w.Start, w.End, rec.MaxStartDelayS, r})
			}
		}
	}
	for _, n := range s.nodes.vals {
		slices.SortStableFunc(n.windows, func(a, b window) int { return int(min(max(a.start-b.start, -1), 1)) })
	}
}

// passes: jobs of r need not mind what the other reservation has: it is their
// own, or theirs may have what others have (MAINT, OVERLAP in scontrol(1)).
func (r *vresv) passes(other *vresv) bool {
	if r == nil {
		return false
	}
	return r == other || r.rec.Maint || r.rec.Overlap && !other.rec.Maint
}

// reservationOf is the reservation a job asks for.
func (s *Scheduler) reservationOf(j *Job) (*vresv, Reason) {
	if j.Request == nil || j.Request.Reservation == "" {
		return nil, Reason{}
	}
	r := s.reservationNamed(j.Request.Reservation)
	switch {
	case r == nil:
		return nil, Reason{Code: ReservationDeleted}
	case !r.rec.admits(j):
		return nil, Reason{Code: WaitReservation}
	}
	return r, Reason{}
}

func (s *Scheduler) reservationNamed(name string) *vresv {
	for _, r := range s.resvs {
		if r.rec.Name == name {
			return r
		}
	}
	return nil
}

// attracting are the reservations that j may use without having asked.
func (s *Scheduler) attracting(j *Job) []*vresv {
	if j.Request == nil || j.Request.Reservation != "" {
		return nil
	}
	var out []*vresv
	for _, r := range s.resvs {
		if r.rec.Magnetic && r.rec.admits(j) {
			out = append(out, r)
		}
	}
	return out
}

// attracted: the jobs of the class are in a reservation that they have not asked for.
func (c *class) attracted() bool { return c.shape.resv != nil && c.shape.req.Reservation == "" }

// admits: scontrol(1), Users=, Groups= and Accounts=.
func (r *Reservation) admits(j *Job) bool {
	if slices.Contains(r.NotUsers, j.User) || slices.Contains(r.NotAccounts, j.Account) {
		return false
	}
	in := len(r.Users)+len(r.Groups) == 0 || slices.Contains(r.Users, j.User) ||
		slices.ContainsFunc(j.Groups, func(g uint32) bool { return slices.Contains(r.Groups, g) })
	return in && (len(r.Accounts) == 0 || slices.Contains(r.Accounts, j.Account))
}

// licensesOnly: the reservation sets no nodes aside, so its jobs may use any.
func (r *vresv) licensesOnly() bool { return len(r.rec.Nodes) == 0 && len(r.rec.Licenses) > 0 }

// crossWindows touches the nodes on which a reservation began or ended since
// the last pass, and starts a new epoch for what waits for one.
func (s *Scheduler) crossWindows(last int64) {
	crossed := func(t int64) bool { return t > last && t <= s.now }
	for _, r := range s.resvs {
		for _, part := range r.parts {
			part.whole.prof.Advance(s.now) // what holds first has to hold now
		}
		if !slices.ContainsFunc(r.spans(), func(w Span) bool { return crossed(w.Start) || crossed(w.End) }) {
			continue
		}
		s.epoch++
		for _, i := range r.nodes {
			s.touch(s.nodes.vals[i])
			if part := r.parts[i]; part != nil {
				s.touch(part)
			}
		}
	}
}

// nextWindow is when a reservation next begins or ends.
func (s *Scheduler) nextWindow() int64 {
	next := Forever
	for _, r := range s.resvs {
		for _, w := range r.spans() {
			for _, t := range []int64{w.Start, w.End} {
				if t > s.now {
					next = min(next, t)
				}
			}
		}
	}
	return next
}

// soonReserved: a part of the node is reserved at some time from from until to.
func (n *vnode) soonReserved(from, to int64) bool {
	return slices.ContainsFunc(n.rivals(), func(sub *vnode) bool { return sub.meets(from, to) })
}

// awayFor is the reason of a job that cannot start now because of reservations
// of others, whatever runs; none when there is no such reason.
func (s *Scheduler) awayFor(c *class, e *entry) Reason {
	if len(s.resvs) == 0 {
		return Reason{}
	}
	if c.awayN != s.epoch {
		c.awayN = s.epoch
		c.awayFrom, c.away = s.keptAway(c)
	}
	if add(s.now, e.least) <= c.awayFrom {
		return Reason{}
	}
	return c.away
}

// reservedAway settles the reasons of the jobs of a class that reservations keep away.
func (p *pass) reservedAway(c *class) {
	if len(p.s.resvs) == 0 || c.wait.Code != WaitPriority {
		return
	}
	if e := c.root.first(); e == nil || p.s.awayFor(c, e).Code == "" && add(p.s.now, c.longest) <= c.awayFrom {
		return // reservations are further away than any of its jobs is long
	}
	c.root.each(func(e *entry) {
		if !e.primary || p.outlasts(e) {
			return
		}
		if why := p.s.awayFor(c, e); why.Code != "" {
			p.say(e, why)
		}
	})
}

// keptAway is the time until which jobs of the class have to have ended to
// start now, because of reservations of others and whatever runs, with the
// reason of those that have not; Forever when there is none.
func (s *Scheduler) keptAway(c *class) (int64, Reason) {
	sh := c.shape
	var starts []int64
	for i := range sh.alts {
		for _, n := range sh.alts[i].nodes {
			for _, w := range n.reserved() {
				if w.end > s.now && !sh.resv.passes(w.resv) {
					starts = append(starts, max(s.now, w.start+w.delay))
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
		for i := range sh.alts {
			ok = ok || sh.enough(&sh.alts[i], func(n *vnode) bool {
				m, free := s.freeOfOthers(sh, n, t)
				maint = maint || m
				return n.rec.State == NodeUsable && free
			})
		}
		if ok {
			continue
		}
		r := Reason{Code: ReqNodeNotAvail, Text: "ReqNodeNotAvail, May be reserved for other job"}
		if maint {
			r.Text = "ReqNodeNotAvail, Reserved for maintenance"
		}
		return t, r
	}
	return Forever, Reason{}
}

// maxStarts bounds how many windows are looked at for a reason.
const maxStarts = 4096

// freeOfOthers: no reservation of others is on the node until after t; and
// whether one that is, is for maintenance.
func (s *Scheduler) freeOfOthers(sh *shape, n *vnode, t int64) (maint, free bool) {
	free = true
	for _, w := range n.reserved() {
		if w.end > s.now && w.start+w.delay <= t && !sh.resv.passes(w.resv) {
			free, maint = false, maint || w.resv.rec.Maint
		}
	}
	return maint, free
}
