package pass

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
)

// outlasts: the reservation that e asks for is over.
func (p *pass) outlasts(e *queue.Entry) bool {
	r := e.Class.Shape.Resv
	return r != nil && !r.Rec.Flex && p.ix.Now >= r.Rec.End
}

// say settles a job's own reason.
func (p *pass) say(e *queue.Entry, r record.Reason) {
	id := e.Job.Rec.ID
	if _, done := p.seen[id]; done {
		return
	}
	p.seen[id] = struct{}{}
	if e.Job.Rec.Reason != r {
		p.plan.Reasons = append(p.plan.Reasons, record.JobReason{ID: id, Reason: r})
	}
}

// reasons lists every job whose record does not say why it waits. Only jobs
// whose record differs from what their class says are looked at.
func (p *pass) reasons() {
	for i := range p.turns {
		c := &p.turns[i]
		if c.Shape.Resv != nil {
			c.Root.Each(func(e *queue.Entry) {
				if e.Primary && c.wait.Code == record.WaitPriority && p.outlasts(e) {
					p.say(e, record.Reason{Code: record.WaitReservation})
				}
			})
		}
		p.reservedAway(c)
		p.q.SetUniform(c.Class, c.wait)
	}
	for e := range p.q.Odd {
		p.say(e, e.Class.Uniform)
	}
	for j := range p.q.AsideOdd {
		p.plan.Reasons = append(p.plan.Reasons, record.JobReason{ID: j.Rec.ID, Reason: j.Wait})
	}
	slices.SortFunc(p.plan.Reasons, func(a, b record.JobReason) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(p.plan.Never)
}

func (p *pass) wake() int64 {
	next := min(p.q.Timers.Next(), p.ix.Reservations.Next(p.ix.Now))
	for i := range p.plan.Reserve {
		if at := p.plan.Reserve[i].At; at > p.ix.Now {
			next = min(next, at)
		}
	}
	return next
}

// reservedAway settles the reasons of the jobs of a class that reservations keep away.
func (p *pass) reservedAway(c *turn) {
	if len(p.ix.Reservations) == 0 || c.wait.Code != record.WaitPriority {
		return
	}
	if e := c.Root.First(); e == nil || p.q.AwayFor(c.Class, e).Code == "" && record.Add(p.ix.Now, c.Longest) <= c.AwayFrom {
		return // reservations are further away than any of its jobs is long
	}
	c.Root.Each(func(e *queue.Entry) {
		if !e.Primary || p.outlasts(e) {
			return
		}
		if why := p.q.AwayFor(c.Class, e); why.Code != "" {
			p.say(e, why)
		}
	})
}
