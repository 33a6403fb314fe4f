package queue

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Queue holds the pending jobs by classes, in their order, and separately those that may not start whatever is free.
type Queue struct {
	params *record.Params
	ix     *index.Index
	pl     *placement.Placer

	Jobs     index.Table[record.Job, *Job]
	Families map[familyKey]*Family
	aside    map[*Job]struct{}   // jobs that are not in the queue
	AsideOdd map[*Job]struct{}   // those whose record lacks the reason
	Odd      map[*Entry]struct{} // entries whose record differs from the reason of their class
	Timers   timers

	multi      map[*Job]struct{} // jobs of several partitions
	multiEpoch uint64            // the index's epoch in which their primary entries were chosen

	limits []record.Limit // on associations and QOS, of the last snapshot
	left   []int64
	under  []underLimit // by index of the limit
	timed  bool         // limits may depend on time limits

	// the totals that priorities are relative to
	cluster priority.Cluster
	shares  []record.Share
	period  int64

	loading  bool     // many jobs are being added
	arriving []*Class // classes that they are added to
}

// New returns an empty Queue for the partitions of an index.
func New(params *record.Params, ix *index.Index, pl *placement.Placer) *Queue {
	return &Queue{params: params, ix: ix, pl: pl, Families: map[familyKey]*Family{}, aside: map[*Job]struct{}{},
		AsideOdd: map[*Job]struct{}{}, Odd: map[*Entry]struct{}{}, multi: map[*Job]struct{}{}}
}

// Measure reads the basis of classes and priorities from the first snapshot after New.
func (q *Queue) Measure(in *record.Snapshot) {
	q.timed = timedLimits(in.Limits)
	q.cluster, q.shares = priority.Measure(in), in.Shares
	q.period = q.params.Weights.Period(q.ix.Now)
}

// Restructured reports whether the classes have to be made anew.
func (q *Queue) Restructured(in *record.Snapshot) bool {
	return !q.sameLimits(in) || timedLimits(in.Limits[len(q.limits):]) && !q.timed
}

// Follow brings the queue up to the snapshot, and returns how many jobs differed. The index has followed before.
func (q *Queue) Follow(in *record.Snapshot) int {
	q.loading = len(in.Pending) > len(q.Jobs.Recs)+1024
	q.reprioritise(in)
	q.followLimits(in)
	q.wakeJobs()
	changed := q.Jobs.Update(
		in.Pending,
		&index.TableOps[record.Job, *Job]{Cmp: compareJobIDs, Add: q.addJob, Change: q.changeJob, Remove: q.removeJob},
	)
	q.loading = false
	q.plantArrived()
	return changed
}

func compareJobIDs(a, b *record.Job) int { return cmp.Compare(a.ID, b.ID) }

// JobOf finds a pending job; nil when there is none of that id.
func (q *Queue) JobOf(id uint32) *Job {
	at, ok := slices.BinarySearchFunc(q.Jobs.Recs, &record.Job{ID: id}, compareJobIDs)
	if !ok {
		return nil
	}
	return q.Jobs.Vals[at]
}

// Job is a pending job and its places in the queue, one per partition.
type Job struct {
	Rec      *record.Job
	Priority uint32
	Rank     uint32 // rises with the priority: candidates of the same rank may be reordered
	Entries  []*Entry
	Wait     reason.Reason // why it is kept aside; Code "" when it is in the queue
	when     int64         // when that may change with time; Forever: never

	// of the current pass
	Pass  uint64
	Taken int // tasks started
	Done  bool
}

// Entry is a job in one partition's queue.
type Entry struct {
	Job     *Job
	Class   *Class
	Primary bool // its reason is the job's
	order   int  // of the partition in the job's list

	Limit     int64 // seconds, for the plan
	Least     int64 // --time-min, or limit
	Endless   bool  // no limit is set; Limit is UnlimitedS
	Eligible  int64
	predicted int64

	// its place in the class's tree
	weight      uint32
	left, right *Entry
	Min         span
}

// CompareEntries orders the queue: partition tier, priority, submission, id.
func CompareEntries(a, b *Entry) int {
	if c := cmp.Compare(b.Class.Part.Rec.PriorityTier, a.Class.Part.Rec.PriorityTier); c != 0 {
		return c
	}
	if c := compareJobs(a.Job, b.Job); c != 0 {
		return c
	}
	return cmp.Compare(a.order, b.order)
}

func compareJobs(a, b *Job) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Rec.Submit, b.Rec.Submit); c != 0 {
		return c
	}
	return cmp.Compare(a.Rec.ID, b.Rec.ID)
}

// waitOf returns the reason why a job is kept aside.
func (q *Queue) waitOf(j *record.Job) (reason.Reason, int64) {
	switch {
	case j.Hold != record.NotHeld:
		return holdReason(j), record.Forever
	case j.Dependency == record.DependencyNever:
		return reason.Reason{Code: reason.DependencyNeverSatisfied}, record.Forever
	case j.Dependency == record.DependencyWaits:
		return reason.Reason{Code: reason.Dependency}, record.Forever
	case j.Begin > q.ix.Now || j.Eligible > q.ix.Now:
		return reason.Reason{Code: reason.BeginTime}, max(j.Begin, j.Eligible)
	case j.Array != nil && j.Array.Limit > 0 && j.Array.Active >= j.Array.Limit:
		return reason.Reason{Code: reason.JobArrayTaskLimit}, record.Forever
	}
	return reason.Reason{}, record.Forever
}

func holdReason(j *record.Job) reason.Reason {
	code := reason.JobHeldUser
	switch j.Hold {
	case record.HeldAdmin:
		code = reason.JobHeldAdmin
	case record.HeldRequeue:
		code = reason.JobHoldMaxRequeue
	}
	return reason.Reason{Code: code, Text: j.HoldReason}
}

func (q *Queue) addJob(rec *record.Job) *Job {
	j := &Job{Rec: rec}
	q.ix.NoteUser(rec.Request)
	q.enqueue(j)
	return j
}

func (q *Queue) removeJob(j *Job) {
	for _, e := range j.Entries {
		q.leave(e)
	}
	j.Entries = nil
	q.takeFromAside(j)
	delete(q.multi, j)
	j.when = record.Forever
}

// changeJob applies a changed record. When only its reason changed, its place in the queue stays.
func (q *Queue) changeJob(j *Job, rec *record.Job) *Job {
	old := j.Rec
	if sameToQueue(old, rec) {
		j.Rec = rec
		for _, e := range j.Entries {
			q.note(e)
		}
		q.noteAside(j)
		return j
	}
	q.removeJob(j)
	j.Rec = rec
	q.enqueue(j)
	return j
}

func sameToQueue(a, b *record.Job) bool {
	return a.ID == b.ID && a.Request == b.Request && a.LimitS == b.LimitS && a.TimeMinS == b.TimeMinS && a.Submit == b.Submit &&
		a.Begin == b.Begin && a.Eligible == b.Eligible && a.Accrue == b.Accrue && a.Hold == b.Hold && a.HoldReason == b.HoldReason &&
		a.Dependency == b.Dependency &&
		a.Priority == b.Priority && a.Nice == b.Nice && a.SiteFactor == b.SiteFactor && a.AssocFactor == b.AssocFactor &&
		a.User == b.User &&
		a.Account == b.Account && a.QOS == b.QOS && a.PredictedS == b.PredictedS &&
		throttled(a) == throttled(b) && slices.Equal(a.Partitions, b.Partitions) && slices.Equal(a.Groups, b.Groups) &&
		a.SameLimits(b)
}

func throttled(j *record.Job) bool {
	return j.Array != nil && j.Array.Limit > 0 && j.Array.Active >= j.Array.Limit
}

// enqueue puts a job into its classes, or aside.
func (q *Queue) enqueue(j *Job) {
	j.Wait, j.when = q.waitOf(j.Rec)
	if j.Wait.Code == "" {
		j.Wait = q.addToClasses(j)
	}
	if j.Wait.Code == "" {
		return
	}
	q.aside[j] = struct{}{}
	q.noteAside(j)
	if j.when < record.Forever {
		q.Timers.add(j.when, j)
	}
}

// switchWaitS is the default time for which a job waits for the requested switches (max_switch_wait in slurm.conf(5)).
const switchWaitS = 300

// requestOf returns the job's present request: once it has waited long enough for few switches, any nodes will do (--switches in
// sbatch(1)).
func (q *Queue) requestOf(j *Job) *record.Request {
	r := j.Rec.Request
	if r == nil || r.Switches <= 0 {
		return r
	}
	wait := q.params.MaxSwitchWaitS
	if wait == 0 {
		wait = switchWaitS
	}
	if r.SwitchWaitS > 0 {
		wait = min(wait, r.SwitchWaitS)
	}
	if at := record.Add(record.EligibleAt(j.Rec), wait); at > q.ix.Now {
		j.when = at
		q.Timers.add(at, j)
		return r
	}
	any := *r
	any.Switches = 0
	return &any
}

// Primary returns the entry whose reason is the job's.
func (j *Job) Primary() *Entry {
	for _, e := range j.Entries {
		if e.Primary {
			return e
		}
	}
	return j.Entries[0]
}

// timedLimits reports whether any limit depends on time limits.
func timedLimits(limits []record.Limit) bool {
	return slices.ContainsFunc(limits, func(l record.Limit) bool { return l.Timed() })
}
