package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/priority"
)

// Explain says in words why a job waits: the reason, what the nodes of its partitions lack, when and where the plan has it start,
// which running jobs must end for that, and what smaller request would start at once.
func (g *Judge) Explain(v *state.View, j *pb.JobRecord) (text string, startNS int64, nodes []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "Job %d waits: %s", j.Id, j.Reason)
	if j.ReasonDetail != "" {
		fmt.Fprintf(&b, " (%s)", j.ReasonDetail)
	}
	b.WriteByte('\n')
	if j.Priority == 0 || j.Dependency != "" {
		if j.Dependency != "" {
			fmt.Fprintf(&b, "It waits for %s.\n", j.Dependency)
		}
		return b.String(), 0, nil
	}
	for _, name := range strings.Split(admit.PartitionList(v, j.Spec), ",") {
		g.nodesSay(&b, v, j, name)
	}
	start, nodes, p := g.when(v, j)
	switch {
	case p != nil:
		fmt.Fprintf(&b, "%s\n", p.Detail)
	case start <= v.NowNS:
		fmt.Fprintf(&b, "It can start now on %s.\n", hostlist.FoldSorted(nodes))
	default:
		fmt.Fprintf(&b, "By the time limits of what runs and waits before it, it starts at %s on %s.\n", clock(start), hostlist.FoldSorted(nodes))
		mustEnd(&b, v, j, nodes)
	}
	if p != nil || start > v.NowNS {
		g.smaller(&b, v, j)
	}
	return b.String(), start, nodes
}

func clock(ns int64) string { return time.Unix(0, ns).Format("2006-01-02T15:04:05") }

// nodesSay counts what the nodes of a partition lack for one node's part of the job.
func (g *Judge) nodesSay(b *strings.Builder, v *state.View, j *pb.JobRecord, part string) {
	names := v.PartitionNodes(part)
	need := partOf(j)
	count := map[string]int{}
	var order []string
	for _, name := range names {
		why := need.lack(v.Node(name))
		if count[why] == 0 {
			order = append(order, why)
		}
		count[why]++
	}
	slices.Sort(order)
	fmt.Fprintf(b, "Partition %s has %d nodes; the job needs %s on each of %d:\n", part, len(names), need, max(j.NumNodes, 1))
	for _, why := range order {
		fmt.Fprintf(b, "  %4d %s\n", count[why], why)
	}
}

// nodePart is what a job needs on one of its nodes, at least.
type nodePart struct {
	cpus     uint32
	memMiB   uint64
	gres     []sched.GresRequest
	features string
	whole    bool
}

func partOf(j *pb.JobRecord) nodePart {
	nodes := max(j.NumNodes, 1)
	p := nodePart{cpus: max((j.NumCpus+nodes-1)/nodes, j.Spec.PnMinCpus, 1), memMiB: j.Spec.MemPerNodeMib, features: j.Spec.Features,
		whole: j.Spec.Sharing == "exclusive" || j.Spec.MemAll}
	if j.Spec.MemPerCpuMib > 0 {
		p.memMiB = j.Spec.MemPerCpuMib * uint64(p.cpus)
	}
	for _, g := range gresRequests(j.Spec) {
		if g.Per == sched.PerNode {
			p.gres = append(p.gres, g)
		}
	}
	return p
}

func (p nodePart) String() string {
	s := fmt.Sprintf("%d CPUs", p.cpus)
	if p.memMiB > 0 {
		s += fmt.Sprintf(", %d MiB", p.memMiB)
	}
	for _, g := range p.gres {
		s += fmt.Sprintf(", %d %s", g.Count, strings.TrimSuffix(g.Name+":"+g.Type, ":"))
	}
	if p.features != "" {
		s += ", feature " + p.features
	}
	return s
}

// lack says why a node cannot take this part now.
func (p nodePart) lack(n *state.Node) string {
	switch nodeState(n) {
	case sched.NodeDown, sched.NodeFuture:
		return "are down or do not answer"
	case sched.NodeDrained:
		return "are drained"
	case sched.NodeMaint:
		return "are under maintenance"
	}
	mem := n.RealMemoryMib - min(n.MemSpecMib, n.RealMemoryMib)
	switch {
	case n.Cpus < p.cpus:
		return fmt.Sprintf("have fewer than %d CPUs", p.cpus)
	case mem < p.memMiB:
		return fmt.Sprintf("have less than %d MiB", p.memMiB)
	}
	for _, g := range p.gres {
		if have := countGres(n, g); have < g.Count {
			return fmt.Sprintf("have fewer than %d %s", g.Count, strings.TrimSuffix(g.Name+":"+g.Type, ":"))
		}
	}
	switch {
	case p.whole && n.AllocCpus > 0:
		return "are partly in use, and the job wants whole nodes"
	case n.Cpus-n.AllocCpus < p.cpus:
		return fmt.Sprintf("have fewer than %d CPUs free", p.cpus)
	case mem-min(n.AllocMemMib, mem) < p.memMiB:
		return fmt.Sprintf("have less than %d MiB free", p.memMiB)
	}
	return "could take a part of it now"
}

func countGres(n *state.Node, want sched.GresRequest) int64 {
	var have int64
	for _, g := range nodeGres(n) {
		if g.Name == want.Name && (want.Type == "" || g.Type == want.Type) {
			have += g.Count
		}
	}
	return have
}

// maxNamed bounds how many jobs an explanation names.
const maxNamed = 10

// mustEnd names the running jobs on the nodes that the job waits for.
func mustEnd(b *strings.Builder, v *state.View, j *pb.JobRecord, nodes []string) {
	var ids []uint32
	for _, name := range nodes {
		if n := v.Node(name); n != nil {
			ids = append(ids, n.Jobs...)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return
	}
	b.WriteString("Running there now:\n")
	for i, id := range ids {
		if i == maxNamed {
			fmt.Fprintf(b, "  … and %d more\n", len(ids)-maxNamed)
			return
		}
		r := v.Jobs.Get(id)
		end := "without a time limit"
		if r.EndNs != 0 {
			end = "until " + clock(r.EndNs) + " at the latest"
		}
		fmt.Fprintf(b, "  job %d of %s, %d CPUs, %s\n", id, r.Spec.User, r.NumCpus, end)
	}
}

// smaller tries smaller requests on the present state and names the first that would start at once.
func (g *Judge) smaller(b *strings.Builder, v *state.View, j *pb.JobRecord) {
	try := func(what string, change func(*pb.JobSpec) bool) bool {
		c := state.CloneJob(j)
		c.Spec = state.CloneSpec(j.Spec)
		if !change(c.Spec) {
			return false
		}
		c.NumNodes, c.NumCpus, c.NumTasks = admit.Size(c.Spec)
		if start, nodes, p := g.when(v, c); p == nil && start <= v.NowNS {
			fmt.Fprintf(b, "It would start now on %s with %s.\n", hostlist.FoldSorted(nodes), what)
			return true
		}
		return false
	}
	for limit := j.TimeLimitS / 2; limit >= 60 && j.TimeLimitS != pb.Unlimited; limit /= 4 {
		if try(fmt.Sprintf("--time=%d", limit/60), func(s *pb.JobSpec) bool { s.TimeLimitS = limit; return true }) {
			return
		}
	}
	for n := j.NumNodes / 2; n >= 1; n /= 2 {
		if try(fmt.Sprintf("--nodes=%d", n), func(s *pb.JobSpec) bool {
			s.MinNodes, s.MaxNodes, s.NumTasks = n, n, s.NumTasks/2
			return true
		}) {
			return
		}
	}
	for mem := j.Spec.MemPerNodeMib / 2; mem >= 1; mem /= 2 {
		if try(fmt.Sprintf("--mem=%d", mem), func(s *pb.JobSpec) bool { s.MemPerNodeMib = mem; return true }) {
			return
		}
	}
	for c := j.Spec.CpusPerTask / 2; c >= 1; c /= 2 {
		if try(fmt.Sprintf("--cpus-per-task=%d", c), func(s *pb.JobSpec) bool { s.CpusPerTask = c; return true }) {
			return
		}
	}
	for n := j.Spec.NumTasks / 2; n >= 1; n /= 2 {
		if try(fmt.Sprintf("--ntasks=%d", n), func(s *pb.JobSpec) bool { s.NumTasks = n; return true }) {
			return
		}
	}
}

// Priorities are the terms of the priorities of waiting jobs (sprio).
func (g *Judge) Priorities(v *state.View, jobs []*pb.JobRecord) (parts []priority.Parts, weights sched.Weights) {
	g.mu.Lock()
	params := g.params
	g.mu.Unlock()
	var m mirror
	m.rebuild(v)
	list := make([]*sched.Job, len(jobs))
	for i, j := range jobs {
		list[i] = pendingJob(v, j, nil)
	}
	return sched.Priorities(&params, m.snapshot(v, v.NowNS/1e9, sched.Cursor{}), list), params.Weights
}
