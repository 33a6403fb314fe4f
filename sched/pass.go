package sched

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// pass is one run over the queue.
//
// The queue is not walked job by job but class by class: a heap holds each
// class by the first of its jobs that has not been dealt with. Within a pass
// resources only shrink, so when one job of a class cannot start, none of the
// class can, and the class is done with: a queue of 100,000 jobs in 100
// classes costs what it starts, and 100 failures.
type pass struct {
	s      *Scheduler
	in     *Snapshot
	plan   *Plan
	budget int

	// longGuard is how long a job waits before a start is kept free for it: see
	// Params.MaxWaitS.
	longGuard int64

	until *vjob // where the pass ends: see PlanTo
	left  int   // of its places in the queue

	first  classHeap // by queue order
	second []*class  // backfill candidates to be taken by predicted time
	short  bool      // taking those

	started []*vrun
	held    []promised
	heldLic []licHeld
	tried   int
	perUser map[string]int
	limits  []Limit
	defeats map[string][]defeat
	seen    map[uint32]struct{} // jobs whose reason is settled
}

// promised is a promise's part on one node.
type promised struct {
	node     *vnode
	from, to int64
	use      []int64
}

type licHeld struct {
	from, to int64
	need     []int64
}

func newPass(s *Scheduler, in *Snapshot) *pass {
	s.pass++
	s.probes = 0
	s.forgetFirsts()
	p := &pass{s: s, in: in, plan: &Plan{Seq: in.Seq, Now: in.Now, Wake: Forever}, budget: in.Budget,
		perUser: map[string]int{}, defeats: map[string][]defeat{}, seen: map[uint32]struct{}{}}
	if p.budget == 0 {
		p.budget = s.params.Budget
	}
	if p.budget == 0 {
		p.budget = 20_000_000
	}
	for _, l := range in.Limits {
		p.limits = append(p.limits, *l)
	}
	for _, part := range s.parts {
		part.promises, part.old, part.waiting, part.closed, part.put = 0, 0, 0, false, false
	}
	return p
}

func (p *pass) run() {
	for _, c := range p.s.classes {
		c.next, c.bound, c.reserved, c.lasting = nil, math.MaxInt64, 0, 0
		c.wait = p.s.faultOf(c)
		if c.wait.Code != "" {
			continue
		}
		c.next = c.root.first()
		c.wait = Reason{Code: WaitPriority}
		if max := p.s.params.MaxWaitS; max > 0 {
			c.part.old += c.root.older(p.s.now-max, overfull+1)
		}
		p.first.list = append(p.first.list, c)
	}
	if p.until != nil && p.left == 0 {
		return // why it waits is known without a plan
	}
	p.longGuard = p.guardOf(p.s.params.MaxWaitS)
	p.first.less = func(a, b *class) bool { return compareEntries(a.next, b.next) < 0 }
	heap.Init(&p.first)
	p.drain(&p.first)
	if p.short = len(p.second) > 0; p.short {
		p.drainCandidates()
	}
}

// drain takes the classes of h one job at a time.
func (p *pass) drain(h *classHeap) {
	for len(h.list) > 0 {
		c := h.list[0]
		if p.spent() {
			p.stopAt(c.next)
			return
		}
		if p.s.finished(p.current(c).job) { // by another partition: what comes next may have to wait for its turn
			if p.skip(c) {
				heap.Fix(h, 0)
			} else {
				heap.Pop(h)
			}
			continue
		}
		asked := p.until != nil && p.current(c).job == p.until
		if p.step(c) && p.skip(c) {
			heap.Fix(h, 0)
		} else {
			heap.Pop(h)
		}
		if asked {
			if p.left--; p.left <= 0 || p.s.finished(p.until) {
				return
			}
		}
	}
}

// spent reports whether the budget is used up, and if so says where to go on.
func (p *pass) spent() bool {
	depth := p.s.params.Depth
	if depth > 0 && p.tried >= depth {
		return true
	}
	if p.s.probes < p.budget {
		return false
	}
	p.plan.Truncated = true
	return true
}

// stopAt notes where a truncated pass stopped: the next one goes on from
// there, and only renews the promises of what stands before.
func (p *pass) stopAt(e *entry) {
	if p.short || e == nil || !p.plan.Truncated {
		return
	}
	p.plan.Resume = Cursor{Tier: e.class.part.rec.PriorityTier, Priority: e.job.prio, Submit: e.job.rec.Submit, ID: e.job.rec.ID}
}

// passed reports whether e stands before the place where the last pass stopped.
func (p *pass) passed(e *entry) bool {
	cur := p.in.Resume
	if cur == (Cursor{}) {
		return false
	}
	j := e.job
	return cmp.Or(cmp.Compare(cur.Tier, e.class.part.rec.PriorityTier), cmp.Compare(cur.Priority, j.prio), cmp.Compare(j.rec.Submit, cur.Submit), cmp.Compare(j.rec.ID, cur.ID)) < 0
}

// drainCandidates takes what is left in the order of candidates. Classes of
// which nothing fits now are left out before they are sorted: nothing of them
// will fit later in the pass.
func (p *pass) drainCandidates() {
	h := classHeap{less: func(a, b *class) bool { return a.top.before(b.top) }}
	for _, c := range p.second {
		first := c.root.first()
		if p.passed(first) || p.spent() || !p.couldStart(c) {
			if p.plan.Truncated && p.plan.Resume == (Cursor{}) {
				p.short = false
				p.stopAt(first)
				p.short = true
			}
			continue
		}
		c.walk.start(p.s, c.root)
		if p.skip(c) {
			h.list = append(h.list, c)
		}
	}
	heap.Init(&h)
	p.drain(&h)
}

// couldStart reports whether any job of the class fits now.
func (p *pass) couldStart(c *class) bool {
	s := p.s
	if s.licensesUntil(c.shape) <= s.now {
		c.wait = Reason{Code: WaitLicenses}
		return false
	}
	least := c.root.min.least
	if least >= c.bound || p.hopeless(c, least) {
		return false
	}
	if s.pick(c.shape, add(s.now, least)) == nil {
		p.defeated(c, least)
		return false
	}
	return true
}

// current is the job of c that is next in the order under way.
func (p *pass) current(c *class) *entry {
	if p.short {
		return c.top.e
	}
	return c.next
}

// advance goes on to the next job of c: to the very next one where it may be
// promised something, else to the next that may start, or that has waited so
// long that it is promised something in any case.
func (p *pass) advance(c *class, promises bool) {
	if p.short {
		c.walk.pop()
		return
	}
	w := wanted{all: promises, below: c.bound, since: math.MinInt64}
	if p.longLeft(c.part) {
		w.since = p.s.now - p.longGuard
	}
	c.next = c.root.next(c.next, &w)
}

// skip moves c on to a job that has something left to start; false when there
// is none.
func (p *pass) skip(c *class) bool {
	for {
		if p.short {
			top, ok := c.walk.top(c.bound)
			if c.top = top; !ok {
				return false
			}
		} else if c.next == nil {
			return false
		}
		if !p.s.finished(p.current(c).job) {
			return true
		}
		p.advance(c, true)
	}
}

// finished reports whether this pass has nothing more to start of the job.
func (s *Scheduler) finished(j *vjob) bool {
	return j.pass == s.pass && j.done
}

// step deals with the job of c whose turn it is and reports whether to go on with the class.
func (p *pass) step(c *class) bool {
	e := p.current(c)
	j := e.job
	if j.pass != p.s.pass {
		j.pass, j.taken, j.done = p.s.pass, 0, false
	}
	if u := p.s.params.UserDepth; u > 0 {
		if p.perUser[j.rec.User] >= u {
			return false
		}
		p.perUser[j.rec.User]++
	}
	p.tried++
	if c.part.closed {
		return false
	}
	if p.reordered(c) && !p.waitedLong(e) {
		p.second = append(p.second, c)
		return false
	}
	if !p.short && p.passed(e) {
		p.wait(c, e)
		if c.next != nil && p.passed(c.next) && !p.promisesLeft(c.part) {
			c.next = c.root.seek(p.passed)
		}
		return true
	}
	limit, ok := p.deadline(e)
	if !ok {
		p.never(e)
		p.advance(c, true)
		return true
	}
	if why := p.limited(c, limit); why != "" {
		c.wait = Reason{Code: why}
		return false
	}
	if e.least < c.bound {
		if p.start(c, e, limit) {
			return true
		}
		c.bound = e.least
	}
	return p.wait(c, e)
}

// reordered: a job of the partition waits, so the rest are candidates, which
// may be taken in another order.
func (p *pass) reordered(c *class) bool {
	return p.s.params.Order != QueueOrder && !p.short && p.s.params.Policy == EASY && (c.part.promises >= p.promises() || c.part.put)
}

func (p *pass) promises() int {
	switch p.s.params.Policy {
	case FIFO:
		return 0
	case Conservative:
		return math.MaxInt
	}
	return max(1, p.s.params.Reservations)
}

// deadline is the longest limit the job may be given, and whether that is
// enough.
func (p *pass) deadline(e *entry) (int64, bool) {
	d := e.job.rec.Deadline
	if d == 0 || !e.endless && p.s.now+e.limit <= d {
		return e.limit, true
	}
	left := d - p.s.now
	if (e.endless || e.job.rec.TimeMinS > 0) && left >= e.least {
		return left, true
	}
	return 0, false
}

func (p *pass) never(e *entry) {
	e.job.done = true
	p.plan.Never = append(p.plan.Never, e.job.rec.ID)
	p.say(e, Reason{Code: DeadLine})
}

// start starts e, or one task of it, when it fits.
func (p *pass) start(c *class, e *entry, limit int64) bool {
	s := p.s
	licUntil := s.licensesUntil(c.shape)
	if licUntil <= s.now {
		c.wait = Reason{Code: WaitLicenses}
		return false
	}
	end := add(s.now, limit)
	if r := c.shape.resv; r != nil && !r.rec.Flex && end > r.rec.End {
		if end = r.rec.End; end-s.now < e.least {
			return false
		}
	}
	if p.hopeless(c, e.least) {
		return false
	}
	ch := s.pick(c.shape, end)
	if ch == nil && e.least < limit {
		if ch = s.pick(c.shape, add(s.now, e.least)); ch != nil {
			end = min(ch.until, licUntil)
		}
	}
	if ch == nil {
		p.defeated(c, e.least)
	}
	if ch == nil || licUntil < end {
		return false
	}
	if limit = end - s.now; e.endless && limit == e.limit {
		limit = Forever
	}
	return p.commit(c, e, ch, limit)
}

// commit turns a choice into a Start.
func (p *pass) commit(c *class, e *entry, ch *choice, limit int64) bool {
	s, j := p.s, e.job
	allocs, ok := s.allocate(c.shape, ch)
	if !ok {
		return false
	}
	task := int32(-1)
	if j.rec.Array != nil {
		task = int32(j.rec.Array.nth(j.taken))
	}
	st := Start{Job: j.rec, Task: task, Partition: c.part.rec.Name, Priority: j.prio, LimitS: limit, Allocs: allocs, Backfilled: c.part.waiting > 0}
	if c.shape.resv != nil {
		st.Reservation = c.shape.resv.rec.Name
	}
	run := &Run{ID: j.rec.ID, Task: task, Job: j.rec, Partition: st.Partition, Reservation: st.Reservation, Priority: j.prio, Start: s.now, End: add(s.now, limit), Allocs: allocs}
	vr := s.addRun(run)
	vr.fresh = true
	p.started = append(p.started, vr)
	p.plan.Start = append(p.plan.Start, st)
	p.useLimits(c, allocs)
	j.taken++
	if j.rec.Array == nil || j.taken >= j.rec.Array.startable() {
		j.done = true
		if _, said := p.seen[j.rec.ID]; said { // by another partition, in which it waits
			p.plan.Reasons = slices.DeleteFunc(p.plan.Reasons, func(r JobReason) bool { return r.ID == j.rec.ID })
			delete(p.seen, j.rec.ID)
		}
		if j.rec.Array != nil && j.taken < j.rec.Array.count() {
			p.say(e, Reason{Code: JobArrayTaskLimit})
		} else {
			p.seen[j.rec.ID] = struct{}{}
		}
		p.advance(c, p.promisesLeft(c.part))
	}
	return true
}

// nth is the nth pending task; count how many there are; startable how many
// the limit lets start.
func (a *Array) nth(n int) uint32 {
	for _, r := range a.Tasks {
		if r.Last < r.First {
			continue
		}
		step := max(1, r.Step)
		k := int((r.Last-r.First)/step) + 1
		if n < k {
			return r.First + uint32(n)*step
		}
		n -= k
	}
	return 0
}

func (a *Array) count() int {
	n := 0
	for _, r := range a.Tasks {
		if r.Last >= r.First {
			n += int((r.Last-r.First)/max(1, r.Step)) + 1
		}
	}
	return n
}

func (a *Array) startable() int {
	n := a.count()
	if a.Limit > 0 {
		n = min(n, a.Limit-a.Active)
	}
	return n
}

// wait settles what becomes of a job that cannot start: a promise while there
// are any to give, and a reason. It moves the class on, and reports whether
// there may be more of it to look at.
func (p *pass) wait(c *class, e *entry) bool {
	part := c.part
	if c.attracted() {
		return false // the job waits in its partition; this was worth a try
	}
	firstHere := part.waiting == 0
	part.waiting++
	if p.s.params.Policy == FIFO {
		part.closed = true
	}
	if e.primary && c.wait.Code == WaitPriority && !p.outlasts(e) {
		if why := p.s.awayFor(c, e); why.Code != "" {
			p.say(e, why)
		} else if firstHere {
			p.say(e, Reason{Code: WaitResources})
		}
	}
	if c.wait.Code == WaitPriority && p.preempt(c, e) {
		p.advance(c, true)
		return true
	}
	if c.wait.Code != WaitPriority && c.wait.Code != WaitLicenses {
		return false
	}
	p.advance(c, !p.short && p.reserve(c, e))
	return true
}

// outlasts: the reservation that e asks for ends before e could.
func (p *pass) outlasts(e *entry) bool {
	r := e.class.shape.resv
	return r != nil && !r.rec.Flex && add(p.s.now, e.least) > r.rec.End
}

// say settles a job's own reason.
func (p *pass) say(e *entry, r Reason) {
	id := e.job.rec.ID
	if _, done := p.seen[id]; done {
		return
	}
	p.seen[id] = struct{}{}
	if e.job.rec.Reason != r {
		p.plan.Reasons = append(p.plan.Reasons, JobReason{id, r})
	}
}

// finish collects reasons, gives back what the pass took, and sorts.
func (p *pass) finish() {
	p.reasons()
	p.s.forgetFirsts()
	for i := range p.held {
		h := &p.held[i]
		h.node.prof.Free(h.from, h.to, h.use)
		h.node.planned--
		p.s.touch(h.node)
	}
	for _, h := range p.heldLic {
		p.s.lic.Free(h.from, h.to, h.need)
	}
	for i := range p.plan.Preempt {
		if r, ok := p.s.runOf(p.plan.Preempt[i].ID, p.plan.Preempt[i].Task); ok {
			r.fresh = false
		}
	}
	for i := len(p.started) - 1; i >= 0; i-- {
		p.s.removeRun(p.started[i])
	}
	p.plan.Wake = p.wake()
	p.plan.Stats.Probes, p.plan.Stats.Tried = p.s.probes, p.tried
}

// reasons lists every job whose record does not say why it waits. Only jobs
// whose record differs from what their class says are looked at.
func (p *pass) reasons() {
	for _, c := range p.s.classes {
		if c.shape.resv != nil {
			c.root.each(func(e *entry) {
				if e.primary && c.wait.Code == WaitPriority && p.outlasts(e) {
					p.say(e, Reason{Code: WaitReservation})
				}
			})
		}
		p.reservedAway(c)
		p.s.setUniform(c, c.wait)
	}
	for e := range p.s.odd {
		p.say(e, e.class.wait)
	}
	for j := range p.s.asideOdd {
		p.plan.Reasons = append(p.plan.Reasons, JobReason{j.rec.ID, j.wait})
	}
	slices.SortFunc(p.plan.Reasons, func(a, b JobReason) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(p.plan.Never)
}

func (p *pass) wake() int64 {
	next := min(p.s.timers.next(), p.s.nextWindow())
	for i := range p.plan.Reserve {
		if at := p.plan.Reserve[i].At; at > p.s.now {
			next = min(next, at)
		}
	}
	return next
}

func add(t, d int64) int64 {
	if t >= Forever || d >= Forever || t+d >= Forever {
		return Forever
	}
	return t + d
}

// classHeap is a heap of classes.
type classHeap struct {
	list []*class
	less func(a, b *class) bool
}

func (h *classHeap) Len() int           { return len(h.list) }
func (h *classHeap) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }
func (h *classHeap) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *classHeap) Push(x any)         { h.list = append(h.list, x.(*class)) }
func (h *classHeap) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}
