package reactor

import (
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Job arrays. An array is one record, with the id that its submitter got, which stands for all tasks that have not started. A task that
// starts, or is treated differently from the others (held, updated), is split off into a record of its own with the next free id, as in
// Slurm; the last task keeps the array's id. Tasks that are cancelled while others of their record wait disappear, as in Slurm: the record
// keeps their numbers for dependencies on them (JobRecord.dropped). Script and environment stay with the array's id until the last record
// is forgotten, and no record is forgotten while the array is active.

// makeArray turns a new record into an array.
func makeArray(tx *state.Tx, j *pb.JobRecord) *pb.Problem {
	a, err := jobid.ParseArray(j.Spec.Array)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidArray, "%v", err)
	}
	size := tx.Settings().MaxArraySize
	if a.Max() >= size {
		return pb.NewProblem(pb.CodeInvalidArray, "index %d is not below MaxArraySize, which is %d", a.Max(),
			size).WithHint("use smaller indices, or raise MaxArraySize in slurm.conf")
	}
	set, err := a.Set(int(size))
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidArray, "%v", err)
	}
	j.ArrayJobId, j.ArrayThrottle, j.ArraySpec = j.Id, a.Throttle, set.String()
	j.ArrayTasks = state.FormatTasks(set, a.Throttle)
	return nil
}

// splitTasks takes tasks out of a record that stands for several, and returns the record that then stands for them: the record itself if it
// has no other tasks.
func splitTasks(tx *state.Tx, j *pb.JobRecord, part jobid.Set) *pb.JobRecord {
	rest := state.ArraySet(j).Without(part)
	if rest.Count() == 0 {
		return j
	}
	n, m := state.CloneJob(j), state.CloneJob(j)
	n.Id, n.RequestId, n.Dropped = tx.NextJobID(), "", ""
	setTasks(n, part)
	setTasks(m, rest)
	m.Promised = false // the promise was to its first task
	tx.Emit(state.ArraySplit{Rest: m, Part: n})
	return n
}

// dropTasks cancels tasks of a record that stands for others as well.
func dropTasks(tx *state.Tx, j *pb.JobRecord, part jobid.Set, by uint32) {
	n := state.CloneJob(j)
	setTasks(n, state.ArraySet(j).Without(part))
	n.Dropped = jobid.Union(state.Dropped(j), part).String()
	n.Promised = false // the promise was to its first task
	tx.Emit(state.TasksDropped{Job: n, Tasks: part, By: by})
}

// setTasks sets the tasks that a record stands for; a single one makes it a task.
func setTasks(j *pb.JobRecord, set jobid.Set) {
	j.ArrayTasks, j.IsArrayTask, j.ArrayTaskId = state.FormatTasks(set, j.ArrayThrottle), false, 0
	if set.Count() == 1 {
		t, _ := set.Min()
		j.ArrayTasks, j.IsArrayTask, j.ArrayTaskId = "", true, t
	}
}

// ownTask makes the record of one task that is about to start.
func ownTask(tx *state.Tx, j *pb.JobRecord, task uint32) *pb.JobRecord {
	n := splitTasks(tx, j, jobid.SetOf(task))
	if n.ArrayTasks != "" { // an array of one task
		n = state.CloneJob(n)
		setTasks(n, jobid.SetOf(task))
	}
	return n
}
