package reactor

import (
	"strings"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Dependencies (sbatch(1), --dependency). JobRecord.dependency holds the open conditions; a condition that has been met is dropped for
// good, so that its job may be forgotten. Follow looks at the waiting jobs after every change of a job they name; nothing polls. An array
// as a whole is judged when its last task has ended, as in Slurm: a task that failed may still be requeued.

// firstLook reads the dependency of a new job and drops the conditions that are already met. A job or a task that never existed is refused.
func firstLook(tx *state.Tx, j *pb.JobRecord, ends Ends) *pb.Problem {
	d, p := readDependency(tx, j.Spec.Dependency, ends)
	if p != nil {
		return p
	}
	j.Dependency = d.String()
	weigh(tx, j)
	return nil
}

// Ends tells how jobs and tasks ended that the state has forgotten (MinJobAge), according to accounting: true if well, in the sense of
// afterok. Its conditions have no kind.
type Ends map[jobid.Condition]bool

// OnEnd reports whether a kind of dependency depends on how a job ended.
func OnEnd(k jobid.Kind) bool {
	return k == jobid.AfterOK || k == jobid.AfterNotOK || k == jobid.AfterCorr
}

// readDependency reads a user's dependency. A forgotten job has ended, and ends tells how; where it does not, a condition that depends on
// it is refused. Slurm drops conditions on forgotten jobs, and starts a job after one that failed. It also drops conditions on jobs that
// never existed, which are typing errors.
func readDependency(tx *state.Tx, text string, ends Ends) (jobid.Dependency, *pb.Problem) {
	d, err := jobid.ParseDependency(text)
	if err != nil {
		return d, pb.NewProblem(pb.CodeDependency, "%v", err)
	}
	known := d.Conditions[:0:0]
	arrays := arraysOf(tx)
	for _, c := range d.Conditions {
		forgotten, p := arrays.check(c)
		if forgotten && OnEnd(c.Kind) {
			well, said := ends[jobid.Condition{Job: c.Job, Task: c.Task, HasTask: c.HasTask}]
			switch {
			case said:
			case c.Job < tx.Settings().FirstJobID:
				p = pb.NewProblem(pb.CodeDependency,
					"there is no job %d (%s): it is below FirstJobId of slurm.conf, which is %d, and accounting does not know it", c.Job, c,
					tx.Settings().FirstJobID)
			default:
				p = pb.NewProblem(pb.CodeDependency, "job %d ended too long ago (MinJobAge), and accounting does not say how (%s)",
					c.Job, c).WithHint("afterany:%d asks only whether it has ended", c.Job)
			}
			forgotten = well == (c.Kind != jobid.AfterNotOK) // otherwise it stays, and is judged as impossible
		}
		switch {
		case p != nil:
			return d, p
		case forgotten && d.Any:
			return jobid.Dependency{}, nil // one condition is enough
		case !forgotten:
			known = append(known, c)
		}
	}
	d.Conditions = known
	return d, nil
}

// weigh drops the conditions that have been met from j itself, and sets its reason. It returns the conditions that can no longer be met.
func weigh(tx *state.Tx, j *pb.JobRecord) (impossible []jobid.Condition) {
	if j.Dependency == "" {
		settleDependency(tx, j, "", "", false)
		return nil
	}
	d, err := jobid.ParseDependency(j.Dependency)
	if err != nil {
		return nil // cannot fail: this program wrote it
	}
	var rest []jobid.Condition
	var shown []string
	arrays, long := arraysOf(tx), tx.LongWait(j)
	for _, c := range d.Conditions {
		t := state.Met
		if !long.IsMet(c) {
			t = judgeCondition(arrays, j, c)
		}
		if t == state.Met && d.Any {
			settleDependency(tx, j, "", "", false)
			return nil
		}
		if t == state.Met {
			continue
		}
		if t == state.Never {
			impossible = append(impossible, c)
		}
		rest, shown = append(rest, c), append(shown, showCondition(tx, c, t))
	}
	d.Conditions = rest
	sep := ","
	if d.Any {
		sep = "?"
	}
	settleDependency(tx, j, d.String(), strings.Join(shown, sep), len(impossible) > 0 && (!d.Any || len(impossible) == len(rest)))
	return impossible
}

// showCondition writes a condition as squeue does: "afterok:12_*(unfulfilled)".
func showCondition(tx *state.Tx, c jobid.Condition, t state.Truth) string {
	text := c.String()
	if !c.HasTask && c.Kind != jobid.Singleton && tx.ArrayCounts(c.Job).Records > 0 {
		name, delay, delayed := strings.Cut(text, "+")
		if text = name + "_*"; delayed {
			text += "+" + delay
		}
	}
	if t == state.Never {
		return text + "(failed)"
	}
	return text + "(unfulfilled)"
}

func settleDependency(tx *state.Tx, j *pb.JobRecord, rest, shown string, impossible bool) {
	j.Dependency, j.DependencyShown, j.DependencyNever = rest, shown, impossible
	if j.Priority == 0 {
		return // the reason for the hold comes first
	}
	if j.Dependency == "" && (j.Reason == "Dependency" || j.Reason == pb.ReasonDependencyNever) {
		j.WaitReason = waitReason(j)
		j.Reason = "None"
		j.EligibleNs = max(tx.NowNS, j.Spec.BeginNs, j.EligibleNs)
		j.AccrueNs = accrueFrom(tx, j, j.EligibleNs)
	}
	waitForDependency(j)
}

// waitForDependency sets the reason of a waiting job that is not held.
func waitForDependency(j *pb.JobRecord) {
	switch {
	case j.Dependency == "":
		return
	case j.DependencyNever:
		j.Reason = pb.ReasonDependencyNever
	default:
		j.Reason = "Dependency"
	}
	j.EligibleNs = 0
}

func judgeCondition(arrays arrays, j *pb.JobRecord, c jobid.Condition) state.Truth {
	tx := arrays.tx
	if c.Kind == jobid.Singleton {
		if tx.Alone(j) {
			return state.Met
		}
		return state.Waits
	}
	if c.Kind == jobid.AfterCorr {
		c.Kind = jobid.AfterOK
		switch n := tx.ArrayCounts(c.Job); {
		case n.Records == 0:
		case j.IsArrayTask && (arrays.record(c.Job, j.ArrayTaskId) != 0 || arrays.submitted(c.Job, j.ArrayTaskId)):
			c.Task, c.HasTask = j.ArrayTaskId, true
		case j.ArrayTasks != "":
			if t, ok := judgeTasks(tx, c.Job, state.ArraySet(j)); ok || n.Active > 0 {
				return t
			}
		}
	}
	if n := tx.ArrayCounts(c.Job); n.Records > 0 && !c.HasTask {
		return judgeArray(tx, j, c, n)
	}
	id := c.Job
	if c.HasTask {
		id = arrays.record(c.Job, c.Task)
	}
	if o := tx.Job(id); o != nil {
		return judgeJob(j, c, o)
	}
	if c.HasTask && arrays.isDropped(c.Job, c.Task) {
		return judgeCounts(j, c, state.ArrayCounts{Records: 1}, func() int64 { return 0 }) // cancelled; the time was not noted
	}
	if c.Kind == jobid.After || c.Kind == jobid.AfterAny {
		return state.Met // forgotten
	}
	return state.Never // had it ended well, this condition would be gone
}

// judgeTasks judges aftercorr for several tasks at once: the verdict must be the same for all of them. It returns false when no counterpart
// has ended.
func judgeTasks(tx *state.Tx, array uint32, tasks jobid.Set) (state.Truth, bool) {
	good, bad := endedTasks(tx, array, tasks)
	ended := good.Count()+bad.Count() > 0
	switch tasks.Count() {
	case good.Count():
		return state.Met, ended
	case bad.Count():
		return state.Never, ended
	}
	return state.Waits, ended
}

func judgeJob(j *pb.JobRecord, c jobid.Condition, o *pb.JobRecord) state.Truth {
	n := state.ArrayCounts{Records: 1}
	if state.Active(o) {
		n.Active = 1
	}
	if state.Good(o) {
		n.Good = 1
	}
	if !state.Begun(o) {
		n.Unbegun = 1
	}
	return judgeCounts(j, c, n, func() int64 { return o.StartNs })
}

// judgeArray judges a condition over all records of an array.
func judgeArray(tx *state.Tx, j *pb.JobRecord, c jobid.Condition, n state.ArrayCounts) state.Truth {
	return judgeCounts(j, c, n, func() (last int64) {
		for _, id := range tx.ArrayRecords(c.Job) {
			last = max(last, tx.Job(id).StartNs)
		}
		return last
	})
}

func judgeCounts(j *pb.JobRecord, c jobid.Condition, n state.ArrayCounts, lastStart func() int64) state.Truth {
	switch {
	case c.Kind == jobid.After:
		if n.Unbegun > 0 {
			return state.Waits
		}
		delay(j, c, lastStart)
		return state.Met
	case n.Active > 0:
		return state.Waits
	case c.Kind == jobid.AfterAny, (c.Kind == jobid.AfterNotOK) == (n.Good < n.Records || n.Dropped > 0):
		return state.Met
	}
	return state.Never
}

// maxDelayMin is a hundred years: more would wrap to a moment that has passed.
const maxDelayMin = 100 * 366 * 24 * 60

// delay turns "after:12+30", met but for the minutes, into a begin time.
func delay(j *pb.JobRecord, c jobid.Condition, lastStart func() int64) {
	if c.DelayMin == 0 {
		return
	}
	if at := lastStart() + min(int64(c.DelayMin), maxDelayMin)*60e9; at > j.Spec.BeginNs {
		j.Spec = state.CloneSpec(j.Spec)
		j.Spec.BeginNs = at
	}
}

// FollowUnits is the share of one turn that following up a command may spend, in the units of state.Tx.Spend, in addition to the command's
// own. The record under way is finished. It is a variable for simulations, which want many turns.
var FollowUnits = SliceUnits / 2

// Follow updates the waiting jobs after the events from the given one on. The loop calls it after every command. Its own events are
// followed in turn, without recursion, so a chain may have any length. Work beyond its share of the turn is owed: the loop sends FollowUp
// for it.
func Follow(tx *state.Tx, from int) {
	f := follower{tx, tx.Spent() + FollowUnits}
	for ; from < len(tx.Events()); from++ {
		switch e := tx.Events()[from].(type) {
		case state.JobStarted:
			f.follow(e.Job)
		case state.TasksDropped:
			f.each(state.Source{Job: e.Job.ArrayJobId}, func(id uint32) {
				if j := tx.Job(id); j != nil && !judgeLong(tx, j, named(e.Job, e.Tasks)) {
					settleLater(tx, id)
				}
			})
		case state.JobLeftNode:
			if !state.Live(e.Job) { // its CPUs are free while EpilogSlurmctld runs
				resumeFor(tx, e.Job)
			}
		case state.JobRequeued:
			resumeFor(tx, e.Job)
			f.name(e.Job.Spec)
		case state.JobEnded:
			f.follow(e.Job)
			resumeFor(tx, e.Job)
			f.name(e.Job.Spec)
			if e.Job.Spec.Cron != "" {
				cronEnded(tx, e.Job)
			}
		}
	}
}

// FollowUp does the work that Follow owes, and completes throttles of arrays that a crash of the controller interrupted. The loop sends it
// while there is such work.
type FollowUp struct{}

// Handle looks at the waiting jobs in turn.
func (c FollowUp) Handle(tx *state.Tx) any {
	if finishThrottle(tx) {
		return More{c}
	}
	for until := tx.Spent() + FollowUnits; tx.Spent() < until; {
		id, ok := tx.PayOne()
		if !ok {
			return nil
		}
		tx.Spend(1)
		settleLater(tx, id)
	}
	return More{c}
}

// settleLater looks at a record that waits for others, if it still exists.
func settleLater(tx *state.Tx, id uint32) {
	if j := tx.Job(id); j != nil && state.Pending(j) {
		settleNew(tx, j)
	}
}

// followName looks at the singletons of a name that a record used to have.
func followName(tx *state.Tx, s *pb.JobSpec) { follower{tx, tx.Spent() + FollowUnits}.name(s) }

// follower follows up events until it has spent its share.
type follower struct {
	tx    *state.Tx
	until int
}

// each looks at the records that wait for a source, or leaves them to a later turn.
func (f follower) each(s state.Source, look func(id uint32)) {
	if !f.tx.Awaited(s) {
		return
	}
	if f.tx.Owes(s) || f.tx.Spent() >= f.until {
		f.tx.Owe(s, nil)
		return
	}
	ids := f.tx.WaitingFor(s)
	f.tx.Spend(len(ids) / 16)
	for i, id := range ids {
		if f.tx.Spent() >= f.until {
			f.tx.Owe(s, ids[i:])
			return
		}
		look(id)
	}
}

// name looks at the singletons of a name after one of its records has gone or stopped running.
func (f follower) name(s *pb.JobSpec) {
	f.each(state.Source{UID: s.Uid, Name: s.Name}, func(id uint32) {
		if j := f.tx.Job(id); j != nil && !judgeLong(f.tx, j, []jobid.Condition{{Kind: jobid.Singleton}}) {
			look(f.tx, j)
		}
	})
}

// follow looks at the records that wait for a job or its array.
func (f follower) follow(changed *pb.JobRecord) {
	one := func(id uint32) { lookFor(f.tx, f.tx.Job(id), changed) }
	f.each(state.Source{Job: changed.Id}, one)
	if changed.ArrayJobId != 0 && changed.ArrayJobId != changed.Id {
		f.each(state.Source{Job: changed.ArrayJobId}, one)
	}
}

// lookFor weighs a waiting job again because another has changed. Tasks whose counterpart has ended are split from the others, whose
// counterparts have not.
func lookFor(tx *state.Tx, j, changed *pb.JobRecord) {
	if j != nil && judgeLong(tx, j, named(changed, tasksOf(changed))) {
		return
	}
	if corresponds(j, changed) {
		if part := state.ArraySet(j).Common(tasksOf(changed)); part.Count() > 0 && !state.Active(changed) {
			look(tx, splitTasks(tx, j, part))
		}
		if tx.ArrayActive(changed.ArrayJobId) {
			return
		}
		j = tx.Job(j.Id)
	}
	look(tx, j)
}

// corresponds reports whether a record of several tasks waits with aftercorr, and nothing else, for the array of another.
func corresponds(j, changed *pb.JobRecord) bool {
	if j == nil || j.ArrayTasks == "" || changed.ArrayJobId == 0 || !state.Pending(j) {
		return false
	}
	d, err := jobid.ParseDependency(j.Dependency)
	if err != nil {
		return false
	}
	found := false
	for _, c := range d.Conditions {
		if c.Job == changed.ArrayJobId || c.Job == changed.Id {
			if c.Kind != jobid.AfterCorr {
				return false
			}
			found = true
		}
	}
	return found
}

// tasksOf returns the tasks of an array that a record stands for.
func tasksOf(j *pb.JobRecord) jobid.Set {
	if j.IsArrayTask {
		return jobid.SetOf(j.ArrayTaskId)
	}
	return state.ArraySet(j)
}

// look weighs a waiting job again because another has changed.
func look(tx *state.Tx, j *pb.JobRecord) {
	if j == nil || j.Dependency == "" || !state.Pending(j) {
		return
	}
	tx.Spend(3 + len(j.Dependency)/16)
	n := state.CloneJob(j)
	never := weigh(tx, n)
	if n.DependencyNever && killsOnInvalid(tx, n) {
		endPending(tx, n, pb.JobState_JOB_CANCELLED, pb.ReasonDependencyNever)
		return
	}
	if n.Dependency != j.Dependency || n.DependencyNever != j.DependencyNever || n.DependencyShown != j.DependencyShown ||
		n.Spec != j.Spec {
		tx.Emit(state.JobChanged{Job: n, What: "dependency"})
	}
	if w := tx.LongWait(n); w != nil {
		w.Reset(never)
	}
}

// settleNew does after a submission or an update what look does after a change: tasks of an array whose counterparts have already ended are
// split off, and a job that can never start ends if requested.
func settleNew(tx *state.Tx, j *pb.JobRecord) {
	if j.Dependency == "" {
		return
	}
	for _, part := range spread(tx, j) {
		look(tx, part)
	}
}

// spread splits a record of several tasks by the states of their aftercorr counterparts.
func spread(tx *state.Tx, j *pb.JobRecord) []*pb.JobRecord {
	parts := []*pb.JobRecord{j}
	if j.ArrayTasks == "" {
		return parts
	}
	d, err := jobid.ParseDependency(j.Dependency)
	if err != nil {
		return parts
	}
	for _, c := range d.Conditions {
		if c.Kind != jobid.AfterCorr || tx.ArrayCounts(c.Job).Records == 0 {
			continue
		}
		for i := range parts { // parts added by this condition need not be split by it
			good, bad := endedTasks(tx, c.Job, state.ArraySet(parts[i]))
			for _, set := range []jobid.Set{good, bad} {
				if n := set.Count(); n > 0 && n < state.ArraySet(parts[i]).Count() {
					parts = append(parts, splitTasks(tx, parts[i], set))
					parts[i] = tx.Job(parts[i].Id)
				}
			}
		}
	}
	return parts
}

// endedTasks returns those of the given tasks of an array that have ended: well, or not.
func endedTasks(tx *state.Tx, array uint32, tasks jobid.Set) (good, bad jobid.Set) {
	var own [2][]uint32
	take := func(o *pb.JobRecord) {
		if o != nil && !state.Active(o) {
			own[wentBadly(o)] = append(own[wentBadly(o)], o.ArrayTaskId)
		}
	}
	if n := tx.ArrayCounts(array).Records; tasks.Count() <= uint64(n) {
		for t := range tasks.All() {
			take(tx.Job(tx.OwnRecord(array, t)))
		}
	} else { // fewer records than tasks
		for _, id := range tx.ArrayRecords(array) {
			if o := tx.Job(id); o.IsArrayTask && tasks.Has(o.ArrayTaskId) {
				take(o)
			}
		}
	}
	tx.Spend(int(min(tasks.Count(), uint64(tx.ArrayCounts(array).Records))) / 8)
	sets := [2]jobid.Set{jobid.SetOf(own[0]...), jobid.SetOf(own[1]...)}
	for _, id := range tx.SharedRecords(array) {
		if o := tx.Job(id); !state.Active(o) {
			sets[wentBadly(o)] = sets[wentBadly(o)].With(tasks.Common(state.ArraySet(o)))
		}
	}
	for _, dropped := range tx.DroppedTasks(array) {
		sets[1] = sets[1].With(tasks.Common(dropped))
	}
	return sets[0], sets[1]
}

func wentBadly(o *pb.JobRecord) int {
	if state.Good(o) {
		return 0
	}
	return 1
}

// killsOnInvalid reports whether a job that can never start is ended: --kill-on-invalid-dep, or kill_invalid_depend of
// DependencyParameters.
func killsOnInvalid(tx *state.Tx, j *pb.JobRecord) bool {
	switch j.Spec.KillOnInvalidDep {
	case pb.Yes:
		return true
	case pb.No:
		return false
	}
	return tx.Settings().KillInvalidDepend
}

// maxCycleWalk bounds the search for cycles of one command: some hundred milliseconds.
const maxCycleWalk = 200000

// circular refuses a changed dependency that would lead back to the job over others. Each condition that it visits is subtracted from walk.
func circular(tx *state.Tx, j *pb.JobRecord, d jobid.Dependency, walk *int) *pb.Problem {
	isSelf := func(id uint32) bool { return id == j.Id || j.ArrayJobId != 0 && id == j.ArrayJobId }
	seen := map[uint32]bool{}
	var open []uint32
	push := func(d jobid.Dependency) {
		*walk -= 1 + len(d.Conditions)
		tx.Spend(1 + len(d.Conditions))
		for _, c := range d.Conditions {
			if c.Kind != jobid.Singleton && !seen[c.Job] {
				seen[c.Job] = true
				open = append(open, c.Job)
			}
		}
	}
	for _, c := range d.Conditions {
		if isSelf(c.Job) {
			return pb.NewProblem(pb.CodeDependency, "job %s would depend on itself", state.JobName(j))
		}
	}
	push(d)
	for len(open) > 0 {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		if isSelf(id) {
			return pb.NewProblem(pb.CodeCircularDependency, "job %s would depend on jobs that depend on it", state.JobName(j))
		}
		if *walk < 0 {
			return pb.NewProblem(pb.CodeDependency,
				"job %s has too many direct and indirect dependencies: one request may follow %d of them", state.JobName(j),
				maxCycleWalk).WithHint("change fewer jobs at a time, or name fewer jobs to wait for")
		}
		for _, next := range dependenciesOf(tx, id) {
			push(next)
		}
	}
	return nil
}

// dependenciesOf returns the dependencies of the records of a job or array.
func dependenciesOf(tx *state.Tx, id uint32) (list []jobid.Dependency) {
	records := tx.ArrayRecords(id)
	if len(records) == 0 {
		records = []uint32{id}
	}
	for _, r := range records {
		if o := tx.Job(r); o != nil && o.Dependency != "" {
			if d, err := jobid.ParseDependency(o.Dependency); err == nil {
				list = append(list, d)
			}
		}
	}
	return list
}

func setDependency(e *jobEdit, key, value string) *pb.Problem {
	if p := e.onlyPending(key); p != nil {
		return p
	}
	d, p := readDependency(e.tx, value, e.ends)
	if p != nil {
		return p
	}
	if p := circular(e.tx, e.job, d, e.walk); p != nil {
		return p
	}
	e.job.Spec.Dependency, e.job.Dependency = value, d.String()
	weigh(e.tx, e.job)
	return nil
}
