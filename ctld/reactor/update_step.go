package reactor

import (
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// UpdateStep is scontrol update StepId=…, for one step or all running steps of a job.
type UpdateStep struct {
	Caller Caller
	ID     string // "12.0", "12_3.0", "12"
	Set    []*pb.KeyValue
}

// Handle changes the time limit.
func (c UpdateStep) Handle(tx *state.Tx) any {
	t, p := newFinder(tx, c.Caller).find(c.ID)
	if p != nil {
		return p
	}
	j := t.records[0]
	if p := (CreateStep{Caller: c.Caller, Job: j.Id}).refused(j); p != nil {
		return p
	}
	list := tx.Steps(j.Id).Live()
	if t.step != "" {
		id, ok := stepNumber(t.step)
		if !ok {
			return pb.NewProblem(pb.CodeInvalidJobID, "%.80s is not a step of srun", c.ID)
		}
		s, p := liveStep(tx, j, id)
		if p != nil {
			return p
		}
		list = []*pb.StepRecord{s}
	}
	limit, p := c.limit()
	if p != nil {
		return p
	}
	for _, s := range list {
		n := state.CloneStep(s)
		n.TimeLimitS, n.LimitNs = limit, 0
		if limit != pb.Unlimited {
			n.LimitNs = n.StartNs + n.SuspendedNs + int64(limit)*1e9
		}
		tx.Emit(state.StepChanged{Step: n, What: "updated"})
	}
	return Outcomes{Seq: tx.Seq}
}

// limit returns the requested time limit; no other key of a step can be changed.
func (c UpdateStep) limit() (limit uint32, p *pb.Problem) {
	limit = pb.Unlimited
	for _, kv := range c.Set {
		switch strings.ToLower(kv.Key) {
		case "timelimit":
			m, err := timespec.ParseMinutes(kv.Value)
			if err != nil {
				return 0, pb.NewProblem(pb.CodeInvalidTimeLimit, "%v", err)
			}
			limit = limitSeconds(m)
		default:
			return 0, pb.NewProblem(pb.CodeNotSupported, "%.80s of step %.80s cannot be changed, only TimeLimit can", kv.Key, c.ID)
		}
	}
	if len(c.Set) == 0 {
		return 0, pb.NewProblem(pb.CodeInvalidSpec, "nothing is to be changed of step %.80s", c.ID)
	}
	return limit, nil
}
