package pass

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// outlasts reports whether the reservation that e requests is over.
func (p *pass) outlasts(e *queue.Entry) bool {
	r := e.Class.Shape.Resv
	return r != nil && !r.Rec.Flex && p.ix.Now >= r.Rec.End
}

// say sets a job's own reason.
func (p *pass) say(e *queue.Entry, r reason.Reason) {
	id := e.Job.Rec.ID
	if _, done := p.seen[id]; done {
		return
	}
	p.seen[id] = struct{}{}
	if e.Job.Rec.Reason != r {
		p.plan.Reasons = append(p.plan.Reasons, record.JobReason{ID: id, Reason: r})
	}
}

// reasons lists every job whose record lacks its reason. It only looks at jobs whose record differs from the reason of their class, and at
// classes that this pass or the last one has looked at.
func (p *pass) reasons() {
	for _, f := range p.q.Families {
		why := p.q.FaultOf(f)
		switch {
		case why.Code != "":
		case f.Pass == p.number && f.Beaten:
			why = f.Wait
		default:
			why.Code = reason.Priority
		}
		p.q.Say(f, why, p.number)
		p.reserved(f)
	}
	for _, c := range p.astray {
		if c.Pass != p.number {
			p.q.SetUniform(c, p.q.Standing(c))
		}
	}
	p.astray = p.astray[:0]
	for _, c := range p.turns[:p.opened] {
		if p.q.SetUniform(c.Class, c.wait); c.wait != p.q.Standing(c.Class) {
			p.astray = append(p.astray, c.Class)
		}
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
	next := min(p.q.Timers.Next(), p.ix.Reservations.Next(p.ix.Now), p.preemption.exempt,
		record.Add(p.ix.Now, p.limits.wait))
	for i := range p.plan.Reserve {
		if at := p.plan.Reserve[i].At; at > p.ix.Now {
			next = min(next, at)
		}
	}
	return next
}

// reserved sets the reasons of the jobs of a family whose reservation no longer lasts, or that other reservations keep away.
func (p *pass) reserved(f *queue.Family) {
	if len(p.ix.Reservations) == 0 || f.Shape.Resv == nil && p.q.AwayFor(f, f.Longest).Code == "" {
		return // reservations are further away than its longest job
	}
	f.Each(func(c *queue.Class) {
		if p.waitOf(c).Code != reason.Priority {
			return
		}
		c.Root.Each(func(e *queue.Entry) {
			switch why := p.q.AwayFor(f, e.Least); {
			case !e.Primary:
			case p.outlasts(e):
				p.say(e, reason.Reason{Code: reason.Reservation})
			case why.Code != "":
				p.say(e, why)
			}
		})
	})
}

// waitOf returns the reason of those jobs of a class that have no other reason.
func (p *pass) waitOf(c *queue.Class) reason.Reason {
	if c.Pass == p.number {
		return p.turns[c.Turn].wait
	}
	return p.q.Standing(c)
}
