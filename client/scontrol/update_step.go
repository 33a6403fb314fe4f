package scontrol

import (
	"context"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/jobid"
)

// updateStep is scontrol update StepId=JOB.STEP TimeLimit=…; a bare job id means all its steps created by srun.
func (c *control) updateStep(subject pair, rest []pair) int {
	if len(rest) == 0 {
		return c.fail("No changes specified")
	}
	req := &msg.UpdateStepRequest{Id: strings.TrimSpace(subject.value)}
	for _, p := range rest {
		key, ok := canonicalKey([]string{"TimeLimit"}, p.key)
		switch {
		case !p.given:
			return c.fail("Invalid input: "+p.word, "Request aborted")
		case !ok:
			return c.notUpdatable(p.word, []string{"TimeLimit"}, p.key)
		}
		value, refusal := jobValue(c.env.Now(), key, p.value)
		if refusal != nil {
			return c.fail(refusal...)
		}
		req.Set = append(req.Set, &msg.KeyValue{Key: key, Value: value})
	}
	id, err := jobid.Parse(req.Id)
	switch {
	case err != nil:
		return c.fail("Invalid StepID parameter: "+subject.word, "Request aborted")
	case id.Step == jobid.StepBatch || id.Step == jobid.StepExtern:
		return c.fail("slurm_update error: Requested operation not supported on this system",
			"the batch script has the time limit of its job: scontrol update jobid="+strings.Split(req.Id, ".")[0]+" timelimit=…")
	}
	conn, err := c.dial()
	if err != nil {
		return c.callFailed("slurm_update error", err)
	}
	if _, err := conn.UpdateStep(context.Background(), req); err != nil {
		return c.callFailed("slurm_update error", err)
	}
	return 0
}
