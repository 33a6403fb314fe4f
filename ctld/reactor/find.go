package reactor

import (
	"fmt"
	"strconv"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// target is what an id as typed means: records, of which a record of several tasks may be meant in part only.
type target struct {
	records []*pb.JobRecord
	parts   []jobid.Set // per record; nil = all of it
	named   bool        // tasks were named, not the array as a whole
	step    string
	// refuse, when set, is asked before tasks are split off a record that is meant in part
	refuse func(*pb.JobRecord) *pb.Problem
}

// find reads "12", "12_3", "12_[4-9]", "12.0", "12.batch". "12" of an array means all of its records.
func find(tx *state.Tx, text string) (target, *pb.Problem) {
	none := func() (target, *pb.Problem) {
		return target{}, pb.NewProblem(pb.CodeInvalidJobID, "there is no job %s", text)
	}
	id, err := jobid.Parse(text)
	if err != nil || id.Het > 0 {
		return none()
	}
	var t target
	if id.Step != jobid.StepNone {
		t.step = jobid.StepName(id.Step)
	}
	members := tx.ArrayRecords(id.Job)
	switch {
	case id.Tasks != nil:
		t.named = true
		set, err := id.Tasks.Set(int(tx.Settings().MaxArraySize))
		if err != nil {
			return none()
		}
		t.tasks(tx, id.Job, members, set)
	case len(members) > 0:
		for _, m := range members {
			t.add(tx.Job(m), nil)
		}
	case !id.AllTasks && tx.Job(id.Job) != nil:
		t.add(tx.Job(id.Job), nil)
	}
	if len(t.records) == 0 {
		return none()
	}
	return t, nil
}

func (t *target) add(j *pb.JobRecord, part jobid.Set) {
	t.records, t.parts = append(t.records, j), append(t.parts, part)
}

// tasks adds the records that hold the tasks of set.
func (t *target) tasks(tx *state.Tx, array uint32, members []uint32, set jobid.Set) {
	for _, m := range members {
		j := tx.Job(m)
		if j.IsArrayTask {
			if set.Has(j.ArrayTaskId) {
				t.add(j, nil)
			}
			continue
		}
		have := state.ArraySet(j)
		if rest := have.Without(set); rest.Count() < have.Count() {
			t.add(j, have.Without(rest))
		}
	}
}

// each applies a verb to every record meant, splitting off the tasks of a record that is meant in part, and returns the outcome of
// the id as typed. Of a whole array the ended records are passed over while there are active ones. When some records of an array
// refuse, each has an outcome of its own, as in Slurm.
func (t target) each(tx *state.Tx, c Caller, text string, verb func(*pb.JobRecord) *pb.Problem) []*pb.JobOutcome {
	active := 0
	for _, j := range t.records {
		if !c.mayTouch(j) {
			return []*pb.JobOutcome{outcome(text, verb(j))} // each verb refuses in its own words
		}
		if state.Active(j) {
			active++
		}
	}
	var list []*pb.JobOutcome
	refused := false
	for i, j := range t.records {
		if active > 0 && !state.Active(j) && !t.named {
			continue
		}
		id := plainName(j)
		if t.parts[i] != nil {
			if p := t.mayPart(tx, j); p != nil {
				refused = true
				list = append(list, outcome(id, p))
				continue
			}
		}
		if t.parts[i] != nil {
			id = fmt.Sprintf("%d_%s", j.ArrayJobId, t.parts[i])
		}
		if t.parts[i] != nil && state.Active(j) {
			j = splitTasks(tx, j, t.parts[i])
		}
		p := verb(j)
		refused = refused || p != nil
		list = append(list, outcome(id, p))
	}
	switch {
	case !refused:
		return []*pb.JobOutcome{outcome(text, nil)}
	case len(list) == 1 && t.records[0].ArrayJobId == 0:
		list[0].Id = text
	}
	return list
}

// mayPart refuses to split tasks off a record: because of what the verb does, or because each part is a record more.
func (t target) mayPart(tx *state.Tx, j *pb.JobRecord) *pb.Problem {
	if t.refuse != nil {
		if p := t.refuse(j); p != nil {
			return p
		}
	}
	if !state.Active(j) {
		return nil
	}
	return roomFor(tx, j.Spec.Uid, j.Spec.User, 1)
}

// firstProblem is the first refusal of a list, nil when there is none.
func firstProblem(list []*pb.JobOutcome) *pb.Problem {
	for _, o := range list {
		if o.Problem != nil {
			return o.Problem
		}
	}
	return nil
}

// plainName is a job's name without brackets and throttle, as Slurm writes it in front of an error: "12_4-9".
func plainName(j *pb.JobRecord) string {
	if j.ArrayTasks != "" {
		return fmt.Sprintf("%d_%s", j.ArrayJobId, state.ArraySet(j))
	}
	return jobName(j)
}

// jobName is what users call a job: "12", "12_3", "12_[4-9]".
func jobName(j *pb.JobRecord) string {
	n := func(v uint32) string { return strconv.FormatUint(uint64(v), 10) }
	switch {
	case j.ArrayTasks != "":
		return n(j.ArrayJobId) + "_[" + j.ArrayTasks + "]"
	case j.IsArrayTask:
		return n(j.ArrayJobId) + "_" + n(j.ArrayTaskId)
	}
	return n(j.Id)
}

func outcome(id string, p *pb.Problem) *pb.JobOutcome { return &pb.JobOutcome{Id: id, Problem: p} }
