package rpc

import (
	"context"
	"time"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/steps"
	"github.com/sluice-hpc/sluice/ctld/turns"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Limits of a step request.
const (
	maxStepBytes = 128 << 10
	maxAddresses = 8
	maxAddress   = 300
	maxWait      = 10 * time.Minute // a caller that needs more time asks again
)

// CreateStep makes a step. While other steps use the resources it waits outside of the writer, which is asked only when the last view had
// room.
func (s *Service) CreateStep(ctx context.Context, r *pb.CreateStepRequest) (*pb.CreateStepReply, error) {
	if r.Spec == nil {
		return nil, status.Error(codes.InvalidArgument, "the step has no specification")
	}
	if p := checkStep(r); p != nil {
		return nil, problem(p)
	}
	reactor.PlainWords(r.Spec)
	cmd := reactor.CreateStep{Caller: s.caller(peerOf(ctx)), Job: r.JobId, Spec: r.Spec}
	if r.RequestId != "" {
		cmd.RequestID = requestOf(cmd.Caller.UID, r.RequestId)
	}
	var err error
	if cmd.Certificate, cmd.Key, err = stepwire.NewCertificate(r.JobId); err != nil {
		return nil, status.Errorf(codes.Internal, "cannot create a certificate for the step: %v", err)
	}
	late := time.NewTimer(min(time.Duration(r.WaitMs)*time.Millisecond, maxWait))
	defer late.Stop()
	for {
		next := s.Watch.next(r.JobId)
		reply, err := s.createStep(ctx, cmd)
		if err != nil || reply.Busy == nil || r.WaitMs == 0 {
			s.Watch.leave(r.JobId, next)
			return reply, err
		}
		out := s.roomFor(ctx, r.JobId, cmd.Spec, next, late.C)
		switch {
		case ctx.Err() != nil:
			return nil, status.FromContextError(ctx.Err()).Err()
		case !out:
			return reply, nil
		}
	}
}

func (s *Service) createStep(ctx context.Context, cmd reactor.CreateStep) (*pb.CreateStepReply, error) {
	out, err := s.do(ctx, cmd)
	if err != nil {
		return nil, err
	}
	done := out.(reactor.CreatedStep)
	return &pb.CreateStepReply{Step: done.Step, Busy: done.Busy, Job: done.Job, Seq: done.Seq}, nil
}

// roomFor waits until a step may have room, or can never have; false: time is up, or the caller has disconnected.
func (s *Service) roomFor(ctx context.Context, job uint32, spec *pb.StepSpec, next *change, late <-chan time.Time) bool {
	for {
		select {
		case <-next.come:
		case <-late:
			s.Watch.leave(job, next)
			return false
		case <-ctx.Done():
			s.Watch.leave(job, next)
			return false
		}
		s.Watch.leave(job, next)
		next = s.Watch.next(job)
		v := s.Writer.View()
		j := v.Jobs.Get(job)
		if j == nil || j.State != pb.JobState_JOB_RUNNING || j.StopReason != "" {
			if j != nil && j.State == pb.JobState_JOB_SUSPENDED && j.StopReason == "" {
				continue
			}
			s.Watch.leave(job, next)
			return true // the writer says why not
		}
		t := turns.Of(ctx) // other calls get turns too: hundreds may wait for the same step
		if t.Take(ctx) != nil {
			continue
		}
		_, busy, _ := steps.Place(j, v.Steps(job).Live(), spec, v.Settings.MaxTasksPerNode)
		if t.Give(); busy == nil {
			s.Watch.leave(job, next)
			return true
		}
	}
}

func checkStep(r *pb.CreateStepRequest) *pb.Problem {
	if n := proto.Size(r.Spec); n > maxStepBytes {
		return pb.NewProblem(pb.CodeTooLarge, "the request for a step has %d bytes, at most %d", n, maxStepBytes)
	}
	if len(r.RequestId) > 64 {
		return pb.NewProblem(pb.CodeInvalidSpec, "the request id has %d bytes, at most 64", len(r.RequestId))
	}
	if p := admit.Container(r.Spec.RunIn); p != nil {
		return p
	}
	return checkAddresses(r.Spec.Addresses)
}

func checkAddresses(list []string) *pb.Problem {
	if len(list) == 0 || len(list) > maxAddresses {
		return pb.NewProblem(pb.CodeInvalidSpec, "%d addresses of srun, expected 1 to %d", len(list), maxAddresses)
	}
	for _, a := range list {
		if len(a) > maxAddress {
			return pb.NewProblem(pb.CodeInvalidSpec, "an address of srun has %d bytes, at most %d", len(a), maxAddress)
		}
	}
	return nil
}

// shownStep returns a step without the fields that only its nodes and its maker may have.
func shownStep(s *pb.StepRecord) *pb.StepRecord {
	if len(s.Key) == 0 && len(s.Certificate) == 0 && len(s.Watchers) == 0 {
		return s
	}
	n := state.CloneStep(s)
	n.Key, n.Certificate, n.Watchers = nil, nil, nil
	return n
}

// Steps streams the steps that match, by job and number.
func (s *Service) Steps(ctx context.Context, r *pb.StepsRequest, out pb.ControllerAPI_StepsServer) error {
	named, jobs, p := stepsNamed(r.Ids)
	if p != nil {
		return problem(p)
	}
	filter := r.Filter
	if filter == nil {
		filter = &pb.JobsRequest{AllStates: true}
	}
	sel, p := selectionOf(filter)
	if p != nil {
		return problem(p)
	}
	v, sees := s.Writer.View(), s.sees(ctx)
	page := pagesOf(func() *pb.StepsReply { return &pb.StepsReply{Seq: v.Seq, NowNs: v.NowNS} }, out.Send)
	for all := range attentive(ctx, v.AllSteps()) {
		if len(all.List) == 0 {
			continue
		}
		j := v.Jobs.Get(all.List[0].JobId)
		if j == nil || jobs != nil && !state.Named(jobs, j) || !sel.match(j) || !sees(j) {
			continue
		}
		for _, one := range all.List {
			if !r.Ended && !state.StepLive(one) || pb.IsCopy(one.StepId) || !named(j, one) {
				continue
			}
			b, err := proto.Marshal(shownStep(one))
			if err != nil {
				return err
			}
			if err := page.add(stored(b), nil); err != nil {
				return err
			}
		}
	}
	if err := gone(ctx); err != nil {
		return err
	}
	return page.end()
}

// stepsNamed parses ids of jobs and steps. It returns a test for the named steps, and their jobs; nil: all.
func stepsNamed(ids []string) (named func(*pb.JobRecord, *pb.StepRecord) bool, jobs *jobid.Names, p *pb.Problem) {
	if len(ids) == 0 {
		return func(*pb.JobRecord, *pb.StepRecord) bool { return true }, nil, nil
	}
	if jobs, p = namesOf(ids); p != nil {
		return nil, nil, p
	}
	whole := &jobid.Names{}
	of := map[uint32]*jobid.Names{} // by step
	for _, word := range ids {
		id, err := jobid.Parse(word)
		if err != nil {
			continue
		}
		into := whole
		if id.Step != jobid.StepNone {
			if of[id.Step] == nil {
				of[id.Step] = &jobid.Names{}
			}
			into = of[id.Step]
		}
		if err := into.Add(id); err != nil {
			return nil, nil, pb.NewProblem(pb.CodeInvalidSpec, "%v", err)
		}
	}
	whole.Sort()
	for _, n := range of {
		n.Sort()
	}
	return func(j *pb.JobRecord, s *pb.StepRecord) bool {
		n := of[s.StepId]
		return state.Named(whole, j) || n != nil && state.Named(n, j)
	}, jobs, nil
}

// WaitStep answers when a step has ended on all its nodes.
func (s *Service) WaitStep(ctx context.Context, r *pb.WaitStepRequest) (*pb.WaitStepReply, error) {
	var last *pb.StepRecord
	sees := s.sees(ctx)
	err := s.Watch.until(ctx, r.JobId, s.Writer.View, func(v *state.View) bool {
		j, one := v.Jobs.Get(r.JobId), v.Steps(r.JobId).Get(r.StepId)
		if j == nil || one == nil || !sees(j) || last != nil && one.Attempt != last.Attempt {
			return true
		}
		last = one
		return !state.StepLive(one)
	})
	if err != nil {
		return nil, err
	}
	if last == nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no step %d of job %d", r.StepId, r.JobId))
	}
	return &pb.WaitStepReply{Step: shownStep(last)}, nil
}

// UpdateStep is scontrol update StepId=….
func (s *Service) UpdateStep(ctx context.Context, r *pb.UpdateStepRequest) (*pb.UpdateReply, error) {
	return s.update(ctx, reactor.UpdateStep{Caller: s.caller(peerOf(ctx)), ID: r.Id, Set: r.Set})
}

// AttachStep has the nodes of a step connect to the caller as well. The caller gets the step's certificate and key: the reactor has checked
// that it is the owner of the job, or an operator.
func (s *Service) AttachStep(ctx context.Context, r *pb.AttachStepRequest) (*pb.AttachStepReply, error) {
	if p := checkAddresses(r.Addresses); p != nil {
		return nil, problem(p)
	}
	out, err := s.do(ctx, reactor.AttachStep{Caller: s.caller(peerOf(ctx)), Job: r.JobId, Step: r.StepId, Addresses: r.Addresses})
	if err != nil {
		return nil, err
	}
	step := state.CloneStep(out.(reactor.Attached).Step)
	step.Watchers = nil
	return &pb.AttachStepReply{Step: step}, nil
}
