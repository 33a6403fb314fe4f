package client

import (
	"context"
	"fmt"
	"io"

	"github.com/sluice-hpc/sluice/client/msg"
)

const (
	// onePieceBytes is the maximum size of a request in one message.
	onePieceBytes = 2 << 20
	// chunkBytes is the size of the pieces of a larger one.
	chunkBytes = 1 << 20
)

// SubmitJob submits in one message or, if script and environment are too large, in pieces. A request that is repeated with the same
// request id is the same job.
func (c *Client) SubmitJob(ctx context.Context, req *msg.SubmitRequest) (*msg.SubmitReply, error) {
	data := req.Marshal()
	if len(data) <= onePieceBytes {
		return c.Submit(ctx, req)
	}
	var reply *msg.SubmitReply
	err := c.patiently(ctx, func() (err error) {
		reply, err = c.submitPieces(ctx, data)
		return err
	})
	return reply, err
}

func (c *Client) submitPieces(ctx context.Context, data []byte) (*msg.SubmitReply, error) {
	stream, err := c.SubmitLarge(ctx)
	if err != nil {
		return nil, err
	}
	for len(data) > 0 {
		n := min(len(data), chunkBytes)
		if err := stream.Send(&msg.SubmitChunk{Data: data[:n]}); err != nil {
			return nil, fmt.Errorf("cannot send the submission: %w", err)
		}
		data = data[n:]
	}
	return stream.CloseAndRecv()
}

// Script reads a job's batch script to the end.
func (c *Client) Script(ctx context.Context, job uint32) ([]byte, error) {
	stream, err := c.BatchScript(ctx, &msg.BatchScriptRequest{JobId: job})
	if err != nil {
		return nil, err
	}
	var script []byte
	for {
		piece, err := stream.Recv()
		if err == io.EOF {
			return script, nil
		}
		if err != nil {
			return nil, err
		}
		script = append(script, piece.GetData()...)
	}
}
