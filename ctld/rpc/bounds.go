package rpc

import (
	"context"

	"github.com/containerd/ttrpc"
	"github.com/sluice-hpc/sluice/ctld/turns"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Limits of lists in one request. A list costs time for each existing job, some of it the writer's.
const (
	maxListed = 1000
	maxIDs    = 20000 // jobs by id: as many as one user may have
	maxNames  = 100   // jobs by name: the writer looks at every job for each
	maxSet    = 200   // keys to change
)

// listBounds are the limits of lists, by name of the field, that differ from the default. Submissions and crontabs have limits of their own
// (checkPayload, admit.Text, reactor.UpdateCrontab).
var listBounds = map[protoreflect.FullName]int{
	"sluice.v1.CancelJobsRequest.ids": maxIDs, "sluice.v1.ControlJobsRequest.ids": maxIDs, "sluice.v1.UpdateJobRequest.ids": maxIDs,
	"sluice.v1.JobsRequest.ids": maxIDs, "sluice.v1.AccountingRequest.ids": maxIDs, "sluice.v1.AccountingRequest.nodes": 65536,
	"sluice.v1.ControlJobsRequest.names": maxNames, "sluice.v1.UpdateJobRequest.set": maxSet, "sluice.v1.UpdateNodeRequest.set": maxSet,
	"sluice.v1.StepsRequest.ids": maxIDs, "sluice.v1.StepSpec.hosts": maxIDs,
	"sluice.v1.CreateNodesRequest.set":     maxSet,
	"sluice.v1.UpdatePartitionRequest.set": maxSet, "sluice.v1.UpdateReservationRequest.set": maxSet,
}

// tooMany refuses a request with a list above its limit.
func tooMany(m protoreflect.Message) (p *pb.Problem) {
	switch m.Interface().(type) {
	case *pb.SubmitRequest, *pb.UpdateCrontabRequest:
		return nil
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList():
			most := maxListed
			if n, ok := listBounds[f.FullName()]; ok {
				most = n
			}
			if n := v.List().Len(); n > most {
				p = pb.NewProblem(pb.CodeInvalidSpec, "%d %s in one request, the limit is %d", n, f.Name(),
					most).WithHint("request fewer at a time")
			}
		case f.Message() != nil && !f.IsMap():
			p = tooMany(v.Message())
		}
		return p == nil
	})
	return p
}

// boundedStream releases a call's turn while it waits for its reader.
type boundedStream struct {
	ttrpc.StreamServer
	ctx  context.Context // of the call
	turn *turns.Turn
}

// SendMsg waits for the reader without a turn.
func (b boundedStream) SendMsg(m any) error {
	held := b.turn.Held()
	b.turn.Give()
	if err := b.StreamServer.SendMsg(m); err != nil || !held {
		return err
	}
	return b.turn.Take(b.ctx)
}
