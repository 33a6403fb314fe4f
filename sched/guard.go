package sched

// guardOf is how long a job has to have waited before it matters to it what
// starts now, so that it may start after maxWaitS at the latest: until the
// longest job that waits could still run by then. A sixth of that at least, so
// that jobs without a limit do not make everybody be promised a start.
func (p *pass) guardOf(maxWaitS int64) int64 {
	longest := int64(0)
	for _, c := range p.first.list {
		longest = max(longest, c.root.min.longest)
	}
	return max(maxWaitS/6, maxWaitS-longest)
}

// maxLong bounds the promises of a partition under MaxWaitS: in an overfull
// cluster everybody has waited long, and a plan of thousands of promises costs
// much and promises little.
const maxLong = 16

// Where more than overfull wait for longer than MaxWaitS, the bound cannot be
// kept for all, and promises to the oldest would only keep the machine from the
// rest: then overfullLong are made.
const (
	overfull     = 32
	overfullLong = 2
)

// longPromises is how many promises under MaxWaitS the partition has.
func (part *vpart) longPromises() int {
	if part.old > overfull {
		return overfullLong
	}
	return maxLong
}

// waitedLong: a start is kept free for the job whatever else is.
func (p *pass) waitedLong(e *entry) bool {
	return p.longLeft(e.class.part) && p.s.now-e.elig > p.longGuard
}

// longLeft: promises to those who have waited long are left.
func (p *pass) longLeft(part *vpart) bool {
	return p.s.params.MaxWaitS > 0 && p.s.params.Policy == EASY && part.promises < part.longPromises()
}

// promisesLeft: the next job that waits may be promised a start.
func (p *pass) promisesLeft(part *vpart) bool {
	return !part.put && part.promises < p.promises()
}

// tooSoon: the first job that waits has not done so for long enough to be
// promised a start, and there are many.
func (p *pass) tooSoon(e *entry) bool {
	return p.early(e) && len(p.s.jobs.recs) > p.s.params.ShortQueue
}

// early: e has not waited for as long as HeadGuardS, nor been promised a start.
// Partitions of a higher tier than others are not made to wait: what starts
// meanwhile would be of those others.
func (p *pass) early(e *entry) bool {
	return p.s.params.Policy == EASY && e.class.part.rec.PriorityTier == p.s.lowTier && !e.job.rec.Promised && p.s.now-e.elig < p.s.params.HeadGuardS
}

// reserve promises e a start, if there is a promise for it; false when there is
// none for it or any that is as long. The first that waits is promised the
// earliest there is; who is only not to wait too long, one as late as that allows.
func (p *pass) reserve(c *class, e *entry) bool {
	part := c.part
	from, first := p.s.now, true
	if !p.promisesLeft(part) || p.tooSoon(e) {
		if !p.waitedLong(e) {
			part.put = part.put || p.promisesLeft(part)
			return false
		}
		from, first = max(from, e.elig+p.s.params.MaxWaitS), false
	}
	by := Forever
	if first && p.early(e) {
		by = p.s.now + foreseeableS
	}
	at, ok := p.promise(c, e, from, by)
	if at > by {
		part.put = true
		if p.waitedLong(e) {
			first = false
			_, ok = p.promise(c, e, max(from, e.elig+p.s.params.MaxWaitS), Forever)
		}
	}
	if !ok {
		return false // never, as far as anybody knows: nor would its equals
	}
	part.promises++
	p.plan.Reserve[len(p.plan.Reserve)-1].First = first && p.s.params.Policy == EASY // where everybody is promised a start nobody is put off
	return true
}

// foreseeableS is how far ahead a start may be for the first that waits to be promised it before HeadGuardS, in seconds. One beyond that hangs on jobs
// without a time limit: whoever has none either would be kept from what is free until those happen to end.
const foreseeableS = UnlimitedS / 2
