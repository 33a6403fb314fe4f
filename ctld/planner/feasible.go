package planner

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/fit"
)

// Judge answers, at submission, whether a job could ever run, and when it would. It keeps what it has worked out of the nodes
// between calls. Safe for concurrent use.
type Judge struct {
	mu       sync.Mutex
	params   sched.Params
	admitter *sched.Admitter
	nodes    []*state.Node
	parts    []*pb.PartitionRecord
}

// NewJudge makes a Judge for the scheduler parameters in force.
func NewJudge(params sched.Params) *Judge { return &Judge{params: params} }

// Configure replaces the parameters.
func (g *Judge) Configure(params sched.Params) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.params, g.admitter = params, nil
}

// Feasible refuses a job that no set of nodes could ever hold, even were all of them up and free.
func (g *Judge) Feasible(v *state.View, j *pb.JobRecord) *pb.Problem {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.admitter == nil || !g.same(v) {
		m := mirror{all: true}
		m.rebuildNodes(v)
		for _, n := range m.nodes {
			if n.State != sched.NodeFuture {
				n.State, n.Reason = sched.NodeUsable, ""
			}
		}
		g.admitter, g.nodes, g.parts = sched.NewAdmitter(&g.params, m.nodes, m.parts), v.Nodes(), v.Partitions()
	}
	if p := g.unknown(v, j); p != nil {
		return p
	}
	job := pendingJob(v, j, nil)
	if p := g.memory(v, j.Spec, job); p != nil {
		return p
	}
	if j.Spec.Hold {
		return nil // Slurm looks for nodes when a job may start; until then it waits, and then with BadConstraints
	}
	ok, why := g.admitter.Admit(job)
	lead := lacking(v, j.Spec)
	if ok && j.Spec.NtasksPerNode > 1 && lead == lackingCPUs { // fewer tasks on a node is not what --ntasks-per-node says
		ok, why = false, "no node holds as many tasks as --ntasks-per-node says"
	}
	if ok || !admit.Enforced(v) && g.admitter.Outgrown(job) {
		return nil
	}
	p := pb.NewProblem(pb.CodeNodeConfig, "%s", why).WithLead("%s", lead)
	if notes := deviceNotes(v, j, true); len(notes) > 0 {
		p.WithHint("%s", strings.Join(notes[:min(len(notes), 3)], "; "))
	}
	return p
}

// memory refuses, with EnforcePartLimits, what a partition does not allow on a node: each of the job's partitions, or all of those that
// take it otherwise.
func (g *Judge) memory(v *state.View, s *pb.JobSpec, job *sched.Job) *pb.Problem {
	if !admit.Enforced(v) {
		return nil
	}
	first := ""
	for _, name := range strings.Split(admit.PartitionList(v, s), ",") {
		if admit.Refusal(v, v.Partition(name), s) != nil {
			continue
		}
		why := g.admitter.Memory(job, name)
		if why == "" && v.Settings.EnforcePartLimits == "ANY" {
			return nil
		}
		first = cmp.Or(first, why)
	}
	if first == "" {
		return nil
	}
	return pb.NewProblem(pb.CodeInvalidMemory, "%s", first)
}

const lackingCPUs = "CPU count per node can not be satisfied"

// lacking is what Slurm says first when no node of the partitions has as much of one resource as the job wants of a single node; ""
// when it is not a single resource.
func lacking(v *state.View, s *pb.JobSpec) string {
	var cpus, sockets, cores, threads uint32
	var mem, tmp uint64
	for _, part := range strings.Split(admit.PartitionList(v, s), ",") {
		for _, name := range v.PartitionNodes(part) {
			n := v.Node(name)
			cpus, mem, tmp = max(cpus, n.Cpus), max(mem, n.RealMemoryMib), max(tmp, n.TmpDiskMib)
			sockets, cores, threads = max(sockets, n.Sockets), max(cores, n.Cores), max(threads, n.Threads)
		}
	}
	perTask := max(s.CpusPerTask, 1)
	switch {
	case max(s.PnMinCpus, perTask, s.NtasksPerNode*perTask) > cpus:
		return lackingCPUs
	case max(s.MemPerNodeMib, s.MemPerCpuMib) > mem:
		return "Memory specification can not be satisfied"
	case s.TmpDiskMib > tmp:
		return "Temporary disk specification can not be satisfied"
	case s.SocketsPerNode > sockets, s.CoresPerSocket > cores, s.ThreadsPerCore > threads:
		return "Socket, core and/or thread specification can not be satisfied"
	}
	return ""
}

// unknown refuses a constraint that cannot be read, features that no node has, and generic resources that there are none of.
func (g *Judge) unknown(v *state.View, j *pb.JobRecord) *pb.Problem {
	if _, err := fit.ParseConstraint(j.Spec.Features); err != nil {
		return pb.NewProblem(pb.CodeInvalidFeature, "%v", err)
	}
	for _, want := range features(j.Spec.Features) {
		if !slices.ContainsFunc(v.Nodes(), func(n *state.Node) bool { return hasWord(n.ActiveFeatures, want) || hasWord(n.Features, want) }) {
			return pb.NewProblem(pb.CodeInvalidFeature, "no node has the feature %q", want).WithHint("sinfo -o %%f lists them")
		}
	}
	for _, want := range gresRequests(j.Spec) {
		if !slices.ContainsFunc(v.Nodes(), func(n *state.Node) bool { return n.Inv.Has(want.Name) }) {
			return pb.NewProblem(pb.CodeInvalidGres, "no node has %q", want.Name).WithHint("sinfo -o %%G lists what there is")
		}
	}
	return nil
}

// features are the names in a constraint that can be read.
func features(text string) []string {
	var names []string
	for _, word := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune("&|,[]()", c) }) {
		name, _, _ := strings.Cut(word, "*")
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

func hasWord(list, word string) bool {
	for list != "" {
		var first string
		if first, list, _ = strings.Cut(list, ","); first == word {
			return true
		}
	}
	return false
}

// same reports whether nodes and partitions still have the size that the admitter was made with.
func (g *Judge) same(v *state.View) bool {
	if !slices.Equal(g.parts, v.Partitions()) || len(g.nodes) != len(v.Nodes()) {
		return false
	}
	for i, n := range v.Nodes() {
		o := g.nodes[i]
		if o != n && (o.Name != n.Name || o.Cpus != n.Cpus || o.RealMemoryMib != n.RealMemoryMib || o.ActiveFeatures != n.ActiveFeatures || o.Inv != n.Inv || (o.State == pb.NodeState_NODE_FUTURE) != (n.State == pb.NodeState_NODE_FUTURE)) {
			return false
		}
	}
	g.nodes = v.Nodes()
	return true
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
	g.mu.Lock()
	params := g.params
	g.mu.Unlock()
	var m mirror
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
			if r.Reason.Code == sched.PartitionNodeLimit || r.Reason.Code == sched.PartitionConfig || r.Reason.Code == sched.BadConstraints {
				code = pb.CodeNodeConfig
			}
			return 0, nil, pb.NewProblem(code, "it cannot be said when the job would start: %s", r.Reason)
		}
	}
	return 0, nil, pb.NewProblem(pb.CodePartConfig, "it cannot be said when the job would start")
}

// rebuildNodes makes the records of nodes and partitions anew.
func (m *mirror) rebuildNodes(v *state.View) {
	m.mu.Lock()
	m.seen = map[string]nodeFacts{}
	m.mu.Unlock()
	m.nodes, m.parts = nil, nil
	m.updateNodes(v)
	for _, p := range v.Partitions() {
		m.parts = append(m.parts, partition(v, p))
	}
	slices.SortFunc(m.parts, func(a, b *sched.Partition) int { return strings.Compare(a.Name, b.Name) })
}
