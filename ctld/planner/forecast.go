package planner

import (
	"slices"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Advisor predicts when and where a job would start, and explains why it waits. Safe for concurrent use.
type Advisor struct {
	mu     sync.Mutex
	params record.Params
	shares []record.Share
}

// NewAdvisor makes an Advisor for the present scheduler parameters.
func NewAdvisor(params record.Params) *Advisor { return &Advisor{params: params} }

// Configure replaces the parameters.
func (g *Advisor) Configure(params record.Params) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.params = params
}

// SetShares replaces the fair-share factors. The list is sorted by account and user, and must not be changed.
func (g *Advisor) SetShares(list []record.Share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shares = list
}

// known returns the inputs of decisions that are not part of the state.
func (g *Advisor) known() (record.Params, []record.Share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.params, g.shares
}

// Forecast returns when and where, and with how many CPUs, a job would start if it were submitted now.
func (g *Advisor) Forecast(v *state.View, j *pb.JobRecord) (startNS int64, nodes []string, cpus uint32, p *pb.Problem) {
	c := state.CloneJob(j)
	c.Id, c.SubmitNs, c.Priority = v.NextJobID, v.NowNS, 1
	if v.Settings.PriorityBasic {
		c.Priority = 4294901760 - c.Id
	}
	return g.when(v, c)
}

// when plans with j in place of the state's record of it: a pass of its own over the present state, in which every job of the queue is
// promised a start. For a job that begins later it uses the state at that time, as far as time limits tell: jobs that still run then, and
// all that wait. A promise is for the fewest nodes, so the job's resources are looked up in the state at its start.
func (g *Advisor) when(v *state.View, j *pb.JobRecord) (startNS int64, nodes []string, cpus uint32, p *pb.Problem) {
	now := v.NowNS
	if j.Spec.BeginNs > now {
		now = (j.Spec.BeginNs + 1e9 - 1) / 1e9 * 1e9
	}
	plan := g.planAt(v, j, now)
	if nodes, cpus = started(plan, j.Id); nodes != nil {
		return now, nodes, cpus, nil
	}
	for i := range plan.Reserve {
		r := &plan.Reserve[i]
		if r.ID != j.Id || r.At >= record.Forever {
			continue
		}
		if nodes, cpus := started(g.planAt(v, j, r.At*1e9), j.Id); nodes != nil {
			return r.At * 1e9, nodes, cpus, nil
		}
		return r.At * 1e9, r.Nodes, max(j.NumCpus, uint32(len(r.Nodes))), nil // each node of a job has at least one CPU
	}
	for i := range plan.Reasons {
		if r := &plan.Reasons[i]; r.ID == j.Id {
			code := pb.CodePartConfig
			if r.Reason.Code == reason.PartitionNodeLimit || r.Reason.Code == reason.PartitionConfig ||
				r.Reason.Code == reason.BadConstraints {
				code = pb.CodeNodeConfig
			}
			return 0, nil, 0, pb.NewProblem(code, "the start time of the job cannot be predicted: %s", r.Reason)
		}
	}
	return 0, nil, 0, pb.NewProblem(pb.CodePartConfig, "the start time of the job cannot be predicted")
}

// planAt returns the plan for a time from now on.
func (g *Advisor) planAt(v *state.View, j *pb.JobRecord, now int64) *record.Plan {
	params, shares := g.known()
	m := mirror{shares: shares}
	m.rebuild(v)
	m.pending = slices.DeleteFunc(m.pending, func(s *record.Job) bool { return s.ID == j.Id })
	m.pending = append(m.pending, pendingJob(v, j, nil))
	if now > v.NowNS {
		m.running = slices.DeleteFunc(m.running, func(r *record.Run) bool { return r.End <= now/1e9 })
	}
	return sched.New(params).PlanTo(m.snapshot(v, now/1e9, record.Cursor{}), j.Id)
}

// started returns the nodes on which a plan starts a job, and its number of CPUs; nil: it does not.
func started(plan *record.Plan, id uint32) (nodes []string, cpus uint32) {
	for i := range plan.Start {
		if s := &plan.Start[i]; s.Job.ID == id {
			for k := range s.Allocs {
				nodes = append(nodes, s.Allocs[k].Node)
				cpus += uint32(s.Allocs[k].CPUs)
			}
			return nodes, cpus
		}
	}
	return nil, 0
}

// rebuildNodes makes the records of nodes and partitions anew, and the priorities of QOS and associations where they have changed.
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
			m.qos = append(m.qos, convert.QOS(q))
		}
	}
	slices.SortFunc(m.parts, func(a, b *record.Partition) int { return strings.Compare(a.Name, b.Name) })
}
