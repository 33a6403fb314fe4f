package client

import (
	"context"
	"fmt"
	"io"

	"github.com/sluice-hpc/sluice/client/msg"
)

const (
	// onePieceBytes is the size up to which a request travels as one message.
	onePieceBytes = 2 << 20
	// chunkBytes is the size of the pieces of a longer one.
	chunkBytes = 1 << 20
)

// SubmitJob submits in one message or, when script and environment are too large for one, in pieces. A request that is sent
// again with the same request id is the same job.
func (c *Client) SubmitJob(ctx context.Context, req *msg.SubmitRequest) (*msg.SubmitReply, error) {
	if submitBytes(req) <= onePieceBytes {
		return c.Submit(ctx, req)
	}
	data := req.Marshal()
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

// submitBytes is the size of a request without what is small in any case.
func submitBytes(req *msg.SubmitRequest) int {
	const rest = 2 << 10
	n := len(req.GetScript()) + rest
	for _, v := range req.GetEnv() {
		n += len(v) + 4
	}
	for _, a := range req.GetSpec().GetArgs() {
		n += len(a) + 4
	}
	spec := req.GetSpec()
	return n + len(spec.GetSubmitLine()) + len(spec.GetComment()) + len(spec.GetReqNodes()) + len(spec.GetExcNodes())
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
