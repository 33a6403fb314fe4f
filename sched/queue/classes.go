package queue

import (
	"encoding/binary"
	"math"

	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Class holds jobs that are equal in all but their time limit and their place in the queue: of one family, and under the same limits. When
// one of them cannot start, none that is as long can, so a pass looks at few.
type Class struct {
	*Family
	who     string
	limits  []int32 // limits of its jobs
	lacking int     // number of limits with too little left

	Root    *Entry        // the queue
	size    int           // number of jobs, including arrived
	arrived []*Entry      // to be planted together, during a mass arrival
	Uniform reason.Reason // the reason that most records have

	at    int    // in the family's heap; -1: not in it
	head  *Entry // its first job when it was put there
	Below span   // aggregate of it and of those below it in the heap

	Pass uint64 // the last pass that looked at it
	Turn int    // its turn in that pass
}

// addToClasses adds the job to the class of each of its partitions.
func (q *Queue) addToClasses(j *Job) reason.Reason {
	q.prioritise(j)
	req := q.pl.Intern(q.requestOf(j))
	resv, why := q.ix.Reservations.Of(j.Rec)
	if why.Code != "" {
		return why
	}
	magnets := q.ix.Reservations.Attracting(j.Rec)
	for i, name := range j.Rec.Partitions {
		part := q.ix.Partition(name)
		if part == nil {
			continue
		}
		q.enterPart(j, req, part, resv, len(magnets)*len(j.Rec.Partitions)+i)
		for k, r := range magnets { // first, so that unreserved nodes are left to others
			q.enterPart(j, req, part, r, i*len(magnets)+k)
		}
	}
	if len(j.Entries) == 0 {
		return reason.Reason{Code: reason.PartitionDown}
	}
	if len(j.Entries) > 1 {
		q.multi[j] = struct{}{}
	}
	j.choosePrimary(q)
	return reason.Reason{}
}

// enterPart adds the job to its class in a partition and reservation.
func (q *Queue) enterPart(j *Job, req int32, part *index.Partition, resv *node.Reservation, order int) {
	e := &Entry{
		Job:      j,
		Primary:  len(j.Entries) == 0,
		order:    order,
		Eligible: record.EligibleAt(j.Rec),
		Limit:    record.LimitOf(j.Rec, part.Rec),
	}
	if e.Limit >= record.Forever {
		e.Limit, e.Endless = record.UnlimitedS, true
	}
	e.Least, e.predicted = e.Limit, e.Limit
	switch {
	case j.Rec.TimeMinS > 0:
		e.Least = min(j.Rec.TimeMinS, e.Limit)
	case e.Endless && j.Rec.Deadline > 0:
		e.Least = deadlineLeastS
	}
	if j.Rec.PredictedS > 0 {
		e.predicted = min(j.Rec.PredictedS, e.Limit)
	}
	e.weigh()
	e.Class = q.classOf(e, req, part, resv)
	j.Entries = append(j.Entries, e)
	q.join(e)
}

// ChoosePrimaries follows a change of what partitions and nodes can hold.
func (q *Queue) ChoosePrimaries() {
	if q.multiEpoch == q.ix.Epoch {
		return
	}
	q.multiEpoch = q.ix.Epoch
	for j := range q.multi {
		j.choosePrimary(q)
	}
}

// choosePrimary picks the partition whose reason is shown: the first that could start the job; else the first whose fault may pass.
func (j *Job) choosePrimary(q *Queue) {
	at, least := 0, math.MaxInt
	for i, e := range j.Entries {
		if n := lasting(q.FaultOf(e.Class.Family).Code); n < least && !e.Class.Attracted() {
			at, least = i, n
		}
	}
	for i, e := range j.Entries {
		e.Primary = i == at
		q.note(e)
	}
}

// lasting ranks faults: none, temporary, permanent.
func lasting(fault reason.Code) int {
	switch fault {
	case "":
		return 0
	case reason.BadConstraints, reason.PartitionTimeLimit, reason.PartitionNodeLimit, reason.PartitionConfig, reason.MaxMemPerLimit:
		return 2
	}
	return 1
}

func (q *Queue) classOf(e *Entry, req int32, part *index.Partition, resv *node.Reservation) *Class {
	j := e.Job.Rec
	key := familyKey{part: part.Index, over: part.Rec.MaxTimeS > 0 && e.needs() > part.Rec.MaxTimeS}
	if q.timed {
		key.limit = e.Limit
	}
	if q.params.Preempt == record.PreemptQOS {
		key.qos = j.QOS
	}
	user := ""
	if q.ix.ByUser {
		user = j.User
	}
	key.shape = q.pl.ShapeOf(req, part, resv, user)
	f := q.Families[key]
	if f == nil {
		f = &Family{
			key:     key,
			Shape:   key.shape,
			Part:    part,
			classes: map[string]*Class{},
			said:    reason.Reason{Code: reason.Priority},
			Counts:  sizing.Count(key.shape.Request),
			Share:   q.cluster.Share(key.shape.Request),
		}
		f.Counts.Whole = key.shape.Whole
		q.Families[key] = f
	}
	f.Longest = max(f.Longest, e.Least)
	limits := j.LimitsIn(part.Rec.Name)
	who := q.whoOf(j, limits)
	c := f.classes[who]
	if c == nil {
		c = &Class{Family: f, who: who, at: -1, limits: limits}
		f.classes[who] = c
		q.enlist(c)
		c.Uniform = q.Standing(c)
	}
	return c
}

// whoOf separates classes where limits or a bound by user distinguish users. Users with the same limits are in one class: those of an
// account where only the account has limits.
func (q *Queue) whoOf(j *record.Job, limits []int32) string {
	b := make([]byte, 0, 32)
	for _, i := range limits {
		b = binary.AppendVarint(b, int64(i))
	}
	if q.params.UserDepth > 0 {
		b = append(b, j.User...)
	}
	return string(b)
}

// deadlineLeastS is the time for which a job with a deadline and no limit has to be able to run: a minute, as in Slurm. Its limit is the
// time left until its deadline.
const deadlineLeastS = 60

// needs returns the shortest limit with which the job may start.
func (e *Entry) needs() int64 {
	if e.Endless && e.Job.Rec.TimeMinS == 0 {
		return record.Forever
	}
	return e.Least
}

// join and leave keep the class's queues.
func (q *Queue) join(e *Entry) {
	c := e.Class
	c.size++
	if q.loading {
		if c.arrived = append(c.arrived, e); len(c.arrived) == 1 {
			q.arriving = append(q.arriving, c)
		}
	} else {
		e.left, e.right = nil, nil
		c.Root = c.Root.insert(e)
		c.settle(c)
	}
	q.note(e)
}

// plantArrived puts the arrivals of a mass load into the trees.
func (q *Queue) plantArrived() {
	for _, c := range q.arriving {
		c.Root.Each(func(e *Entry) { c.arrived = append(c.arrived, e) })
		c.Root, c.arrived = plant(c.arrived), nil
		c.stale = true
	}
	for _, c := range q.arriving {
		if c.stale {
			c.remake()
			c.stale = false
		}
	}
	q.arriving = q.arriving[:0]
}

func (q *Queue) leave(e *Entry) {
	c := e.Class
	delete(q.Odd, e)
	c.Root = c.Root.remove(e)
	c.settle(c)
	if c.size--; c.size > 0 {
		return
	}
	q.strike(c)
	if delete(c.classes, c.who); len(c.classes) == 0 {
		delete(q.Families, c.key)
	}
}

// note maintains the set of entries whose record differs from the class's reason.
func (q *Queue) note(e *Entry) {
	if e.Primary && e.Job.Rec.Reason != e.Class.Uniform {
		q.Odd[e] = struct{}{}
	} else {
		delete(q.Odd, e)
	}
}

// noteAside does the same for a job that is not in the queue.
func (q *Queue) noteAside(j *Job) {
	if _, in := q.aside[j]; in && j.Rec.Reason != j.Wait {
		q.AsideOdd[j] = struct{}{}
	} else {
		delete(q.AsideOdd, j)
	}
}

func (q *Queue) takeFromAside(j *Job) {
	delete(q.aside, j)
	delete(q.AsideOdd, j)
}

// SetUniform changes the reason of a class.
func (q *Queue) SetUniform(c *Class, r reason.Reason) {
	if c.Uniform == r {
		return
	}
	c.Uniform = r
	c.Root.Each(q.note)
}

// Attracted reports whether the jobs of the family are in a reservation that they have not requested.
func (f *Family) Attracted() bool { return f.Shape.Resv != nil && f.Shape.Request.Reservation == "" }

// FaultOf returns the reason why no job of the family can start, whatever is free. It holds for an epoch: until a node's state, a partition
// or a reservation changes.
func (q *Queue) FaultOf(f *Family) reason.Reason {
	if f.faultN != q.ix.Epoch {
		f.faultN = q.ix.Epoch
		f.fault = q.pl.Fault(f.Shape, f.key.over)
	}
	return f.fault
}

// AwayFor returns the reason of a job of least seconds that cannot start now because of others' reservations, regardless of running jobs;
// an empty one when there is none.
func (q *Queue) AwayFor(f *Family, least int64) reason.Reason {
	if len(q.ix.Reservations) == 0 {
		return reason.Reason{}
	}
	if f.awayN != q.ix.Epoch {
		f.awayN = q.ix.Epoch
		f.AwayFrom, f.away = q.pl.KeptAway(f.Shape)
	}
	if record.Add(q.ix.Now, least) <= f.AwayFrom {
		return reason.Reason{}
	}
	return f.away
}
