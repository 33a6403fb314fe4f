package client

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/client/wire"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// DialShort connects for a command that makes one call, or a few one after another: unary calls cost a quarter of what they
// cost on a Client from Dial. Streams work as well, over a full connection that is made when the first is asked for. Unlike
// Dial's, its calls must not run at the same time, and of a context only the deadline counts.
func DialShort(ctx context.Context, socket string) (*Client, error) {
	w, err := wire.Dial(socket)
	if err != nil {
		return nil, err
	}
	s := &short{wire: w, socket: socket}
	return &Client{ControllerAPIClient: s, closer: s.close, socket: socket}, nil
}

// short sends unary calls over its own wire and streams over a ttrpc client. The unary
// methods are in short.gen.go. It embeds the interface so that a call added to the messages does not keep everything from
// building; a test finds that a method is missing, and writes the file with -update.
type short struct {
	pb.ControllerAPIClient
	wire   *wire.Conn
	socket string
	mu     sync.Mutex
	full   *Client
}

func (s *short) close() error {
	if s.full != nil {
		_ = s.full.Close()
	}
	return s.wire.Close()
}

func (s *short) call(ctx context.Context, method string, req, resp proto.Message) error {
	payload, err := proto.Marshal(req)
	if err != nil {
		return fmt.Errorf("cannot encode the %s request: %w", method, err)
	}
	answer, err := s.wire.Call(ctx, method, payload)
	if err != nil {
		return err
	}
	return proto.Unmarshal(answer, resp)
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
