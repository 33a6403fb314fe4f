package state

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/jobid"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// writerIndex holds lookups for the writer only. Successive views share it, and it is changed in place: a batch that fails to commit ends
// the process or calls Reindex, so nothing is rolled back.
type writerIndex struct {
	requests  map[string]uint32 // request id -> job
	userJobs  map[uint32]int    // active jobs by uid
	held      heldJobs
	texts     map[TextKey]int // number of records that name a text
	bytes     userBytes
	arrays    map[uint32]*arrayIndex
	tasks     map[taskKey]uint32         // one task -> its record
	waiting   map[uint32]map[uint32]bool // job or array -> records whose dependency names it
	long      map[uint32]*LongWait       // records with many conditions
	single    map[singleKey]*nameIndex
	preempted map[string]map[uint32]bool // name of a job -> active records that gave way to it
	lost      map[uint32]bool            // active records with a LostAttempt
	limits    map[uint32][]*pb.Rlimit    // of a user's last job
	retired   []retired                  // requests of jobs that have been forgotten; cannot be recomputed from records
	ended     map[uint32]int64           // when jobs ended, by CLOCK_BOOTTIME; cannot be recomputed from records (clock.go)
	owed      owed                       // waiting records that later turns have to look at
}

// arrayIndex summarises an array without looking at each of its records.
type arrayIndex struct {
	ids     map[uint32]bool
	several map[uint32]bool // records that stand for several tasks
	dropped map[uint32]bool // records of which tasks were cancelled
	counts  ArrayCounts
}

// ArrayCounts counts the records of an array: one for all tasks that have not been split off, and one for each that has.
type ArrayCounts struct {
	Records, Active, Good int // Good: completed with exit code 0
	Unbegun               int // neither started nor cancelled yet
	Live                  int // hold resources
	Pieces                int // separate ranges of tasks in the records that stand for several
	Dropped               int // records of which tasks were cancelled before they started
}

func (c *ArrayCounts) count(j *pb.JobRecord, by int) {
	c.Records += by
	if Active(j) {
		c.Active += by
	}
	if Good(j) {
		c.Good += by
	}
	if !Begun(j) {
		c.Unbegun += by
	}
	if Live(j) {
		c.Live += by
	}
	c.Pieces += by * pieces(j.ArrayTasks)
	if j.Dropped != "" {
		c.Dropped += by
	}
}

// pieces returns the number of ranges in the set of a record, without parsing it.
func pieces(tasks string) int {
	if tasks == "" {
		return 0
	}
	if n := strings.Count(tasks, ","); n > 0 {
		return n + 1
	}
	a, err := jobid.ParseArray(tasks)
	if err != nil || a.Ranges[0].Step == 1 {
		return 1
	}
	return int(a.Ranges[0].Count())
}

// Good reports whether a job satisfies --dependency=afterok: completed, with exit code 0.
func Good(j *pb.JobRecord) bool {
	return !Active(j) && j.State == pb.JobState_JOB_COMPLETED && j.ExitStatus == 0
}

// Begun reports whether a job has started, or ended without starting (sbatch(1), --dependency=after).
func Begun(j *pb.JobRecord) bool { return j.StartNs > 0 || j.State != pb.JobState_JOB_PENDING }

// nameIndex serves --dependency=singleton: the active records of one user with one name. A record is ordered by its place of submission;
// all records of an array have the array's.
type nameIndex struct {
	at      map[uint32]int             // place -> active records there
	running map[uint32]int             // place -> those that hold resources
	heap    []uint32                   // places, a heap; places without records are dropped when they reach the top
	waiting map[uint32]map[uint32]bool // place -> records there that wait as singletons
}

func place(j *pb.JobRecord) uint32 {
	if j.ArrayJobId != 0 {
		return j.ArrayJobId
	}
	return j.Id
}

type taskKey struct{ array, task uint32 }

type singleKey struct {
	uid  uint32
	name string
}

func newIndex() *writerIndex {
	return &writerIndex{requests: map[string]uint32{}, userJobs: map[uint32]int{}, held: heldJobs{by: map[uint32]int{}},
		texts: map[TextKey]int{}, bytes: userBytes{}, arrays: map[uint32]*arrayIndex{},
		tasks:   map[taskKey]uint32{},
		waiting: map[uint32]map[uint32]bool{}, long: map[uint32]*LongWait{}, single: map[singleKey]*nameIndex{},
		preempted: map[string]map[uint32]bool{},
		lost:      map[uint32]bool{}, limits: map[uint32][]*pb.Rlimit{}, ended: map[uint32]int64{}, owed: owed{by: map[Source]*debt{}}}
}

// indexed holds all values of a record that the index depends on.
type indexed struct {
	active, live, pending, good, begun, several, task, held, lost, dropped bool
	uid, array, taskID                                                     uint32
	name, preemptedBy, dependency                                          string
	pieces                                                                 int
}

func indexedOf(j *pb.JobRecord) indexed {
	if j == nil {
		return indexed{}
	}
	return indexed{Active(j), Live(j), Pending(j), Good(j), Begun(j), j.ArrayTasks != "", j.IsArrayTask,
		holdsPlace(j), j.Lost != nil, j.Dropped != "", j.Spec.GetUid(), j.ArrayJobId, j.ArrayTaskId, j.Spec.GetName(), j.PreemptedBy,
		j.Dependency, pieces(j.ArrayTasks)}
}

// reindex replaces one record of a job in the index with the next; either may be nil.
func (tx *Tx) reindex(old, fresh *pb.JobRecord) {
	if old != nil && fresh != nil && indexedOf(old) == indexedOf(fresh) {
		return
	}
	tx.index(old, false)
	tx.index(fresh, true)
	tx.next.writer.indexDependency(old, fresh)
}

// index adds a record to the index, or removes it; indexDependency does the rest.
func (tx *Tx) index(j *pb.JobRecord, in bool) {
	if j == nil {
		return
	}
	by := 1
	if !in {
		by = -1
	}
	tx.countUser(j, by)
	w := tx.next.writer
	w.held.count(j, by)
	if Active(j) {
		w.indexName(j, in, by)
	}
	if j.PreemptedBy != "" && Active(j) {
		enter(w.preempted, j.PreemptedBy, j.Id, in, true)
	}
	put(w.lost, j.Id, in && j.Lost != nil && Active(j))
	if j.ArrayJobId != 0 {
		w.indexArray(j, in, by)
		if j.IsArrayTask {
			if in {
				w.tasks[taskKey{j.ArrayJobId, j.ArrayTaskId}] = j.Id
			} else {
				delete(w.tasks, taskKey{j.ArrayJobId, j.ArrayTaskId})
			}
		}
	}
}

func (w *writerIndex) indexArray(j *pb.JobRecord, in bool, by int) {
	a := w.arrays[j.ArrayJobId]
	if a == nil {
		a = &arrayIndex{ids: map[uint32]bool{}, several: map[uint32]bool{}, dropped: map[uint32]bool{}}
		w.arrays[j.ArrayJobId] = a
	}
	put(a.ids, j.Id, in)
	put(a.several, j.Id, in && j.ArrayTasks != "")
	put(a.dropped, j.Id, in && j.Dropped != "")
	a.counts.count(j, by)
	if len(a.ids) == 0 {
		delete(w.arrays, j.ArrayJobId)
	}
}

func put(set map[uint32]bool, id uint32, in bool) {
	if in {
		set[id] = true
	} else {
		delete(set, id)
	}
}

func (w *writerIndex) indexName(j *pb.JobRecord, in bool, by int) {
	key := singleKey{j.Spec.GetUid(), j.Spec.GetName()}
	n := w.single[key]
	if n == nil {
		n = &nameIndex{at: map[uint32]int{}, running: map[uint32]int{}, waiting: map[uint32]map[uint32]bool{}}
		w.single[key] = n
	}
	p := place(j)
	if in && n.at[p] == 0 {
		n.push(p)
	}
	add(n.at, p, by)
	if Live(j) {
		add(n.running, p, by)
	}
	if waitsAlone(j) {
		enter(n.waiting, p, j.Id, in, true)
	}
	if len(n.at) == 0 {
		delete(w.single, key)
	}
}

func waitsAlone(j *pb.JobRecord) bool {
	return strings.Contains(j.Dependency, string(jobid.Singleton)) && Pending(j)
}

func add[K comparable](m map[K]int, key K, by int) {
	if m[key] += by; m[key] == 0 {
		delete(m, key)
	}
}

func (n *nameIndex) push(p uint32) {
	if len(n.heap) > 2*len(n.at)+64 { // most places belong to ended jobs that are queued behind an active one
		n.heap = slices.Sorted(maps.Keys(n.at))
	}
	h := append(n.heap, p)
	for i := len(h) - 1; i > 0 && h[i] < h[(i-1)/2]; i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
	n.heap = h
}

func (n *nameIndex) pop() {
	h := n.heap
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; 2*i+1 < len(h); {
		c := 2*i + 1
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	n.heap = h
}

// first returns the earliest place with active records.
func (n *nameIndex) first() uint32 {
	for len(n.heap) > 0 && n.at[n.heap[0]] == 0 {
		n.pop()
	}
	if len(n.heap) == 0 {
		return 0
	}
	return n.heap[0]
}

// Alone reports whether a job may start as a singleton: no job of its user with its name runs, and none waits that was submitted
// before it. Tasks of one array do not wait for each other.
func (tx *Tx) Alone(j *pb.JobRecord) bool {
	n := tx.next.writer.single[singleKey{j.Spec.GetUid(), j.Spec.GetName()}]
	if n == nil {
		return true
	}
	p := place(j)
	if f := n.first(); f != 0 && f < p {
		return false
	}
	return len(n.running) == 0 || len(n.running) == 1 && n.running[p] > 0
}

// NextAlone returns the earliest records of a user that wait as singletons of a name, ascending: those that may start when another has
// ended.
func (tx *Tx) NextAlone(uid uint32, name string) []uint32 {
	n := tx.next.writer.single[singleKey{uid, name}]
	if n == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.waiting[n.first()]))
}

func enter[K comparable](m map[K]map[uint32]bool, key K, id uint32, in, value bool) {
	switch set := m[key]; {
	case in && set == nil:
		m[key] = map[uint32]bool{id: value}
	case in:
		set[id] = value
	case set != nil:
		if delete(set, id); len(set) == 0 {
			delete(m, key)
		}
	}
}

// LostAttempts returns the active jobs of which a restore has lost an attempt, ascending. Only for the writer.
func (tx *Tx) LostAttempts() []uint32 { return slices.Sorted(maps.Keys(tx.next.writer.lost)) }

// ArrayRecords returns the ids of the records of an array, ascending. Only for the writer.
func (tx *Tx) ArrayRecords(array uint32) []uint32 {
	if a := tx.next.writer.arrays[array]; a != nil {
		return slices.Sorted(maps.Keys(a.ids))
	}
	return nil
}

// ArrayCounts counts the records of an array; all zero when there is no such array. Only for the writer.
func (tx *Tx) ArrayCounts(array uint32) ArrayCounts {
	if a := tx.next.writer.arrays[array]; a != nil {
		return a.counts
	}
	return ArrayCounts{}
}

// ArrayRecords and ArrayCounts of a view read the index of the transaction that made it. Only for observers of the loop, which the writer
// calls before it goes on: the index is changed in place.
func (v *View) ArrayRecords(array uint32) []uint32 { return (&Tx{next: *v}).ArrayRecords(array) }

// ArrayCounts: see ArrayRecords.
func (v *View) ArrayCounts(array uint32) ArrayCounts { return (&Tx{next: *v}).ArrayCounts(array) }

// TaskRecord returns the record of one task of an array: its own, or the one that stands for it among others; 0 = none.
func (tx *Tx) TaskRecord(array, task uint32) uint32 {
	if id := tx.OwnRecord(array, task); id != 0 {
		return id
	}
	for _, id := range tx.SharedRecords(array) {
		if ArraySet(tx.Job(id)).Has(task) {
			return id
		}
	}
	return 0
}

// OwnRecord returns the record that stands for one task alone; 0 = none.
func (tx *Tx) OwnRecord(array, task uint32) uint32 {
	return tx.next.writer.tasks[taskKey{array, task}]
}

// SharedRecords returns the records of an array that stand for several tasks, ascending.
func (tx *Tx) SharedRecords(array uint32) []uint32 {
	if a := tx.next.writer.arrays[array]; a != nil {
		return slices.Sorted(maps.Keys(a.several))
	}
	return nil
}

// DroppedTasks returns the tasks of an array that were cancelled before they had a record of their own, a set for each record that stood
// for them.
func (tx *Tx) DroppedTasks(array uint32) (sets []jobid.Set) {
	if a := tx.next.writer.arrays[array]; a != nil {
		for _, id := range slices.Sorted(maps.Keys(a.dropped)) {
			sets = append(sets, Dropped(tx.Job(id)))
		}
	}
	return sets
}

// ArrayActive reports whether any record of an array is active.
func (tx *Tx) ArrayActive(array uint32) bool { return tx.ArrayCounts(array).Active > 0 }

// FormatTasks writes a set of tasks with the array's throttle, as ArrayTasks of a record holds it: "4-9%2".
func FormatTasks(s jobid.Set, throttle uint32) string { return jobid.FormatTasks(s, throttle, 0) }

// Waiting returns the records whose dependency names a job or array, ascending.
func (tx *Tx) Waiting(id uint32) []uint32 {
	return slices.Sorted(maps.Keys(tx.next.writer.waiting[id]))
}

// PreemptedBy returns the active records that gave way to a job, ascending.
func (tx *Tx) PreemptedBy(name string) []uint32 {
	return slices.Sorted(maps.Keys(tx.next.writer.preempted[name]))
}

// Preempted returns all active records that have been told to give way, ascending.
func (tx *Tx) Preempted() []uint32 {
	var ids []uint32
	for _, set := range tx.next.writer.preempted {
		ids = slices.AppendSeq(ids, maps.Keys(set))
	}
	slices.Sort(ids)
	return ids
}

// ArraySet returns the set of tasks that a record stands for.
func ArraySet(j *pb.JobRecord) jobid.Set {
	return tasksIn(j.GetArrayTasks())
}

// Dropped returns the tasks that were cancelled while a record stood for them and others.
func Dropped(j *pb.JobRecord) jobid.Set { return tasksIn(j.GetDropped()) }

func tasksIn(text string) jobid.Set {
	if text == "" {
		return nil
	}
	a, err := jobid.ParseArray(text)
	if err != nil {
		return nil // cannot fail: this program wrote it
	}
	return a.Made()
}

func (tx *Tx) countUser(j *pb.JobRecord, by int) {
	if j == nil || !Active(j) {
		return
	}
	m := tx.next.writer.userJobs
	if m[j.Spec.GetUid()] += by; m[j.Spec.GetUid()] == 0 {
		delete(m, j.Spec.GetUid())
	}
}

// ShareLimits makes the specification of a new job share the resource limits of its user's last job when they are equal, as they nearly
// always are. Otherwise limits would be a quarter of a waiting job's memory.
func (tx *Tx) ShareLimits(s *pb.JobSpec) {
	last := tx.next.writer.limits
	if slices.EqualFunc(last[s.GetUid()], s.GetRlimits(), equalLimits) {
		s.Rlimits = last[s.GetUid()]
	} else {
		last[s.GetUid()] = s.GetRlimits()
	}
}

func equalLimits(a, b *pb.Rlimit) bool {
	return a.Resource == b.Resource && a.Soft == b.Soft && a.Hard == b.Hard && a.Asked == b.Asked
}

// Reindex computes the writer's index anew, after a batch whose commit was refused.
func (v *View) Reindex() {
	ended, retired := v.writer.ended, v.writer.retired
	*v.writer = *newIndex()
	v.writer.ended, v.writer.retired = ended, retired
	for _, r := range retired {
		v.writer.requests[r.id] = r.job
	}
	tx := &Tx{next: *v}
	for j := range v.Jobs.All() {
		tx.reindex(nil, j)
		tx.countBytes(nil, j)
		tx.rememberRequest(j.RequestId, j.Id)
	}
	for s := range v.steps.All() {
		v.writer.bytes.add(s.uid, s.bytes)
	}
	for _, r := range v.crontabs {
		v.writer.bytes.add(r.Uid, CrontabBytes(r))
	}
	tx.oweAll()
}
