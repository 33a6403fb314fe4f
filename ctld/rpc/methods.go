package rpc

import (
	"context"

	"github.com/containerd/ttrpc"
	"github.com/sluice-hpc/sluice/ctld/turns"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// methods returns the methods of ControllerAPI. All are served as streams, including those with one request and one answer: on the wire
// that is the same. For a unary method ttrpc's server keeps nothing for the stream of a call, so a client that sends data on it while the
// call is being answered makes it dereference a nil pointer, which ends the controller.
func methods(s *Service) map[string]method {
	return map[string]method{
		"Ping": unary(s.Ping), "Config": unary(s.Config), "Stats": unary(s.Stats), "Topology": unary(s.Topology),
		"Submit": unary(s.Submit), "SubmitLarge": collecting(s.SubmitLarge), "WaitJob": unary(s.WaitJob),
		"Jobs": listing[pb.JobsReply](s.Jobs), "Nodes": listing[pb.NodesReply](s.Nodes), "Gpus": listing[pb.GpusReply](s.Gpus),
		"Partitions": unary(s.Partitions), "Reservations": unary(s.Reservations), "Licenses": unary(s.Licenses),
		"Explain": unary(s.Explain), "Priorities": unary(s.Priorities), "Usage": unary(s.Usage), "AccountUsage": unary(s.AccountUsage),
		"Report":      unary(s.Report),
		"BatchScript": listing[pb.BatchScriptReply](s.BatchScript), "Accounting": listing[pb.AccountingReply](s.Accounting),
		"AccountingScript": listing[pb.BatchScriptReply](s.AccountingScript),
		"CancelJobs":       unary(s.CancelJobs), "ControlJobs": unary(s.ControlJobs), "UpdateJob": unary(s.UpdateJob),
		"UpdateNode": unary(s.UpdateNode), "UpdatePartition": unary(s.UpdatePartition), "UpdateReservation": unary(s.UpdateReservation),
		"CreateNodes": unary(s.CreateNodes), "DeleteNodes": unary(s.DeleteNodes),
		"Crontab": unary(s.Crontab), "UpdateCrontab": unary(s.UpdateCrontab),
		"CreateToken": unary(s.CreateToken), "Tokens": unary(s.Tokens), "RevokeToken": unary(s.RevokeToken),
		"RevokeHost": unary(s.RevokeHost), "Certificates": unary(s.Certificates), "Hosts": unary(s.Hosts),
		"CreateStep": unary(s.CreateStep), "Steps": listing[pb.StepsReply](s.Steps), "WaitStep": unary(s.WaitStep),
		"UpdateStep": unary(s.UpdateStep), "AttachStep": unary(s.AttachStep),
		"Policy": listing[pb.PolicyReply](s.Policy), "ChangePolicy": unary(s.ChangePolicy), "Budgets": unary(s.Budgets),
		"WaitAllocation": unary(s.WaitAllocation), "EndAllocation": unary(s.EndAllocation),
		"Reconfigure": unary(s.Reconfigure), "Shutdown": unary(s.Shutdown), "SetDebug": unary(s.SetDebug), "Backup": unary(s.Backup),
	}
}

// method is a method of ControllerAPI. Its first message is read before anything else, even if the call is then refused: ttrpc answers
// twice on the stream of a call that ends earlier.
type method struct {
	first  func() proto.Message
	handle func(ctx context.Context, first proto.Message, in ttrpc.StreamServer) (any, error)
	// collects: it takes any number of messages; lists: it answers with any number.
	collects, lists bool
}

func newOf[Q any]() proto.Message { return any(new(Q)).(proto.Message) }

// unary serves a method that takes one message and answers with one.
func unary[Q, R any](f func(context.Context, *Q) (*R, error)) method {
	return method{first: newOf[Q], handle: func(ctx context.Context, first proto.Message, _ ttrpc.StreamServer) (any, error) {
		return f(ctx, any(first).(*Q))
	}}
}

// listing serves a method that takes one message and answers with any number of R, sent through S.
func listing[R, Q, S any](f func(context.Context, *Q, S) error) method {
	return method{first: newOf[Q], lists: true,
		handle: func(ctx context.Context, first proto.Message, in ttrpc.StreamServer) (any, error) {
			return nil, f(ctx, any(first).(*Q), any(sender[R]{in}).(S))
		}}
}

type sender[R any] struct{ ttrpc.StreamServer }

// Send sends one of the answers.
func (s sender[R]) Send(m *R) error { return s.SendMsg(m) }

// collecting serves SubmitLarge, which takes any number of messages and answers with one.
func collecting(f func(context.Context, pb.ControllerAPI_SubmitLargeServer) (*pb.SubmitReply, error)) method {
	return method{first: newOf[pb.SubmitChunk], collects: true,
		handle: func(ctx context.Context, first proto.Message, in ttrpc.StreamServer) (any, error) {
			return f(ctx, &receiver{in, first.(*pb.SubmitChunk)})
		}}
}

type receiver struct {
	ttrpc.StreamServer
	first *pb.SubmitChunk // nil once it was received
}

// Recv returns the next message.
func (r *receiver) Recv() (m *pb.SubmitChunk, err error) {
	if m, r.first = r.first, nil; m != nil {
		return m, nil
	}
	m = new(pb.SubmitChunk)
	if err := r.RecvMsg(m); err != nil {
		return nil, err
	}
	return m, nil
}

// turnMethods are the calls that take their turn when their request has been read. Of the others, those that search jobs take it for the
// walk (attentive), and submissions after job_submit.lua and the look-up of the user, which may take long.
var turnMethods = map[string]bool{
	"Config": true, "Stats": true, "Topology": true, "Jobs": true, "Nodes": true, "Gpus": true, "Partitions": true, "Reservations": true,
	"Licenses": true, "Explain": true, "Priorities": true, "Usage": true, "BatchScript": true, "Crontab": true,
	"Steps": true, "Ping": true, "Policy": true, "Budgets": true, "CancelJobs": true, "ControlJobs": true,
}

// selectMethods read the accounting database.
var selectMethods = map[string]bool{"Accounting": true, "AccountingScript": true, "AccountUsage": true, "Report": true}

// turnFor returns the turn for a call that is about to begin.
func (s *Local) turnFor(p *Peer, method string) *turns.Turn {
	switch {
	case p.Operator:
		return &turns.Turn{}
	case selectMethods[method]:
		return s.gates.Selection(p.owner)
	}
	return s.gates.Call(p.owner)
}
