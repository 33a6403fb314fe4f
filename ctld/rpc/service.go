package rpc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/explain"
	"github.com/sluice-hpc/sluice/ctld/gpuhours"
	"github.com/sluice-hpc/sluice/ctld/limit"
	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/ctld/turns"
	"github.com/sluice-hpc/sluice/internal/version"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Writer is the single writer, *loop.Loop.
type Writer interface {
	Do(ctx context.Context, cmd reactor.Command) (any, error)
	View() *state.View
}

// Service implements ControllerAPI. All fields are set before the first call.
type Service struct {
	Writer  Writer
	Watch   *Watch
	Log     *slog.Logger
	Host    string        // this machine
	Name    func() string // the controller, as slurm.conf calls it
	PID     int
	Started time.Time
	Users   *Users
	// SubmitScript and ModifyScript are the functions of a site's job_submit.lua; they do nothing if there is none.
	SubmitScript func(ctx context.Context, v *state.View, r *pb.SubmitRequest) (user []string, p *pb.Problem)
	ModifyScript func(ctx context.Context, v *state.View, uid uint32, ids []string, set []*pb.KeyValue) ([]*pb.KeyValue, *pb.Problem)
	// Forecast returns when and where, and with how many CPUs, a job would start (sbatch --test-only).
	Forecast func(v *state.View, j *pb.JobRecord) (startNS int64, nodes []string, cpus uint32, p *pb.Problem)
	// Why explains why a job waits, from the scheduler's knowledge.
	Why explain.Scheduler
	// Terms returns the components of the priorities of waiting jobs, each in the partition of the same index, and the weights.
	Terms func(v *state.View, jobs []*pb.JobRecord, partitions []string) ([]priority.Parts, record.Weights)
	// Script reads a job's script and environment.
	Script func(*pb.JobRecord) (script []byte, env []string, err error)
	// Reload reads the configuration again, and returns a command that applies it. Stop ends the controller, StopNodes the daemons of the
	// nodes: it waits until they have ended or stop is closed. MakeBackup writes a backup.
	Reload    func(dryRun, force bool) (cmd reactor.Command, changes []string, err error)
	Stop      func()
	StopNodes func(stop <-chan struct{})
	// NewNodes returns the nodes that scontrol create describes.
	NewNodes   func(names string, set []*pb.KeyValue) ([]*pb.NodeRecord, error)
	MakeBackup func(path string) (string, int64, error)
	// Debug changes the log level of the controller, or of the node daemons of these nodes.
	Debug func(r *pb.SetDebugRequest, nodes []string) *pb.Problem
	// Shown returns the configuration for scontrol show config.
	Shown func() *pb.ConfigReply
	// Figures returns the counters of sdiag.
	Figures func(reset bool) map[string]float64

	// Acct answers sacct; Privacy restricts who sees which jobs there. Live has the resource use of running steps.
	Acct    Accounting
	Privacy func() Privacy
	Live    *live.Steps
	// GPUHours has the use of GPUs that is not in the database yet; may be nil.
	GPUHours *gpuhours.Recorder

	// Samples are the latest samples of GPUs.
	Samples *live.Samples
	// Withheld tells which partitions of a waiting job are gone, which devices that it could use are withheld, and why.
	Withheld func(v *state.View, j *pb.JobRecord) string

	// Holds are the allocations that clients wait for; may be nil.
	Holds *Holds

	// Enrol holds the dependencies of the methods about certificates.
	Enrol Enrolment

	calls *callLog
}

// Bounds of a submission (limits page of the documentation).
const (
	maxScript  = 4 << 20
	maxEnv     = 1 << 20
	maxEnvVars = 10000
)

func (s *Service) caller(p *Peer) reactor.Caller {
	return reactor.Caller{UID: p.UID, Operator: p.Operator, Private: s.hides(p)}
}

// Ping reports that the controller is running.
func (s *Service) Ping(context.Context, *pb.PingRequest) (*pb.PingReply, error) {
	v := s.Writer.View()
	return &pb.PingReply{Host: s.Name(), Mode: "primary", Version: version.Sluice, Pid: int64(s.PID), StartNs: s.Started.UnixNano(),
		Seq: v.Seq, Cluster: v.Settings.Cluster}, nil
}

// Submit accepts a job. When it returns, the job is on disk.
func (s *Service) Submit(ctx context.Context, r *pb.SubmitRequest) (*pb.SubmitReply, error) {
	return s.submit(ctx, peerOf(ctx), r)
}

// SubmitLarge is Submit in pieces.
func (s *Service) SubmitLarge(ctx context.Context, in pb.ControllerAPI_SubmitLargeServer) (*pb.SubmitReply, error) {
	var data []byte
	for {
		c, err := in.Recv()
		if err != nil {
			if isEOF(err) {
				break
			}
			return nil, err
		}
		if len(data)+len(c.Data) > maxScript+2*maxEnv {
			return nil, problem(tooLarge(len(data) + len(c.Data)))
		}
		data = append(data, c.Data...)
	}
	var r pb.SubmitRequest
	if err := proto.Unmarshal(data, &r); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "cannot decode the submission: %v", err)
	}
	return s.submit(ctx, peerOf(ctx), &r)
}

func tooLarge(n int) *pb.Problem {
	return pb.NewProblem(pb.CodeTooLarge, "the submission has %d bytes; the limits are %d for a script, %d in %d variables for its "+
		"environment", n, maxScript, maxEnv,
		maxEnvVars).WithHint("put data in a file, and use --export=NONE or a list to leave variables out")
}

func (s *Service) submit(ctx context.Context, peer *Peer, r *pb.SubmitRequest) (*pb.SubmitReply, error) {
	if r.Spec == nil {
		return nil, status.Error(codes.InvalidArgument, "the submission has no specification")
	}
	if p := s.checkPayload(r); p != nil {
		return nil, problem(p)
	}
	if p := s.identity(peer, r.Spec); p != nil {
		return nil, problem(p)
	}
	if r.RequestId != "" { // ids of different users do not collide
		r.RequestId = requestOf(peer.UID, r.RequestId)
	}
	if p := s.unstored(); p != nil {
		return s.refused(ctx, r.RequestId, p)
	}
	v := s.Writer.View()
	said, p := s.siteScript(ctx, v, r)
	if p != nil {
		return s.refused(ctx, r.RequestId, p)
	}
	r.Spec.Cron = ""
	if err := turns.Of(ctx).Take(ctx); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	j, p := admit.Job(v, r.Spec, r.RequestId)
	if p != nil {
		if r.TestOnly && p.Code == uint32(pb.CodeNodeConfig) {
			p.Lead = "" // Slurm says what is missing for real submissions only
		}
		return s.refused(ctx, r.RequestId, p)
	}
	if r.TestOnly {
		return s.test(v, j)
	}
	j.FirstStep = firstStep(peer.UID, r)
	texts, err := state.PackTexts(j.Spec.Uid, r.Script, r.Env)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "cannot encode script and environment: %v", err)
	}
	out, err := s.do(ctx, reactor.Submit{Job: j, Texts: texts, Layout: v.Layout, Ends: s.ends(ctx, v, j.Spec.Dependency)})
	if err != nil {
		return nil, err
	}
	done := out.(reactor.Submitted)
	if why := admit.TooLarge(v, j.Spec); why != "" {
		said = append(said, why)
	}
	return &pb.SubmitReply{JobId: done.ID, Seq: done.Seq, Warning: strings.Join(said, "\n")}, nil
}

// requestOf makes a request id unique to a user.
func requestOf(uid uint32, id string) string { return strconv.FormatUint(uint64(uid), 10) + ":" + id }

// siteScript passes a submission to job_submit.lua, and checks the result like any submission.
func (s *Service) siteScript(ctx context.Context, v *state.View, r *pb.SubmitRequest) (said []string, p *pb.Problem) {
	if s.SubmitScript == nil {
		return nil, nil
	}
	if said, p = s.SubmitScript(ctx, v, r); p == nil {
		p = s.checkPayload(r)
	}
	return said, p
}

// refused answers a submission that cannot be admitted now, unless it repeats an admitted one whose answer was lost.
func (s *Service) refused(ctx context.Context, requestID string, p *pb.Problem) (*pb.SubmitReply, error) {
	if requestID != "" {
		turns.Of(ctx).Give()
		if out, err := s.Writer.Do(ctx, reactor.FindRequest{RequestID: requestID}); err == nil {
			if done := out.(reactor.Submitted); done.ID != 0 {
				return &pb.SubmitReply{JobId: done.ID, Seq: done.Seq}, nil
			}
		}
	}
	return nil, problem(p)
}

func (s *Service) test(v *state.View, j *pb.JobRecord) (*pb.SubmitReply, error) {
	if p := reactor.Deadline(time.Now().UnixNano(), j.Spec, j.Spec.BeginNs); p != nil {
		return nil, problem(p)
	}
	limit.Time(v, j)
	start, nodes, cpus, p := s.Forecast(v, j)
	if p != nil {
		return nil, problem(p)
	}
	return &pb.SubmitReply{JobId: v.NextJobID, StartNs: start, Nodes: hostlist.FoldSorted(nodes), Partition: j.Partition, Cpus: cpus}, nil
}

func (s *Service) checkPayload(r *pb.SubmitRequest) *pb.Problem {
	env := 0
	for _, e := range r.Env {
		env += len(e) + 1
	}
	most := s.Writer.View().Settings.MaxScriptBytes
	switch {
	case most > 0 && len(r.Script) > most:
		return pb.NewProblem(pb.CodeTooLarge, "the script has %d bytes, the limit is %d (max_script_size of SchedulerParameters)",
			len(r.Script), most).WithHint("keep data in files beside it")
	case len(r.Script) > maxScript, env > maxEnv, len(r.Env) > maxEnvVars:
		return tooLarge(len(r.Script) + env)
	case r.Spec.Interactive && (len(r.Script) > 0 || r.Spec.Array != ""):
		return pb.NewProblem(pb.CodeInvalidSpec, "an allocation of salloc or srun has no batch script and is no array")
	case len(r.Script) == 0 && !r.Spec.Interactive:
		return pb.NewProblem(pb.CodeScriptMissing, "the batch script is empty")
	case len(r.RequestId) > 64:
		return pb.NewProblem(pb.CodeInvalidSpec, "the request id has %d bytes, at most 64", len(r.RequestId))
	}
	return nil
}

// identity sets the user of the job: the peer, whatever the specification says, unless an operator names another user.
func (s *Service) identity(peer *Peer, spec *pb.JobSpec) *pb.Problem {
	if p := s.Users.stranger(peer); p != nil {
		return p
	}
	other := peer.Operator && spec.Uid != 0 && spec.Uid != peer.UID
	if !other && spec.Uid != 0 && spec.Uid != peer.UID {
		return pb.NewProblem(pb.CodeUserID, "you are uid %d and asked to submit as uid %d", peer.UID, spec.Uid)
	}
	if other {
		u, err := s.Users.Lookup(spec.Uid)
		if err != nil {
			return pb.NewProblem(pb.CodeUserID, "%v", err)
		}
		if spec.Gid == 0 {
			spec.Gid = u.GID
		}
		spec.Groups, spec.User = u.Groups, u.Name
	} else {
		if spec.Gid == 0 || !peer.Operator {
			spec.Gid = peer.GID
		}
		spec.Uid, spec.Groups, spec.User = peer.UID, peer.Groups, cmp.Or(peer.User, s.Users.Name(peer.UID))
	}
	spec.Group = s.Users.Group(spec.Gid)
	if !peer.Operator || peer.Host != "" {
		spec.AllocNode, _, _ = strings.Cut(cmp.Or(peer.Host, s.Host), ".") // the socket is on that machine
	}
	if spec.Nice < 0 && !peer.Operator {
		return pb.NewProblem(pb.CodeInvalidNice, "only root and SlurmUser may set a negative nice value")
	}
	if spec.Priority != 0 && !peer.Operator {
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may use --priority")
	}
	return nil
}

// do passes a command to the writer and turns its refusals into statuses. The call gives up its turn first.
func (s *Service) do(ctx context.Context, cmd reactor.Command) (any, error) {
	turns.Of(ctx).Give()
	out, err := s.Writer.Do(ctx, cmd)
	if err == nil {
		return out, nil
	}
	var p *pb.Problem
	switch {
	case errors.As(err, &p):
		return nil, problem(p)
	case errors.Is(err, loop.ErrBusy):
		return nil, problem(pb.NewProblem(pb.CodeRateLimited, "%v", err))
	case errors.Is(err, loop.ErrEnded): // the controller ends too, which breaks the connection
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return nil, status.Error(codes.Unavailable, err.Error())
}

// CancelJobs cancels or signals jobs.
func (s *Service) CancelJobs(ctx context.Context, r *pb.CancelJobsRequest) (*pb.CancelJobsReply, error) {
	cmd := reactor.Cancel{Caller: s.caller(peerOf(ctx)), IDs: once(r.Ids), Signal: r.Signal, Batch: r.Batch, Full: r.Full}
	if r.ByFilter {
		sel, p := selectionOf(r.Filter)
		if p != nil {
			return nil, problem(p)
		}
		cmd.Match = sel.match
		if len(r.Ids) == 0 {
			for j := range attentive(ctx, sel.candidates(s.Writer.View())) {
				if state.Active(j) && sel.match(j) {
					cmd.Jobs = append(cmd.Jobs, j.Id)
				}
			}
		}
		if err := gone(ctx); err != nil || len(r.Ids) == 0 && len(cmd.Jobs) == 0 {
			return &pb.CancelJobsReply{Seq: s.Writer.View().Seq}, err
		}
	}
	out, err := s.do(ctx, cmd)
	if err != nil {
		return nil, err
	}
	o := out.(reactor.Outcomes)
	return &pb.CancelJobsReply{Outcomes: o.List, Seq: o.Seq}, nil
}

// ControlJobs is hold, release, requeue and the like.
func (s *Service) ControlJobs(ctx context.Context, r *pb.ControlJobsRequest) (*pb.ControlJobsReply, error) {
	named, err := s.named(ctx, r.Names)
	if err != nil {
		return nil, err
	}
	c := reactor.Control{Caller: s.caller(peerOf(ctx)), Verb: r.Verb, IDs: once(r.Ids), Named: named,
		Special: strings.EqualFold(r.State, "SpecialExit"), Incomplete: r.Incomplete, Text: r.Text}
	if strings.HasPrefix(c.Verb, "requeue") {
		c.Ends = s.waitedFor(ctx, c.IDs)
	}
	out, err := s.do(ctx, c)
	if err != nil {
		return nil, err
	}
	o := out.(reactor.Outcomes)
	return &pb.ControlJobsReply{Outcomes: o.List, Seq: o.Seq}, nil
}

func (s *Service) update(ctx context.Context, cmd reactor.Command) (*pb.UpdateReply, error) {
	out, err := s.do(ctx, cmd)
	if err != nil {
		return nil, err
	}
	o := out.(reactor.Outcomes)
	return &pb.UpdateReply{Seq: o.Seq, Outcomes: o.List}, nil
}

// UpdateJob is scontrol update JobId=….
func (s *Service) UpdateJob(ctx context.Context, r *pb.UpdateJobRequest) (*pb.UpdateReply, error) {
	peer, set := peerOf(ctx), r.Set
	if s.ModifyScript != nil {
		var p *pb.Problem
		if set, p = s.ModifyScript(ctx, s.Writer.View(), peer.UID, r.Ids, r.Set); p != nil {
			return nil, problem(p)
		}
	}
	c := reactor.UpdateJob{Caller: s.caller(peer), IDs: once(r.Ids), Set: set}
	for _, kv := range set {
		if strings.EqualFold(kv.Key, "Dependency") {
			c.Ends = s.ends(ctx, s.Writer.View(), kv.Value)
		}
	}
	return s.update(ctx, c)
}

// nodesNamed returns the nodes of a host list, or all of them for ALL. They need not exist.
func (s *Service) nodesNamed(list string) (names []string, p *pb.Problem) {
	if strings.EqualFold(list, "ALL") {
		for _, n := range s.Writer.View().Nodes() {
			names = append(names, n.Name)
		}
		return names, nil
	}
	names, err := hostlist.Expand(list)
	if err != nil {
		return nil, pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
	}
	return names, nil
}

// UpdateNode is scontrol update NodeName=….
func (s *Service) UpdateNode(ctx context.Context, r *pb.UpdateNodeRequest) (*pb.UpdateReply, error) {
	peer := peerOf(ctx)
	for _, kv := range r.Set {
		if p := badValue(kv); p != nil {
			return nil, problem(p)
		}
	}
	caller, names := s.caller(peer), []string{r.Nodes}
	if peer.drains != nil {
		if already, err := s.drainsItself(peer, r.Nodes, r.Set); err != nil || already {
			return &pb.UpdateReply{Seq: s.Writer.View().Seq}, err
		}
		caller.Operator = true // for this call
	} else {
		var p *pb.Problem
		if names, p = s.nodesNamed(r.Nodes); p != nil {
			return nil, problem(p)
		}
	}
	return s.update(ctx, reactor.UpdateNode{Caller: caller, UserName: s.Users.Name(peer.UID), Nodes: names, Set: r.Set})
}

// badValue refuses characters that would break columns and terminals.
func badValue(kv *pb.KeyValue) *pb.Problem {
	if p := admit.Word("a key", kv.Key); p != nil {
		return p
	}
	return admit.Line(kv.Key, kv.Value)
}

// UpdatePartition is scontrol update PartitionName=….
func (s *Service) UpdatePartition(ctx context.Context, r *pb.UpdatePartitionRequest) (*pb.UpdateReply, error) {
	cmd := reactor.UpdatePartition{Caller: s.caller(peerOf(ctx)), Name: r.Name, Set: r.Set, Create: r.Create, Delete: r.Delete}
	for _, kv := range append(slices.Clone(r.Set), &pb.KeyValue{Value: r.Name}) {
		if p := badValue(kv); p != nil {
			return nil, problem(p)
		}
		if strings.EqualFold(kv.Key, "AllowGroups") && kv.Value != "" && !strings.EqualFold(kv.Value, "ALL") {
			gids, p := s.groups(kv.Value)
			if p != nil {
				return nil, problem(p)
			}
			cmd.GIDs = gids
		}
	}
	return s.update(ctx, cmd)
}

// groups resolves a list of groups.
func (s *Service) groups(list string) ([]uint32, *pb.Problem) {
	gids := []uint32{}
	for _, name := range strings.Split(list, ",") {
		_, gid, ok := s.Users.FindGroup(name)
		if !ok {
			return nil, pb.NewProblem(pb.CodeInvalidGroup, "there is no group %q", name)
		}
		gids = append(gids, gid)
	}
	return gids, nil
}

// Reconfigure reads slurm.conf again.
func (s *Service) Reconfigure(ctx context.Context, r *pb.ReconfigureRequest) (*pb.UpdateReply, error) {
	cmd, changes, err := s.Reload(r.DryRun, r.Force)
	if err != nil {
		return nil, problem(pb.NewProblem(pb.CodeConfig, "the previous configuration stays in effect:\n%v", err))
	}
	if !r.DryRun {
		if _, err := s.do(ctx, cmd); err != nil {
			return nil, err
		}
		return &pb.UpdateReply{Seq: s.Writer.View().Seq}, nil
	}
	var refused *pb.Problem
	if _, err := s.do(ctx, cmd); err != nil {
		if refused = problemIn(err); refused == nil {
			return nil, err
		}
	}
	return &pb.UpdateReply{Seq: s.Writer.View().Seq, Changes: changes, Refused: refused}, nil
}

// problemIn returns the Problem in an error of do, or nil.
func problemIn(err error) *pb.Problem {
	for _, d := range status.Convert(err).Details() {
		if p, ok := d.(*pb.Problem); ok {
			return p
		}
	}
	return nil
}

// nodesEnd is the time for which the controller waits for node daemons that it has told to end.
const nodesEnd = 5 * time.Second

// Shutdown ends the controller and, if requested, the daemons of the linked nodes. Jobs continue.
func (s *Service) Shutdown(ctx context.Context, r *pb.ShutdownRequest) (*pb.UpdateReply, error) {
	s.Log.Info("shutdown requested", "uid", peerOf(ctx).UID, "nodes", r.NodesToo)
	time.AfterFunc(50*time.Millisecond, func() { // the answer goes out first
		if r.NodesToo {
			ctx, cancel := context.WithTimeout(context.Background(), nodesEnd)
			defer cancel()
			s.StopNodes(ctx.Done())
		}
		s.Stop()
	})
	return &pb.UpdateReply{Seq: s.Writer.View().Seq}, nil
}

// SetDebug is scontrol setdebug and setdebugflags.
func (s *Service) SetDebug(_ context.Context, r *pb.SetDebugRequest) (*pb.UpdateReply, error) {
	var nodes []string
	if r.Nodes != "" {
		var p *pb.Problem
		if nodes, p = s.nodesNamed(r.Nodes); p != nil {
			return nil, problem(p)
		}
		for _, n := range nodes {
			if s.Writer.View().Node(n) == nil {
				return nil, problem(pb.NewProblem(pb.CodeInvalidNodeName, "there is no node %s", n))
			}
		}
	}
	if p := s.Debug(r, nodes); p != nil {
		return nil, problem(p)
	}
	return &pb.UpdateReply{Seq: s.Writer.View().Seq}, nil
}

// Backup writes a copy of the state.
func (s *Service) Backup(_ context.Context, r *pb.BackupRequest) (*pb.BackupReply, error) {
	path, n, err := s.MakeBackup(r.Path)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "cannot create a backup: %v", err)
	}
	return &pb.BackupReply{Path: path, Bytes: uint64(n), Seq: s.Writer.View().Seq}, nil
}
