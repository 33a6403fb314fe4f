package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Submit makes a job of a record that admit has checked and completed; id, times and priority are still to be filled.
type Submit struct {
	Job    *pb.JobRecord
	Script []byte // state.EncodeScript
}

// Submitted is the reply to Submit.
type Submitted struct {
	ID  uint32
	Seq uint64
}

// Handle accepts the job, or returns the id it was given when the same request came before.
func (c Submit) Handle(tx *state.Tx) any {
	if id := tx.JobByRequest(c.Job.RequestId); id != 0 {
		return Submitted{ID: id, Seq: tx.Seq}
	}
	s := tx.Settings()
	if n := tx.Jobs().Len(); s.MaxJobCount > 0 && n >= int(s.MaxJobCount) {
		return pb.NewProblem(pb.CodeQueueFull, "the controller holds %d jobs, MaxJobCount of slurm.conf", n).WithHint("try again when some have finished")
	}
	if n := tx.UserJobs(c.Job.Spec.Uid); s.MaxJobsPerUser > 0 && n >= int(s.MaxJobsPerUser) && c.Job.Spec.Uid != 0 && c.Job.Spec.Uid != s.SlurmUserUID {
		return pb.NewProblem(pb.CodeQueueFull, "%d jobs of user %s are queued or running, the limit for one user", n, c.Job.Spec.User).WithHint("use a job array, or try again when some have finished")
	}
	j := state.CloneJob(c.Job)
	j.Id = tx.NextJobID()
	j.SubmitNs = tx.NowNS
	j.EligibleNs = max(tx.NowNS, j.Spec.BeginNs)
	if j.Spec.Hold {
		j.Reason, j.Priority, j.EligibleNs = "JobHeldUser", 0, 0
	} else {
		j.Priority = submitPriority(tx, j)
	}
	if j.EligibleNs <= tx.NowNS {
		j.AccrueNs = j.EligibleNs
	}
	if j.Spec.Array != "" {
		if p := makeArray(tx, j); p != nil {
			return p
		}
	}
	if p := firstLook(tx, j); p != nil {
		return p
	}
	if j.EligibleNs == 0 {
		j.AccrueNs = 0
	}
	tx.Emit(state.JobSubmitted{Job: j, Script: c.Script})
	settleNew(tx, j)
	return Submitted{ID: j.Id, Seq: tx.Seq}
}

// FindRequest asks for the job that a request id made. The reply is Submitted, with id 0 when there is none.
type FindRequest struct{ RequestID string }

// Handle looks it up.
func (c FindRequest) Handle(tx *state.Tx) any {
	return Submitted{ID: tx.JobByRequest(c.RequestID), Seq: tx.Seq}
}

// topPriority is where priority/basic begins to count down, one for each job, as Slurm's does.
const topPriority = 4294901760

func submitPriority(tx *state.Tx, j *pb.JobRecord) uint32 {
	if j.Spec.Priority != 0 {
		return j.Spec.Priority
	}
	if tx.Settings().PriorityBasic {
		return topPriority - j.Id%(topPriority-1)
	}
	return 1
}
