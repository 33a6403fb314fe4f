package state

import (
	"maps"
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// writerIndex is what only the writer looks up. It is shared by successive views and changed in place: a batch that fails to
// commit ends the process, so there is nothing to take back.
type writerIndex struct {
	requests  map[string]uint32             // request id -> job
	userJobs  map[uint32]int                // active jobs by uid
	arrays    map[uint32]map[uint32]bool    // array -> ids of its records; true: the record stands for several tasks
	tasks     map[taskKey]uint32            // one task -> its record
	activeIn  map[uint32]int                // array -> its active records
	waiting   map[uint32]map[uint32]bool    // job or array -> records whose dependency names it
	single    map[singleKey]map[uint32]bool // user and name -> active records
	preempted map[string]map[uint32]bool    // name of a job -> active records that gave way to it
}

type taskKey struct{ array, task uint32 }

type singleKey struct {
	uid  uint32
	name string
}

func newIndex() *writerIndex {
	return &writerIndex{requests: map[string]uint32{}, userJobs: map[uint32]int{}, arrays: map[uint32]map[uint32]bool{}, tasks: map[taskKey]uint32{}, activeIn: map[uint32]int{},
		waiting: map[uint32]map[uint32]bool{}, single: map[singleKey]map[uint32]bool{}, preempted: map[string]map[uint32]bool{}}
}

// index takes a record into the index, or out of it.
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
	if Active(j) {
		enter(w.single, singleKey{j.Spec.GetUid(), j.Spec.GetName()}, j.Id, in, true)
	}
	if j.PreemptedBy != "" && Active(j) {
		enter(w.preempted, j.PreemptedBy, j.Id, in, true)
	}
	if j.ArrayJobId != 0 {
		enter(w.arrays, j.ArrayJobId, j.Id, in, j.ArrayTasks != "")
		if Active(j) {
			w.activeIn[j.ArrayJobId] += by
			if w.activeIn[j.ArrayJobId] == 0 {
				delete(w.activeIn, j.ArrayJobId)
			}
		}
		if j.IsArrayTask {
			if in {
				w.tasks[taskKey{j.ArrayJobId, j.ArrayTaskId}] = j.Id
			} else {
				delete(w.tasks, taskKey{j.ArrayJobId, j.ArrayTaskId})
			}
		}
	}
	if j.Dependency != "" && Active(j) {
		for _, id := range dependsOn(j.Dependency) {
			enter(w.waiting, id, j.Id, in, true)
		}
	}
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

// dependsOn are the jobs that a dependency names.
func dependsOn(text string) []uint32 {
	d, err := jobid.ParseDependency(text)
	if err != nil {
		return nil
	}
	var ids []uint32
	for _, c := range d.Conditions {
		if c.Kind != jobid.Singleton {
			ids = append(ids, c.Job)
		}
	}
	return ids
}

// ArrayRecords are the ids of the records of an array, ascending. Only for the writer.
func (tx *Tx) ArrayRecords(array uint32) []uint32 {
	return slices.Sorted(maps.Keys(tx.next.writer.arrays[array]))
}

// TaskRecord is the record of one task of an array: its own, or the one that stands for it among others; 0 = none.
func (tx *Tx) TaskRecord(array, task uint32) uint32 {
	if id := tx.next.writer.tasks[taskKey{array, task}]; id != 0 {
		return id
	}
	for id, several := range tx.next.writer.arrays[array] {
		if several && ArraySet(tx.Job(id)).Has(task) {
			return id
		}
	}
	return 0
}

// ArrayActive reports whether any record of an array is active.
func (tx *Tx) ArrayActive(array uint32) bool { return tx.next.writer.activeIn[array] > 0 }

// FormatTasks writes a set of tasks with the array's throttle, as ArrayTasks of a record holds it: "4-9%2".
func FormatTasks(s jobid.Set, throttle uint32) string { return jobid.FormatTasks(s, throttle, 0) }

// Waiting are the records whose dependency names a job or array, ascending.
func (tx *Tx) Waiting(id uint32) []uint32 {
	return slices.Sorted(maps.Keys(tx.next.writer.waiting[id]))
}

// PreemptedBy are the active records that gave way to a job, ascending.
func (tx *Tx) PreemptedBy(name string) []uint32 {
	return slices.Sorted(maps.Keys(tx.next.writer.preempted[name]))
}

// Preempted are all active records that have been told to give way, ascending.
func (tx *Tx) Preempted() []uint32 {
	var ids []uint32
	for _, set := range tx.next.writer.preempted {
		ids = slices.AppendSeq(ids, maps.Keys(set))
	}
	slices.Sort(ids)
	return ids
}

// SameName are the active records of a user with a name, ascending.
func (tx *Tx) SameName(uid uint32, name string) []uint32 {
	return slices.Sorted(maps.Keys(tx.next.writer.single[singleKey{uid, name}]))
}

// ArraySet is the set of tasks that a record stands for.
func ArraySet(j *pb.JobRecord) jobid.Set {
	if j == nil || j.ArrayTasks == "" {
		return nil
	}
	a, err := jobid.ParseArray(j.ArrayTasks)
	if err != nil {
		return nil // written by this program
	}
	s, err := a.Set(maxTasks)
	if err != nil {
		return nil
	}
	return s
}

// maxTasks is far above MaxArraySize, whatever slurm.conf says.
const maxTasks = 4000001

func (tx *Tx) countUser(j *pb.JobRecord, by int) {
	if j == nil || !Active(j) {
		return
	}
	m := tx.next.writer.userJobs
	if m[j.Spec.GetUid()] += by; m[j.Spec.GetUid()] == 0 {
		delete(m, j.Spec.GetUid())
	}
}

// Reindex computes the writer's index anew, after a batch whose commit was refused.
func (v *View) Reindex() {
	*v.writer = *newIndex()
	tx := &Tx{next: *v}
	for j := range v.Jobs.All() {
		tx.index(j, true)
		tx.rememberRequest(j.RequestId, j.Id)
	}
}
