package reactor

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// PrologSlurmctld runs once a job has its nodes and before they hear of it: until then the job is CONFIGURING, in its durable record, and
// the dispatcher leaves it out. EpilogSlurmctld runs once nothing is left of an attempt on any node: until then the job stays COMPLETING
// without a share of any node, which is durable too, and neither ends nor is requeued. So a crash of the controller loses neither: the next
// start finds both in the state and runs the program (again). Package ctld/prolog runs them.

// Configuring reports whether PrologSlurmctld has to run for the job's attempt.
func Configuring(j *pb.JobRecord) bool {
	return j.GetStateFlags()&(pb.JobConfiguring|pb.JobPowerUp) == pb.JobConfiguring // power-up comes first
}

// CleaningUp reports whether EpilogSlurmctld has to run for the job's attempt.
func CleaningUp(j *pb.JobRecord) bool {
	return j.GetStateFlags()&pb.JobCompleting != 0 && len(j.Alloc) > 0 && !state.Live(j)
}

// PrologDone: PrologSlurmctld of an attempt has ended. Failed describes its failure, "" is success.
type PrologDone struct {
	Job, Attempt uint32
	Epoch        uint64
	Failed       string
}

// Handle lets the nodes launch the job, or gives the attempt up: the job is requeued if it may be, or cancelled, as by Slurm 22.05.
func (c PrologDone) Handle(tx *state.Tx) any {
	j := tx.Job(c.Job)
	if j == nil || j.Attempt != c.Attempt || j.Epoch != c.Epoch || !Configuring(j) {
		return nil
	}
	n := state.CloneJob(j)
	n.StateFlags &^= pb.JobConfiguring
	if c.Failed != "" {
		n.ReasonDetail = "PrologSlurmctld failed: " + c.Failed
		if mayRequeue(tx, j) {
			order(tx, n, pb.StopPrologSlurmctld, pb.JobState_JOB_PENDING, 0)
		} else {
			order(tx, n, pb.StopCancel, pb.JobState_JOB_CANCELLED, tx.Settings().SlurmUserUID)
		}
		return nil
	}
	if n.EndNs != 0 { // its time limit begins now
		n.EndNs = tx.NowNS + int64(n.TimeLimitS)*1e9
	}
	tx.Emit(state.JobChanged{Job: n, What: "configured"})
	return nil
}

// EpilogDone: EpilogSlurmctld of an attempt has ended, with any result.
type EpilogDone struct {
	Job, Attempt uint32
	Epoch        uint64
}

// Handle ends the attempt.
func (c EpilogDone) Handle(tx *state.Tx) any {
	if j := tx.Job(c.Job); j != nil && j.Attempt == c.Attempt && j.Epoch == c.Epoch && CleaningUp(j) {
		finish(tx, j)
	}
	return nil
}
