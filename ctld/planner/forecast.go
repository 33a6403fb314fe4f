package planner

import (
	"slices"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
)

// Judge answers when and where a job would start, and why it waits. Safe for concurrent use.
type Judge struct {
	mu     sync.Mutex
	params sched.Params
	shares []sched.Share
}

// NewJudge makes a Judge for the scheduler parameters in force.
func NewJudge(params sched.Params) *Judge { return &Judge{params: params} }

// Configure replaces the parameters.
func (g *Judge) Configure(params sched.Params) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.params = params
}

// SetShares replaces the fair-share factors. The list must not be changed.
func (g *Judge) SetShares(list []sched.Share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shares = list
}

// known is what decides and is not part of the state.
func (g *Judge) known() (sched.Params, []sched.Share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.params, g.shares
}

// Forecast says when and where a job would start if it were submitted now.
func (g *Judge) Forecast(v *state.View, j *pb.JobRecord) (startNS int64, nodes []string, p *pb.Problem) {
	c := state.CloneJob(j)
	c.Id, c.SubmitNs, c.Priority = v.NextJobID, v.NowNS, 1
	if v.Settings.PriorityBasic {
		c.Priority = 4294901760 - c.Id
	}
	return g.when(v, c)
}

// when plans with j as it is given, in place of the record that the state has of it: a pass of its own over the present state, in
// which every job of the queue is promised a start. Of a job that begins later it is the state of that time, as far as limits tell:
// what runs then, and all that waits.
func (g *Judge) when(v *state.View, j *pb.JobRecord) (startNS int64, nodes []string, p *pb.Problem) {
	params, shares := g.known()
	m := mirror{shares: shares}
	m.rebuild(v)
	m.pending = slices.DeleteFunc(m.pending, func(s *sched.Job) bool { return s.ID == j.Id })
	m.pending = append(m.pending, pendingJob(v, j, nil))
	now := v.NowNS
	if j.Spec.BeginNs > now {
		now = (j.Spec.BeginNs + 1e9 - 1) / 1e9 * 1e9
		m.running = slices.DeleteFunc(m.running, func(r *sched.Run) bool { return r.End <= now/1e9 })
	}
	plan := sched.New(params).PlanTo(m.snapshot(v, now/1e9, sched.Cursor{}), j.Id)
	for i := range plan.Start {
		if s := &plan.Start[i]; s.Job.ID == j.Id {
			for k := range s.Allocs {
				nodes = append(nodes, s.Allocs[k].Node)
			}
			return now, nodes, nil
		}
	}
	for i := range plan.Reserve {
		if r := &plan.Reserve[i]; r.ID == j.Id && r.At < sched.Forever {
			return r.At * 1e9, r.Nodes, nil
		}
	}
	for i := range plan.Reasons {
		if r := &plan.Reasons[i]; r.ID == j.Id {
			code := pb.CodePartConfig
			if r.Reason.Code == sched.PartitionNodeLimit || r.Reason.Code == sched.PartitionConfig ||
				r.Reason.Code == sched.BadConstraints {
				code = pb.CodeNodeConfig
			}
			return 0, nil, pb.NewProblem(code, "the start time of the job cannot be predicted: %s", r.Reason)
		}
	}
	return 0, nil, pb.NewProblem(pb.CodePartConfig, "the start time of the job cannot be predicted")
}

// rebuildNodes makes the records of nodes and partitions anew, and what QOS and associations say of priorities where they
// have changed.
func (m *mirror) rebuildNodes(v *state.View) {
	m.mu.Lock()
	m.seen = map[string]nodeFacts{}
	m.mu.Unlock()
	m.nodes, m.parts = nil, nil
	m.updateNodes(v)
	for _, p := range v.Partitions() {
		m.parts = append(m.parts, convert.Partition(v, p))
	}
	if m.qosOf != v.Policy() {
		m.qosOf, m.qos, m.topAssoc = v.Policy(), nil, 0
		for _, a := range m.qosOf.Assocs() {
			m.topAssoc = max(m.topAssoc, valueOf(a.Values, "Priority"))
		}
		for _, q := range m.qosOf.Qoses() {
			m.qos = append(m.qos, &sched.QOS{Name: q.Name, Priority: uint32(valueOf(q.Values, "Priority"))})
		}
	}
	slices.SortFunc(m.parts, func(a, b *sched.Partition) int { return strings.Compare(a.Name, b.Name) })
}
