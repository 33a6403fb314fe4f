package rpc

import (
	"context"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Who may call a method.
type Who int

const (
	// Anyone with access to the socket; what is answered shows nothing that is another user's alone.
	Anyone Who = iota + 1
	// Owner: the method acts on jobs; the reactor checks each job's owner against the caller. Operators act on all.
	Owner
	// Operator: root and SlurmUser.
	Operator
	// NodeCert: the holder of a node's certificate, for that node alone.
	NodeCert
	// NodeDaemon: served by the shim on a socket in a folder that only the node daemon's user can enter; never by the controller.
	NodeDaemon
)

// Table is the authorisation table: every method of every service has its row. TestEveryMethodHasARow reads the services from
// the .proto files and fails for one that is missing.
var Table = map[string]Who{
	"sluice.v1.ControllerAPI/Ping":            Anyone,
	"sluice.v1.ControllerAPI/Submit":          Anyone, // as oneself; --uid of others for operators (service.go)
	"sluice.v1.ControllerAPI/SubmitLarge":     Anyone,
	"sluice.v1.ControllerAPI/Jobs":            Anyone,
	"sluice.v1.ControllerAPI/Nodes":           Anyone,
	"sluice.v1.ControllerAPI/Partitions":      Anyone,
	"sluice.v1.ControllerAPI/Config":          Anyone,
	"sluice.v1.ControllerAPI/BatchScript":     Owner,
	"sluice.v1.ControllerAPI/CancelJobs":      Owner,
	"sluice.v1.ControllerAPI/ControlJobs":     Owner,
	"sluice.v1.ControllerAPI/UpdateJob":       Owner,
	"sluice.v1.ControllerAPI/UpdateNode":      Operator,
	"sluice.v1.ControllerAPI/UpdatePartition": Operator,
	"sluice.v1.ControllerAPI/WaitJob":         Anyone,
	"sluice.v1.ControllerAPI/Reconfigure":     Operator,
	"sluice.v1.ControllerAPI/Shutdown":        Operator,
	"sluice.v1.ControllerAPI/SetDebug":        Operator,
	"sluice.v1.ControllerAPI/Backup":          Operator,
	"sluice.v1.ControllerAPI/Stats":           Anyone,
	"sluice.v1.ControllerAPI/Crontab":         Anyone, // one's own; others' for operators (crontab.go)
	"sluice.v1.ControllerAPI/UpdateCrontab":   Anyone,

	"sluice.v1.ControllerAPI/Reservations":      Anyone,
	"sluice.v1.ControllerAPI/UpdateReservation": Operator,
	"sluice.v1.ControllerAPI/Licenses":          Anyone,
	"sluice.v1.ControllerAPI/Explain":           Anyone,
	"sluice.v1.ControllerAPI/Priorities":        Anyone,
	"sluice.v1.ControllerAPI/Gpus":              Anyone,
	"sluice.v1.ControllerAPI/Topology":          Anyone,
	"sluice.v1.ControllerAPI/Accounting":        Anyone, // PrivateData=jobs: one's own, unless operator (accounting.go)
	"sluice.v1.ControllerAPI/AccountingScript":  Owner,
	"sluice.v1.ControllerAPI/Usage":             Anyone, // one's own, unless operator (accounting.go)
	"sluice.v1.ControllerAPI/AccountUsage":      Anyone, // PrivateData=usage: one's own, unless operator (accountusage.go)

	"sluice.node.v1.NodeAPI/Sync": NodeCert,

	"sluice.v1.StepAPI/Launch":  NodeDaemon,
	"sluice.v1.StepAPI/Status":  NodeDaemon,
	"sluice.v1.StepAPI/Wait":    NodeDaemon,
	"sluice.v1.StepAPI/Control": NodeDaemon,
	"sluice.v1.StepAPI/Release": NodeDaemon,
}

// Peer is the other end of a local connection, as the kernel says.
type Peer struct {
	UID, GID uint32
	Groups   []uint32
	Operator bool

	owner   uint32 // whose uid it is: another's when it is a subordinate one
	crowded bool   // has too many connections
	conn    *boundedConn
}

type peerKey struct{}

// peerOf returns the peer of a call. Every context of a local call has one.
func peerOf(ctx context.Context) *Peer { return ctx.Value(peerKey{}).(*Peer) }

// authorise checks a call of a local method against the table.
func authorise(ctx context.Context, method string) (*Peer, error) {
	peer, ok := ctx.Value(peerKey{}).(*Peer)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "cannot tell who is calling")
	}
	switch Table[strings.TrimPrefix(method, "/")] {
	case Anyone, Owner:
		return peer, nil
	case Operator:
		if peer.Operator {
			return peer, nil
		}
		// Slurm's words for it; the method is no business of who types a command.
		return nil, problem(pb.NewProblem(pb.CodeUserID, "this is for root and SlurmUser; you are uid %d", peer.UID))
	}
	return nil, status.Errorf(codes.PermissionDenied, "the controller does not serve %s; it may be older than the command",
		method[strings.LastIndexByte(method, '/')+1:])
}

// problem makes a status of a Problem: the phrase and diagnosis as message, the Problem itself as detail.
func problem(p *pb.Problem) error {
	st := status.New(codeOf(p), p.Error())
	if with, err := st.WithDetails(p); err == nil {
		st = with
	}
	return st.Err()
}

func codeOf(p *pb.Problem) codes.Code {
	switch pb.Code(p.Code) {
	case pb.CodeAccessDenied, pb.CodePartitionGroup, pb.CodeUserID:
		return codes.PermissionDenied
	case pb.CodeInvalidJobID, pb.CodeInvalidNodeName, pb.CodeInvalidPartition:
		return codes.NotFound
	case pb.CodeQueueFull, pb.CodeNoSpace, pb.CodeRateLimited:
		return codes.ResourceExhausted
	case pb.CodeTransition, pb.CodeAlreadyDone, pb.CodeJobPending, pb.CodeDisabled:
		return codes.FailedPrecondition
	}
	return codes.InvalidArgument
}
