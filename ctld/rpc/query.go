package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// Jobs streams the jobs that match, in ascending order of id, all from one View.
func (s *Service) Jobs(ctx context.Context, r *pb.JobsRequest, out pb.ControllerAPI_JobsServer) error {
	sel, p := selectionOf(r)
	if p != nil {
		return problem(p)
	}
	v := s.Writer.View()
	page := pagesOf(func() *pb.JobsReply { return &pb.JobsReply{Seq: v.Seq, NowNs: v.NowNS} }, out.Send)
	in := pb.AskedOfJobs(r)
	withheld, sees, using := s.withheld(v, in), s.sees(ctx), s.using(ctx, in)
	var hidden []string
	if r.ShownPartitions {
		hidden = hiddenPartitions(v)
	}
	for j := range attentive(ctx, sel.candidates(v)) {
		if !sel.match(j) || !sees(j) || len(hidden) > 0 && isHidden(j, hidden) {
			continue
		}
		if err := page.add(using(withheld(j)), in); err != nil {
			return err
		}
	}
	if err := gone(ctx); err != nil {
		return err
	}
	return page.end()
}

func hiddenPartitions(v *state.View) (names []string) {
	for _, p := range v.Partitions() {
		if p.Hidden {
			names = append(names, p.Name)
		}
	}
	return names
}

// isHidden reports whether a job is in a hidden partition, or waits only for hidden ones.
func isHidden(j *pb.JobRecord, hidden []string) bool {
	if j.State != pb.JobState_JOB_PENDING || !strings.Contains(j.Spec.Partition, ",") {
		return slices.Contains(hidden, j.Partition)
	}
	return !slices.ContainsFunc(strings.Split(j.Spec.Partition, ","), func(p string) bool { return !slices.Contains(hidden, p) })
}

// nodeSet returns the nodes of several lists, which share the limit of one list.
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
	const away = pb.NodeCloud | pb.NodePoweredDown
	hide := r.Visible && (s.Privacy == nil || !s.Privacy().Cloud)
	reserved := reservedFlags(v)
	page := pagesOf(func() *pb.NodesReply { return &pb.NodesReply{Seq: v.Seq, NowNs: v.NowNS} }, out.Send)
	in := pb.AskedOfNodes(r)
	shown := &pb.NodeRecord{} // reused: a page has them encoded
	for n := range attentive(ctx, slices.Values(v.Nodes())) {
		if want != nil && !want[n.Name] || hide && n.StateFlags&away == away {
			continue
		}
		showNode(shown, v, n, reserved[n.Name])
		if err := page.add(shown, in); err != nil {
			return err
		}
	}
	if err := gone(ctx); err != nil {
		return err
	}
	return page.end()
}

// showNode fills r with a node's record and the fields that follow from its jobs and reservations.
func showNode(r *pb.NodeRecord, v *state.View, n *state.Node, reserved uint32) {
	n.ShallowTo(r)
	r.RunningJobs = uint32(len(n.Jobs))
	if n.AllocCpus > 0 {
		r.AllocTres = fmt.Sprintf("cpu=%d,mem=%s", n.AllocCpus, tres.FormatMiB(n.AllocMemMib))
	}
	r.StateFlags |= reserved
	if len(n.Strays) > 0 && n.LinkUp ||
		slices.ContainsFunc(n.Jobs, func(id uint32) bool { return v.Jobs.Get(id).StateFlags&pb.JobCompleting != 0 }) {
		r.StateFlags |= pb.NodeCompleting
	}
	showGres(v, n, r)
	showConf(v, n, r)
	r.State = baseState(n)
}

// baseState returns a node's state, allocation included.
func baseState(n *state.Node) pb.NodeState {
	switch {
	case n.State != pb.NodeState_NODE_IDLE || n.AllocCpus == 0:
		return n.State
	case n.AllocCpus >= n.Cpus:
		return pb.NodeState_NODE_ALLOCATED
	}
	return pb.NodeState_NODE_MIXED
}

// Partitions returns partitions in the order of the configuration.
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

// Config returns the present configuration.
func (s *Service) Config(context.Context, *pb.ConfigRequest) (*pb.ConfigReply, error) {
	r := s.Shown()
	r.NowNs = s.Writer.View().NowNS
	return r, nil
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
	script, _, err := s.Script(j)
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
	sees := s.sees(ctx)
	defer s.Holds.hold(ctx, s.Writer.View().Jobs.Get(r.JobId))()
	err := s.Watch.until(ctx, r.JobId, s.Writer.View, func(v *state.View) bool {
		j := v.Jobs.Get(r.JobId)
		if j == nil || !sees(j) {
			return true
		}
		last = j
		return !activeIn(v, j)
	})
	if err != nil {
		return nil, err
	}
	if last == nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidJobID, "there is no job %d", r.JobId))
	}
	return &pb.WaitJobReply{Job: worst(s.Writer.View(), last)}, nil
}

// activeIn reports whether a job, or any task of the array that it stands for, is active.
func activeIn(v *state.View, j *pb.JobRecord) bool {
	if state.Active(j) {
		return true
	}
	if j.ArrayJobId != 0 && j.ArrayJobId == j.Id {
		for o := range v.Jobs.All() {
			if o.ArrayJobId == j.ArrayJobId && state.Active(o) {
				return true
			}
		}
	}
	return false
}

// worst returns the job itself, or the task of its array with the highest exit status (sbatch(1), --wait).
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

// ActiveCalls returns the number of commands' calls under way.
func (s *Service) ActiveCalls() int {
	if s.calls == nil {
		return 0
	}
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return s.calls.active
}

// Stats returns counters.
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
