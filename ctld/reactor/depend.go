package reactor

import (
	"slices"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Dependencies (sbatch(1), --dependency). JobRecord.dependency holds what is still to happen; a condition that has been met is
// dropped for good, so that its job may be forgotten. Follow looks at the waiting jobs after every change of a job they name;
// nothing polls.

// truth of a condition.
type truth int

const (
	waits truth = iota
	met
	never
)

// firstLook reads the dependency of a new job and drops what has been met already. Naming a job that does not exist is refused.
func firstLook(tx *state.Tx, j *pb.JobRecord) *pb.Problem {
	d, p := readDependency(tx, j.Spec.Dependency)
	if p != nil {
		return p
	}
	j.Dependency = d.String()
	weigh(tx, j)
	return nil
}

func readDependency(tx *state.Tx, text string) (jobid.Dependency, *pb.Problem) {
	d, err := jobid.ParseDependency(text)
	if err != nil {
		return d, pb.NewProblem(pb.CodeDependency, "%v", err)
	}
	for _, c := range d.Conditions {
		if c.Kind != jobid.Singleton && tx.Job(c.Job) == nil {
			return d, pb.NewProblem(pb.CodeDependency, "there is no job %d (%s)", c.Job, c)
		}
	}
	return d, nil
}

// weigh drops the conditions that have been met, in j itself, and says in the reason what is the matter.
func weigh(tx *state.Tx, j *pb.JobRecord) {
	if j.Dependency == "" {
		return
	}
	d, err := jobid.ParseDependency(j.Dependency)
	if err != nil {
		return // written by this program
	}
	var rest []jobid.Condition
	impossible := 0
	for _, c := range d.Conditions {
		switch t := judgeCondition(tx, j, c); {
		case t == met && d.Any:
			d.Conditions, rest, impossible = nil, nil, 0
			settleDependency(tx, j, "", false)
			return
		case t == met:
		case t == never:
			impossible++
			rest = append(rest, c)
		default:
			rest = append(rest, c)
		}
	}
	d.Conditions = rest
	settleDependency(tx, j, d.String(), impossible > 0 && (!d.Any || impossible == len(rest)))
}

func settleDependency(tx *state.Tx, j *pb.JobRecord, rest string, impossible bool) {
	j.Dependency, j.DependencyNever = rest, impossible
	if j.Priority == 0 {
		return // held: that reason comes first
	}
	switch {
	case impossible:
		j.Reason = "DependencyNeverSatisfied"
	case rest != "":
		j.Reason = "Dependency"
	case j.Reason == "Dependency" || j.Reason == "DependencyNeverSatisfied":
		j.Reason = "None"
	}
	if rest == "" {
		j.EligibleNs = max(tx.NowNS, j.Spec.BeginNs, j.EligibleNs)
	} else {
		j.EligibleNs = 0
	}
}

func judgeCondition(tx *state.Tx, j *pb.JobRecord, c jobid.Condition) truth {
	if c.Kind == jobid.Singleton {
		for _, id := range tx.SameName(j.Spec.Uid, j.Spec.Name) {
			if o := tx.Job(id); o.Id < j.Id && (o.ArrayJobId == 0 || o.ArrayJobId != j.ArrayJobId) {
				return waits
			}
		}
		return met
	}
	if c.Kind == jobid.AfterCorr {
		if j.IsArrayTask && len(tx.ArrayRecords(c.Job)) > 0 {
			c.Kind, c.Task, c.HasTask = jobid.AfterOK, j.ArrayTaskId, true
		} else if j.ArrayTasks != "" && len(tx.ArrayRecords(c.Job)) > 0 {
			return waits // task by task: corresponding splits them off
		} else {
			c.Kind = jobid.AfterOK
		}
	}
	jobs := meant(tx, c)
	if len(jobs) == 0 { // forgotten, or a task that never was
		if c.Kind == jobid.After || c.Kind == jobid.AfterAny {
			return met
		}
		return never
	}
	return overall(tx, j, c, jobs)
}

// meant are the records that a condition speaks of.
func meant(tx *state.Tx, c jobid.Condition) []*pb.JobRecord {
	if c.HasTask {
		if id := tx.TaskRecord(c.Job, c.Task); id != 0 {
			return []*pb.JobRecord{tx.Job(id)}
		}
		return nil
	}
	var jobs []*pb.JobRecord
	for _, id := range tx.ArrayRecords(c.Job) {
		jobs = append(jobs, tx.Job(id))
	}
	if len(jobs) == 0 {
		if o := tx.Job(c.Job); o != nil {
			jobs = append(jobs, o)
		}
	}
	return jobs
}

// overall judges a condition over all records it speaks of: of an array every task counts.
func overall(tx *state.Tx, j *pb.JobRecord, c jobid.Condition, jobs []*pb.JobRecord) truth {
	ended, good, begun := 0, 0, 0
	var lastStart int64
	for _, o := range jobs {
		if o.StartNs > 0 || o.State != pb.JobState_JOB_PENDING {
			begun++
			lastStart = max(lastStart, o.StartNs)
		}
		if !state.Active(o) {
			ended++
			if o.State == pb.JobState_JOB_COMPLETED && o.ExitStatus == 0 {
				good++
			}
		}
	}
	switch c.Kind {
	case jobid.After:
		if begun < len(jobs) {
			return waits
		}
		if c.DelayMin > 0 { // from now on it is a matter of time alone
			if at := lastStart + int64(c.DelayMin)*60e9; at > j.Spec.BeginNs {
				j.Spec = state.CloneSpec(j.Spec)
				j.Spec.BeginNs = at
			}
		}
		return met
	case jobid.AfterAny:
		if ended == len(jobs) {
			return met
		}
	case jobid.AfterOK:
		if ended > good {
			return never
		}
		if good == len(jobs) {
			return met
		}
	case jobid.AfterNotOK:
		if ended > good {
			return met
		}
		if ended == len(jobs) {
			return never
		}
	}
	return waits
}

// Follow brings the waiting jobs up to date after the events from the given one on. The loop calls it after every command. What it
// emits is followed in turn, without recursion, so a chain may have any length.
func Follow(tx *state.Tx, from int) {
	for ; from < len(tx.Events()); from++ {
		switch e := tx.Events()[from].(type) {
		case state.JobStarted:
			follow(tx, e.Job)
		case state.JobEnded:
			follow(tx, e.Job)
			resumeFor(tx, e.Job)
			for _, id := range tx.SameName(e.Job.Spec.Uid, e.Job.Spec.Name) {
				look(tx, tx.Job(id), e.Job)
			}
		}
	}
}

func follow(tx *state.Tx, changed *pb.JobRecord) {
	ids := tx.Waiting(changed.Id)
	if changed.ArrayJobId != 0 && changed.ArrayJobId != changed.Id {
		ids = append(ids, tx.Waiting(changed.ArrayJobId)...)
	}
	for _, id := range ids {
		look(tx, tx.Job(id), changed)
	}
}

// look weighs a waiting job again because another changed.
func look(tx *state.Tx, j, changed *pb.JobRecord) {
	if j == nil || j.Dependency == "" || !state.Pending(j) {
		return
	}
	if j.ArrayTasks != "" && changed.IsArrayTask && !state.Active(changed) {
		j = corresponding(tx, j, changed)
	}
	n := state.CloneJob(j)
	weigh(tx, n)
	if n.Dependency == j.Dependency && n.DependencyNever == j.DependencyNever && n.Spec == j.Spec {
		return
	}
	if n.DependencyNever && killsOnInvalid(tx, n) {
		endPending(tx, n, pb.JobState_JOB_CANCELLED, "DependencyNeverSatisfied")
		return
	}
	tx.Emit(state.JobChanged{Job: n, What: "dependency"})
}

// corresponding splits off the task with the index of a task that has ended, when aftercorr asks for it.
func corresponding(tx *state.Tx, j, ended *pb.JobRecord) *pb.JobRecord {
	d, err := jobid.ParseDependency(j.Dependency)
	if err != nil || !state.ArraySet(j).Has(ended.ArrayTaskId) {
		return j
	}
	corr := slices.ContainsFunc(d.Conditions, func(c jobid.Condition) bool { return c.Kind == jobid.AfterCorr && c.Job == ended.ArrayJobId })
	if !corr {
		return j
	}
	n := splitTasks(tx, j, jobid.SetOf(ended.ArrayTaskId))
	if n.ArrayTasks != "" {
		n = state.CloneJob(n)
		n.ArrayTasks, n.IsArrayTask, n.ArrayTaskId = "", true, ended.ArrayTaskId
		tx.Emit(state.JobChanged{Job: n, What: "last task"})
	}
	return n
}

// killsOnInvalid: --kill-on-invalid-dep, or kill_invalid_depend of DependencyParameters.
func killsOnInvalid(tx *state.Tx, j *pb.JobRecord) bool {
	switch j.Spec.KillOnInvalidDep {
	case pb.Yes:
		return true
	case pb.No:
		return false
	}
	return tx.Settings().KillInvalidDepend
}

// maxCycleWalk bounds the walk that looks for a cycle.
const maxCycleWalk = 1 << 20

// dependsOnSelf reports whether a changed dependency would, over others, lead back to the job.
func dependsOnSelf(tx *state.Tx, j *pb.JobRecord, d jobid.Dependency) bool {
	seen := map[uint32]bool{}
	var open []uint32
	push := func(d jobid.Dependency) {
		for _, c := range d.Conditions {
			if c.Kind != jobid.Singleton && !seen[c.Job] {
				seen[c.Job] = true
				open = append(open, c.Job)
			}
		}
	}
	push(d)
	for len(open) > 0 && len(seen) < maxCycleWalk {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		if id == j.Id || j.ArrayJobId != 0 && id == j.ArrayJobId {
			return true
		}
		if o := tx.Job(id); o != nil && o.Dependency != "" {
			if next, err := jobid.ParseDependency(o.Dependency); err == nil {
				push(next)
			}
		}
	}
	return false
}

func setDependency(e *jobEdit, key, value string) *pb.Problem {
	if p := e.onlyPending(key); p != nil {
		return p
	}
	d, p := readDependency(e.tx, value)
	if p != nil {
		return p
	}
	if dependsOnSelf(e.tx, e.job, d) {
		return pb.NewProblem(pb.CodeDependency, "job %d would wait for itself", e.job.Id)
	}
	e.job.Spec.Dependency, e.job.Dependency, e.job.DependencyNever = value, d.String(), false
	if e.job.EligibleNs == 0 {
		e.job.EligibleNs = max(e.tx.NowNS, e.job.Spec.BeginNs)
	}
	weigh(e.tx, e.job)
	if e.job.Dependency == "" && e.job.Reason == "Dependency" {
		e.job.Reason = "None"
	}
	return nil
}
