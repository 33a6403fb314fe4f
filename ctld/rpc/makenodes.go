package rpc

import (
	"context"
	"errors"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// CreateNodes is scontrol create NodeName=….
func (s *Service) CreateNodes(ctx context.Context, r *pb.CreateNodesRequest) (*pb.UpdateReply, error) {
	line := "nodename=" + r.Nodes
	for _, kv := range append([]*pb.KeyValue{{Value: r.Nodes}}, r.Set...) {
		if p := badValue(kv); p != nil {
			return nil, problem(p)
		}
		if kv.Key != "" {
			line += " " + kv.Key + "=" + kv.Value
		}
	}
	nodes, err := s.NewNodes(r.Nodes, r.Set)
	if err != nil {
		var p *pb.Problem
		if !errors.As(err, &p) {
			p = pb.NewProblem(pb.CodeUnspecified, "%v", err).WithLead("Failed to parse nodeline '%s'", line)
		}
		return nil, problem(p)
	}
	return s.update(ctx, reactor.CreateNodes{Caller: s.caller(peerOf(ctx)), Nodes: nodes})
}

// DeleteNodes is scontrol delete NodeName=….
func (s *Service) DeleteNodes(ctx context.Context, r *pb.DeleteNodesRequest) (*pb.UpdateReply, error) {
	names, err := hostlist.Expand(r.Nodes)
	if err != nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidNodeName, "%v", err))
	}
	return s.update(ctx, reactor.DeleteNodes{Caller: s.caller(peerOf(ctx)), Nodes: names})
}
