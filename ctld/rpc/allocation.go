package rpc

import (
	"context"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// WaitAllocation answers when a job has its nodes and can have steps there, when it has ended, or, with the job's present state, after a
// timeout.
func (s *Service) WaitAllocation(ctx context.Context, r *pb.WaitAllocationRequest) (*pb.WaitAllocationReply, error) {
	var last *pb.JobRecord
	var first *pb.StepRecord
	sees := s.sees(ctx)
	wait, cancel := context.WithTimeout(ctx, min(time.Duration(r.WaitMs)*time.Millisecond, maxWait))
	defer cancel()
	err := s.Watch.until(wait, r.JobId, s.Writer.View, func(v *state.View) bool {
		j := v.Jobs.Get(r.JobId)
		if j == nil || !sees(j) {
			return true
		}
		last = j
		if r.FirstStep != "" {
			first = stepOfRequest(v, j, requestOf(peerOf(ctx).UID, r.FirstStep))
		}
		return allocated(j)
	})
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if last == nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %d", r.JobId))
	}
	return &pb.WaitAllocationReply{Job: last, Step: first}, nil
}

// stepOfRequest returns the running step that a request made, with its key: only the sender of the request knows its id.
func stepOfRequest(v *state.View, j *pb.JobRecord, request string) *pb.StepRecord {
	for _, s := range v.Steps(j.Id).Live() {
		if s.Attempt == j.Attempt && s.RequestId == request {
			return s
		}
	}
	return nil
}

// firstStep returns the step that the start of a job has to make; nil: none. srun learns of faults in it when it requests the step: its job
// exists then, as with Slurm.
func firstStep(uid uint32, r *pb.SubmitRequest) *pb.FirstStep {
	f := r.FirstStep
	if !r.Spec.Interactive || f.GetSpec() == nil || f.RequestId == "" ||
		checkStep(&pb.CreateStepRequest{Spec: f.Spec, RequestId: f.RequestId}) != nil {
		return nil
	}
	reactor.PlainWords(f.Spec)
	return &pb.FirstStep{RequestId: requestOf(uid, f.RequestId), Spec: f.Spec}
}

// allocated reports whether waiting is over: the job has its nodes, or never will.
func allocated(j *pb.JobRecord) bool {
	return j.State != pb.JobState_JOB_PENDING && j.StateFlags&pb.JobConfiguring == 0
}

// EndAllocation ends a job that has no batch script.
func (s *Service) EndAllocation(ctx context.Context, r *pb.EndAllocationRequest) (*pb.UpdateReply, error) {
	return s.update(ctx, reactor.EndAllocation{Caller: s.caller(peerOf(ctx)), Job: r.JobId, Status: r.ExitStatus & 0xffff})
}
