package reactor

import (
	"slices"
	"strconv"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// stepNumber parses the number of a step; false: it is the allocation itself (batch, extern), or no step.
func stepNumber(step string) (uint32, bool) {
	if step == jobid.StepName(pb.InteractiveStep) {
		return pb.InteractiveStep, true
	}
	n, err := strconv.ParseUint(step, 10, 32)
	return uint32(n), err == nil && step != ""
}

// liveStep finds a running step.
func liveStep(tx *state.Tx, j *pb.JobRecord, id uint32) (*pb.StepRecord, *pb.Problem) {
	if s := tx.Steps(j.Id).Get(id); s != nil && state.StepLive(s) {
		return s, nil
	}
	return nil, pb.NewProblem(pb.CodeInvalidJobID, "job %s has no step %s that runs", state.JobName(j), jobid.StepName(id))
}

// cancelStep ends or signals one step of a job. A missing step is no error for a signal, as in Slurm.
func (c Cancel) cancelStep(tx *state.Tx, a *application, j *pb.JobRecord, id uint32) *pb.Problem {
	s, p := liveStep(tx, j, id)
	switch {
	case p != nil && c.signals():
		return nil
	case p != nil:
		a.ofStep = true
		return p
	}
	if c.Signal == 0 {
		stopStep(tx, s, pb.StopCancel, pb.JobState_JOB_CANCELLED, c.Caller.UID)
		return nil
	}
	signalStep(tx, s, c.Signal)
	return nil
}

func signalStep(tx *state.Tx, s *pb.StepRecord, sig uint32) {
	n := state.CloneStep(s)
	n.Signals = numbered(s.Signals, &pb.Signal{Signal: sig})
	tx.Emit(state.StepChanged{Step: n, What: "signalled"})
}

// signalSteps hands a signal for the steps of a job to each of them.
func signalSteps(tx *state.Tx, j *pb.JobRecord, sig uint32) {
	for _, s := range tx.Steps(j.Id).Live() {
		if s.Attempt == j.Attempt && !pb.IsCopy(s.StepId) {
			signalStep(tx, s, sig)
		}
	}
}

// numbered adds a signal or a message to the last ones, with the next number.
func numbered(list []*pb.Signal, s *pb.Signal) []*pb.Signal {
	s.Seq = 1
	if k := len(list); k > 0 {
		s.Seq = list[k-1].Seq + 1
	}
	return append(slices.Clone(list[max(0, len(list)-maxSignals+1):]), s)
}
