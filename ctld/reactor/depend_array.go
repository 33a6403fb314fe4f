package reactor

import (
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// arrays finds tasks, and parses the sets of each array once: a dependency may name thousands of its tasks.
type arrays struct {
	tx    *state.Tx
	known map[uint32]*arrayTasks
}

type arrayTasks struct {
	shared  map[uint32]jobid.Set
	dropped []jobid.Set
	all     *jobid.Array // the tasks it was submitted with, parsed on first use
}

func arraysOf(tx *state.Tx) arrays { return arrays{tx, map[uint32]*arrayTasks{}} }

func (a arrays) tasks(array uint32) *arrayTasks {
	if t := a.known[array]; t != nil {
		return t
	}
	t := &arrayTasks{dropped: a.tx.DroppedTasks(array), shared: map[uint32]jobid.Set{}}
	for _, id := range a.tx.SharedRecords(array) {
		t.shared[id] = state.ArraySet(a.tx.Job(id))
	}
	a.known[array] = t
	return t
}

// record is state.Tx.TaskRecord.
func (a arrays) record(array, task uint32) uint32 {
	if id := a.tx.OwnRecord(array, task); id != 0 {
		return id
	}
	for id, set := range a.tasks(array).shared { // no two sets have a task in common
		if set.Has(task) {
			return id
		}
	}
	return 0
}

// isDropped reports whether a task was cancelled with dropTasks.
func (a arrays) isDropped(array, task uint32) bool {
	return slices.ContainsFunc(a.tasks(array).dropped, func(s jobid.Set) bool { return s.Has(task) })
}

// submitted reports whether an array was submitted with a task.
func (a arrays) submitted(array, task uint32) bool {
	t := a.tasks(array)
	if t.all == nil {
		t.all = &jobid.Array{}
		if records := a.tx.ArrayRecords(array); len(records) > 0 {
			if all, err := jobid.ParseArray(a.tx.Job(records[0]).ArraySpec); err == nil { // all records have the same
				t.all = all
			}
		}
	}
	return slices.ContainsFunc(t.all.Ranges, func(r jobid.Range) bool {
		return task >= r.First && task <= r.Last && (task-r.First)%r.Step == 0
	})
}

// check refuses a condition on a job or a task that never existed.
func (a arrays) check(c jobid.Condition) (forgotten bool, p *pb.Problem) {
	if c.Kind == jobid.Singleton {
		return false, nil
	}
	isArray := a.tx.ArrayCounts(c.Job).Records > 0
	switch {
	case c.Job >= a.tx.NextJobID():
		return false, pb.NewProblem(pb.CodeDependency, "there has never been a job %d (%s)", c.Job, c)
	case a.tx.Job(c.Job) == nil && !isArray:
		return true, nil
	case !c.HasTask:
		return false, nil
	case !isArray:
		return false, pb.NewProblem(pb.CodeDependency, "job %d is not an array (%s)", c.Job, c)
	case a.record(c.Job, c.Task) != 0, a.isDropped(c.Job, c.Task):
		return false, nil
	case a.submitted(c.Job, c.Task):
		return true, nil
	}
	return false, pb.NewProblem(pb.CodeDependency, "array %d has no task %d (%s)", c.Job, c.Task, c)
}
