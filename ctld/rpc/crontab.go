package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/crontab"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// maxCrontab bounds the text of a crontab.
const maxCrontab = 256 << 10

// cronOwner returns the owner of the crontab that a call is about: the caller, unless an operator names another user.
func cronOwner(peer *Peer, ofOther bool, uid uint32) (uint32, *pb.Problem) {
	if !ofOther || uid == peer.UID {
		return peer.UID, nil
	}
	if !peer.Operator {
		return 0, pb.NewProblem(pb.CodeAccessDenied, "the crontab of uid %d is not yours; you are uid %d", uid, peer.UID)
	}
	return uid, nil
}

// Crontab returns a crontab.
func (s *Service) Crontab(ctx context.Context, r *pb.CrontabRequest) (*pb.CrontabReply, error) {
	uid, p := cronOwner(peerOf(ctx), r.OfOther, r.Uid)
	if p != nil {
		return nil, problem(p)
	}
	v := s.Writer.View()
	return &pb.CrontabReply{Crontab: v.Crontab(uid), Seq: v.Seq}, nil
}

// UpdateCrontab replaces a crontab, or removes it. The reply names an invalid entry, and nothing is changed then.
func (s *Service) UpdateCrontab(ctx context.Context, r *pb.UpdateCrontabRequest) (*pb.CrontabReply, error) {
	peer := peerOf(ctx)
	uid, p := cronOwner(peer, r.OfOther, r.Uid)
	if p != nil {
		return nil, problem(p)
	}
	if len(r.Text) > maxCrontab {
		return nil, problem(pb.NewProblem(pb.CodeTooLarge, "the crontab has %d bytes, the limit is %d", len(r.Text), maxCrontab))
	}
	if p := s.Users.stranger(peer); p != nil && !r.Remove {
		return nil, problem(p)
	}
	cmd := reactor.UpdateCrontab{Caller: s.caller(peer), UID: uid, User: s.Users.Name(uid)}
	if !r.Remove {
		cmd.Text = r.Text
		for _, job := range r.Jobs {
			entry, p := s.cronJob(ctx, peer, uid, job)
			if p != nil {
				return &pb.CrontabReply{Problem: p, FirstLine: job.FirstLine, LastLine: job.LastLine}, nil
			}
			cmd.Jobs = append(cmd.Jobs, entry)
		}
	}
	out, err := s.do(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &pb.CrontabReply{Crontab: out.(*pb.CrontabRecord), Seq: s.Writer.View().Seq}, nil
}

// cronJob checks one entry as a submission is checked.
func (s *Service) cronJob(ctx context.Context, peer *Peer, uid uint32, job *pb.CrontabJob) (e reactor.CronJob, p *pb.Problem) {
	if job.Submit.GetSpec() == nil {
		return e, pb.NewProblem(pb.CodeInvalidSpec, "the entry has no specification")
	}
	submit := proto.Clone(job.Submit).(*pb.SubmitRequest)
	spec := submit.Spec
	submit.RequestId, spec.BeginNs, spec.SubmitLine = "", 0, ""
	if p := s.checkPayload(submit); p != nil {
		return e, p
	}
	schedule, err := crontab.Parse(job.Cron)
	switch {
	case err != nil:
		return e, pb.NewProblem(pb.CodeInvalidSpec, "%v", err)
	case schedule == nil, spec.Array != "", spec.Dependency != "":
		return e, pb.NewProblem(pb.CodeInvalidSpec, "a crontab job cannot be an array or have a dependency")
	}
	if uid != peer.UID {
		spec.Uid = uid
	}
	if p := s.identity(peer, spec); p != nil {
		return e, p
	}
	digest, err := digestOf(submit) // of the user's text
	if err != nil {
		return e, pb.NewProblem(pb.CodeInvalidSpec, "%v", err)
	}
	v := s.Writer.View()
	if _, p := s.siteScript(ctx, v, submit); p != nil {
		return e, p
	}
	if spec.Array != "" || spec.Dependency != "" {
		return e, pb.NewProblem(pb.CodeInvalidSpec, "the site's job_submit.lua gives a crontab job an array or a dependency")
	}
	spec.Cron = job.Cron
	j, p := admit.Job(v, spec, "")
	if p != nil {
		return e, p
	}
	texts, err := state.PackTexts(j.Spec.Uid, submit.Script, submit.Env)
	if err != nil {
		return e, pb.NewProblem(pb.CodeInvalidSpec, "%v", err)
	}
	return reactor.CronJob{Job: j, Layout: v.Layout, Texts: texts, FirstLine: job.FirstLine, LastLine: job.LastLine, Digest: digest}, nil
}

// digestOf identifies the contents of a job, so that an unchanged entry is recognised. Values that differ with every call of scrontab (its
// session) are left out.
func digestOf(r *pb.SubmitRequest) (string, error) {
	c := proto.Clone(r).(*pb.SubmitRequest)
	c.Spec.AllocSid, c.Spec.Rlimits = 0, nil
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		return "", errors.New("cannot encode the entry")
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12]), nil
}
