package reactor

import (
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// IdleGPUs: all GPUs of a job have been idle for as long as gpu_idle= allows, or are busy again.
type IdleGPUs struct {
	Job, Attempt uint32
	Since        string // when they were last busy, in words; "" = they are busy again
	Action       string // mark, warn or cancel (gpu_idle_action=)
}

// idleDetail begins the detail of a job that leaves its GPUs idle.
const idleDetail = "idle GPUs: "

// Handle marks the job, and cancels it where Action says so.
func (c IdleGPUs) Handle(tx *state.Tx) any {
	j := tx.Job(c.Job)
	if j == nil || j.Attempt != c.Attempt || j.State != pb.JobState_JOB_RUNNING || j.StopReason != "" {
		return nil
	}
	marked := IdleMarked(j)
	n := state.CloneJob(j)
	switch {
	case c.Since == "" && marked:
		n.ReasonDetail = ""
		tx.Emit(state.JobChanged{Job: n, What: "GPUs busy again"})
	case c.Since == "" || marked && c.Action != "cancel":
	case c.Action == "cancel":
		n.ReasonDetail = idleDetail + "nothing has run on them since " + c.Since +
			"; cancelled by this cluster's rule (gpu_idle_action=cancel)"
		n.SystemComment = joinText(n.SystemComment, n.ReasonDetail)
		order(tx, n, pb.StopCancel, pb.JobState_JOB_CANCELLED, tx.Settings().SlurmUserUID)
	default:
		n.ReasonDetail = idleDetail + "nothing has run on them since " + c.Since
		n.SystemComment = joinText(n.SystemComment, n.ReasonDetail)
		what := state.WhatIdle
		if c.Action == "warn" {
			what = state.WhatWarned
		}
		tx.Emit(state.JobChanged{Job: n, What: what})
	}
	return nil
}

// IdleMarked reports whether a job is marked as leaving its GPUs idle.
func IdleMarked(j *pb.JobRecord) bool { return strings.HasPrefix(j.ReasonDetail, idleDetail) }
