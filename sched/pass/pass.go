package pass

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/queue"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// pass is one run over the queue.
//
// The queue is walked class by class, not job by job. A heap orders the classes by their first unhandled job; a pass opens the classes of a
// family one after another. Within a pass resources only shrink, so when one job of a class cannot start, none of the class can, and the
// class is done: a queue of 100,000 jobs in 100 classes costs its starts plus 100 failures.
type pass struct {
	*Runner
	in     *record.Snapshot
	plan   *record.Plan
	budget int

	order *order
	guard guard

	preemption preemption

	until *queue.Job // where the pass ends: see PlanTo
	left  int        // of its places in the queue

	lines  []line   // by number of the partition
	first  turnHeap // by queue order
	second []*turn  // of one tier and rank: backfill candidates to be taken in their own order
	short  bool     // second is being taken

	started []*node.Run
	yields  map[*node.Node]bool // nodes on which jobs were told to give way
	room    []int64             // buffer of fitsWithout
	tried   int
	perUser map[string]int
	limits  room
	defeats defeats
	seen    map[uint32]struct{} // jobs whose reason is final
}

func newPass(pr *Runner, in *record.Snapshot) *pass {
	pr.number++
	pr.pl.Begin()
	pr.fu.ForgetFirsts()
	p := &pass{
		Runner:  pr,
		in:      in,
		plan:    &record.Plan{Seq: in.Seq, Now: in.Now, Wake: record.Forever},
		budget:  in.Budget,
		order:   newOrder(pr.params, in.Now),
		guard:   guard{pr.params, in.Now, pr.ix.LowTier},
		perUser: map[string]int{},
		defeats: defeats{},
		limits:  room{in.Limits, in.Left, in.Freed, map[int32]int64{}, record.Forever},
		seen:    map[uint32]struct{}{},

		preemption: preemption{params: pr.params, ix: pr.ix, exempt: record.Forever},
	}
	if p.budget == 0 {
		p.budget = p.params.Budget
	}
	if p.budget == 0 {
		p.budget = 20_000_000
	}
	p.lines = make([]line, len(p.ix.Parts))
	p.opened = 0
	return p
}

func (p *pass) run() {
	for _, f := range p.q.Families {
		if first := f.First(); first != nil && p.q.FaultOf(f).Code == "" {
			p.guard.count(&p.lines[f.Part.Index], first)
			p.first.list = append(p.first.list, p.open(first))
		}
	}
	if p.until != nil && p.left == 0 {
		return // why it waits is known without a plan
	}
	p.first.less = func(a, b *turn) bool { return queue.CompareEntries(a.next, b.next) < 0 }
	heap.Init(&p.first)
	p.takeInTurn(&p.first)
}

// takeInTurn takes the classes of h one job at a time.
func (p *pass) takeInTurn(h *turnHeap) {
	for len(h.list) > 0 || len(p.second) > 0 && !p.short {
		if !p.short && p.candidatesDue() {
			if p.takeAllCandidates(); p.spent() {
				return
			}
			continue
		}
		c := h.list[0]
		if p.spent() {
			p.stopAt(c.next)
			return
		}
		asked, on := false, true
		if !p.finished(p.current(c).Job) { // otherwise another partition finished it, and the next job may not be first
			asked = p.until != nil && p.current(c).Job == p.until
			on = p.step(c)
			c.over = !on
		}
		if on && p.skip(c) {
			heap.Fix(h, 0)
		} else {
			heap.Pop(h)
		}
		if !c.kin {
			p.openKin(c)
		}
		if asked {
			if p.left--; p.left <= 0 || p.finished(p.until) {
				return
			}
		}
	}
}

// spent reports whether the budget is used up, and if so notes where to continue.
func (p *pass) spent() bool {
	depth := p.params.Depth
	if depth > 0 && p.tried >= depth {
		return true
	}
	if p.pl.Probes < p.budget {
		return false
	}
	p.plan.Truncated = true
	return true
}

// stopAt notes where a truncated pass stopped: the next one continues there, and only renews the promises of earlier jobs.
func (p *pass) stopAt(e *queue.Entry) {
	if p.short || e == nil || !p.plan.Truncated {
		return
	}
	p.plan.Resume = record.Cursor{Tier: e.Class.Part.Rec.PriorityTier, Priority: e.Job.Priority, Submit: e.Job.Rec.Submit, ID: e.Job.Rec.ID}
}

// passed reports whether e comes before the place where the last pass stopped.
func (p *pass) passed(e *queue.Entry) bool {
	cur := p.in.Resume
	if cur == (record.Cursor{}) {
		return false
	}
	j := e.Job
	return cmp.Or(
		cmp.Compare(cur.Tier, e.Class.Part.Rec.PriorityTier),
		cmp.Compare(cur.Priority, j.Priority),
		cmp.Compare(j.Rec.Submit, cur.Submit),
		cmp.Compare(j.Rec.ID, cur.ID),
	) < 0
}

// candidatesDue reports whether candidates of one tier and rank wait for their turn, and all others of that rank have been handled.
func (p *pass) candidatesDue() bool {
	if len(p.second) == 0 {
		return false
	}
	if len(p.first.list) == 0 {
		return true
	}
	a, b := p.second[0].next, p.first.list[0].next
	return a.Job.Rank != b.Job.Rank || a.Class.Part.Rec.PriorityTier != b.Class.Part.Rec.PriorityTier
}

// takeAllCandidates takes the candidates of one rank in their own order, and lets their classes continue with jobs of a lower one.
func (p *pass) takeAllCandidates() {
	p.short = true
	p.takeCandidates(p.second[0].next.Job.Rank)
	p.short = false
	if p.plan.Truncated && p.plan.Resume == (record.Cursor{}) { // those before have had their turn
		p.stopAt(slices.MinFunc(p.second, func(a, b *turn) int { return queue.CompareEntries(a.next, b.next) }).next)
	}
	for _, c := range p.second {
		if c.over {
			continue
		}
		rank := c.next.Job.Rank
		if c.next = c.Root.Seek(func(e *queue.Entry) bool { return e.Job.Rank >= rank }); c.next != nil && c.next.Least >= c.bound {
			p.advance(c, p.guard.promisesLeft(c.line))
		}
		if p.skip(c) {
			heap.Push(&p.first, c)
		}
	}
	p.second = p.second[:0]
}

// takeCandidates takes the candidates of a rank. Classes with no job that fits now are left out before sorting, because none will fit later
// in the pass.
func (p *pass) takeCandidates(rank uint32) {
	h := turnHeap{less: func(a, b *turn) bool { return a.top.Before(b.top) }}
	for _, c := range p.second {
		c.over = false
		first := c.next
		out := p.passed(first) || p.spent()
		if !out && !p.couldStart(c) {
			out, c.over = true, true
		}
		if out {
			if p.plan.Truncated && p.plan.Resume == (record.Cursor{}) {
				p.short = false
				p.stopAt(first)
				p.short = true
			}
			continue
		}
		c.walk.Start(p.order, c.Root, rank)
		if p.skip(c) {
			h.list = append(h.list, c)
		}
	}
	heap.Init(&h)
	p.takeInTurn(&h)
}

// couldStart reports whether any job of the class fits now.
func (p *pass) couldStart(c *turn) bool {
	return c.Root.Min.Least < c.bound && p.fits(c.Family, c.Root.Min.Least, &c.wait)
}

// current returns the next job of c in the present order.
func (p *pass) current(c *turn) *queue.Entry {
	if p.short {
		return c.top.E
	}
	return c.next
}

// advance moves to the next job of c: to the very next one if it may be promised something, else to the next that may start, or that has
// waited so long that it is promised a start in any case.
func (p *pass) advance(c *turn, promises bool) {
	if p.short {
		c.walk.Pop()
		return
	}
	w := queue.Wanted{All: promises, Below: c.bound, Since: math.MinInt64}
	if p.guard.longLeft(c.line) {
		w.Since = p.ix.Now - p.guard.long(c.line)
	}
	c.next = c.Root.Next(c.next, &w)
}

// skip moves c to a job that has something left to start; false when there is none.
func (p *pass) skip(c *turn) bool {
	for {
		if p.short {
			top, ok := c.walk.Top(c.bound)
			if c.top = top; !ok {
				return false
			}
		} else if c.next == nil {
			return false
		}
		if !p.finished(p.current(c).Job) {
			return true
		}
		p.advance(c, true)
	}
}

// finished reports whether this pass has nothing more to start of the job.
func (p *pass) finished(j *queue.Job) bool {
	return j.Pass == p.number && j.Done
}

// step handles the job of c whose turn it is and reports whether to continue with the class.
func (p *pass) step(c *turn) bool {
	e := p.current(c)
	j := e.Job
	if j.Pass != p.number {
		j.Pass, j.Taken, j.Done = p.number, 0, false
	}
	if u := p.params.UserDepth; u > 0 {
		if p.perUser[j.Rec.User] >= u {
			return false
		}
		p.perUser[j.Rec.User]++
	}
	p.tried++
	if c.line.closed {
		return false
	}
	if p.reordered(c) && !p.guard.waitedLong(c.line, e) {
		p.second = append(p.second, c)
		return false // for now
	}
	if !p.short && p.passed(e) {
		p.wait(c, e)
		if c.next != nil && p.passed(c.next) && !p.guard.promisesLeft(c.line) {
			c.next = c.Root.Seek(p.passed)
		}
		return true
	}
	limit, ok := p.deadline(e)
	if !ok {
		p.never(e)
		p.advance(c, true)
		return true
	}
	if why := p.limits.lacks(c, limit); why != "" {
		c.wait = reason.Reason{Code: why}
		return false
	}
	if e.Least < c.bound {
		if p.start(c, e, limit) {
			return true
		}
		if c.capped {
			return false
		}
		c.bound = e.Least
	}
	return p.wait(c, e)
}

// reordered reports whether a job of the partition waits, so that the rest are candidates, which may be taken in another order.
func (p *pass) reordered(c *turn) bool {
	return p.params.Order != record.QueueOrder && !p.short && p.params.Policy == record.EASY &&
		(c.line.promises >= p.guard.promises() || c.line.put)
}

// deadline returns the longest limit that the job may get, and whether that suffices.
func (p *pass) deadline(e *queue.Entry) (int64, bool) {
	d := e.Job.Rec.Deadline
	if d == 0 || !e.Endless && p.ix.Now+e.Limit <= d {
		return e.Limit, true
	}
	left := d - p.ix.Now
	if (e.Endless || e.Job.Rec.TimeMinS > 0) && left >= e.Least {
		return left, true
	}
	return 0, false
}

func (p *pass) never(e *queue.Entry) {
	e.Job.Done = true
	p.plan.Never = append(p.plan.Never, e.Job.Rec.ID)
	p.say(e, reason.Reason{Code: reason.DeadLine})
}

// start starts e, or one task of it, when it fits.
func (p *pass) start(c *turn, e *queue.Entry, limit int64) bool {
	licUntil := p.pl.LicensesUntil(c.Shape)
	if licUntil <= p.ix.Now {
		c.wait = reason.Reason{Code: reason.Licenses}
		return false
	}
	end := record.Add(p.ix.Now, limit)
	if r := c.Shape.Resv; r != nil && !r.Rec.Flex && end > r.Rec.End {
		if end = r.Rec.End; end <= p.ix.Now { // a job may be longer than the reservation's rest: it ends with the reservation
			return false
		}
	}
	if p.defeats.cover(c.Family, e.Least) {
		return false
	}
	ch := p.pl.Pick(c.Shape, end)
	if e.Least < limit && (ch == nil || before(licUntil, ch.WakeS) < end) {
		least := record.Add(p.ix.Now, e.Least)
		if ch = p.pl.Pick(c.Shape, least); ch != nil {
			end = max(least, min(end, ch.Until, before(licUntil, ch.WakeS)))
		}
	}
	if ch == nil {
		p.defeats.add(c.Family, e.Least)
	}
	if ch == nil || before(licUntil, ch.WakeS) < end {
		return false
	}
	if limit = end - p.ix.Now; e.Endless && limit == e.Limit {
		limit = record.Forever
	}
	return p.commit(c, e, ch, limit)
}

// before returns t minus seconds, or t if it is never.
func before(t, seconds int64) int64 {
	if t >= record.Forever {
		return t
	}
	return t - seconds
}

// commit turns a choice into a Start.
func (p *pass) commit(c *turn, e *queue.Entry, ch *placement.Choice, limit int64) bool {
	j := e.Job
	allocs, ok := p.pl.Allocate(c.Shape, ch)
	if !ok {
		return false
	}
	limits := j.Rec.LimitsIn(c.Part.Rec.Name)
	if why := p.limits.lacksFor(c, limits, allocs, limit); why != "" {
		c.wait, c.capped = reason.Reason{Code: why}, true
		return false
	}
	task := int32(-1)
	if j.Rec.Array != nil {
		task = int32(j.Rec.Array.Nth(j.Taken))
	}
	st := record.Start{
		Job:        j.Rec,
		Task:       task,
		Partition:  c.Part.Rec.Name,
		Priority:   j.Priority,
		LimitS:     limit,
		Allocs:     allocs,
		Backfilled: c.line.waiting > 0,
	}
	if c.Shape.Resv != nil {
		st.Reservation = c.Shape.Resv.Rec.Name
	}
	run := &record.Run{
		ID:          j.Rec.ID,
		Task:        task,
		Job:         j.Rec,
		Partition:   st.Partition,
		Reservation: st.Reservation,
		Priority:    j.Priority,
		Start:       p.ix.Now,
		End:         record.Add(p.ix.Now, record.Add(limit, ch.WakeS)),
		Allocs:      allocs,
	}
	vr := p.ix.AddRun(run)
	p.preemption.freshen(vr)
	p.started = append(p.started, vr)
	p.plan.Start = append(p.plan.Start, st)
	p.limits.use(limits, allocs, limit)
	j.Taken++
	if j.Rec.Array == nil || j.Taken >= j.Rec.Array.Startable() {
		j.Done = true
		if _, said := p.seen[j.Rec.ID]; said { // set by another partition, in which it waits
			p.plan.Reasons = slices.DeleteFunc(p.plan.Reasons, func(r record.JobReason) bool { return r.ID == j.Rec.ID })
			delete(p.seen, j.Rec.ID)
		}
		if j.Rec.Array != nil && j.Taken < j.Rec.Array.Count() {
			p.say(e, reason.Reason{Code: reason.JobArrayTaskLimit})
		} else {
			p.seen[j.Rec.ID] = struct{}{}
		}
		p.advance(c, p.guard.promisesLeft(c.line))
	}
	return true
}

// wait handles a job that cannot start: a promise if one is available, and a reason. It moves the class on, and reports whether more of it
// may be looked at.
func (p *pass) wait(c *turn, e *queue.Entry) bool {
	if c.Attracted() {
		return false // the job waits in its partition; this was only an attempt
	}
	firstHere := c.line.waiting == 0
	c.line.waiting++
	if p.params.Policy == record.FIFO {
		c.line.closed = true
	}
	if e.Primary && c.wait.Code == reason.Priority && !p.outlasts(e) {
		if why := p.q.AwayFor(c.Family, e.Least); why.Code != "" {
			p.say(e, why)
		} else if firstHere {
			p.say(e, reason.Reason{Code: reason.Resources})
		}
	}
	if c.wait.Code == reason.Priority && p.preempt(c, e) {
		p.advance(c, true)
		return true
	}
	if c.wait.Code != reason.Priority && c.wait.Code != reason.Licenses {
		return false
	}
	p.advance(c, !p.short && p.reserve(c, e))
	return true
}

// finish collects reasons, releases the pass's resources, and sorts.
func (p *pass) finish() {
	p.reasons()
	p.fu.ForgetFirsts()
	p.fu.LetGo()
	for i := len(p.started) - 1; i >= 0; i-- {
		p.ix.RemoveRun(p.started[i])
	}
	p.plan.Wake = p.wake()
	p.plan.Stats.Probes, p.plan.Stats.Tried = p.pl.Probes, p.tried
}
