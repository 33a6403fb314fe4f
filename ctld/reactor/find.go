package reactor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// target is the meaning of an id as typed: records, and for a record of several tasks possibly only some of them.
type target struct {
	records []*pb.JobRecord
	parts   []jobid.Set // per record; nil = all of it
	picked  jobid.Set   // the tasks that were named; nil = all
	named   bool        // tasks were named, not the whole array
	step    string
	// refuse, when set, is called before tasks are split off a record
	refuse func(*pb.JobRecord) *pb.Problem
	// drop, when set, handles some of the tasks of a pending record, so that they need no record of their own
	drop func(tx *state.Tx, a *application, j *pb.JobRecord, part jobid.Set)
	// absent holds the outcomes of named tasks that do not exist
	absent []*pb.JobOutcome
}

func (t *target) add(j *pb.JobRecord, part jobid.Set) {
	t.records, t.parts = append(t.records, j), append(t.parts, part)
}

// finder resolves the ids of a command. It caches what it finds about arrays, because one command may name an array thousands of times.
type finder struct {
	tx     *state.Tx
	caller Caller
	arrays map[uint32]*found
}

// found describes an array as of a number of records; a split adds one.
type found struct {
	count   int
	members []uint32 // nil: not listed yet
	shared  []shared
	listed  bool // shared is complete
}

// shared is a record that stands for several tasks.
type shared struct {
	id    uint32
	tasks string // of the record when the set was read; tasks may have been dropped since
	set   jobid.Set
}

func newFinder(tx *state.Tx, c Caller) *finder {
	return &finder{tx: tx, caller: c, arrays: map[uint32]*found{}}
}

func (f *finder) array(id uint32) *found {
	a, count := f.arrays[id], f.tx.ArrayCounts(id).Records
	if a == nil || a.count != count {
		a = &found{count: count}
		f.arrays[id] = a
	}
	return a
}

// members returns the ids of the records of an array, ascending.
func (f *finder) members(id uint32) []uint32 {
	a := f.array(id)
	if a.members == nil {
		a.members = f.tx.ArrayRecords(id)
		f.tx.Spend(len(a.members) / 4)
	}
	return a.members
}

func (f *finder) shared(id uint32) []shared {
	a := f.array(id)
	if !a.listed {
		a.listed = true
		for _, m := range f.tx.SharedRecords(id) {
			a.shared = append(a.shared, shared{id: m})
		}
	}
	for i := range a.shared {
		s := &a.shared[i]
		if j := f.tx.Job(s.id); j.GetArrayTasks() != s.tasks {
			s.tasks, s.set = j.GetArrayTasks(), state.ArraySet(j)
			f.tx.Spend(1 + len(s.set)/32)
		}
	}
	return a.shared
}

// find parses "12", "12_3", "12_[4-9]", "12.0", "12.batch". "12" of an array means all of its records. It checks the owner first: for
// another user's array it finds one record, whichever tasks are named.
func (f *finder) find(text string) (target, *pb.Problem) {
	tx := f.tx
	tx.Spend(3 + len(text)/64)
	none := func() (target, *pb.Problem) {
		return target{}, pb.NewProblem(pb.CodeInvalidJobID, "there is no job %.80s", text)
	}
	id, err := jobid.Parse(text)
	if err != nil || id.Het > 0 {
		return none()
	}
	var t target
	if id.Step != jobid.StepNone {
		t.step = jobid.StepName(id.Step)
	}
	isArray := tx.ArrayCounts(id.Job).Records > 0
	switch {
	case isArray && f.foreign(id, &t):
	case id.Tasks != nil:
		if !isArray {
			return none()
		}
		if t.picked, err = id.Tasks.Set(int(tx.Settings().MaxArraySize)); err != nil {
			return none()
		}
		t.named = true
		f.tasks(&t, id.Job, text)
	case isArray:
		for _, m := range f.members(id.Job) {
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

// foreignShared is the number of records of several tasks that are searched for one task of another user's array.
const foreignShared = 16

// foreign finds a record of an array whose owner the caller may not act for; false: the caller may. A single named task has to exist.
func (f *finder) foreign(id jobid.ID, t *target) bool {
	tx := f.tx
	leader := tx.Job(id.Job)
	if leader == nil {
		leader = tx.Job(f.members(id.Job)[0])
	}
	if f.caller.mayTouch(leader) {
		return false
	}
	task, one := id.Task()
	if !one {
		t.add(leader, nil)
		return true
	}
	if own := tx.OwnRecord(id.Job, task); own != 0 {
		t.add(tx.Job(own), nil)
		return true
	}
	list := f.shared(id.Job)
	if len(list) > foreignShared {
		t.add(leader, nil)
		return true
	}
	for _, s := range list {
		if s.set.Has(task) {
			t.add(tx.Job(s.id), nil)
			return true
		}
	}
	return true // there is no such task
}

// tasks adds the records of the picked tasks, by id. It looks up tasks with records of their own; only when more tasks are named than
// records exist it scans all records.
func (f *finder) tasks(t *target, array uint32, text string) {
	tx, set := f.tx, t.picked
	tx.Spend(len(set) / 32)
	var own []uint32
	if records := tx.ArrayCounts(array).Records; set.Count() <= uint64(records) {
		for task := range set.All() {
			if m := tx.OwnRecord(array, task); m != 0 {
				t.add(tx.Job(m), nil)
				own = append(own, task)
			}
		}
		tx.Spend(int(set.Count()) / 16)
	} else {
		for _, m := range f.members(array) {
			if j := tx.Job(m); j.IsArrayTask && set.Has(j.ArrayTaskId) {
				t.add(j, nil)
				own = append(own, j.ArrayTaskId)
			}
		}
		tx.Spend(records / 16)
	}
	there := []jobid.Set{jobid.SetOf(own...)}
	for _, s := range f.shared(array) {
		tx.Spend(1 + min(len(s.set), len(set))/32)
		if part := s.set.Common(set); len(part) > 0 {
			tx.Spend(len(part) / 32)
			t.add(tx.Job(s.id), part)
			there = append(there, part)
		}
	}
	missing := set.Without(jobid.Union(there...))
	sortByID(t)
	if len(missing) > 0 && len(t.records) > 0 {
		id := text
		if len(missing) <= maxAbsent {
			id = fmt.Sprintf("%d_%s", array, missing)
		}
		t.absent = []*pb.JobOutcome{outcome(id, pb.NewProblem(pb.CodeInvalidJobID, "array %d has no such task", array))}
	}
}

// maxAbsent bounds the ranges of tasks that an answer lists as missing; beyond it, the id is repeated as typed.
const maxAbsent = 1000

func sortByID(t *target) {
	order := make([]int, len(t.records))
	for i := range order {
		order[i] = i
	}
	less := func(a, b int) int { return cmp.Compare(t.records[a].Id, t.records[b].Id) }
	if slices.IsSortedFunc(order, less) {
		return
	}
	slices.SortFunc(order, less)
	records, parts := make([]*pb.JobRecord, len(order)), make([]jobid.Set, len(order))
	for i, k := range order {
		records[i], parts[i] = t.records[k], t.parts[k]
	}
	t.records, t.parts = records, parts
}

// byTask merges equal outcomes of tasks of an array, and sorts them by their first task: "12_1-4: Job is pending execution".
func byTask(list []*pb.JobOutcome) []*pb.JobOutcome {
	type group struct {
		spans   []jobid.Set
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
			at, groups = len(groups), append(groups, &group{outcome: o})
		}
		groups[at].spans = append(groups[at].spans, tasks)
	}
	for _, g := range groups {
		g.tasks = jobid.Union(g.spans...)
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

// unbracketed turns "12_[4-9]" into "12_4-9", as Slurm writes it before an error.
func unbracketed(id string) string { return strings.NewReplacer("[", "", "]", "").Replace(id) }

// bracketed turns "12_4-9" into "12_[4-9]".
func bracketed(id string) string {
	array, tasks, ok := strings.Cut(id, "_")
	if !ok || strings.HasPrefix(tasks, "[") {
		return id
	}
	return array + "_[" + tasks + "]"
}

// firstProblem returns the first refusal of a list, nil when there is none.
func firstProblem(list []*pb.JobOutcome) *pb.Problem {
	for _, o := range list {
		if o.Problem != nil {
			return o.Problem
		}
	}
	return nil
}

// plainName returns a job's name without brackets and throttle, as Slurm writes it before an error: "12_4-9".
func plainName(j *pb.JobRecord) string {
	if j.ArrayTasks != "" {
		return fmt.Sprintf("%d_%s", j.ArrayJobId, state.ArraySet(j))
	}
	return state.JobName(j)
}

func outcome(id string, p *pb.Problem) *pb.JobOutcome { return &pb.JobOutcome{Id: id, Problem: p} }
