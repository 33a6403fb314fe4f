package reactor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
	// absent are the outcomes of tasks that were named and do not exist
	absent []*pb.JobOutcome
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
	missing := set
	for _, m := range members {
		j := tx.Job(m)
		if j.IsArrayTask {
			missing = missing.Without(jobid.SetOf(j.ArrayTaskId))
			if set.Has(j.ArrayTaskId) {
				t.add(j, nil)
			}
			continue
		}
		have := state.ArraySet(j)
		missing = missing.Without(have)
		if rest := have.Without(set); rest.Count() < have.Count() {
			t.add(j, have.Without(rest))
		}
	}
	if missing.Count() > 0 && len(t.records) > 0 {
		t.absent = []*pb.JobOutcome{outcome(fmt.Sprintf("%d_%s", array, missing), pb.NewProblem(pb.CodeInvalidJobID, "array %d has no such task", array))}
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
	list := t.absent
	refused := len(list) > 0
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
	return byTask(list)
}

// byTask joins the outcomes of tasks of an array that are the same, and sorts them by their first task: "12_1-4: Job is pending
// execution".
func byTask(list []*pb.JobOutcome) []*pb.JobOutcome {
	type group struct {
		tasks   jobid.Set
		outcome *pb.JobOutcome
	}
	var groups []*group
	for _, o := range list {
		id, err := jobid.Parse(bracketed(o.Id))
		if err != nil || id.Tasks == nil {
			return list
		}
		tasks, err := id.Tasks.Set(math.MaxInt32)
		if err != nil {
			return list
		}
		at := slices.IndexFunc(groups, func(g *group) bool { return g.outcome.GetProblem().GetPhrase() == o.GetProblem().GetPhrase() })
		if at < 0 {
			groups = append(groups, &group{tasks, o})
			continue
		}
		groups[at].tasks = groups[at].tasks.With(tasks)
	}
	slices.SortFunc(groups, func(a, b *group) int {
		first, _ := a.tasks.Min()
		second, _ := b.tasks.Min()
		return cmp.Compare(first, second)
	})
	var out []*pb.JobOutcome
	for _, g := range groups {
		array, _, _ := strings.Cut(g.outcome.Id, "_")
		out = append(out, outcome(array+"_"+g.tasks.String(), g.outcome.Problem))
	}
	return out
}

// unbracketed turns "12_[4-9]" into "12_4-9", as Slurm writes it in front of an error.
func unbracketed(id string) string { return strings.NewReplacer("[", "", "]", "").Replace(id) }

// bracketed turns "12_4-9" into "12_[4-9]".
func bracketed(id string) string {
	array, tasks, ok := strings.Cut(id, "_")
	if !ok || strings.HasPrefix(tasks, "[") {
		return id
	}
	return array + "_[" + tasks + "]"
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
