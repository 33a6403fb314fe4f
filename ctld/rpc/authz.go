package rpc

import (
	"context"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/frames"
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
	// HostCert: the holder of the certificate of a node or a login host.
	HostCert
	// Joiner: whoever reaches the node port. What is asked for is given for a token alone (enrol.go).
	Joiner
	// NodeDaemon: served by the shim on a socket in a folder that only the node daemon's user can enter; never by the controller.
	NodeDaemon
)

// Via is how it is known who calls.
type Via int

// The ways to know it.
const (
	ViaKernel Via = iota // SO_PEERCRED on the controller's own socket
	ViaRelay             // SO_PEERCRED on the socket of another host, whose daemon says so and is known by its certificate
	ViaToken             // something that the caller knows; nothing takes one yet, so it opens no method
	vias
)

func (v Via) String() string { return [vias]string{"kernel", "relay", "token"}[v] }

// Answer is whether a method may be called by somebody who is known in a certain way. The zero value is none, which fails a test and
// counts as no.
type Answer int

// The answers.
const (
	Yes Answer = iota + 1
	No
)

// What most rows say of the ways, in their order.
var (
	hosts = [vias]Answer{Yes, Yes, No} // commands, wherever they are started
	here  = [vias]Answer{Yes, No, No}  // commands on the controller's own host
	never = [vias]Answer{No, No, No}   // not a method of the commands
)

// Row is one of the authorisation table: who may call a method, and known in which way.
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

	"sluice.v1.ControllerAPI/CreateToken":  {Operator, here}, // whose answer lets a host in
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

// Peer is who calls.
type Peer struct {
	UID, GID uint32
	Groups   []uint32
	Operator bool
	Via      Via
	Host     string // ViaRelay: the name in that host's certificate
	User     string // ViaRelay: the login name, the same there and here

	owner   uint32 // whose uid it is: another's when it is a subordinate one
	crowded bool   // has too many connections
	refused *pb.Problem
	drains  *drainer // of root of a compute host, who is refused everything but that; nil otherwise
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
		// Slurm's words for it; the method is no business of who types a command.
		return nil, problem(pb.NewProblem(pb.CodeUserID, "this is for root and SlurmUser; you are uid %d", peer.UID))
	}
	return nil, status.Errorf(codes.PermissionDenied, "the controller does not serve %s to commands", name)
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
