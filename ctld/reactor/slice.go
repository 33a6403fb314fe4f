package reactor

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A command on many jobs is carried out in slices: when it has spent its share of the writer's time it returns More instead of its reply,
// and the loop calls Next for it when its user's turn comes again. Its changes up to then are committed. The caller sees one answer, when
// everything is done.
//
// A command is a value, and a slice may run a second time when its commit was refused: so a slice makes the next command and leaves its own
// unchanged.

// More is the reply of an unfinished command; Next continues it.
type More struct{ Next Command }

// SliceUnits is the share of one turn that a command may spend, in the units of state.Tx.Spend, before other users get theirs. The record
// under way is finished, so a command may spend a little more.
const SliceUnits = 5000

// maxOutcomeBytes bounds the outcomes in one answer, which has to fit into a message and into memory.
const maxOutcomeBytes = 2 << 20

// walk iterates over the ids of a command.
type walk struct {
	ids   []string
	at    *application // the unfinished work on ids[0]
	out   Outcomes
	bytes int
	left  int // number of refusals that are not listed
}

// done returns the reply when all ids have been handled.
func (w walk) done() Outcomes {
	if w.left > 0 {
		w.out.List = append(w.out.List, outcome("", pb.NewProblem(pb.CodeTooLarge, "%d more ids were refused; the reasons are left out",
			w.left).WithHint("name fewer at a time")))
	}
	return w.out
}

// add lists outcomes while there is room.
func (w *walk) add(list ...*pb.JobOutcome) {
	for _, o := range list {
		size := 64 + len(o.Id) + len(o.GetProblem().GetPhrase()) + len(o.GetProblem().GetDetail()) + len(o.GetProblem().GetHint())
		switch {
		case w.bytes+size <= maxOutcomeBytes:
			w.bytes += size
			w.out.List = append(w.out.List, o)
		case o.Problem != nil:
			w.left++
		}
	}
}

// each handles one id after another until the share of the turn is spent, and reports whether it reached the end. begin resolves an id: to
// an application, or to outcomes; finish makes outcomes of an application.
func (w *walk) each(tx *state.Tx, c Caller, begin func(id string) (*application, []*pb.JobOutcome),
	verb func(a *application, j *pb.JobRecord) *pb.Problem, finish func(a *application) []*pb.JobOutcome) bool {
	from := tx.Spent()
	spent := func() bool { return tx.Spent()-from >= SliceUnits }
	for len(w.ids) > 0 {
		if spent() {
			return false
		}
		id := w.ids[0]
		a := w.at
		if a == nil {
			var list []*pb.JobOutcome
			if a, list = begin(id); a == nil {
				w.add(list...)
				w.ids = w.ids[1:]
				continue
			}
		} else {
			again := *a
			a = &again
		}
		if !a.apply(tx, c, verb, spent) {
			w.at = a
			return false
		}
		w.add(finish(a)...)
		w.at, w.ids = nil, w.ids[1:]
	}
	return true
}

// application applies a verb to the records of one id, and splits off tasks where only a part of a record is meant. For a whole array it
// skips ended records while there are active ones.
type application struct {
	target
	text    string // the id as typed
	next    int    // of the records
	list    []*pb.JobOutcome
	refused bool
	foreign bool // another user's records: the first refusal is the outcome
	active  bool // some records were active when it began
	// firstNew is the first id that did not exist when it began; own are the records that it split off itself.
	firstNew uint32
	own      []uint32
	slices   int
	// With a filter: whether some record was active and visible, and the outcomes of those that matched.
	taken  bool
	chosen []*pb.JobOutcome
	ofStep bool // the job of the id exists, and the refusal is about its step
}

func newApplication(tx *state.Tx, c Caller, text string, t target) *application {
	a := &application{target: t, text: text, list: t.absent, refused: len(t.absent) > 0, firstNew: tx.NextJobID()}
	tx.Spend(len(t.records) / 16)
	for _, j := range t.records {
		a.foreign = a.foreign || !c.mayTouch(j)
		a.active = a.active || state.Active(j)
	}
	return a
}

// apply handles one record after another, and reports whether it reached the end before the share was spent.
func (a *application) apply(tx *state.Tx, c Caller, verb func(*application, *pb.JobRecord) *pb.Problem, spent func() bool) bool {
	if a.foreign {
		j := a.records[slices.IndexFunc(a.records, func(j *pb.JobRecord) bool { return !c.mayTouch(j) })]
		a.list = []*pb.JobOutcome{outcome(a.text, verb(a, j))} // the verb words the refusal
		return true
	}
	a.slices++
	for ; a.next < len(a.records); a.next++ {
		if spent() {
			return false
		}
		a.one(tx, c, a.next, verb)
		if a.next == len(a.records)-1 && a.slices > 1 {
			a.follow(tx)
		}
	}
	return true
}

// one applies the verb to one record, or to the rest of it.
func (a *application) one(tx *state.Tx, c Caller, i int, verb func(*application, *pb.JobRecord) *pb.Problem) {
	j, part := tx.Job(a.records[i].Id), a.parts[i]
	tx.Spend(2)
	if j == nil || a.active && !state.Active(j) && !a.named {
		return
	}
	if part != nil && j != a.records[i] { // tasks of it may have got records of their own meanwhile
		if part = tasksOf(j).Common(part); part.Count() == 0 {
			return
		}
	}
	id := ""
	if part != nil {
		tx.Spend(len(part) / 16)
		id = fmt.Sprintf("%d_%s", j.ArrayJobId, part)
		drops := a.drop != nil && waiting(j) && part.Count() < tasksOf(j).Count()
		if p := a.mayPart(tx, c, j, part, drops); p != nil {
			a.refused = true
			a.list = append(a.list, outcome(plainName(j), p))
			return
		}
		if drops {
			a.drop(tx, a, j, part)
			a.list = append(a.list, outcome(id, nil))
			return
		}
		if state.Active(j) {
			n := splitTasks(tx, j, part)
			if n != j {
				a.own = append(a.own, n.Id)
			}
			j = n
		}
	} else {
		id = plainName(j)
	}
	p := verb(a, j)
	a.refused = a.refused || p != nil
	a.list = append(a.list, outcome(id, p))
}

// follow adds the tasks that got records of their own, because they started, between the slices.
func (a *application) follow(tx *state.Tx) {
	array := a.records[0].ArrayJobId
	if array == 0 || tx.NextJobID() == a.firstNew {
		return
	}
	for _, id := range tx.ArrayRecords(array) {
		j := tx.Job(id)
		if id < a.firstNew || slices.Contains(a.own, id) || a.picked != nil && !(j.IsArrayTask && a.picked.Has(j.ArrayTaskId)) {
			continue
		}
		a.add(j, nil)
	}
	a.firstNew = tx.NextJobID()
}

// outcomes returns those of the id as typed; when some records of an array refuse, each has an outcome of its own, as in Slurm.
func (a *application) outcomes() []*pb.JobOutcome {
	switch {
	case a.foreign:
		return a.list
	case !a.refused:
		return []*pb.JobOutcome{outcome(a.text, nil)}
	case len(a.list) == 1 && a.records[0].ArrayJobId == 0:
		a.list[0].Id = a.text
	}
	return byTask(a.list)
}

// maxPieces bounds the separate ranges of tasks in all records of an array, because a search for a task may visit all of them.
const maxPieces = 2 * jobid.MaxSpans

// mayPart refuses to take tasks out of a record: because of the verb, because the rest would have too many pieces, or because each part
// needs another record, unless the tasks are dropped.
func (a *application) mayPart(tx *state.Tx, c Caller, j *pb.JobRecord, part jobid.Set, drops bool) *pb.Problem {
	if a.refuse != nil {
		if p := a.refuse(j); p != nil {
			return p
		}
	}
	if !state.Active(j) {
		return nil
	}
	// Each range that is taken out adds at most one piece to the rest.
	if n := tx.ArrayCounts(j.ArrayJobId).Pieces + 2*len(part); n > maxPieces {
		return pb.NewProblem(pb.CodeInvalidArray, "array %d would be split into up to %d separate ranges of tasks, the limit is %d",
			j.ArrayJobId, n, maxPieces).WithHint("name ranges without a step, or fewer of them")
	}
	if drops {
		return nil
	}
	if p := roomFor(tx, j.Spec.Uid, j.Spec.User, 1, c.Operator); p != nil {
		return p
	}
	return bytesFor(tx, j.Spec.Uid, j.Spec.User, state.JobBytes(&pb.JobRecord{Spec: j.Spec}), c.Operator)
}
