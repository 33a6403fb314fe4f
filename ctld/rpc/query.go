package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// pageJobs and pageNodes bound one message of a stream.
const (
	pageJobs  = 512
	pageNodes = 512
	pageBytes = 1 << 20
)

// Jobs streams the jobs that match, in ascending order of id, all of one moment.
func (s *Service) Jobs(ctx context.Context, r *pb.JobsRequest, out pb.ControllerAPI_JobsServer) error {
	if err := s.stream(ctx, "/sluice.v1.ControllerAPI/Jobs"); err != nil {
		return err
	}
	match, p := matcher(r)
	if p != nil {
		return problem(p)
	}
	v := s.Writer.View()
	reply := &pb.JobsReply{Seq: v.Seq, NowNs: v.NowNS, Jobs: make([]*pb.JobRecord, 0, min(pageJobs, v.Jobs.Len()))}
	sent := false
	for j := range candidates(v, r) {
		if !match(j) {
			continue
		}
		reply.Jobs = append(reply.Jobs, shownJob(j, r.Summary))
		if len(reply.Jobs) == pageJobs {
			if err := out.Send(reply); err != nil {
				return err
			}
			sent, reply.Jobs = true, reply.Jobs[:0]
		}
	}
	if len(reply.Jobs) > 0 || !sent {
		return out.Send(reply)
	}
	return nil
}

// candidates are the jobs to look at: those named, or all. The tasks of an array have ids of their own, so naming one means
// looking at all.
func candidates(v *state.View, r *pb.JobsRequest) func(func(*pb.JobRecord) bool) {
	if len(r.Ids) == 0 {
		return v.Jobs.All()
	}
	var plain []*pb.JobRecord
	for _, id := range jobIDs(r.Ids) {
		j := v.Jobs.Get(id.Job)
		if j == nil && id.Tasks == nil {
			continue
		}
		if j == nil || j.ArrayJobId == j.Id {
			return v.Jobs.All()
		}
		plain = append(plain, j)
	}
	slices.SortFunc(plain, func(a, b *pb.JobRecord) int { return cmp.Compare(a.Id, b.Id) })
	plain = slices.Compact(plain)
	return slices.Values(plain)
}

// jobIDs reads job ids; what is not one names no job.
func jobIDs(list []string) []jobid.ID {
	var ids []jobid.ID
	for _, s := range list {
		if id, err := jobid.Parse(s); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// named is the predicate of a list of ids: "12" means job 12 and all tasks of array 12, "12_3" one task.
func named(list []string) func(*pb.JobRecord) bool {
	whole, tasks := map[uint32]bool{}, map[uint32]jobid.Set{}
	for _, id := range jobIDs(list) {
		if id.Tasks == nil {
			whole[id.Job] = true
		} else if set, err := id.Tasks.Set(maxNamedTasks); err == nil {
			tasks[id.Job] = tasks[id.Job].With(set)
		}
	}
	return func(j *pb.JobRecord) bool {
		if whole[j.Id] || j.ArrayJobId != 0 && whole[j.ArrayJobId] {
			return true
		}
		set := tasks[j.ArrayJobId]
		switch {
		case j.ArrayJobId == 0 || set == nil:
			return false
		case j.IsArrayTask:
			return set.Has(j.ArrayTaskId)
		}
		have := state.ArraySet(j)
		return have.Without(set).Count() < have.Count()
	}
}

// maxNamedTasks bounds the tasks that one id may name.
const maxNamedTasks = 1 << 22

// shownJob leaves out what squeue's default columns do not need, when that is all that was asked for: a quarter of the bytes.
func shownJob(j *pb.JobRecord, summary bool) *pb.JobRecord {
	if !summary {
		return j
	}
	return &pb.JobRecord{Id: j.Id, State: j.State, StateFlags: j.StateFlags, Reason: j.Reason, Partition: j.Partition, Priority: j.Priority,
		SubmitNs: j.SubmitNs, EligibleNs: j.EligibleNs, StartNs: j.StartNs, EndNs: j.EndNs, SuspendNs: j.SuspendNs, PreSuspendNs: j.PreSuspendNs,
		ExpectedStartNs: j.ExpectedStartNs, TimeLimitS: j.TimeLimitS, NodeList: j.NodeList, NumNodes: j.NumNodes, NumCpus: j.NumCpus,
		ArrayJobId: j.ArrayJobId, ArrayTaskId: j.ArrayTaskId, ArrayTasks: j.ArrayTasks, ArrayThrottle: j.ArrayThrottle, IsArrayTask: j.IsArrayTask,
		Spec: &pb.JobSpec{Name: j.Spec.Name, User: j.Spec.User, Uid: j.Spec.Uid, Partition: j.Spec.Partition}}
}

// matcher is the predicate of a selection; every list that is not empty must match.
func matcher(r *pb.JobsRequest) (func(*pb.JobRecord) bool, *pb.Problem) {
	var tests []func(*pb.JobRecord) bool
	add := func(f func(*pb.JobRecord) bool) { tests = append(tests, f) }
	if r == nil {
		return func(*pb.JobRecord) bool { return true }, nil
	}
	if len(r.Ids) > 0 {
		add(named(r.Ids))
	}
	if len(r.Uids) > 0 {
		add(func(j *pb.JobRecord) bool { return slices.Contains(r.Uids, j.Spec.Uid) })
	}
	if len(r.Partitions) > 0 {
		add(func(j *pb.JobRecord) bool { return inPartitions(j, r.Partitions) })
	}
	if len(r.Names) > 0 {
		add(func(j *pb.JobRecord) bool { return slices.Contains(r.Names, j.Spec.Name) })
	}
	if len(r.Accounts) > 0 {
		add(func(j *pb.JobRecord) bool { return slices.Contains(r.Accounts, j.Spec.Account) })
	}
	if len(r.Qos) > 0 {
		add(func(j *pb.JobRecord) bool { return slices.Contains(r.Qos, j.Spec.Qos) })
	}
	if len(r.Reservations) > 0 {
		add(func(j *pb.JobRecord) bool { return slices.Contains(r.Reservations, j.Spec.Reservation) })
	}
	if len(r.Nodes) > 0 {
		nodes, p := nodeSet(r.Nodes)
		if p != nil {
			return nil, p
		}
		add(func(j *pb.JobRecord) bool {
			return slices.ContainsFunc(j.Alloc, func(a *pb.NodeAlloc) bool { return nodes[a.Node] })
		})
	}
	add(stateTest(r))
	return func(j *pb.JobRecord) bool {
		for _, t := range tests {
			if !t(j) {
				return false
			}
		}
		return true
	}, nil
}

func stateTest(r *pb.JobsRequest) func(*pb.JobRecord) bool {
	switch {
	case len(r.States) > 0 || r.StateFlags != 0:
		return func(j *pb.JobRecord) bool {
			return slices.Contains(r.States, j.State) && j.StateFlags&pb.JobCompleting == 0 || j.StateFlags&r.StateFlags != 0
		}
	case r.AllStates:
		return func(*pb.JobRecord) bool { return true }
	}
	return state.Active
}

func inPartitions(j *pb.JobRecord, names []string) bool {
	if slices.Contains(names, j.Partition) {
		return true
	}
	for _, p := range strings.Split(j.Spec.Partition, ",") {
		if p != "" && slices.Contains(names, p) && j.State == pb.JobState_JOB_PENDING {
			return true
		}
	}
	return false
}

func nodeSet(lists []string) (map[string]bool, *pb.Problem) {
	set := map[string]bool{}
	for _, l := range lists {
		names, err := hostlist.Expand(l)
		if err != nil {
			return nil, pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
		}
		for _, n := range names {
			set[n] = true
		}
	}
	return set, nil
}

// Nodes streams nodes in the order of the configuration.
func (s *Service) Nodes(ctx context.Context, r *pb.NodesRequest, out pb.ControllerAPI_NodesServer) error {
	if err := s.stream(ctx, "/sluice.v1.ControllerAPI/Nodes"); err != nil {
		return err
	}
	v := s.Writer.View()
	var want map[string]bool
	if len(r.Names) > 0 {
		var p *pb.Problem
		if want, p = nodeSet(r.Names); p != nil {
			return problem(p)
		}
	}
	reserved := reservedFlags(v)
	reply := &pb.NodesReply{Seq: v.Seq, NowNs: v.NowNS}
	sent := false
	for _, n := range v.Nodes() {
		if want != nil && !want[n.Name] {
			continue
		}
		reply.Nodes = append(reply.Nodes, shownNode(v, n, reserved[n.Name]))
		if len(reply.Nodes) == pageNodes {
			if err := out.Send(reply); err != nil {
				return err
			}
			sent, reply.Nodes = true, nil
		}
	}
	if len(reply.Nodes) > 0 || !sent {
		return out.Send(reply)
	}
	return nil
}

// shownNode adds to a node's record what follows from its jobs and reservations.
func shownNode(v *state.View, n *state.Node, reserved uint32) *pb.NodeRecord {
	r := state.CloneNode(n.NodeRecord)
	r.RunningJobs = uint32(len(n.Jobs))
	if n.AllocCpus > 0 {
		r.AllocTres = fmt.Sprintf("cpu=%d,mem=%s", n.AllocCpus, tres.FormatMiB(n.AllocMemMib))
	}
	r.StateFlags |= reserved
	if n.Gres != "" {
		used, total := gresUsed(v, n)
		r.GresUsed = used
		r.AllocTres += total
	}
	if r.State == pb.NodeState_NODE_IDLE && n.AllocCpus > 0 {
		r.State = pb.NodeState_NODE_MIXED
		if n.AllocCpus >= n.Cpus {
			r.State = pb.NodeState_NODE_ALLOCATED
		}
	}
	return r
}

// Partitions answers partitions in the order of the configuration.
func (s *Service) Partitions(_ context.Context, r *pb.PartitionsRequest) (*pb.PartitionsReply, error) {
	v := s.Writer.View()
	reply := &pb.PartitionsReply{Seq: v.Seq}
	for _, p := range v.Partitions() {
		if len(r.Names) == 0 || slices.Contains(r.Names, p.Name) {
			reply.Partitions = append(reply.Partitions, p)
		}
	}
	return reply, nil
}

// Config answers the configuration in force.
func (s *Service) Config(context.Context, *pb.ConfigRequest) (*pb.ConfigReply, error) {
	return &pb.ConfigReply{Pairs: s.Pairs(), NowNs: s.Writer.View().NowNS}, nil
}

// BatchScript streams a job's script to its owner.
func (s *Service) BatchScript(ctx context.Context, r *pb.BatchScriptRequest, out pb.ControllerAPI_BatchScriptServer) error {
	if err := s.stream(ctx, "/sluice.v1.ControllerAPI/BatchScript"); err != nil {
		return err
	}
	j := s.Writer.View().Jobs.Get(r.JobId)
	if j == nil {
		return problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %d", r.JobId))
	}
	if peer := peerOf(ctx); !peer.Operator && peer.UID != j.Spec.Uid {
		return problem(pb.NewProblem(pb.CodeAccessDenied, "job %d belongs to %s", j.Id, j.Spec.User))
	}
	blob, err := s.Script(state.ScriptID(j))
	if err != nil {
		return err
	}
	script, _, err := state.DecodeScript(blob)
	if err != nil {
		return err
	}
	for len(script) > 0 {
		n := min(len(script), pageBytes)
		if err := out.Send(&pb.BatchScriptReply{Data: script[:n]}); err != nil {
			return err
		}
		script = script[n:]
	}
	return nil
}

// WaitJob answers when the job has ended and nothing of it is left.
func (s *Service) WaitJob(ctx context.Context, r *pb.WaitJobRequest) (*pb.WaitJobReply, error) {
	var last *pb.JobRecord
	err := s.Watch.until(ctx, r.JobId, s.Writer.View, func(v *state.View) bool {
		j := v.Jobs.Get(r.JobId)
		if j != nil {
			last = j
		}
		return j == nil || !activeAnywhere(v, j)
	})
	if err != nil {
		return nil, err
	}
	if last == nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %d", r.JobId))
	}
	return &pb.WaitJobReply{Job: worst(s.Writer.View(), last)}, nil
}

// activeAnywhere reports whether a job, or of an array any task, is active.
func activeAnywhere(v *state.View, j *pb.JobRecord) bool {
	if state.Active(j) || j.ArrayJobId == 0 || j.ArrayJobId != j.Id {
		return state.Active(j)
	}
	for o := range v.Jobs.All() {
		if o.ArrayJobId == j.ArrayJobId && state.Active(o) {
			return true
		}
	}
	return false
}

// worst is the job itself, or the task of its array with the highest exit status (sbatch(1), --wait).
func worst(v *state.View, j *pb.JobRecord) *pb.JobRecord {
	if j.ArrayJobId == 0 || j.ArrayJobId != j.Id {
		return j
	}
	for o := range v.Jobs.All() {
		if o.ArrayJobId == j.ArrayJobId && o.ExitStatus > j.ExitStatus {
			j = o
		}
	}
	return j
}

// Stats answers counters.
func (s *Service) Stats(ctx context.Context, r *pb.StatsRequest) (*pb.StatsReply, error) {
	if r.Reset_ && !peerOf(ctx).Operator {
		return nil, problem(pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may reset the counters"))
	}
	return &pb.StatsReply{Values: s.Figures(r.Reset_)}, nil
}
