package explain

import (
	"cmp"
	"fmt"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Subject is what an id names: a job, or some tasks of an array.
type Subject struct {
	Job   *pb.JobRecord // the first that waits, else the last
	bad   *pb.JobRecord // one that ended otherwise than it should
	tally state.Tally
}

// NewSubject is one of which nothing is known yet.
func NewSubject() *Subject { return &Subject{tally: state.Tally{}} }

// Add takes in a job, or one of the tasks.
func (a *Subject) Add(j *pb.JobRecord) {
	a.tally.Add(j)
	if a.Job == nil || !state.Pending(a.Job) {
		a.Job = j
	}
	if j.State.Terminal() && j.State != pb.JobState_JOB_COMPLETED {
		a.bad = j
	}
}

// Summary counts the tasks of an array by their state; "" where the id names a single job or task.
func (a *Subject) Summary(id string) string {
	n := a.tally.Total()
	named, err := jobid.Parse(id)
	if err != nil || a.Job.ArrayJobId == 0 || named.Tasks != nil && n < 2 {
		return ""
	}
	text := fmt.Sprintf("Array %d: %s", a.Job.ArrayJobId, a.tally)
	if all, err := jobid.ParseArray(a.Job.ArraySpec); err == nil && named.Tasks == nil && all.Total() > n {
		text += fmt.Sprintf(", %d ended earlier", all.Total()-n)
	}
	text += ".\n"
	if one := cmp.Or(a.bad, a.Job); !state.Pending(one) {
		text += fmt.Sprintf("For one of its tasks: sluice explain %s\n", state.JobName(one))
	}
	return text
}
