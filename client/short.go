package client

import (
	"context"
	"sync"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// DialShort connects for a command that makes one call, or a few one after another: unary calls cost a quarter of what they
// cost on a Client from Dial. Streams work as well, over a full connection that is made when the first is asked for. Unlike
// Dial's, its calls must not run at the same time, and of a context only the deadline counts.
func DialShort(ctx context.Context, socket string) (*Client, error) {
	w, err := dialWire(socket)
	if err != nil {
		return nil, &ConnectError{Socket: socket, Err: err}
	}
	s := &short{wire: w, socket: socket}
	return &Client{ControllerAPIClient: s, closer: s.close, socket: socket}, nil
}

// short sends unary calls over its own wire and streams over a ttrpc client.
type short struct {
	wire   *wire
	socket string
	mu     sync.Mutex
	full   *Client
}

func (s *short) close() error {
	if s.full != nil {
		_ = s.full.Close()
	}
	return s.wire.close()
}

func (s *short) streams(ctx context.Context) (pb.ControllerAPIClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full == nil {
		c, err := Dial(ctx, s.socket)
		if err != nil {
			return nil, err
		}
		s.full = c
	}
	return s.full.ControllerAPIClient, nil
}

func (s *short) SubmitLarge(ctx context.Context) (pb.ControllerAPI_SubmitLargeClient, error) {
	c, err := s.streams(ctx)
	if err != nil {
		return nil, err
	}
	return c.SubmitLarge(ctx)
}

func (s *short) Jobs(ctx context.Context, req *pb.JobsRequest) (pb.ControllerAPI_JobsClient, error) {
	c, err := s.streams(ctx)
	if err != nil {
		return nil, err
	}
	return c.Jobs(ctx, req)
}

func (s *short) Nodes(ctx context.Context, req *pb.NodesRequest) (pb.ControllerAPI_NodesClient, error) {
	c, err := s.streams(ctx)
	if err != nil {
		return nil, err
	}
	return c.Nodes(ctx, req)
}

func (s *short) BatchScript(ctx context.Context, req *pb.BatchScriptRequest) (pb.ControllerAPI_BatchScriptClient, error) {
	c, err := s.streams(ctx)
	if err != nil {
		return nil, err
	}
	return c.BatchScript(ctx, req)
}

func (s *short) Ping(ctx context.Context, req *pb.PingRequest) (*pb.PingReply, error) {
	resp := new(pb.PingReply)
	return resp, s.wire.call(ctx, "Ping", req, resp)
}

func (s *short) Submit(ctx context.Context, req *pb.SubmitRequest) (*pb.SubmitReply, error) {
	return s.wire.submit(ctx, req)
}

func (s *short) Partitions(ctx context.Context, req *pb.PartitionsRequest) (*pb.PartitionsReply, error) {
	resp := new(pb.PartitionsReply)
	return resp, s.wire.call(ctx, "Partitions", req, resp)
}

func (s *short) Config(ctx context.Context, req *pb.ConfigRequest) (*pb.ConfigReply, error) {
	resp := new(pb.ConfigReply)
	return resp, s.wire.call(ctx, "Config", req, resp)
}

func (s *short) CancelJobs(ctx context.Context, req *pb.CancelJobsRequest) (*pb.CancelJobsReply, error) {
	resp := new(pb.CancelJobsReply)
	return resp, s.wire.call(ctx, "CancelJobs", req, resp)
}

func (s *short) ControlJobs(ctx context.Context, req *pb.ControlJobsRequest) (*pb.ControlJobsReply, error) {
	resp := new(pb.ControlJobsReply)
	return resp, s.wire.call(ctx, "ControlJobs", req, resp)
}

func (s *short) UpdateJob(ctx context.Context, req *pb.UpdateJobRequest) (*pb.UpdateReply, error) {
	resp := new(pb.UpdateReply)
	return resp, s.wire.call(ctx, "UpdateJob", req, resp)
}

func (s *short) UpdateNode(ctx context.Context, req *pb.UpdateNodeRequest) (*pb.UpdateReply, error) {
	resp := new(pb.UpdateReply)
	return resp, s.wire.call(ctx, "UpdateNode", req, resp)
}

func (s *short) UpdatePartition(ctx context.Context, req *pb.UpdatePartitionRequest) (*pb.UpdateReply, error) {
	resp := new(pb.UpdateReply)
	return resp, s.wire.call(ctx, "UpdatePartition", req, resp)
}

func (s *short) WaitJob(ctx context.Context, req *pb.WaitJobRequest) (*pb.WaitJobReply, error) {
	resp := new(pb.WaitJobReply)
	return resp, s.wire.call(ctx, "WaitJob", req, resp)
}

func (s *short) Reconfigure(ctx context.Context, req *pb.ReconfigureRequest) (*pb.UpdateReply, error) {
	resp := new(pb.UpdateReply)
	return resp, s.wire.call(ctx, "Reconfigure", req, resp)
}

func (s *short) Shutdown(ctx context.Context, req *pb.ShutdownRequest) (*pb.UpdateReply, error) {
	resp := new(pb.UpdateReply)
	return resp, s.wire.call(ctx, "Shutdown", req, resp)
}

func (s *short) Backup(ctx context.Context, req *pb.BackupRequest) (*pb.BackupReply, error) {
	resp := new(pb.BackupReply)
	return resp, s.wire.call(ctx, "Backup", req, resp)
}

func (s *short) Stats(ctx context.Context, req *pb.StatsRequest) (*pb.StatsReply, error) {
	resp := new(pb.StatsReply)
	return resp, s.wire.call(ctx, "Stats", req, resp)
}
