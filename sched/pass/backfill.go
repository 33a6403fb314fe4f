package pass

import (
	"math"

	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/record"
)

// guard decides which jobs are promised a start, and when: the first waiting jobs, and those that have waited too long. It does not look at
// nodes.
type guard struct {
	params  *record.Params
	now     int64
	lowTier uint16 // of partitions
}

// count adds the waiting jobs of a class, and of those below it in its family's heap, to the totals of its partition. It only counts jobs
// and array tasks that could start there: neither held ones, by a user or by a limit, nor those that a reservation merely attracts, which
// also wait in their partition.
func (g *guard) count(l *line, c *queue.Class) {
	l.longest = max(l.longest, c.Below.Longest)
	if g.params.MaxWaitS > 0 {
		g.countOld(l, c)
	}
	if !c.Attracted() {
		g.countStartable(l, c)
	}
}

func (g *guard) countOld(l *line, c *queue.Class) {
	if since := g.now - g.params.MaxWaitS; c.Below.Elig < since && l.old < overfull+maxLong {
		l.old += c.Root.Older(since, overfull+maxLong-l.old)
		for _, next := range c.Next() {
			g.countOld(l, next)
		}
	}
}

func (g *guard) countStartable(l *line, c *queue.Class) {
	if l.startable <= g.params.ShortQueue {
		l.startable += c.Root.Startable(g.params.ShortQueue + 1 - l.startable)
		for _, next := range c.Next() {
			g.countStartable(l, next)
		}
	}
}

// maxLong bounds the promises of a partition under MaxWaitS: in an overfull
// cluster every job has waited long, and a plan of thousands of promises is
// expensive and of little use.
const maxLong = 16

// When more than overfull jobs wait for longer than MaxWaitS, the bound cannot be kept for all, and promises to the oldest would only block
// the machine for the rest: each further job reduces the promises by one, down to leastLong.
const (
	overfull  = 32
	leastLong = 2
)

// longPromises returns the number of promises under MaxWaitS.
func (l *line) longPromises() int {
	return max(leastLong, maxLong-max(0, l.old-overfull))
}

// long returns the waiting time after which a start is kept free for a job of the partition (Params.MaxWaitS): so that the longest job that
// could start in its way ends within MaxWaitS; at least a sixth of MaxWaitS, so that a queue with jobs without a limit does not promise
// every job a start.
func (g *guard) long(l *line) int64 {
	most := g.params.MaxWaitS
	return max(most/6, most-l.longest)
}

// promises returns how many waiting jobs of a partition are promised a start at once.
func (g *guard) promises() int {
	switch g.params.Policy {
	case record.FIFO:
		return 0
	case record.Conservative:
		return math.MaxInt
	}
	return max(1, g.params.Reservations)
}

// waitedLong reports whether the job has waited so long that a start is kept free for it.
func (g *guard) waitedLong(l *line, e *queue.Entry) bool {
	return g.longLeft(l) && g.now-e.Eligible > g.long(l)
}

// longLeft reports whether there are promises left for jobs that have waited long.
func (g *guard) longLeft(l *line) bool {
	return g.params.MaxWaitS > 0 && !g.params.Weights.Say() && g.params.Policy == record.EASY && l.promises < l.longPromises()
}

// promisesLeft reports whether the next waiting job may be promised a start.
func (g *guard) promisesLeft(l *line) bool {
	return !l.put && l.promises < g.promises()
}

// tooSoon reports whether the first waiting job of a partition has not yet waited long enough for a promise, in a queue that is not short.
func (g *guard) tooSoon(l *line, e *queue.Entry) bool {
	return g.early(e) && l.startable > g.params.ShortQueue
}

// early reports whether e has waited for less than HeadGuardS and has not been promised a start. Partitions above the lowest tier are
// exempt: jobs that start meanwhile would belong to lower ones. So are all jobs where priorities order the queue: the first is promised a
// start at once, and nothing is kept free for a job of lower priority.
func (g *guard) early(e *queue.Entry) bool {
	return g.params.Policy == record.EASY && !g.params.Weights.Say() && e.Class.Part.Rec.PriorityTier == g.lowTier &&
		!e.Job.Rec.Promised && g.now-e.Eligible < g.params.HeadGuardS
}

// reserve promises e a start, if a promise is available; it returns false when there is none for e, or for any job as long. The first
// waiting job is promised the earliest start; one under MaxWaitS only, a start as late as that allows.
func (p *pass) reserve(c *turn, e *queue.Entry) bool {
	l := c.line
	from, first := p.ix.Now, true
	if !p.guard.promisesLeft(l) || p.guard.tooSoon(l, e) {
		if !p.guard.waitedLong(l, e) {
			l.put = l.put || p.guard.promisesLeft(l)
			return false
		}
		from, first = max(from, e.Eligible+p.params.MaxWaitS), false
	}
	by := record.Forever
	if first && p.guard.early(e) {
		by = p.ix.Now + foreseeableS
	}
	at, ok := p.promise(c, e, from, by)
	if at > by {
		l.put = true
		if p.guard.waitedLong(l, e) {
			first = false
			_, ok = p.promise(c, e, max(from, e.Eligible+p.params.MaxWaitS), record.Forever)
		}
	}
	if !ok {
		return false // never, as far as can be foreseen, and neither could its equals
	}
	l.promises++
	p.plan.Reserve[len(p.plan.Reserve)-1].First = first &&
		p.params.Policy == record.EASY // a conservative policy delays no job
	return true
}

// promise finds the earliest start from from on for a job that cannot start now, takes the resources from then on, and adds the Reserve. It
// returns false when that is later than by, or beyond the horizon of the plan; at is then 0.
func (p *pass) promise(c *turn, e *queue.Entry, from, by int64) (at int64, ok bool) {
	early := from <= p.ix.Now
	if e.Limit >= c.lasting {
		from = max(from, c.reserved)
	}
	at, ch := p.fu.Earliest(c.Shape, from, e.Limit)
	if ch == nil || p.params.WindowS > 0 && at > p.ix.Now+p.params.WindowS {
		return 0, false
	}
	if at > by {
		return at, false
	}
	if early {
		c.reserved, c.lasting = at, e.Limit
	}
	end := record.Add(at, record.Add(e.Limit, ch.WakeS))
	r := record.Reserve{ID: e.Job.Rec.ID, Task: -1, Partition: c.Part.Rec.Name, At: at, End: end, Promised: true}
	if a := e.Job.Rec.Array; a != nil {
		r.Task = int32(a.Nth(e.Job.Taken))
	}
	for i, place := range ch.Places {
		n := ch.Of.Nodes[place]
		r.Nodes = append(r.Nodes, n.Rec.Name)
		p.fu.Hold(n, c.Shape.NeedFor(ch.Of, n.Config, ch.Tasks[i], ch.GPUs[i]), at, end)
	}
	if c.Shape.Lic != nil {
		p.fu.HoldLicenses(c.Shape.Lic, at, end)
	}
	p.plan.Reserve = append(p.plan.Reserve, r)
	return at, true
}

// foreseeableS is how far ahead, in seconds, a start may lie for the first waiting job to be promised it before HeadGuardS. A later one
// depends on jobs without a time limit: other jobs without one would be kept from free nodes until those happen to end.
const foreseeableS = record.UnlimitedS / 2
