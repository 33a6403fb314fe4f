package view

import (
	"context"
	"errors"
	"io"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
)

// StepsOf returns the running steps of the requested jobs, by job: all steps created by srun.
func StepsOf(ctx context.Context, c *client.Client, r *msg.JobsRequest) (map[uint32][]*msg.StepRecord, error) {
	return stepsOf(ctx, c, r, false)
}

// MadeFor is StepsOf including steps that have ended, as long as the controller keeps them.
func MadeFor(ctx context.Context, c *client.Client, r *msg.JobsRequest) (map[uint32][]*msg.StepRecord, error) {
	return stepsOf(ctx, c, r, true)
}

func stepsOf(ctx context.Context, c *client.Client, r *msg.JobsRequest, ended bool) (map[uint32][]*msg.StepRecord, error) {
	filter := *r
	filter.Fields, filter.SpecFields, filter.Ids = nil, nil, nil
	stream, err := c.Steps(ctx, &msg.StepsRequest{Ids: r.Ids, Filter: &filter, Ended: ended})
	of := map[uint32][]*msg.StepRecord{}
	for err == nil {
		var page *msg.StepsReply
		if page, err = stream.Recv(); err != nil {
			break
		}
		for _, s := range page.GetSteps() {
			of[s.GetJobId()] = append(of[s.GetJobId()], s)
		}
	}
	p := client.ProblemOf(err)
	if errors.Is(err, io.EOF) || p != nil && p.GetCode() == uint32(msg.CodeInvalidJobID) {
		err = nil // the query for jobs reports missing jobs
	}
	return of, err
}
