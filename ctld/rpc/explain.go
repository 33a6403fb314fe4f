package rpc

import (
	"context"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/explain"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Explain explains why a job waits, or what has become of it; for an array, it begins with the number of tasks in each state.
func (s *Service) Explain(ctx context.Context, r *pb.ExplainRequest) (*pb.ExplainReply, error) {
	v := s.Writer.View()
	sel, p := selectionOf(&pb.JobsRequest{Ids: []string{r.Id}, AllStates: true})
	if p != nil {
		return nil, problem(p)
	}
	a := explain.NewSubject(v, r.Id)
	sees := s.sees(ctx)
	for j := range attentive(ctx, sel.candidates(v)) {
		if !sees(j) {
			continue
		}
		a.AddDropped(j)
		if sel.match(j) {
			a.Add(j)
		}
	}
	if err := gone(ctx); err != nil {
		return nil, err
	}
	if a.OnlyDropped() {
		return &pb.ExplainReply{Text: r.Id + " was cancelled before it started.\n"}, nil
	}
	if a.Job == nil { // forgotten MinJobAge after its end
		a = s.remembered(ctx, r.Id, sees)
	}
	if a.Job == nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %s", r.Id))
	}
	text := a.Summary()
	switch {
	case state.Pending(a.Job):
		text += explain.Waiting(v, a.Job, s.Why)
	case text == "":
		peer := peerOf(ctx)
		text = explain.Fate(v, a.Job, s.Users.Name, peer.Operator || peer.UID == a.Job.Spec.Uid)
	}
	return &pb.ExplainReply{Text: text}, nil
}

// remembered returns what only accounting knows: the last attempt of each job or task, if it has ended.
func (s *Service) remembered(ctx context.Context, id string, sees func(*pb.JobRecord) bool) *explain.Subject {
	a := explain.NewSubject(s.Writer.View(), id)
	sel, p := selectionOf(&pb.JobsRequest{Ids: []string{id}, AllStates: true})
	if _, err := jobid.Parse(id); err != nil || p != nil || s.Acct == nil {
		return a
	}
	var last *pb.JobRecord // attempts of a job are adjacent
	settle := func() {
		if last != nil && last.State.Terminal() {
			a.AddDropped(last)
			a.Add(last)
		}
	}
	_ = s.Acct.Select(ctx, &pb.AccountingRequest{Ids: []string{id}}, s.Writer.View, func(record []byte) error {
		j := &pb.JobRecord{}
		if err := proto.Unmarshal(record, j); err != nil {
			return err
		}
		if !sel.match(j) || !sees(j) {
			return nil
		}
		if last != nil && last.Id != j.Id {
			settle()
		}
		for _, n := range j.Alloc { // a job is forgotten only when nothing of it is left anywhere; accounting does not store that
			n.Ended = true
		}
		last = j
		return nil
	})
	settle()
	return a
}
