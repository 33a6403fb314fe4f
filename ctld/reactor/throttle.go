package reactor

import (
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// throttle sets the throttle of an array in all its records, ascending and in slices; ended records are included, because they may be
// requeued. The first record has the new value from the beginning: if it has another, a later command has set that and continues.
type throttle struct {
	array, limit uint32
	at           uint32 // records below are done
	done         bool
}

// begin changes the first record.
func (t throttle) begin(tx *state.Tx) throttle {
	ids := tx.ArrayRecords(t.array)
	tx.Spend(len(ids) / 16)
	if t.done = len(ids) == 0; !t.done {
		t.give(tx, ids[0])
		t.at = ids[0] + 1
	}
	return t
}

// goOn changes records until the share of the turn is spent.
func (t *throttle) goOn(tx *state.Tx, spent func() bool) {
	ids := tx.ArrayRecords(t.array)
	tx.Spend(len(ids) / 16)
	if len(ids) == 0 || ids[0] < t.at && tx.Job(ids[0]).ArrayThrottle != t.limit {
		t.done = true
		return
	}
	from, _ := slices.BinarySearch(ids, t.at)
	for _, id := range ids[from:] { // a record that is split off meanwhile follows the one it was part of
		if spent() {
			return
		}
		t.give(tx, id)
		t.at = id + 1
	}
	t.done = true
}

func (t *throttle) give(tx *state.Tx, id uint32) {
	tx.Spend(1)
	o := tx.Job(id)
	if o.ArrayThrottle == t.limit {
		return
	}
	n := state.CloneJob(o)
	n.ArrayThrottle = t.limit
	if state.Active(o) {
		rethrottle(n)
	}
	tx.Emit(state.JobChanged{Job: n, What: "throttle"})
}

// throttleAll continues each throttle, and reports whether all are done.
func throttleAll(tx *state.Tx, all []throttle, spent func() bool) bool {
	for i := range all {
		if all[i].done {
			continue
		}
		if spent() {
			return false
		}
		if all[i].goOn(tx, spent); !all[i].done {
			return false
		}
	}
	return true
}

// finishThrottle continues an array whose records differ: all get the throttle of the first. It reports whether there was one.
func finishThrottle(tx *state.Tx) bool {
	o, ok := tx.NextThrottle()
	if !ok {
		return false
	}
	ids := tx.ArrayRecords(o.Array)
	if len(ids) == 0 {
		return true
	}
	t := throttle{array: o.Array, limit: tx.Job(ids[0]).ArrayThrottle, at: o.At}
	until := tx.Spent() + len(ids)/16 + FollowUnits // the search comes on top, or a long array would never end
	if t.goOn(tx, func() bool { return tx.Spent() >= until }); !t.done {
		tx.OweThrottle(state.OwedThrottle{Array: t.array, At: t.at})
	}
	return true
}

// setThrottle changes how many tasks of an array may run at a time; 0 = all. It applies to the whole array, whichever task is named.
func setThrottle(e *jobEdit, key, value string) *pb.Problem {
	if e.job.ArrayJobId == 0 {
		return pb.NewProblem(pb.CodeNotSupported, "job %d is not an array", e.job.Id)
	}
	if p := setCount(&e.job.ArrayThrottle, key, value); p != nil {
		return p
	}
	rethrottle(e.job)
	e.throttled = true
	return nil
}

func rethrottle(j *pb.JobRecord) {
	if j.ArrayTasks != "" {
		j.ArrayTasks = state.FormatTasks(state.ArraySet(j), j.ArrayThrottle)
	}
}
