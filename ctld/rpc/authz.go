package rpc

import (
	"context"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/frames"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Who is the set of callers that may call a method.
type Who int

const (
	// Anyone with access to the socket; the answer shows nothing that is private to another user.
	Anyone Who = iota + 1
	// Owner: the method acts on jobs; the reactor checks each job's owner against the caller. Operators act on all.
	Owner
	// Operator: root and SlurmUser.
	Operator
	// NodeCert: the holder of a node's certificate, for that node only.
	NodeCert
	// HostCert: the holder of the certificate of a node or a login host.
	HostCert
	// Joiner: any client of the node port. The request needs a token (enrol.go).
	Joiner
	// NodeDaemon: served by the shim on a socket in a directory that only the node daemon's user can enter; never by the controller.
	NodeDaemon
)

// Via is how a caller is identified.
type Via int

// The ways of identification.
const (
	ViaKernel Via = iota // SO_PEERCRED on the controller's own socket
	ViaRelay             // SO_PEERCRED on the socket of another host, reported by its daemon, which is identified by its certificate
	ViaToken             // a secret of the caller; nothing accepts one yet, so it opens no method
	vias
)

func (v Via) String() string { return [vias]string{"kernel", "relay", "token"}[v] }

// Answer says whether a method may be called by a caller identified in a certain way. The zero value is no answer, which fails a test and
// counts as no.
type Answer int

const (
	Yes Answer = iota + 1
	No
)

// Common combinations, in the order of Via.
var (
	hosts = [vias]Answer{Yes, Yes, No} // commands, wherever they are started
	here  = [vias]Answer{Yes, No, No}  // commands on the controller's own host
	never = [vias]Answer{No, No, No}   // not a method of the commands
)

// Row is a row of the authorisation table: who may call a method, identified in which way.
type Row struct {
	Who Who
	Via [vias]Answer
}

// Table is the authorisation table: every method of every service has its row. TestEveryMethodHasARow reads the services from
// the .proto files and fails for one that is missing.
var Table = map[string]Row{
	"sluice.v1.ControllerAPI/Ping":            {Anyone, hosts},
	"sluice.v1.ControllerAPI/Submit":          {Anyone, hosts}, // as oneself; --uid of others for operators (service.go)
	"sluice.v1.ControllerAPI/SubmitLarge":     {Anyone, hosts},
	"sluice.v1.ControllerAPI/Jobs":            {Anyone, hosts},
	"sluice.v1.ControllerAPI/Nodes":           {Anyone, hosts},
	"sluice.v1.ControllerAPI/Partitions":      {Anyone, hosts},
	"sluice.v1.ControllerAPI/Config":          {Anyone, hosts},
	"sluice.v1.ControllerAPI/BatchScript":     {Owner, hosts},
	"sluice.v1.ControllerAPI/CancelJobs":      {Owner, hosts},
	"sluice.v1.ControllerAPI/ControlJobs":     {Owner, hosts},
	"sluice.v1.ControllerAPI/UpdateJob":       {Owner, hosts},
	"sluice.v1.ControllerAPI/UpdateNode":      {Operator, hosts},
	"sluice.v1.ControllerAPI/CreateNodes":     {Operator, hosts},
	"sluice.v1.ControllerAPI/DeleteNodes":     {Operator, hosts},
	"sluice.v1.ControllerAPI/UpdatePartition": {Operator, hosts},
	"sluice.v1.ControllerAPI/WaitJob":         {Anyone, hosts},
	"sluice.v1.ControllerAPI/Reconfigure":     {Operator, hosts},
	"sluice.v1.ControllerAPI/Shutdown":        {Operator, here},
	"sluice.v1.ControllerAPI/SetDebug":        {Operator, hosts},
	"sluice.v1.ControllerAPI/Backup":          {Operator, here},
	"sluice.v1.ControllerAPI/Stats":           {Anyone, hosts},
	"sluice.v1.ControllerAPI/Crontab":         {Anyone, hosts}, // one's own; others' for operators (crontab.go)
	"sluice.v1.ControllerAPI/UpdateCrontab":   {Anyone, hosts},

	"sluice.v1.ControllerAPI/Reservations":      {Anyone, hosts},
	"sluice.v1.ControllerAPI/UpdateReservation": {Operator, hosts},
	"sluice.v1.ControllerAPI/Licenses":          {Anyone, hosts},
	"sluice.v1.ControllerAPI/Explain":           {Anyone, hosts},
	"sluice.v1.ControllerAPI/Priorities":        {Anyone, hosts},
	"sluice.v1.ControllerAPI/Gpus":              {Anyone, hosts},
	"sluice.v1.ControllerAPI/Topology":          {Anyone, hosts},
	"sluice.v1.ControllerAPI/Accounting":        {Anyone, hosts}, // PrivateData=jobs: one's own, unless operator (accounting.go)
	"sluice.v1.ControllerAPI/AccountingScript":  {Owner, hosts},
	"sluice.v1.ControllerAPI/Usage":             {Anyone, hosts}, // one's own, unless operator (accounting.go)
	"sluice.v1.ControllerAPI/Report":            {Anyone, hosts}, // PrivateData=usage: rows of one's own jobs, unless operator (report.go)
	"sluice.v1.ControllerAPI/AccountUsage":      {Anyone, hosts}, // PrivateData=usage: one's own, unless operator (accountusage.go)

	"sluice.v1.ControllerAPI/CreateToken":  {Operator, here}, // the reply admits a host
	"sluice.v1.ControllerAPI/Tokens":       {Operator, hosts},
	"sluice.v1.ControllerAPI/RevokeToken":  {Operator, hosts},
	"sluice.v1.ControllerAPI/RevokeHost":   {Operator, hosts},
	"sluice.v1.ControllerAPI/Certificates": {Operator, hosts},
	"sluice.v1.ControllerAPI/Hosts":        {Operator, hosts},

	"sluice.v1.ControllerAPI/Policy":       {Anyone, hosts},
	"sluice.v1.ControllerAPI/ChangePolicy": {Anyone, hosts}, // administrators, operators and coordinators, by records (reactor/accounts)
	"sluice.v1.ControllerAPI/Budgets":      {Anyone, hosts}, // PrivateData=usage: those of own jobs, unless operator (budgets.go)

	"sluice.v1.ControllerAPI/CreateStep":     {Owner, hosts},
	"sluice.v1.ControllerAPI/Steps":          {Anyone, hosts}, // PrivateData=jobs: of one's own jobs, unless operator (steps.go)
	"sluice.v1.ControllerAPI/WaitStep":       {Anyone, hosts},
	"sluice.v1.ControllerAPI/UpdateStep":     {Owner, hosts},
	"sluice.v1.ControllerAPI/AttachStep":     {Owner, hosts},
	"sluice.v1.ControllerAPI/WaitAllocation": {Anyone, hosts},
	"sluice.v1.ControllerAPI/EndAllocation":  {Owner, hosts},

	"sluice.node.v1.NodeAPI/Sync":          {NodeCert, never},
	"sluice.node.v1.NodeAPI/Configuration": {HostCert, never},
	"sluice.node.v1.RelayAPI/Call":         {HostCert, never},
	"sluice.node.v1.EnrolAPI/Join":         {Joiner, never},
	"sluice.node.v1.EnrolAPI/Renew":        {HostCert, never},

	"sluice.v1.StepAPI/Launch":  {NodeDaemon, never},
	"sluice.v1.StepAPI/Status":  {NodeDaemon, never},
	"sluice.v1.StepAPI/Wait":    {NodeDaemon, never},
	"sluice.v1.StepAPI/Control": {NodeDaemon, never},
	"sluice.v1.StepAPI/Release": {NodeDaemon, never},
	"sluice.v1.StepAPI/Adopt":   {NodeDaemon, never},
}

// Peer is the caller.
type Peer struct {
	UID, GID uint32
	Groups   []uint32
	Operator bool
	Via      Via
	Host     string // ViaRelay: the name in that host's certificate
	User     string // ViaRelay: the login name, the same there and here

	owner   uint32 // owner of the uid: another user for a subordinate uid
	crowded bool   // has too many connections
	refused *pb.Problem
	drains  *drainer // for root of a compute host, who may only drain that node; nil otherwise
	conn    *frames.Conn
	answers chan struct{} // of the connection: maxConnAnswers
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
	row := Table[strings.TrimPrefix(method, "/")]
	name := method[strings.LastIndexByte(method, '/')+1:]
	if row.Via[ViaKernel] != Yes {
		return nil, status.Errorf(codes.PermissionDenied, "the controller does not serve %s; it may be older than the command", name)
	}
	if row.Via[peer.Via] != Yes {
		return nil, problem(pb.NewProblem(pb.CodeAccessDenied, "%s is not available from host %s", name, peer.Host).WithHint(
			"run the command on the controller's own host"))
	}
	switch row.Who {
	case Anyone, Owner:
		return peer, nil
	case Operator:
		if peer.Operator {
			return peer, nil
		}
		// In Slurm's words; users need not know the method.
		return nil, problem(pb.NewProblem(pb.CodeUserID, "this is for root and SlurmUser; you are uid %d", peer.UID))
	}
	return nil, status.Errorf(codes.PermissionDenied, "the controller does not serve %s to commands", name)
}

// problem makes a status of a Problem: phrase and diagnosis are the message, the Problem itself is a detail.
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
