package rpc

import (
	"context"
	"time"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Accounting is what sacct asks, *acct.Accounting.
type Accounting interface {
	// Select calls each with the encoded records of a selection, as of v or later: by id, tasks at the id of their array, the first
	// attempt first.
	Select(ctx context.Context, r *pb.AccountingRequest, view func() *state.View, each func(record []byte) error) error
	// Trouble says in words why a selection may have less than there ever was, "" = it has all.
	Trouble() string
	// Script is what was kept of a job's script or environment, with its owner; nil data = nothing was kept. found is false for a
	// job that is not known.
	Script(ctx context.Context, v *state.View, id uint32, env bool) (data []byte, uid uint32, found bool, err error)
}

// Privacy is what decides who sees whose jobs.
type Privacy struct {
	Jobs   bool // PrivateData=jobs: users see their own
	Extern bool // PrologFlags=Contain
	WCKeys bool // TrackWCKey
}

// Accounting streams the attempts that match.
func (s *Service) Accounting(ctx context.Context, r *pb.AccountingRequest, out pb.ControllerAPI_AccountingServer) error {
	if s.Acct == nil {
		return status.Error(codes.Unavailable, "accounting is not running")
	}
	privacy := s.Privacy()
	if peer := peerOf(ctx); privacy.Jobs && !peer.Operator {
		r.Uids = []uint32{peer.UID}
	}
	v := s.Writer.View()
	page := pagesOf(func() *pb.AccountingReply {
		return &pb.AccountingReply{Seq: v.Seq, NowNs: time.Now().UnixNano(), Extern: privacy.Extern, Wckeys: privacy.WCKeys, Warning: s.Acct.Trouble()}
	}, out.Send)
	if err := s.Acct.Select(ctx, r, s.Writer.View, func(record []byte) error { return page.add(stored(record), nil) }); err != nil {
		return err
	}
	return page.end()
}

// AccountingScript sends the script or the environment of a job to its owner and to operators.
func (s *Service) AccountingScript(ctx context.Context, r *pb.AccountingScriptRequest, out pb.ControllerAPI_AccountingScriptServer) error {
	if s.Acct == nil {
		return status.Error(codes.Unavailable, "accounting is not running")
	}
	data, uid, found, err := s.Acct.Script(ctx, s.Writer.View(), r.JobId, r.Env)
	if err != nil {
		return err
	}
	peer := peerOf(ctx)
	switch {
	case !found:
		return problem(pb.NewProblem(pb.CodeInvalidJobID, "accounting knows no job %d", r.JobId))
	case uid != peer.UID && !peer.Operator:
		return problem(pb.NewProblem(pb.CodeAccessDenied, "job %d is another user's", r.JobId))
	}
	for len(data) > pageBytes {
		if err := out.Send(&pb.BatchScriptReply{Data: data[:pageBytes]}); err != nil {
			return err
		}
		data = data[pageBytes:]
	}
	return out.Send(&pb.BatchScriptReply{Data: data})
}

// Usage answers what running steps have used so far. A user may ask about own jobs, an operator about all.
func (s *Service) Usage(ctx context.Context, r *pb.UsageRequest) (*pb.UsageReply, error) {
	peer, v := peerOf(ctx), s.Writer.View()
	reply := &pb.UsageReply{}
	for _, word := range r.Ids {
		id, err := jobid.Parse(word)
		if err != nil {
			reply.Outcomes = append(reply.Outcomes, &pb.JobOutcome{Id: word, Problem: pb.NewProblem(pb.CodeInvalidJobID, "%v", err)})
			continue
		}
		known, found := false, false
		for j := range candidates(v, &pb.JobsRequest{Ids: []string{word}}) {
			if !named([]string{word})(j) {
				continue
			}
			if known = true; j.State != pb.JobState_JOB_RUNNING && j.State != pb.JobState_JOB_SUSPENDED {
				continue
			}
			if found = true; j.Spec.Uid != peer.UID && !peer.Operator {
				reply.Outcomes = append(reply.Outcomes, &pb.JobOutcome{Id: word, Problem: pb.NewProblem(pb.CodeAccessDenied, "job %d is another user's", id.Job)})
				continue
			}
			if s.Live != nil {
				reply.Usage = append(reply.Usage, s.Live.Of(j)...)
			}
		}
		switch {
		case !known:
			reply.Outcomes = append(reply.Outcomes, &pb.JobOutcome{Id: word, Problem: pb.NewProblem(pb.CodeInvalidJobID, "there is no job %s", word)})
		case !found:
			reply.Outcomes = append(reply.Outcomes, &pb.JobOutcome{Id: word, Problem: pb.NewProblem(pb.CodeNotRunning, "job %s does not run", word)})
		}
	}
	return reply, nil
}
