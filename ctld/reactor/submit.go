package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Submit makes a job of a record that admit has checked and completed; it fills in id, times and priority.
type Submit struct {
	Job   *pb.JobRecord
	Texts state.Texts
	// Layout is that of the view on which the job was admitted. If it has changed, the job is judged again.
	Layout uint64
	Ends   Ends // of jobs that the dependency names
	// hasRoom: the command that makes the job has already reserved room for all its records.
	hasRoom bool
}

// Submitted is the reply to Submit.
type Submitted struct {
	ID  uint32
	Seq uint64
}

// Handle accepts the job, or returns the id that the same request got before.
func (c Submit) Handle(tx *state.Tx) any {
	if id := tx.JobByRequest(c.Job.RequestId); id != 0 {
		return Submitted{ID: id, Seq: tx.Seq}
	}
	if p := roomFor(tx, c.Job.Spec.Uid, c.Job.Spec.User, 1, false); p != nil && !c.hasRoom {
		return forNow(p)
	}
	if p := Deadline(tx.NowNS, c.Job.Spec, c.Job.Spec.BeginNs); p != nil {
		return p
	}
	j := state.CloneJob(c.Job)
	if c.Layout != tx.View().Layout {
		j.Spec = state.CloneSpec(j.Spec)
		if p := admit.New(tx.View(), j); p != nil {
			return p
		}
	}
	limit.Time(tx.View(), j)
	tx.ShareLimits(j.Spec)
	c.Texts.Name(j)
	j.Id = tx.NextJobID()
	j.SubmitNs = tx.NowNS
	j.EligibleNs = max(tx.NowNS, j.Spec.BeginNs)
	if j.Spec.Hold {
		j.Reason, j.Priority = pb.ReasonHeldUser, 0
		if j.Spec.BeginNs <= tx.NowNS {
			j.EligibleNs = 0
		}
	} else {
		j.Priority = submitPriority(tx, j)
		j.AccrueNs = accrueFrom(tx, j, j.EligibleNs)
	}
	if j.Spec.Array != "" {
		if p := makeArray(tx, j); p != nil {
			return p
		}
	}
	if p := firstLook(tx, j, c.Ends); p != nil {
		return p
	}
	if j.EligibleNs == 0 {
		j.AccrueNs = 0
	}
	if p := limit.Refuses(tx.View(), j, nil); p != nil {
		return p
	}
	j.Oversubscribe = state.Oversubscribed(tx.Partition(j.Partition))
	if p := bytesFor(tx, j.Spec.Uid, j.Spec.User, state.JobBytes(j)+tx.NewTextBytes(c.Texts), c.hasRoom); p != nil {
		if p.Code == uint32(pb.CodeNoSpace) {
			return forNow(p)
		}
		return p
	}
	j.MadeSeq = tx.Seq
	tx.Emit(state.JobSubmitted{Job: j, Texts: c.Texts})
	settleNew(tx, j)
	return Submitted{ID: j.Id, Seq: tx.Seq}
}

// FindRequest looks up the job that a request id made. The reply is Submitted, with id 0 when there is none.
type FindRequest struct{ RequestID string }

func (c FindRequest) Handle(tx *state.Tx) any {
	return Submitted{ID: tx.JobByRequest(c.RequestID), Seq: tx.Seq}
}

// topPriority is the value from which priority/basic counts down, one for each job, as Slurm does.
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

// Deadline refuses a job that could not end by its deadline whenever it started: it begins too late, or needs more time (--time-min). It
// ignores the begin time of an update, as Slurm does: the job is then given up with the reason DeadLine.
func Deadline(nowNS int64, s *pb.JobSpec, begin int64) *pb.Problem {
	d := s.DeadlineNs
	switch {
	case d == 0:
		return nil
	case d <= nowNS:
		return pb.NewProblem(pb.CodeInvalidTimeLimit, "--deadline has passed")
	case begin >= d:
		return pb.NewProblem(pb.CodeInvalidTime, "the deadline is before the time at which the job may begin")
	case s.TimeMinS > 0 && max(nowNS, begin)+int64(s.TimeMinS)*1e9 > d:
		return pb.NewProblem(pb.CodeInvalidTimeMin, "%s (--time-min) do not fit before the deadline", limitText(s.TimeMinS))
	}
	return nil
}
