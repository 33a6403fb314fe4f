package rpc

import (
	"context"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// sees returns a test for the jobs that a caller may see: with PrivateData=jobs their own, unless operator (slurm.conf(5)).
func (s *Service) sees(ctx context.Context) func(*pb.JobRecord) bool {
	peer := peerOf(ctx)
	if !s.hides(peer) {
		return func(*pb.JobRecord) bool { return true }
	}
	return func(j *pb.JobRecord) bool { return j.Spec.Uid == peer.UID }
}

// hides reports whether other users' jobs are hidden from a caller.
func (s *Service) hides(peer *Peer) bool {
	return s.Privacy != nil && !peer.Operator && s.Privacy().Jobs
}

// private replaces the id of a job that the caller may not see.
const private = "private"

// redacted removes from the owners of GPUs what the caller may not see: that a GPU is in use is no secret, but by whom is.
func (s *Service) redacted(ctx context.Context, send func(*pb.GpusReply) error) func(*pb.GpusReply) error {
	sees := s.sees(ctx)
	return func(r *pb.GpusReply) error {
		for _, g := range r.Gpus {
			for i, o := range g.Owners {
				if !sees(&pb.JobRecord{Spec: &pb.JobSpec{Uid: o.Uid}}) {
					g.Owners[i] = &pb.GpuOwner{Id: private, User: private, Share: o.Share, Type: o.Type, Start: o.Start}
				}
			}
		}
		return send(r)
	}
}
