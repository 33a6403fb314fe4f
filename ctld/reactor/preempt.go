package reactor

import (
	"fmt"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// PlannedPreempt makes a running job give way (slurm.conf(5), PreemptMode, GraceTime).
type PlannedPreempt struct {
	ID     uint32
	Mode   string // REQUEUE, CANCEL, SUSPEND
	GraceS int64
	For    uint32 // the job that takes its place
	Why    string
}

func preempt(tx *state.Tx, p *PlannedPreempt) bool {
	j, by := tx.Job(p.ID), tx.Job(p.For)
	if j == nil || by == nil || j.State != pb.JobState_JOB_RUNNING || j.StopReason != "" || j.PreemptedBy != "" || !state.Pending(by) {
		return false
	}
	n := state.CloneJob(j)
	n.PreemptedBy, n.ReasonDetail = jobName(by), fmt.Sprintf("gives way to job %s of %s: %s", jobName(by), by.Spec.User, p.Why)
	if p.Mode == "SUSPEND" {
		pause(tx, n, "for "+n.PreemptedBy)
		return true
	}
	n.StopState = pb.JobState_JOB_PREEMPTED
	if p.Mode == "REQUEUE" && mayRequeue(tx, j) {
		n.StopState = pb.JobState_JOB_PENDING
	}
	if p.GraceS <= 0 {
		order(tx, n, "preempt", n.StopState, tx.Settings().SlurmUserUID)
		return true
	}
	n.PreemptNs = tx.NowNS + p.GraceS*1e9
	tx.Emit(state.JobChanged{Job: n, What: "preempted, with grace"})
	// To its steps and not to the script, as in Slurm: a script that takes no care would end of it and neither have its grace nor be requeued.
	_ = signal(tx, tx.Job(j.Id), uint32(unix.SIGCONT), pb.SignalSteps, "")
	_ = signal(tx, tx.Job(j.Id), uint32(unix.SIGTERM), pb.SignalSteps, "")
	return true
}

// overdue ends preempted jobs whose grace is over.
func overdue(tx *state.Tx, j *pb.JobRecord) {
	if j.PreemptNs != 0 && j.PreemptNs <= tx.NowNS && j.StopReason == "" && j.State == pb.JobState_JOB_RUNNING {
		order(tx, j, "preempt", j.StopState, tx.Settings().SlurmUserUID)
	}
}

// resumeFor continues the jobs that were suspended for one that has ended.
func resumeFor(tx *state.Tx, ended *pb.JobRecord) {
	for _, id := range tx.PreemptedBy(jobName(ended)) {
		j := tx.Job(id)
		if j.State != pb.JobState_JOB_SUSPENDED {
			continue
		}
		n := state.CloneJob(j)
		n.PreemptedBy, n.ReasonDetail = "", ""
		goOn(tx, n, "resumed")
	}
}
