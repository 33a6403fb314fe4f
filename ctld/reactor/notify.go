package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// maxNotice bounds a message: it is kept with the job's last signals.
const maxNotice = 1000

// notify sends the batch script's shim a message, which it writes to the job's standard error (scontrol(1)). Messages are numbered like
// signals: each is written once, even across restarts.
func notify(tx *state.Tx, c Caller, j *pb.JobRecord, text string) *pb.Problem {
	if !c.mayTouch(j) {
		return c.Refused(pb.CodeUserID, j)
	}
	if j.State != pb.JobState_JOB_RUNNING && j.State != pb.JobState_JOB_SUSPENDED {
		return pb.NewProblem(pb.CodeDisabled, "job %s is %s; only a running job can be notified", state.JobName(j), state.StateName(j))
	}
	if len(text) > maxNotice {
		return pb.NewProblem(pb.CodePathTooLong, "the message has %d bytes, the limit is %d", len(text), maxNotice)
	}
	if p := admit.Text(&pb.JobSpec{Comment: text}); p != nil {
		return p
	}
	n := state.CloneJob(j)
	tell(n, &pb.Signal{Target: pb.SignalBatch, Text: text})
	tx.Emit(state.JobChanged{Job: n, What: "notified"})
	return nil
}
