package rpc

import (
	"context"

	decide "github.com/sluice-hpc/sluice/ctld/reactor/accounts"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Policy returns all accounts, users, associations and QOS.
func (s *Service) Policy(_ context.Context, r *pb.PolicyRequest, out pb.ControllerAPI_PolicyServer) error {
	p := s.Writer.View().Policy()
	reply := &pb.PolicyReply{}
	add := func(row *pb.PolicyRow) error {
		reply.Rows = append(reply.Rows, row)
		if len(reply.Rows) < pageRecords {
			return nil
		}
		err := out.Send(reply)
		reply = &pb.PolicyReply{}
		return err
	}
	for _, a := range p.Accounts() {
		if err := add(&pb.PolicyRow{Account: a}); err != nil {
			return err
		}
	}
	for _, u := range p.Users() {
		if err := add(&pb.PolicyRow{User: u}); err != nil {
			return err
		}
	}
	for _, a := range p.Assocs() {
		if !r.Own {
			a = p.Inherited(a)
		}
		if err := add(&pb.PolicyRow{Assoc: a}); err != nil {
			return err
		}
	}
	for _, q := range p.Qoses() {
		if err := add(&pb.PolicyRow{Qos: q}); err != nil {
			return err
		}
	}
	return out.Send(reply)
}

// ChangePolicy changes accounts, users, associations or QOS. The reactor decides who may, because it depends on these.
func (s *Service) ChangePolicy(ctx context.Context, r *pb.ChangePolicyRequest) (*pb.ChangePolicyReply, error) {
	peer := peerOf(ctx)
	out, err := s.do(ctx, decide.Change{User: s.Users.Name(peer.UID), Operator: peer.Operator, Request: r})
	if err != nil {
		return nil, err
	}
	return out.(*pb.ChangePolicyReply), nil
}
