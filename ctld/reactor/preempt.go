package reactor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// PlannedPreempt preempts a running job (slurm.conf(5), PreemptMode, GraceTime).
type PlannedPreempt struct {
	ID     uint32
	Mode   string // REQUEUE, CANCEL, SUSPEND
	GraceS int64
	For    uint32 // the job that replaces it
	Why    string
}

func preempt(tx *state.Tx, p *PlannedPreempt) bool {
	j, by := tx.Job(p.ID), tx.Job(p.For)
	if j == nil || by == nil || j.State != pb.JobState_JOB_RUNNING || j.StopReason != "" || j.PreemptedBy != "" || !state.Pending(by) {
		return false
	}
	n := state.CloneJob(j)
	n.PreemptedBy, n.ReasonDetail = nameToStart(by), fmt.Sprintf("preempted by job %s of %s: %s", nameToStart(by), by.Spec.User, p.Why)
	if p.Mode == "SUSPEND" {
		pause(tx, n, "for "+n.PreemptedBy)
		return true
	}
	n.StopState = pb.JobState_JOB_PREEMPTED
	if p.Mode == "REQUEUE" && mayRequeue(tx, j) {
		n.StopState = pb.JobState_JOB_PENDING
	}
	if p.GraceS <= 0 {
		order(tx, n, pb.StopPreempt, n.StopState, tx.Settings().SlurmUserUID)
		return true
	}
	n.PreemptNs = tx.NowNS + p.GraceS*1e9
	tx.Emit(state.JobChanged{Job: n, What: "preempted, with grace"})
	// To its steps and not to the script, as in Slurm: a script without a handler would be killed, so it would get no grace time and not be
	// requeued.
	_ = signal(tx, tx.Job(j.Id), uint32(unix.SIGCONT), pb.SignalSteps, "")
	_ = signal(tx, tx.Job(j.Id), uint32(unix.SIGTERM), pb.SignalSteps, "")
	return true
}

// overdue ends preempted jobs whose grace time is over.
func overdue(tx *state.Tx, j *pb.JobRecord) {
	if j.PreemptNs != 0 && j.PreemptNs <= tx.NowNS && j.StopReason == "" && j.State == pb.JobState_JOB_RUNNING {
		order(tx, j, pb.StopPreempt, j.StopState, tx.Settings().SlurmUserUID)
	}
}

// nameToStart returns the name that a waiting job will have once it runs. The record of an array changes its name with every task that
// leaves it, so this is the name of the task that starts next.
func nameToStart(j *pb.JobRecord) string {
	if first, ok := state.ArraySet(j).Min(); ok {
		return fmt.Sprintf("%d_%d", j.ArrayJobId, first)
	}
	return state.JobName(j)
}

// resumeFor continues the jobs that were suspended for a job that has ended or was requeued. A job whose CPUs another job has taken
// meanwhile stays suspended until that one has ended.
func resumeFor(tx *state.Tx, ended *pb.JobRecord) {
	for _, id := range suspendedFor(tx, ended) {
		j := tx.Job(id)
		if j.State != pb.JobState_JOB_SUSPENDED || j.StopReason != "" {
			continue
		}
		n := state.CloneJob(j)
		if other := inTheWay(tx, j); other != nil {
			n.PreemptedBy = state.JobName(other)
			n.ReasonDetail = fmt.Sprintf("goes on when job %s of %s, which has its CPUs, has ended", state.JobName(other), other.Spec.User)
			tx.Emit(state.JobChanged{Job: n, What: "stays suspended"})
			continue
		}
		n.PreemptedBy, n.ReasonDetail = "", ""
		goOn(tx, n, "resumed")
	}
}

// suspendedFor returns the active jobs that gave way to a job, or to a task of a record that stands for several, ascending.
func suspendedFor(tx *state.Tx, j *pb.JobRecord) []uint32 {
	if j.ArrayTasks == "" {
		return tx.PreemptedBy(state.JobName(j))
	}
	var out []uint32
	tasks := state.ArraySet(j)
	for _, id := range tx.Preempted() {
		array, task, _ := strings.Cut(tx.Job(id).PreemptedBy, "_")
		k, err := strconv.ParseUint(task, 10, 32)
		if err == nil && array == fmt.Sprint(j.ArrayJobId) && tasks.Has(uint32(k)) {
			out = append(out, id)
		}
	}
	return out
}

// inTheWay returns a job that has taken the CPUs of a suspended one, so that both would run on the same; nil when they are free.
func inTheWay(tx *state.Tx, j *pb.JobRecord) *pb.JobRecord {
	for _, a := range j.Alloc {
		n := tx.Node(a.Node)
		if a.Ended || !a.CpusFree || n == nil {
			continue
		}
		cores, err := state.ParseCores(a.CpuIds)
		if err != nil || cpusFree(tx, n, j.Partition, max(a.Shared, 1), cores, a) {
			continue
		}
		for _, id := range n.Jobs {
			held := state.AllocOn(tx.Job(id), n.Name)
			if held == nil || held.CpusFree {
				continue
			}
			if theirs, err := state.ParseCores(held.CpuIds); err == nil && (cores == nil || theirs == nil || theirs.Overlaps(cores)) {
				return tx.Job(id)
			}
		}
	}
	return nil
}
