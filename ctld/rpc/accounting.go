package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-hpc/sluice/ctld/acct"
	"github.com/sluice-hpc/sluice/ctld/gpuhours"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Accounting is the part of *acct.Accounting that sacct needs.
type Accounting interface {
	// Select calls each with the encoded records of a selection, as of v or later: by id, tasks at the id of their array, the first
	// attempt first.
	Select(ctx context.Context, r *pb.AccountingRequest, view func() *state.View, each func(record []byte) error) error
	// Steps calls each with the encoded records of the steps of some attempts, by job, attempt and number.
	Steps(ctx context.Context, of []acct.JobAttempt, view func() *state.View, each func(record []byte) error) error
	// Between returns the resources allocated in a window; Parts returns all that were ever allocated, decayed by age, by partition and
	// QOS.
	Between(ctx context.Context, since, until int64, view func() *state.View) ([]*acct.Share, error)
	Parts(ctx context.Context, fading acct.Fading, view func() *state.View) ([]*acct.Share, int64, error)
	// Worth returns the efficiency of jobs in a window, Hours the use of GPUs in a period, Losses the users who lost GPUs to fragmentation
	// in it. Times are seconds since 1970.
	Worth(ctx context.Context, q *acct.WorthQuery, view func() *state.View) ([]*pb.ReportRow, error)
	Hours(ctx context.Context, since, until int64, partition string) ([]gpuhours.Hour, error)
	Losses(ctx context.Context, since, until int64) ([]gpuhours.LostHour, error)
	// Trouble explains why a selection may be incomplete, "" = it is complete.
	Trouble() string
	// Waiting returns the number of attempts that are kept in the state because the database could not be written.
	Waiting() int
	// Script returns the stored script or environment of a job, with its owner; nil data = nothing was stored. found is false for an
	// unknown job.
	Script(ctx context.Context, v *state.View, id uint32, env bool) (data []byte, uid uint32, found bool, err error)
}

// Privacy holds the settings of slurm.conf about accounting: visibility of jobs, and how usage is counted.
type Privacy struct {
	Jobs   bool // PrivateData=jobs: users see their own
	Usage  bool // PrivateData=usage: the same for sshare and sreport
	Cloud  bool // PrivateData=cloud: powered down cloud nodes are shown too
	Extern bool // PrologFlags=Contain
	WCKeys bool // TrackWCKey

	Fading acct.Fading
}

// maxUnstored bounds the attempts that are kept in the state for an accounting database that cannot be written. Above it no job is
// accepted, but existing ones run and end: so there may be as many more as there are jobs, and their restarts.
const maxUnstored = 100000

// unstored refuses a submission while too many attempts wait for the accounting database.
func (s *Service) unstored() *pb.Problem {
	if s.Acct == nil {
		return nil
	}
	n := s.Acct.Waiting()
	if n < maxUnstored {
		return nil
	}
	return pb.NewProblem(pb.CodeNoSpace,
		"the accounting database cannot be written, and %d finished jobs wait for it; running jobs still end",
		n).WithHint("see the controller's log for the reason")
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
		return &pb.AccountingReply{Seq: v.Seq, NowNs: time.Now().UnixNano(), Extern: privacy.Extern, Wckeys: privacy.WCKeys,
			Warning: s.Acct.Trouble()}
	}, out.Send)
	steps := stepsOfPage{s: s, ctx: ctx, page: page}
	err := s.Acct.Select(ctx, r, s.Writer.View, func(record []byte) error {
		if err := page.add(stored(record), nil); err != nil {
			return err
		}
		return steps.of(record)
	})
	if err == nil {
		err = steps.flush()
	}
	if err != nil {
		var p *pb.Problem
		if errors.As(err, &p) {
			return problem(p)
		}
		return err
	}
	return page.end()
}

// stepsOfPage adds the steps of the attempts that have been sent, a group of attempts at a time, in the same message or a later one.
type stepsOfPage struct {
	s    *Service
	ctx  context.Context
	page *pages
	list []acct.JobAttempt
}

// stepsField is the number of the field of AccountingReply for steps; stepsAtOnce is the number of attempts in a group.
const (
	stepsField  = 7
	stepsAtOnce = 256
)

// of notes an attempt. It reads only job id and number of the attempt from the record.
func (p *stepsOfPage) of(record []byte) error {
	var at acct.JobAttempt
	for b := record; len(b) > 0; {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 || num > 9 {
			break
		}
		b = b[n:]
		if kind == protowire.VarintType && (num == 1 || num == 9) {
			v, _ := protowire.ConsumeVarint(b)
			if num == 1 {
				at.Job = uint32(v)
			} else {
				at.Attempt = uint32(v)
			}
		}
		if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
			break
		}
		b = b[n:]
	}
	if at.Attempt == 0 {
		return nil // it never started
	}
	if p.list = append(p.list, at); len(p.list) < stepsAtOnce {
		return nil
	}
	return p.flush()
}

func (p *stepsOfPage) flush() error {
	if len(p.list) == 0 {
		return nil
	}
	list := p.list
	p.list = p.list[:0]
	return p.s.Acct.Steps(p.ctx, list, p.s.Writer.View, func(b []byte) error { return p.page.put(stepsField, stored(b), nil) })
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
		return problem(pb.NewProblem(pb.CodeInvalidJobID, "accounting has no job %d", r.JobId))
	case uid != peer.UID && !peer.Operator:
		return problem(pb.NewProblem(pb.CodeAccessDenied, "job %d belongs to another user", r.JobId))
	}
	for len(data) > pageBytes {
		if err := out.Send(&pb.BatchScriptReply{Data: data[:pageBytes]}); err != nil {
			return err
		}
		data = data[pageBytes:]
	}
	return out.Send(&pb.BatchScriptReply{Data: data})
}
