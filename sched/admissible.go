package sched

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/sched/fit"
)

// Admissible reports whether some set of nodes of one of the job's partitions
// could ever hold it, whatever is free or up now. Otherwise why says what the
// largest node of the partition has, for the refusal at submission. Nodes that
// are down or drained count: such a job waits with a reason.
func Admissible(j *Job, nodes []*Node, parts []*Partition) (ok bool, why string) {
	return NewAdmitter(&Params{}, nodes, parts).Admit(j)
}

// Admitter answers Admissible for many jobs over the same nodes: it looks at
// each kind of node once. Not safe for concurrent use.
type Admitter struct{ s *Scheduler }

// NewAdmitter prepares for nodes and partitions, which must not change.
func NewAdmitter(p *Params, nodes []*Node, parts []*Partition) *Admitter {
	s := New(*p)
	s.follow(&Snapshot{Now: 1, Nodes: nodes, Partitions: parts})
	return &Admitter{s}
}

// Admit is Admissible.
func (a *Admitter) Admit(j *Job) (ok bool, why string) {
	req := j.Request
	if req == nil {
		req = &Request{}
	}
	if _, err := fit.ParseConstraint(req.Features); err != nil {
		return false, err.Error()
	}
	if bad := malformed(req); bad != "" {
		return false, bad
	}
	var reasons []string
	for _, name := range j.Partitions {
		part := a.s.partition(name)
		if part == nil {
			reasons = append(reasons, fmt.Sprintf("partition %s does not exist", name))
			continue
		}
		why := a.inPartition(req, part)
		if why == "" {
			return true, ""
		}
		reasons = append(reasons, why)
	}
	if len(reasons) == 0 {
		return false, "the job names no partition"
	}
	return false, strings.Join(reasons, "; ")
}

// Outgrown reports whether what is wrong with a job that Admit refuses is only that a partition has too few nodes or CPUs: one task
// of it would fit there.
func (a *Admitter) Outgrown(j *Job) bool {
	if j.Request == nil {
		return false
	}
	one := *j.Request
	one.MinNodes, one.MaxNodes, one.Tasks, one.NodeCounts = 1, 1, 1, nil
	for _, name := range j.Partitions {
		part := a.s.partition(name)
		if part != nil && a.s.outgrown(j.Request, part) != "" && malformed(&one) == "" && a.inPartition(&one, part) == "" {
			return true
		}
	}
	return false
}

// Memory is how much memory a job asks for on each node beyond what a partition allows, in words; "" when it does not.
func (a *Admitter) Memory(j *Job, partition string) string {
	part := a.s.partition(partition)
	if part == nil || part.rec.MaxMemNodeMiB == 0 || j.Request == nil || malformed(j.Request) != "" {
		return ""
	}
	if mem := a.shapeIn(j.Request, part).leastMemory(); mem > part.rec.MaxMemNodeMiB {
		return fmt.Sprintf("partition %s allows %d MiB on a node (MaxMemPerNode), asked for were %d", partition, part.rec.MaxMemNodeMiB, mem)
	}
	return ""
}

// malformed finds figures that no request can have.
func malformed(r *Request) string {
	for _, x := range []struct {
		name  string
		value int64
	}{{"nodes", int64(r.MinNodes)}, {"nodes", int64(r.MaxNodes)}, {"tasks", int64(r.Tasks)}, {"CPUs per task", int64(r.CPUsPerTask)},
		{"tasks per node", int64(r.TasksPerNode)}, {"CPUs per node", int64(r.MinCPUs)}, {"memory", r.MemNodeMiB}, {"memory per CPU", r.MemCPUMiB}, {"memory per GPU", r.MemGPUMiB}} {
		if x.value < 0 || x.value > 1<<40 {
			return fmt.Sprintf("cannot ask for %d %s", x.value, x.name)
		}
	}
	for _, g := range r.Gres {
		if g.Count < 0 || g.Count > 1<<40 {
			return fmt.Sprintf("cannot ask for %d of %s", g.Count, gresName(g.Name, g.Type))
		}
	}
	if r.MaxNodes > 0 && r.MinNodes > r.MaxNodes {
		return fmt.Sprintf("cannot ask for at least %d and at most %d nodes", r.MinNodes, r.MaxNodes)
	}
	return ""
}

func gresName(name, typ string) string {
	if typ == "" {
		return name
	}
	return name + ":" + typ
}

// inPartition is why the request fits nowhere in part; "" when it does.
func (a *Admitter) inPartition(req *Request, part *vpart) string {
	sh := a.shapeIn(req, part)
	for i := range sh.alts {
		if sh.enough(&sh.alts[i], inCluster) {
			return ""
		}
	}
	return a.explain(req, part, sh)
}

func (a *Admitter) shapeIn(req *Request, part *vpart) *shape {
	s := a.s
	if len(s.shapes) > 4096 { // submissions of many shapes must not grow it for ever
		clear(s.shapes)
	}
	id := s.intern(req)
	return s.shapeOf(shapeKey{req: id, part: part.idx}, s.requests[id], part, nil)
}

func inCluster(n *vnode) bool { return n.rec.State != NodeFuture }

// explain says what was asked for and what the largest node has.
func (a *Admitter) explain(req *Request, part *vpart, sh *shape) string {
	nodes := 0
	for i := range sh.alts {
		if !sh.alts[i].lacks { // a node that was asked for by name is the one to talk about
			nodes = max(nodes, len(sh.alts[i].nodes))
		}
	}
	if nodes > 0 {
		d := &sh.demand
		why := fmt.Sprintf("cannot place %d tasks on %d nodes: partition %s has %d nodes that could hold a part of the job", d.tasks, d.lo, part.rec.Name, nodes)
		if slices.ContainsFunc(sh.alts, func(c candidates) bool { return sh.enoughOf(&c, inCluster) }) {
			why += fmt.Sprintf(", no %d of them connected by switches", d.lo)
		}
		return why
	}
	big := a.largest(req, part)
	asked := describe(req, &sh.demand)
	return fmt.Sprintf("no node of partition %s can give %s; the largest has %s", part.rec.Name, asked, big)
}

// largest sums up the most that any node of the partition has of each resource; of the nodes that were asked for by name, if any.
func (a *Admitter) largest(req *Request, part *vpart) string {
	var cpus, mem, tmp int64
	var sockets, cores, threads int
	gres, shared := map[string]int64{}, map[string]int64{}
	var names, instances []string
	named := slices.DeleteFunc(slices.Clone(req.NodeList), func(name string) bool {
		return !slices.ContainsFunc(part.nodes, func(i int32) bool { return a.s.nodes.vals[i].rec.Name == name })
	})
	for _, i := range part.nodes {
		cfg := a.s.nodes.vals[i].cfg
		if len(named) > 0 && !slices.Contains(named, a.s.nodes.vals[i].rec.Name) {
			continue
		}
		cpus, mem, tmp = max(cpus, cfg.cpus), max(mem, cfg.full[dimMem]), max(tmp, cfg.rec.TmpMiB)
		sockets, cores, threads = max(sockets, 1, cfg.rec.Sockets), max(cores, cfg.socket), max(threads, 1, cfg.rec.Threads)
		for _, g := range cfg.groups {
			name := gresName(g.name, g.typ)
			if _, known := gres[name]; !known {
				names = append(names, name)
			}
			gres[name] = max(gres[name], g.capacity)
			if g.shared != "" && g.shares > 0 {
				shared[g.shared] = max(shared[g.shared], g.shares)
			}
			for i := range g.mig {
				if typ := g.cutType(&g.mig[i]); !slices.Contains(instances, typ) {
					instances = append(instances, typ)
				}
			}
		}
	}
	if cpus == 0 {
		return "nothing: the partition has no nodes"
	}
	out := fmt.Sprintf("%d CPUs, %d MiB", cpus, mem)
	if req.TmpMiB > 0 {
		out += fmt.Sprintf(", %d MiB of temporary disk space (TmpDisk in slurm.conf)", tmp)
	}
	if req.Sockets > 0 || req.CoresPerSocket > 0 || req.ThreadsPerCore > 0 {
		out += fmt.Sprintf(", %d sockets, %d cores per socket, %d threads per core", sockets, cores, threads)
	}
	for _, name := range names {
		out += fmt.Sprintf(", %d %s", gres[name], name)
	}
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		out += fmt.Sprintf(", %d %s of one device", shared[name], name)
	}
	if len(instances) > 0 {
		out += "; instances are cut of " + strings.Join(instances, ", ")
	}
	return out
}

// describe is what a request needs on one node, in words.
func describe(req *Request, d *demand) string {
	tasks := 1
	if d.even {
		tasks = d.perNode
	}
	sz := makeVec(req, &config{threads: 1, full: []int64{0, 0}}, tasks, -int64(d.lo))
	out := fmt.Sprintf("%d CPUs", sz.cpu)
	if sz.mem > 0 {
		out += fmt.Sprintf(", %d MiB", sz.mem)
	}
	k := 0
	for _, g := range req.Gres {
		if k < len(sz.gres) {
			out += fmt.Sprintf(", %d %s", sz.gres[k].count, gresName(g.Name, g.Type))
			k++
		}
	}
	if req.TmpMiB > 0 {
		out += fmt.Sprintf(", %d MiB of temporary disk space", req.TmpMiB)
	}
	for _, x := range []struct {
		count int
		what  string
	}{{req.Sockets, "sockets"}, {req.CoresPerSocket, "cores per socket"}, {req.ThreadsPerCore, "threads per core"}} {
		if x.count > 0 {
			out += fmt.Sprintf(", %d %s", x.count, x.what)
		}
	}
	if req.Features != "" {
		out += fmt.Sprintf(" with features %s", req.Features)
	}
	if len(req.NodeList) > 0 {
		out += fmt.Sprintf(" on %s", foldNames(req.NodeList))
	}
	return out
}
