package reactor

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A command on many jobs is carried out in slices: when it has spent its share of the writer's time it answers More instead of its
// reply, and the loop calls Next for it when the turn of its user comes again. What it has changed by then is committed. Who asked
// sees one answer, when all is done.
//
// A command is a value, and a slice may be carried out a second time when its commit was refused: so a slice makes the next command
// and leaves its own as it is.

// More is the reply of a command that is not done; Next goes on with it.
type More struct{ Next Command }

// SliceUnits is the share of one turn that a command may spend, in the units of state.Tx.Spend, before it lets others have theirs. It
// ends with the record that it was at, so it may spend a little more.
const SliceUnits = 5000

// maxOutcomeBytes bounds the outcomes that one answer lists; it has to fit into a message, and into memory.
const maxOutcomeBytes = 2 << 20

// walk goes through the ids of a command.
type walk struct {
	ids   []string
	at    *application // of ids[0], when an earlier slice began it
	out   Outcomes
	bytes int
	left  int // refusals that are not listed
}

// done is the reply when all ids have been dealt with.
func (w walk) done() Outcomes {
	if w.left > 0 {
		w.out.List = append(w.out.List, outcome("", pb.NewProblem(pb.CodeTooLarge, "%d more ids were refused; the reasons are left out",
			w.left).WithHint("name fewer at a time")))
	}
	return w.out
}

// add lists outcomes, as long as there is room.
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

// each deals with one id after another until the share of the turn is spent, and reports whether it came to the end. begin reads an id:
// either what is to be done, or its outcomes; finish makes outcomes of what was done.
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

// application is a verb being applied to the records that one id means, splitting off the tasks of a record that is meant in part. Of a
// whole array the ended records are passed over while there are active ones.
type application struct {
	target
	text    string // the id as typed
	next    int    // of the records
	list    []*pb.JobOutcome
	refused bool
	foreign bool // the records are somebody else's: the first refusal is the outcome
	active  bool // some records were active when it began
	// firstNew is the id from which on records did not exist when it began; own are those that it split off itself.
	firstNew uint32
	own      []uint32
	slices   int
	// With a filter: some record was active and to be seen, and the outcomes of those that the filter took.
	taken  bool
	chosen []*pb.JobOutcome
	ofStep bool // a job that the id means is there, and what is refused is something about its step
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

// apply deals with one record after another, and reports whether it came to the end before the share was spent.
func (a *application) apply(tx *state.Tx, c Caller, verb func(*application, *pb.JobRecord) *pb.Problem, spent func() bool) bool {
	if a.foreign {
		j := a.records[slices.IndexFunc(a.records, func(j *pb.JobRecord) bool { return !c.mayTouch(j) })]
		a.list = []*pb.JobOutcome{outcome(a.text, verb(a, j))} // each verb refuses in its own words
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

// one applies the verb to one record, or what is left of it.
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

// follow takes in the tasks that got records of their own, because they started, between the slices.
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

// outcomes are those of the id as typed; when some records of an array refuse, each has an outcome of its own, as in Slurm.
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

// maxPieces bounds the separate ranges of tasks in all records of an array: looking for a task may take looking at all of them.
const maxPieces = 2 * jobid.MaxSpans

// mayPart refuses to take tasks out of a record: because of what the verb does, because what is left would be too many pieces, or because
// each part is a record more, unless they are dropped.
func (a *application) mayPart(tx *state.Tx, c Caller, j *pb.JobRecord, part jobid.Set, drops bool) *pb.Problem {
	if a.refuse != nil {
		if p := a.refuse(j); p != nil {
			return p
		}
	}
	if !state.Active(j) {
		return nil
	}
	// The rest has at most one piece more for each that is taken out.
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
