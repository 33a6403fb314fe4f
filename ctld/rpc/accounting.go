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

// Accounting is what sacct asks, *acct.Accounting.
type Accounting interface {
	// Select calls each with the encoded records of a selection, as of v or later: by id, tasks at the id of their array, the first
	// attempt first.
	Select(ctx context.Context, r *pb.AccountingRequest, view func() *state.View, each func(record []byte) error) error
	// Steps calls each with the encoded records of the steps of some attempts, by job, attempt and number.
	Steps(ctx context.Context, of []acct.JobAttempt, view func() *state.View, each func(record []byte) error) error
	// Between is what was allocated in a window, Parts all that ever was, less with its age, by partition and QOS.
	Between(ctx context.Context, since, until int64, view func() *state.View) ([]*acct.Share, error)
	Parts(ctx context.Context, fading acct.Fading, view func() *state.View) ([]*acct.Share, int64, error)
	// Worth is what jobs were worth in a window, Hours what GPUs did from one moment to another in seconds since 1970, Losses who lost
	// GPUs to fragmentation meanwhile.
	Worth(ctx context.Context, q *acct.WorthQuery, view func() *state.View) ([]*pb.ReportRow, error)
	Hours(ctx context.Context, since, until int64, partition string) ([]gpuhours.Hour, error)
	Losses(ctx context.Context, since, until int64) ([]gpuhours.LostHour, error)
	// Trouble says in words why a selection may have less than there ever was, "" = it has all.
	Trouble() string
	// Waiting is how many attempts are kept in the state because the database could not be written.
	Waiting() int
	// Script is what was kept of a job's script or environment, with its owner; nil data = nothing was kept. found is false for a
	// job that is not known.
	Script(ctx context.Context, v *state.View, id uint32, env bool) (data []byte, uid uint32, found bool, err error)
}

// Privacy is what slurm.conf says about accounting: who sees whose jobs, and how usage is counted.
type Privacy struct {
	Jobs   bool // PrivateData=jobs: users see their own
	Usage  bool // PrivateData=usage: the same of what sshare and sreport show
	Cloud  bool // PrivateData=cloud: nodes of the cloud are shown while they are powered down, too
	Extern bool // PrologFlags=Contain
	WCKeys bool // TrackWCKey

	Fading acct.Fading
}

// maxUnstored bounds the attempts that are kept in the state for an accounting database that cannot be written. Above it nothing new is
// taken, and what there is still runs and ends: so there may be as many more as there are jobs, and their restarts.
const maxUnstored = 100000

// unstored refuses a submission while too much waits for the accounting database.
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

// stepsOfPage adds the steps of the attempts that have been sent: those of some at a time, in the same message or one of the next.
type stepsOfPage struct {
	s    *Service
	ctx  context.Context
	page *pages
	list []acct.JobAttempt
}

// stepsField is the number of the field of AccountingReply that has steps; stepsAtOnce is of how many attempts they are looked for at once.
const (
	stepsField  = 7
	stepsAtOnce = 256
)

// of notes an attempt. Only job id and number of the attempt are read of its record.
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
		return nil // it has never started
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
