package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// PastRead: accounting has reported the past use of budgets.
type PastRead struct{ Past *state.Past }

func (c PastRead) Handle(tx *state.Tx) any {
	tx.Emit(state.PastRead{Past: c.Past})
	return nil
}

// overspent ends running jobs whose budget is used up, as at their time limit.
func overspent(tx *state.Tx) {
	nowS := tx.NowNS / 1e9
	if !limit.Exhausted(tx.View(), nowS) {
		return
	}
	var over []*pb.JobRecord
	var why []string
	tx.Spend(tx.Jobs().Len() / 10)
	for j := range tx.Jobs().All() {
		if len(over) == overspentAtOnce {
			break
		}
		if j.State != pb.JobState_JOB_RUNNING || j.StopReason != "" {
			continue
		}
		if l := limit.Overtime(tx.View(), j, nowS); l != "" {
			over, why = append(over, j), append(why, l)
		}
	}
	for i, j := range over {
		n := state.CloneJob(j)
		n.Reason, n.ReasonDetail = "TimeLimit", why[i]
		n.SystemComment = joinText(n.SystemComment, n.ReasonDetail)
		order(tx, n, pb.StopTimeout, pb.JobState_JOB_TIMEOUT, 0)
	}
}

// overspentAtOnce bounds the jobs ended in one commit.
const overspentAtOnce = 2000
