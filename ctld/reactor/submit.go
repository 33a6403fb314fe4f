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
	if p := roomFor(tx, c.Job.Spec.Uid, c.Job.Spec.User, 1); p != nil {
		return p.WithHint("use a job array, or try again when some have finished")
	}
	if d := c.Job.Spec.DeadlineNs; d != 0 && d <= tx.NowNS {
		return pb.NewProblem(pb.CodeInvalidTimeLimit, "--deadline has passed")
	}
	j := state.CloneJob(c.Job)
	tx.ShareLimits(j.Spec)
	j.Id = tx.NextJobID()
	j.SubmitNs = tx.NowNS
	j.EligibleNs = max(tx.NowNS, j.Spec.BeginNs)
	if j.Spec.Hold {
		j.Reason, j.Priority = "JobHeldUser", 0
		if j.Spec.BeginNs <= tx.NowNS {
			j.EligibleNs = 0
		}
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
	j.Oversubscribe = state.Oversubscribed(tx.Partition(j.Partition))
	tx.Emit(state.JobSubmitted{Job: j, Script: c.Script})
	settleNew(tx, j)
	return Submitted{ID: j.Id, Seq: tx.Seq}
}

// roomFor refuses more records than the controller, or one user, may have. Root and SlurmUser have no limit of their own.
func roomFor(tx *state.Tx, uid uint32, user string, more int) *pb.Problem {
	s, all, own := tx.Settings(), tx.Jobs().Len(), tx.UserJobs(uid)
	switch {
	case s.MaxJobCount > 0 && all+more > int(s.MaxJobCount):
		return pb.NewProblem(pb.CodeQueueFull, "the controller holds %d jobs, this needs %d more, and MaxJobCount of slurm.conf is %d", all, more, s.MaxJobCount)
	case s.MaxJobsPerUser > 0 && own+more > int(s.MaxJobsPerUser) && uid != 0 && uid != s.SlurmUserUID:
		return pb.NewProblem(pb.CodeQueueFull, "%d jobs of user %s are queued or running, this needs %d more, and one user may have %d", own, user, more, s.MaxJobsPerUser)
	}
	return nil
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
