// Package clienttest serves a fake controller on a unix socket, for tests and benchmarks of the client.
package clienttest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Controller answers calls and records them. Set fields before the first call; a nil function answers with success. Calls that a
// test does not expect return Unimplemented.
type Controller struct {
	pb.ControllerAPIService // calls without an answer below panic
	mu                      sync.Mutex

	Submitted []*pb.SubmitRequest
	Cancelled []*pb.CancelJobsRequest
	Controls  []*pb.ControlJobsRequest
	Updates   []any
	// OutcomeOf returns the outcome for a job named in a call; nil: success for every job.
	OutcomeOf func(id string) *pb.Problem
	Outcomes  []*pb.JobOutcome // for verbs and updates, instead of OutcomeOf
	Finished  *pb.JobRecord    // answer to WaitJob
	Script    []byte           // answer to BatchScript
	Fail      *pb.Problem      // rejects every call
	Busy      atomic.Int32     // number of calls to reject at first for lack of room
	JobList   []*pb.JobRecord
	NodeList  []*pb.NodeRecord
	StepList  []*pb.StepRecord // for squeue -s, and with the jobs of accounting
	UsageList []*pb.StepUsage  // for sstat
	// for sprio, scontrol show reservation and licenses; nil: none
	PrioritiesOf func(*pb.PrioritiesRequest) *pb.PrioritiesReply
	ResvList     *pb.ReservationsReply
	LicenseList  []*pb.LicenseRecord
	PolicyRows   []*pb.PolicyRow // for sacctmgr; nil: the defaults of every cluster
	PolicyReply  *pb.ChangePolicyReply
	Explained    map[string]string
	// for sacct
	AccountingList   []*pb.JobRecord
	AccountingAsked  []*pb.AccountingRequest
	AccountingNowNS  int64
	AccountingExtern bool
	Reported         *pb.ReportReply // for sluice report
	ReportAsked      []*pb.ReportRequest
	BudgetList       *pb.BudgetsReply // for sluice budget
	BudgetsAsked     []*pb.BudgetsRequest
	Stepping         Steps
	DropCalls        int // number of calls to answer by closing the connection

	drop func()
}

// Serve listens in dir and returns the socket and a function that stops it.
func (c *Controller) Serve(dir string) (socket string, stop func(), err error) {
	socket = filepath.Join(dir, "ctld.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return "", nil, err
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		return "", nil, err
	}
	pb.RegisterControllerAPIService(srv, c)
	dl := &dropListener{Listener: l}
	c.drop = dl.dropAll
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(context.Background(), dl) }()
	return socket, func() { _ = srv.Close(); <-done; _ = os.Remove(socket) }, nil
}

// dropListener can cut the connections that it has accepted.
type dropListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *dropListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, conn)
		l.mu.Unlock()
	}
	return conn, err
}

func (l *dropListener) dropAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// refuse answers as ctld does: a status with the Problem as its detail.
func (c *Controller) refuse() error {
	fail := c.Fail
	if c.Busy.Add(-1) >= 0 {
		fail = pb.NewProblem(pb.CodeRateLimited, "you have too many calls open")
	}
	if fail == nil {
		return nil
	}
	st, err := status.New(codes.InvalidArgument, fail.Error()).WithDetails(fail)
	if err != nil {
		return err
	}
	return st.Err()
}

func (c *Controller) Ping(context.Context, *pb.PingRequest) (*pb.PingReply, error) {
	return &pb.PingReply{Host: "head", Mode: "primary", Cluster: "test"}, c.refuse()
}

func (c *Controller) Report(_ context.Context, r *pb.ReportRequest) (*pb.ReportReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ReportAsked = append(c.ReportAsked, r)
	return c.Reported, c.refuse()
}

// Budgets answers with BudgetList.
func (c *Controller) Budgets(_ context.Context, r *pb.BudgetsRequest) (*pb.BudgetsReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.BudgetsAsked = append(c.BudgetsAsked, r)
	return c.BudgetList, c.refuse()
}

func (c *Controller) submit(req *pb.SubmitRequest) (*pb.SubmitReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Submitted = append(c.Submitted, req)
	if c.DropCalls > 0 {
		c.DropCalls--
		c.drop()
	}
	if err := c.refuse(); err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, s := range c.Submitted {
		ids[s.RequestId] = true
	}
	return &pb.SubmitReply{JobId: uint32(len(ids)), Partition: "debug", Nodes: "n1", Cpus: 1, StartNs: 1700000000e9}, nil
}

func (c *Controller) Submit(_ context.Context, req *pb.SubmitRequest) (*pb.SubmitReply, error) {
	return c.submit(req)
}

func (c *Controller) SubmitLarge(_ context.Context, s pb.ControllerAPI_SubmitLargeServer) (*pb.SubmitReply, error) {
	var data []byte
	for {
		chunk, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		data = append(data, chunk.GetData()...)
	}
	req := &pb.SubmitRequest{}
	if err := proto.Unmarshal(data, req); err != nil {
		return nil, err
	}
	return c.submit(req)
}

func (c *Controller) Jobs(_ context.Context, _ *pb.JobsRequest, s pb.ControllerAPI_JobsServer) error {
	if err := c.refuse(); err != nil {
		return err
	}
	for page := range slices.Chunk(c.JobList, 500) {
		if err := s.Send(&pb.JobsReply{Jobs: page}); err != nil {
			return err
		}
	}
	if len(c.JobList) > 0 {
		return nil
	}
	return s.Send(&pb.JobsReply{})
}

// Steps answers with the steps of StepList whose job is named, or all.
func (c *Controller) Steps(_ context.Context, r *pb.StepsRequest, s pb.ControllerAPI_StepsServer) error {
	if err := c.refuse(); err != nil {
		return err
	}
	return s.Send(&pb.StepsReply{Steps: c.steps(r.GetIds())})
}

func (c *Controller) steps(ids []string) []*pb.StepRecord {
	return slices.DeleteFunc(slices.Clone(c.StepList), func(s *pb.StepRecord) bool {
		job := strconv.Itoa(int(s.JobId))
		return len(ids) > 0 && !slices.Contains(ids, job) && !slices.Contains(ids, job+"."+strconv.Itoa(int(s.StepId)))
	})
}

func (c *Controller) UpdateStep(_ context.Context, req *pb.UpdateStepRequest) (*pb.UpdateReply, error) {
	return c.update(req)
}

func (c *Controller) Usage(context.Context, *pb.UsageRequest) (*pb.UsageReply, error) {
	return &pb.UsageReply{Usage: c.UsageList}, c.refuse()
}

func (c *Controller) Nodes(_ context.Context, _ *pb.NodesRequest, s pb.ControllerAPI_NodesServer) error {
	return s.Send(&pb.NodesReply{Nodes: c.NodeList})
}

func (c *Controller) Partitions(context.Context, *pb.PartitionsRequest) (*pb.PartitionsReply, error) {
	return &pb.PartitionsReply{}, c.refuse()
}

func (c *Controller) Config(context.Context, *pb.ConfigRequest) (*pb.ConfigReply, error) {
	return &pb.ConfigReply{}, c.refuse()
}

func (c *Controller) BatchScript(_ context.Context, _ *pb.BatchScriptRequest, s pb.ControllerAPI_BatchScriptServer) error {
	if err := c.refuse(); err != nil {
		return err
	}
	return s.Send(&pb.BatchScriptReply{Data: c.Script})
}

func (c *Controller) CancelJobs(_ context.Context, req *pb.CancelJobsRequest) (*pb.CancelJobsReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Cancelled = append(c.Cancelled, req)
	return &pb.CancelJobsReply{Outcomes: c.outcomes(req.GetIds())}, c.refuse()
}

func (c *Controller) ControlJobs(_ context.Context, req *pb.ControlJobsRequest) (*pb.ControlJobsReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Controls = append(c.Controls, req)
	return &pb.ControlJobsReply{Outcomes: c.outcomes(req.GetIds())}, c.refuse()
}

func (c *Controller) update(req any) (*pb.UpdateReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Updates = append(c.Updates, req)
	reply := &pb.UpdateReply{}
	if job, ok := req.(*pb.UpdateJobRequest); ok {
		reply.Outcomes = c.outcomes(job.GetIds())
	}
	return reply, c.refuse()
}

func (c *Controller) outcomes(ids []string) []*pb.JobOutcome {
	if c.Outcomes != nil {
		return c.Outcomes
	}
	var list []*pb.JobOutcome
	for _, id := range ids {
		o := &pb.JobOutcome{Id: id}
		if c.OutcomeOf != nil {
			o.Problem = c.OutcomeOf(id)
		}
		list = append(list, o)
	}
	return list
}

func (c *Controller) UpdateJob(_ context.Context, req *pb.UpdateJobRequest) (*pb.UpdateReply, error) {
	return c.update(req)
}

func (c *Controller) UpdateNode(_ context.Context, req *pb.UpdateNodeRequest) (*pb.UpdateReply, error) {
	return c.update(req)
}

func (c *Controller) CreateNodes(_ context.Context, req *pb.CreateNodesRequest) (*pb.UpdateReply, error) {
	return c.update(req)
}

func (c *Controller) DeleteNodes(_ context.Context, req *pb.DeleteNodesRequest) (*pb.UpdateReply, error) {
	return c.update(req)
}

func (c *Controller) UpdatePartition(_ context.Context, req *pb.UpdatePartitionRequest) (*pb.UpdateReply, error) {
	return c.update(req)
}

func (c *Controller) UpdateReservation(_ context.Context, req *pb.UpdateReservationRequest) (*pb.UpdateReply, error) {
	reply, err := c.update(req)
	name := req.GetName()
	if name == "" {
		name = "root_1"
	}
	reply.Outcomes = []*pb.JobOutcome{{Id: name}}
	return reply, err
}

func (c *Controller) Reservations(_ context.Context, req *pb.ReservationsRequest) (*pb.ReservationsReply, error) {
	reply := &pb.ReservationsReply{NowNs: c.ResvList.GetNowNs()}
	for _, r := range c.ResvList.GetReservations() {
		if len(req.GetNames()) == 0 || slices.Contains(req.GetNames(), r.GetName()) {
			reply.Reservations = append(reply.Reservations, r)
		}
	}
	return reply, c.refuse()
}

func (c *Controller) Policy(_ context.Context, _ *pb.PolicyRequest, out pb.ControllerAPI_PolicyServer) error {
	rows := c.PolicyRows
	if rows == nil {
		rows = []*pb.PolicyRow{{Account: &pb.AccountRecord{Name: "root", Description: "default root account", Organization: "root"}},
			{User: &pb.UserRecord{Name: "root", DefaultAccount: "root", Level: pb.AdminLevel_ADMIN_ADMINISTRATOR}},
			{Assoc: &pb.AssocRecord{Id: 1, Account: "root", Qos: []string{"normal"}}},
			{Assoc: &pb.AssocRecord{Id: 2, Account: "root", User: "root", Qos: []string{"normal"}}},
			{Qos: &pb.QosRecord{Id: 1, Name: "normal", Description: "Normal QOS default"}}}
	}
	if err := c.refuse(); err != nil {
		return err
	}
	return out.Send(&pb.PolicyReply{Rows: rows})
}

func (c *Controller) ChangePolicy(_ context.Context, req *pb.ChangePolicyRequest) (*pb.ChangePolicyReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Updates = append(c.Updates, req)
	return c.PolicyReply, c.refuse()
}

func (c *Controller) Licenses(context.Context, *pb.LicensesRequest) (*pb.LicensesReply, error) {
	return &pb.LicensesReply{Licenses: c.LicenseList}, c.refuse()
}

func (c *Controller) Priorities(_ context.Context, req *pb.PrioritiesRequest) (*pb.PrioritiesReply, error) {
	if c.PrioritiesOf == nil {
		return &pb.PrioritiesReply{}, c.refuse()
	}
	return c.PrioritiesOf(req), c.refuse()
}

func (c *Controller) Explain(_ context.Context, req *pb.ExplainRequest) (*pb.ExplainReply, error) {
	return &pb.ExplainReply{Text: c.Explained[req.GetId()]}, c.refuse()
}

// WaitJob answers with Finished; without it the job continues.
func (c *Controller) WaitJob(ctx context.Context, _ *pb.WaitJobRequest) (*pb.WaitJobReply, error) {
	if c.Finished == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.WaitJobReply{Job: c.Finished}, c.refuse()
}

func (c *Controller) Reconfigure(_ context.Context, req *pb.ReconfigureRequest) (*pb.UpdateReply, error) {
	return c.update(req)
}

func (c *Controller) Shutdown(_ context.Context, req *pb.ShutdownRequest) (*pb.UpdateReply, error) {
	return c.update(req)
}

func (c *Controller) Backup(_ context.Context, req *pb.BackupRequest) (*pb.BackupReply, error) {
	return &pb.BackupReply{Path: req.GetPath()}, c.refuse()
}

func (c *Controller) Stats(context.Context, *pb.StatsRequest) (*pb.StatsReply, error) {
	return &pb.StatsReply{}, c.refuse()
}

// Accounting answers with the named jobs of AccountingList, or all; AccountingAsked records the requests.
func (c *Controller) Accounting(_ context.Context, r *pb.AccountingRequest, out pb.ControllerAPI_AccountingServer) error {
	c.mu.Lock()
	c.AccountingAsked = append(c.AccountingAsked, r)
	c.mu.Unlock()
	if err := c.refuse(); err != nil {
		return err
	}
	list := slices.DeleteFunc(slices.Clone(c.AccountingList), func(j *pb.JobRecord) bool {
		return len(r.Ids) > 0 && !slices.Contains(r.Ids, strconv.Itoa(int(j.Id))) &&
			!slices.Contains(r.Ids, strconv.Itoa(int(j.ArrayJobId)))
	})
	return out.Send(&pb.AccountingReply{Jobs: list, Steps: c.steps(r.Ids), NowNs: c.AccountingNowNS, Extern: c.AccountingExtern})
}
