package explain

import (
	"cmp"
	"fmt"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Subject is the job, or the tasks of an array, that an id names.
type Subject struct {
	Job    *pb.JobRecord // the first pending one, else the last
	id     jobid.ID
	picked jobid.Set     // named tasks; nil: all
	bad    *pb.JobRecord // one that ended badly
	tally  state.Tally
}

// NewSubject parses an id; an invalid one names nothing.
func NewSubject(v *state.View, id string) *Subject {
	a := &Subject{tally: state.Tally{}}
	a.id, _ = jobid.Parse(id)
	if a.id.Tasks != nil {
		a.picked, _ = a.id.Tasks.Set(int(v.Settings.MaxArraySize))
	}
	return a
}

// part returns those of some tasks that the id names.
func (a *Subject) part(tasks jobid.Set) jobid.Set {
	if a.id.Tasks == nil {
		return tasks
	}
	return tasks.Common(a.picked)
}

// Add adds a job, or one of the tasks.
func (a *Subject) Add(j *pb.JobRecord) {
	a.tally[j.State] += max(1, a.part(state.ArraySet(j)).Count())
	if a.Job == nil || !state.Pending(a.Job) {
		a.Job = j
	}
	if j.State.Terminal() && j.State != pb.JobState_JOB_COMPLETED {
		a.bad = j
	}
}

// AddDropped counts the tasks that were cancelled while a record of the array stood for them.
func (a *Subject) AddDropped(j *pb.JobRecord) {
	if j.Dropped != "" && j.ArrayJobId == a.id.Job {
		if n := a.part(state.Dropped(j)).Count(); n > 0 {
			a.tally[pb.JobState_JOB_CANCELLED] += n
		}
	}
}

// OnlyDropped reports whether all named tasks were cancelled in that way.
func (a *Subject) OnlyDropped() bool { return a.Job == nil && a.tally.Total() > 0 }

// Summary counts the tasks of an array by their state; "" where the id names a single job or task.
func (a *Subject) Summary() string {
	n := a.tally.Total()
	if a.id.Job == 0 || a.Job.ArrayJobId == 0 || a.id.Tasks != nil && n < 2 {
		return ""
	}
	text := fmt.Sprintf("Array %d: %s", a.Job.ArrayJobId, a.tally)
	if all, err := jobid.ParseArray(a.Job.ArraySpec); err == nil && a.id.Tasks == nil && all.Total() > n {
		text += fmt.Sprintf(", %d ended earlier", all.Total()-n)
	}
	text += ".\n"
	if one := cmp.Or(a.bad, a.Job); !state.Pending(one) {
		name := state.JobName(one)
		if first, several := a.part(state.ArraySet(one)).Min(); several {
			name = jobid.Task(one.ArrayJobId, first).String()
		}
		text += fmt.Sprintf("For one of its tasks: sluice explain %s\n", name)
	}
	return text
}
