package sched

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/sluice-hpc/sluice/sched/priority"
)

// vjob is a pending job and its places in the queue, one per partition.
type vjob struct {
	rec     *Job
	prio    uint32
	entries []*entry
	wait    Reason // why it is not in the queue at all; Code "" when it is
	when    int64  // when that may change by itself; Forever: never

	// of the pass that is under way
	pass  uint64
	taken int // tasks started
	done  bool
}

// entry is a job in one partition's queue.
type entry struct {
	job     *vjob
	class   *class
	primary bool // speaks for the job when it waits
	order   int  // of the partition in the job's list

	limit     int64 // seconds, for the plan
	least     int64 // --time-min, or limit
	endless   bool  // there is no limit; limit is UnlimitedS
	elig      int64
	predicted int64

	// in the class's tree
	weight      uint32
	left, right *entry
	min         span
}

// class is jobs that are equal in all but their time limit and their place in
// the queue: of one shape, and, where limits are by user, one user. When one of
// them cannot start, none that is as long can, so a pass looks at few.
type class struct {
	key    classKey
	shape  *shape
	part   *vpart
	fault  Reason
	faultN uint64 // the epoch it was worked out in

	root    *entry   // the queue
	size    int      // of it, with what is in arrived
	arrived []*entry // to be planted, while many arrive
	uniform Reason   // what the records are thought to say

	awayN    uint64 // the epoch of the next two: see awayFor
	awayFrom int64
	away     Reason
	longest  int64 // no job of the class has been given longer

	// of the pass that is under way
	next     *entry
	walk     walk // while candidates are taken
	top      candidate
	bound    int64  // entries that cannot be given less cannot start
	reserved int64  // start promised to the last one that got a promise
	lasting  int64  // and its limit
	wait     Reason // why those that remain wait
}

type classKey struct {
	shape *shape
	part  int32
	over  bool  // longer than the partition allows
	limit int64 // where limits depend on it; else 0
	who   string
}

// queueKey orders the queue: partition tier, priority, submission, id.
func compareEntries(a, b *entry) int {
	if c := cmp.Compare(b.class.part.rec.PriorityTier, a.class.part.rec.PriorityTier); c != 0 {
		return c
	}
	if c := compareJobs(a.job, b.job); c != 0 {
		return c
	}
	return cmp.Compare(a.order, b.order)
}

func compareJobs(a, b *vjob) int {
	if c := cmp.Compare(b.prio, a.prio); c != 0 {
		return c
	}
	if c := cmp.Compare(a.rec.Submit, b.rec.Submit); c != 0 {
		return c
	}
	return cmp.Compare(a.rec.ID, b.rec.ID)
}

// candidate is an entry with its place in the order of backfill candidates.
type candidate struct {
	key int64
	e   *entry
}

// keyOf is the place in that order of an entry of c. A shorter or earlier one
// never comes later.
func (s *Scheduler) keyOf(c *class, predicted, elig int64) int64 {
	switch {
	case s.params.Order == Merit:
		return s.merit(c, predicted, elig)
	case s.now-elig > s.guardS:
		return -1 // before the others, and by priority among themselves
	}
	return predicted
}

func (a candidate) before(b candidate) bool {
	if x, y := a.e.class.part.rec.PriorityTier, b.e.class.part.rec.PriorityTier; x != y {
		return x > y
	}
	if a.key != b.key {
		return a.key < b.key
	}
	return compareEntries(a.e, b.e) < 0
}

// merit is lower for jobs to be taken earlier: see Merit. In whole numbers, so
// that it is the same on every machine.
func (s *Scheduler) merit(c *class, predicted, elig int64) int64 {
	const perDay = 32
	days := min(max(0, s.now-elig), 1<<32) * perDay / 86400
	days = min(days, 1<<15)
	scaled := min(predicted, 1<<31) << 30
	return scaled / (perDay*perDay + days*days) / c.shape.share
}

func eligibleAt(j *Job) int64 { return max(j.Submit, j.Begin, j.Eligible) }

// waitOf is why a job is not even in the queue.
func (s *Scheduler) waitOf(j *Job) (Reason, int64) {
	switch {
	case j.Hold != NotHeld:
		return holdReason(j), Forever
	case j.Dependency == DependencyNever:
		return Reason{Code: DependencyNeverSatisfied}, Forever
	case j.Dependency == DependencyWaits:
		return Reason{Code: WaitDependency}, Forever
	case j.Begin > s.now || j.Eligible > s.now:
		return Reason{Code: BeginTime}, max(j.Begin, j.Eligible)
	case j.Array != nil && j.Array.Limit > 0 && j.Array.Active >= j.Array.Limit:
		return Reason{Code: JobArrayTaskLimit}, Forever
	}
	return Reason{}, Forever
}

func holdReason(j *Job) Reason {
	code := JobHeldUser
	switch j.Hold {
	case HeldAdmin:
		code = JobHeldAdmin
	case HeldRequeue:
		code = JobHoldMaxRequeue
	}
	return Reason{Code: code, Text: j.HoldReason}
}

func (s *Scheduler) addJob(rec *Job) *vjob {
	j := &vjob{rec: rec}
	s.noteUser(rec.Request)
	s.enqueue(j)
	return j
}

func (s *Scheduler) removeJob(j *vjob) {
	for _, e := range j.entries {
		s.leave(e)
	}
	j.entries = nil
	s.takeFromAside(j)
	delete(s.multi, j)
	j.when = Forever
}

// changeJob follows a changed record. When only what it says about itself
// changed (its reason), its place in the queue stays.
func (s *Scheduler) changeJob(j *vjob, rec *Job) *vjob {
	old := j.rec
	if sameToQueue(old, rec) {
		j.rec = rec
		for _, e := range j.entries {
			s.note(e)
		}
		s.noteAside(j)
		return j
	}
	s.removeJob(j)
	j.rec = rec
	s.enqueue(j)
	return j
}

func sameToQueue(a, b *Job) bool {
	return a.ID == b.ID && a.Request == b.Request && a.LimitS == b.LimitS && a.TimeMinS == b.TimeMinS && a.Submit == b.Submit &&
		a.Begin == b.Begin && a.Eligible == b.Eligible && a.Hold == b.Hold && a.HoldReason == b.HoldReason && a.Dependency == b.Dependency &&
		a.Priority == b.Priority && a.Nice == b.Nice && a.SiteFactor == b.SiteFactor && a.AssocFactor == b.AssocFactor && a.User == b.User &&
		a.Account == b.Account && a.QOS == b.QOS && a.PredictedS == b.PredictedS && throttled(a) == throttled(b) && slices.Equal(a.Partitions, b.Partitions)
}

func throttled(j *Job) bool {
	return j.Array != nil && j.Array.Limit > 0 && j.Array.Active >= j.Array.Limit
}

// enqueue puts a job where it belongs: into its classes, or aside.
func (s *Scheduler) enqueue(j *vjob) {
	j.wait, j.when = s.waitOf(j.rec)
	if j.wait.Code == "" {
		j.wait = s.enter(j)
	}
	if j.wait.Code == "" {
		return
	}
	s.aside[j] = struct{}{}
	s.noteAside(j)
	if j.when < Forever {
		s.timers.add(j.when, j)
	}
}

// enter adds the job to the class of each of its partitions.
func (s *Scheduler) enter(j *vjob) Reason {
	j.prio = s.priorityOf(j.rec)
	req := s.intern(s.requestOf(j))
	resv, why := s.reservationOf(j.rec)
	if why.Code != "" {
		return why
	}
	magnets := s.attracting(j.rec)
	for i, name := range j.rec.Partitions {
		part := s.partition(name)
		if part == nil {
			continue
		}
		s.enterPart(j, req, part, resv, len(magnets)*len(j.rec.Partitions)+i)
		for k, r := range magnets { // taken first, so that what is not reserved is left to others
			s.enterPart(j, req, part, r, i*len(magnets)+k)
		}
	}
	if len(j.entries) == 0 {
		return Reason{Code: WaitPartitionDown}
	}
	if len(j.entries) > 1 {
		s.multi[j] = struct{}{}
	}
	j.choosePrimary(s)
	return Reason{}
}

// enterPart adds the job to its class in a partition and reservation.
func (s *Scheduler) enterPart(j *vjob, req int32, part *vpart, resv *vresv, order int) {
	e := &entry{job: j, primary: len(j.entries) == 0, order: order, elig: eligibleAt(j.rec), limit: limitOf(j.rec, part.rec)}
	if e.limit >= Forever {
		e.limit, e.endless = UnlimitedS, true
	}
	e.least, e.predicted = e.limit, e.limit
	switch {
	case j.rec.TimeMinS > 0:
		e.least = min(j.rec.TimeMinS, e.limit)
	case e.endless && j.rec.Deadline > 0:
		e.least = deadlineLeastS
	}
	if j.rec.PredictedS > 0 {
		e.predicted = min(j.rec.PredictedS, e.limit)
	}
	e.weigh()
	e.class = s.classOf(e, req, part, resv)
	e.class.longest = max(e.class.longest, e.least)
	j.entries = append(j.entries, e)
	s.join(e)
}

// choosePrimaries follows a change of what partitions and nodes can do.
func (s *Scheduler) choosePrimaries() {
	if s.multiEpoch == s.epoch {
		return
	}
	s.multiEpoch = s.epoch
	for j := range s.multi {
		j.choosePrimary(s)
	}
}

// choosePrimary lets the first partition speak that could start the job; else
// the first in which what keeps it may pass.
func (j *vjob) choosePrimary(s *Scheduler) {
	at, least := 0, math.MaxInt
	for i, e := range j.entries {
		if n := lasting(s.faultOf(e.class).Code); n < least && !e.class.attracted() {
			at, least = i, n
		}
	}
	for i, e := range j.entries {
		e.primary = i == at
		s.note(e)
	}
}

// lasting ranks faults: none, one that passes, one that stays.
func lasting(fault Code) int {
	switch fault {
	case "":
		return 0
	case BadConstraints, PartitionTimeLimit, PartitionNodeLimit, PartitionConfig, MaxMemPerLimit:
		return 2
	}
	return 1
}

func (s *Scheduler) classOf(e *entry, req int32, part *vpart, resv *vresv) *class {
	j := e.job.rec
	key := classKey{part: part.idx, who: s.whoOf(j), over: part.rec.MaxTimeS > 0 && e.needs() > part.rec.MaxTimeS}
	if s.timed {
		key.limit = e.limit
	}
	user := ""
	if s.byUser {
		user = j.User
	}
	key.shape = s.shapeOf(shapeKey{req, part.idx, resv, user}, s.requests[req], part, resv)
	if c := s.classes[key]; c != nil {
		return c
	}
	c := &class{key: key, shape: key.shape, part: part, uniform: Reason{Code: WaitPriority}}
	s.classes[key] = c
	return c
}

// whoOf separates classes where limits or preemption tell people apart.
func (s *Scheduler) whoOf(j *Job) string {
	if s.limited {
		return j.User + "\x00" + j.Account + "\x00" + j.QOS
	}
	if s.params.UserDepth > 0 {
		return j.User
	}
	if s.params.Preempt == PreemptQOS {
		return j.QOS
	}
	return ""
}

// deadlineLeastS is how long a job with a deadline and no limit has to be able to run: as in Slurm, a minute. It is given what is left
// until its deadline.
const deadlineLeastS = 60

// needs is the shortest limit with which the job may start.
func (e *entry) needs() int64 {
	if e.endless && e.job.rec.TimeMinS == 0 {
		return Forever
	}
	return e.least
}

// limitOf is the limit that holds for the job in the partition; Forever when there is none.
func limitOf(j *Job, p *Partition) int64 {
	limit := j.LimitS
	if limit <= 0 {
		limit = p.DefaultTimeS
	}
	if limit <= 0 {
		limit = p.MaxTimeS
	}
	if limit <= 0 || limit > Forever {
		limit = Forever
	}
	return limit
}

// join and leave keep the class's queues.
func (s *Scheduler) join(e *entry) {
	c := e.class
	c.size++
	if s.loading {
		if c.arrived = append(c.arrived, e); len(c.arrived) == 1 {
			s.arriving = append(s.arriving, c)
		}
	} else {
		e.left, e.right = nil, nil
		c.root = c.root.insert(e)
	}
	s.note(e)
}

// plantArrived puts what arrived while loading into the trees.
func (s *Scheduler) plantArrived() {
	for _, c := range s.arriving {
		c.root.each(func(e *entry) { c.arrived = append(c.arrived, e) })
		c.root, c.arrived = plant(c.arrived), nil
	}
	s.arriving = s.arriving[:0]
}

func (s *Scheduler) leave(e *entry) {
	c := e.class
	delete(s.odd, e)
	c.root = c.root.remove(e)
	if c.size--; c.size == 0 {
		delete(s.classes, c.key)
	}
}

// note keeps the set of entries whose record does not say what the class says.
func (s *Scheduler) note(e *entry) {
	if e.primary && e.job.rec.Reason != e.class.uniform {
		s.odd[e] = struct{}{}
	} else {
		delete(s.odd, e)
	}
}

// noteAside does the same for a job that is not in the queue.
func (s *Scheduler) noteAside(j *vjob) {
	if _, in := s.aside[j]; in && j.rec.Reason != j.wait {
		s.asideOdd[j] = struct{}{}
	} else {
		delete(s.asideOdd, j)
	}
}

func (s *Scheduler) takeFromAside(j *vjob) {
	delete(s.aside, j)
	delete(s.asideOdd, j)
}

// setUniform changes what the class as a whole says.
func (s *Scheduler) setUniform(c *class, r Reason) {
	if c.uniform == r {
		return
	}
	c.uniform = r
	c.root.each(s.note)
}

// intern gives equal requests one number.
func (s *Scheduler) intern(r *Request) int32 {
	if r == nil {
		r = &Request{}
	}
	if id, ok := s.reqByPtr[r]; ok {
		return id
	}
	key := r.Key()
	id, ok := s.reqByKey[key]
	if !ok {
		id = int32(len(s.requests))
		s.requests = append(s.requests, r)
		s.reqByKey[key] = id
	}
	if len(s.reqByPtr) >= maxPointers {
		clear(s.reqByPtr)
	}
	s.reqByPtr[r] = id
	return id
}

const maxPointers = 1 << 18

// Key is the same for requests that are equal, and for no others.
func (r *Request) Key() string { return string(r.appendKey(make([]byte, 0, 128))) }

func (r *Request) appendKey(b []byte) []byte {
	for _, x := range []int{r.MinNodes, r.MaxNodes, r.Tasks, r.CPUsPerTask, r.TasksPerNode, r.MinCPUs, r.Sockets, r.CoresPerSocket, r.ThreadsPerCore,
		int(r.MemNodeMiB), int(r.MemCPUMiB), int(r.MemGPUMiB), int(r.TmpMiB), r.CPUsPerGPU, r.Switches, int(r.SwitchWaitS)} {
		b = binary.AppendVarint(b, int64(x))
	}
	for _, x := range []bool{r.Overcommit, r.MemSaid, r.Binding, r.Exclusive, r.ExclusiveUser, r.Oversubscribe, r.Contiguous, r.Spread, r.UseMinNodes} {
		if x {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(r.NodeCounts)))
	for _, n := range r.NodeCounts {
		b = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(b, int64(n.Min)), int64(n.Max)), int64(n.Step))
	}
	text := func(words ...string) {
		b = binary.AppendUvarint(b, uint64(len(words)))
		for _, w := range words {
			b = append(binary.AppendUvarint(b, uint64(len(w))), w...)
		}
	}
	text(r.Features, r.Reservation)
	text(r.NodeList...)
	text(r.Exclude...)
	b = binary.AppendUvarint(b, uint64(len(r.Gres)))
	for _, g := range r.Gres {
		text(g.Name, g.Type)
		b = append(binary.AppendVarint(b, g.Count), byte(g.Per))
	}
	b = binary.AppendUvarint(b, uint64(len(r.Licenses)))
	for _, l := range r.Licenses {
		text(l.Name)
		b = binary.AppendVarint(b, l.Count)
	}
	return b
}

// priorityOf is a job's priority at the present calculation period.
func (s *Scheduler) priorityOf(j *Job) uint32 {
	if j.Priority > 0 {
		return j.Priority
	}
	if s.params.Weights.Basic {
		return basicTop - min(j.ID, basicTop-1)
	}
	return priority.Total(s.factors(j))
}

const basicTop = 4294901760
