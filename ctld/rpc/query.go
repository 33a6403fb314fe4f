package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// Jobs streams the jobs that match, in ascending order of id, all of one moment.
func (s *Service) Jobs(ctx context.Context, r *pb.JobsRequest, out pb.ControllerAPI_JobsServer) error {
	match, p := matcher(r)
	if p != nil {
		return problem(p)
	}
	v := s.Writer.View()
	page := pagesOf(func() *pb.JobsReply { return &pb.JobsReply{Seq: v.Seq, NowNs: v.NowNS} }, out.Send)
	in := pb.AskedOfJobs(r)
	withheld, sees := s.withheld(v, in), s.sees(ctx)
	var hidden []string
	if r.ShownPartitions {
		hidden = hiddenPartitions(v)
	}
	for j := range candidates(v, r) {
		if !match(j) || !sees(j) || len(hidden) > 0 && isHidden(j, hidden) {
			continue
		}
		if err := page.add(withheld(j), in); err != nil {
			return err
		}
	}
	return page.end()
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

func hiddenPartitions(v *state.View) (names []string) {
	for _, p := range v.Partitions() {
		if p.Hidden {
			names = append(names, p.Name)
		}
	}
	return names
}

// isHidden reports whether a job is in a hidden partition, or waits for hidden ones alone.
func isHidden(j *pb.JobRecord, hidden []string) bool {
	if j.State != pb.JobState_JOB_PENDING || !strings.Contains(j.Spec.Partition, ",") {
		return slices.Contains(hidden, j.Partition)
	}
	return !slices.ContainsFunc(strings.Split(j.Spec.Partition, ","), func(p string) bool { return !slices.Contains(hidden, p) })
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

// nodeSet is the nodes of several lists, which together may name as many as one.
func nodeSet(lists []string) (map[string]bool, *pb.Problem) {
	set, named := map[string]bool{}, 0
	for _, l := range lists {
		n, err := hostlist.Count(l)
		if named += n; named > hostlist.Limit {
			err = &hostlist.LimitError{Count: uint64(named)}
		}
		if err != nil {
			return nil, pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
		}
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
	v := s.Writer.View()
	var want map[string]bool
	if len(r.Names) > 0 {
		var p *pb.Problem
		if want, p = nodeSet(r.Names); p != nil {
			return problem(p)
		}
	}
	reserved := reservedFlags(v)
	page := pagesOf(func() *pb.NodesReply { return &pb.NodesReply{Seq: v.Seq, NowNs: v.NowNS} }, out.Send)
	in := pb.AskedOfNodes(r)
	for _, n := range v.Nodes() {
		if want != nil && !want[n.Name] {
			continue
		}
		if err := page.add(shownNode(v, n, reserved[n.Name]), in); err != nil {
			return err
		}
	}
	return page.end()
}

// shownNode adds to a node's record what follows from its jobs and reservations.
func shownNode(v *state.View, n *state.Node, reserved uint32) *pb.NodeRecord {
	r := state.CloneNode(n.NodeRecord)
	r.RunningJobs = uint32(len(n.Jobs))
	if n.AllocCpus > 0 {
		r.AllocTres = fmt.Sprintf("cpu=%d,mem=%s", n.AllocCpus, tres.FormatMiB(n.AllocMemMib))
	}
	r.StateFlags |= reserved
	if len(n.Strays) > 0 && n.LinkUp || slices.ContainsFunc(n.Jobs, func(id uint32) bool { return v.Jobs.Get(id).StateFlags&pb.JobCompleting != 0 }) {
		r.StateFlags |= pb.NodeCompleting
	}
	showGres(v, n, r)
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
			reply.Partitions = append(reply.Partitions, showPartition(v, p))
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
	j := s.Writer.View().Jobs.Get(r.JobId)
	if j == nil {
		return problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %d", r.JobId))
	}
	if peer := peerOf(ctx); !peer.Operator && peer.UID != j.Spec.Uid {
		return problem(s.caller(peer).Refused(pb.CodeUserID, j))
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
	var task uint32 // of an array: one that was active when last looked for
	sees := s.sees(ctx)
	err := s.Watch.until(ctx, r.JobId, s.Writer.View, func(v *state.View) bool {
		j := v.Jobs.Get(r.JobId)
		if j == nil || !sees(j) {
			return true
		}
		last = j
		if t := v.Jobs.Get(task); t == nil || !state.Active(t) {
			task = activeTask(v, j)
		}
		return task == 0
	})
	if err != nil {
		return nil, err
	}
	if last == nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %d", r.JobId))
	}
	return &pb.WaitJobReply{Job: worst(s.Writer.View(), last)}, nil
}

// activeTask is a job that is active: the job itself, or of an array the record that was made last, which is likely to be the last to
// end; 0 = none.
func activeTask(v *state.View, j *pb.JobRecord) uint32 {
	if state.Active(j) {
		return j.Id
	}
	last := uint32(0)
	if j.ArrayJobId != 0 && j.ArrayJobId == j.Id {
		for o := range v.Jobs.All() {
			if o.ArrayJobId == j.ArrayJobId && state.Active(o) {
				last = o.Id
			}
		}
	}
	return last
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
	reply := &pb.StatsReply{Values: s.Figures(r.Reset_), NowNs: time.Now().UnixNano()}
	if reply.Values == nil {
		reply.Values = map[string]float64{}
	}
	reply.SinceNs = int64(reply.Values["since_s"]) * int64(time.Second)
	if s.calls != nil {
		var active int
		reply.Methods, reply.Users, active = s.calls.report(s.Users.Name, r.Reset_)
		reply.Values["active_calls"] = float64(active)
	}
	return reply, nil
}
