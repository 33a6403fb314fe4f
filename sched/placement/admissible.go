package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/sched/fit"
	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Admitter decides for many jobs over the same nodes whether they could ever start. It places them as a pass does, so that an admitted job
// does start once the nodes are free, and no second set of rules has to be kept consistent. Not safe for concurrent use.
type Admitter struct {
	ix *index.Index
	pl *Placer
}

// NewAdmitter prepares for the nodes, partitions and reservations of a snapshot, which must not change. Unusable nodes take no jobs. The
// times of reservations are ignored: jobs that request one have its nodes, others any.
func NewAdmitter(p *record.Params, in *record.Snapshot) *Admitter {
	own := *p
	ix := index.New(&own, false)
	idle := &record.Snapshot{Now: 1, Nodes: in.Nodes, Partitions: in.Partitions}
	for _, r := range in.Reservations {
		c := *r
		c.Start, c.End, c.Again = 0, 0, nil // empty, so that it takes nothing from others
		idle.Reservations = append(idle.Reservations, &c)
	}
	ix.Follow(idle)
	return &Admitter{ix, New(&own, ix)}
}

// Admit returns the number of nodes that the job would start on; 0 when it never can, with the reason.
func (a *Admitter) Admit(j *record.Job) (nodes int, why string) {
	req := j.Request
	if req == nil {
		req = &record.Request{}
	}
	if req.Switches > 0 { // only a preference: after a time any nodes will do (sbatch(1), --switches)
		anywhere := *req
		anywhere.Switches, anywhere.SwitchWaitS = 0, 0
		req = &anywhere
	}
	if _, err := fit.ParseConstraint(req.Features); err != nil {
		return 0, err.Error()
	}
	if bad := malformed(req); bad != "" {
		return 0, bad
	}
	var reasons []string
	for _, name := range j.Partitions {
		part := a.ix.Partition(name)
		if part == nil {
			reasons = append(reasons, fmt.Sprintf("partition %s does not exist", name))
			continue
		}
		n, why := a.inPartition(req, part)
		if n > 0 {
			return n, ""
		}
		reasons = append(reasons, why)
	}
	if len(reasons) == 0 {
		return 0, "the job names no partition"
	}
	return 0, strings.Join(slices.Compact(reasons), "; ")
}

// Outgrown reports whether Admit refuses a job only because a partition has too few nodes or CPUs: one task of it would fit there.
func (a *Admitter) Outgrown(j *record.Job) bool {
	if j.Request == nil {
		return false
	}
	one := *j.Request
	one.MinNodes, one.MaxNodes, one.Tasks, one.NodeCounts, one.Switches = 1, 1, 1, nil, 0
	for _, name := range j.Partitions {
		part := a.ix.Partition(name)
		if part == nil || a.pl.outgrown(j.Request, part) == "" || malformed(&one) != "" {
			continue
		}
		if n, _ := a.inPartition(&one, part); n > 0 {
			return true
		}
	}
	return false
}

// Memory describes the memory per node that a job requests beyond a partition's limit; "" when it does not.
func (a *Admitter) Memory(j *record.Job, partition string) string {
	part := a.ix.Partition(partition)
	if part == nil || part.Rec.MaxMemNodeMiB == 0 || j.Request == nil || malformed(j.Request) != "" {
		return ""
	}
	if mem := a.shapeIn(j.Request, part).LeastMemory(); mem > part.Rec.MaxMemNodeMiB {
		return fmt.Sprintf(
			"partition %s allows %d MiB on a node (MaxMemPerNode), asked for were %d",
			partition,
			part.Rec.MaxMemNodeMiB,
			mem,
		)
	}
	return ""
}

// malformed finds values that no request can have.
func malformed(r *record.Request) string {
	for _, x := range []struct {
		name  string
		value int64
	}{{"nodes", int64(r.MinNodes)}, {"nodes", int64(r.MaxNodes)}, {"tasks", int64(r.Tasks)}, {"CPUs per task", int64(r.CPUsPerTask)},
		{"tasks per node", int64(r.TasksPerNode)}, {"CPUs per node", int64(r.MinCPUs)},
		{"memory", r.MemNodeMiB}, {"memory per CPU", r.MemCPUMiB}, {"memory per GPU", r.MemGPUMiB}} {
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
	if d := sizing.WorkOut(r); d.Short {
		return fmt.Sprintf("%s with at most %d on a node need %d nodes; at most %d were asked for", plural(d.Tasks, "task"),
			d.MaxPerNode, d.Lo, r.MaxNodes)
	}
	return ""
}

func gresName(name, typ string) string {
	if typ == "" {
		return name
	}
	return name + ":" + typ
}

// inPartition returns the number of nodes of part on which the request starts, or the reason why it does not.
func (a *Admitter) inPartition(req *record.Request, part *index.Partition) (nodes int, why string) {
	sh := a.shapeIn(req, part)
	if ch := a.pl.Pick(sh, 2); ch != nil {
		return len(ch.Places), ""
	}
	return 0, a.explain(req, part, sh)
}

// maxShapes bounds the shapes that are kept: each lists all nodes of its partition.
const maxShapes = 64

func (a *Admitter) shapeIn(req *record.Request, part *index.Partition) *Shape {
	if a.pl.Remembers(maxShapes) { // submissions of many shapes must not grow it for ever
		a.pl.forget()
	}
	return a.pl.ShapeOf(a.pl.Intern(req), part, a.ix.Reservations.Named(req.Reservation), "")
}

// explain describes the request and the hardware: the total of the nodes, where each could hold a part, or the largest node.
func (a *Admitter) explain(req *record.Request, part *index.Partition, sh *Shape) string {
	var c *Candidates
	for i := range sh.Alts { // the last alternative has the fewest conditions
		if x := &sh.Alts[i]; !x.Lacks && len(x.Nodes) > 0 { // explain a node that was requested by name
			c = x
		}
	}
	where := "partition " + part.Rec.Name
	if sh.Resv != nil {
		where = "reservation " + sh.Resv.Rec.Name + " in " + where
	}
	if text := sh.Refused(); text != "" {
		return text
	}
	if text := a.cause(req, part, sh, where); text != "" {
		return text
	}
	if c == nil {
		return fmt.Sprintf("no node of %s can give %s; the largest has %s", where, describe(req, &sh.Demand), a.largest(req, sh))
	}
	d := &sh.Demand
	var tasks, devices []int64
	for _, n := range c.Nodes {
		tasks = append(tasks, int64(sh.capOf(c, n, n.Config.Full)))
		devices = append(devices, sh.deviceRoom(c, n.Config, n.Config.Full))
	}
	these := fmt.Sprintf("the %d nodes of %s that could hold a part of the job", len(c.Nodes), where)
	if c.Hi < len(c.Nodes) {
		these = fmt.Sprintf("%d of %s", c.Hi, these)
	}
	switch {
	case len(c.Nodes) < c.Lo:
		return fmt.Sprintf("%d nodes were asked for; %s has %d that could hold a part of the job", c.Lo, where, len(c.Nodes))
	case len(d.JobGres) > 0 && atMost(devices, c.Hi) < d.JobGres[0].Count:
		g := d.JobGres[0]
		return fmt.Sprintf("%d %s were asked for; %s have %d", g.Count, gresName(g.Name, g.Type), these, atMost(devices, c.Hi))
	case c.Flex && atMost(tasks, c.Hi) < int64(d.Tasks):
		return fmt.Sprintf("%d tasks were asked for; %s have room for %d", d.Tasks, these, atMost(tasks, c.Hi))
	case a.ix.Switches > 0 && sh.enoughOf(c, func(*node.Node) bool { return true }):
		return fmt.Sprintf("%d nodes were asked for; of %s, no %d are connected by switches", c.Lo, these, c.Lo)
	case len(c.Counts) > 0:
		return fmt.Sprintf("%s do not satisfy %s, with %s", these, req.Features, plural(c.Hi, "node"))
	case req.Contiguous:
		return fmt.Sprintf("of %s, no %d stand in a row", these, c.Lo)
	}
	return fmt.Sprintf("cannot place %s on %s: %s has %d that could hold a part of the job", plural(d.Tasks, "task"), plural(c.Lo, "node"),
		where, len(c.Nodes))
}

// atMost returns the sum of the n largest.
func atMost(list []int64, n int) (sum int64) {
	slices.SortFunc(list, func(a, b int64) int { return cmp.Compare(b, a) })
	for _, x := range list[:min(n, len(list))] {
		sum += x
	}
	return sum
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// largest describes the most that any node of the partition has of each resource; if nodes were requested by name, of those.
func (a *Admitter) largest(req *record.Request, sh *Shape) string {
	var cpus, mem, tmp int64
	var sockets, cores, threads int
	gres, shared := map[string]int64{}, map[string]int64{}
	var names, instances []string
	pool := sh.pool()
	named := slices.DeleteFunc(slices.Clone(req.NodeList), func(name string) bool {
		return !slices.ContainsFunc(pool, func(i int32) bool { return a.ix.Nodes.Vals[i].Rec.Name == name })
	})
	for _, i := range pool {
		n := sh.Resv.Seat(a.ix.Nodes.Vals[i])
		if n == nil {
			continue
		}
		cfg := n.Config
		if len(named) > 0 && !slices.Contains(named, n.Rec.Name) {
			continue
		}
		cpus, mem, tmp = max(cpus, cfg.CPUs), max(mem, cfg.Full[node.DimMem]), max(tmp, cfg.Rec.TmpMiB)
		sockets, cores, threads = max(sockets, 1, cfg.Rec.Sockets), max(cores, cfg.Socket), max(threads, 1, cfg.Rec.Threads)
		for _, g := range cfg.Groups {
			name := gresName(g.Name, g.Type)
			if _, known := gres[name]; !known {
				names = append(names, name)
			}
			gres[name] = max(gres[name], g.Capacity)
			if g.Shared != "" && g.Shares > 0 {
				shared[g.Shared] = max(shared[g.Shared], g.Shares)
			}
			for i := range g.Profiles {
				if typ := g.CutType(&g.Profiles[i]); !slices.Contains(instances, typ) {
					instances = append(instances, typ)
				}
			}
		}
	}
	if cpus == 0 {
		return "nothing: it has no nodes"
	}
	out := fmt.Sprintf("%s, %d MiB", plural(int(cpus), "CPU"), mem)
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

// describe describes the needs of a request on one node.
func describe(req *record.Request, d *sizing.Demand) string {
	tasks := 1
	if d.Even {
		tasks = d.PerNode
	}
	sz := node.NeedOf(req, &node.Config{Threads: 1, Full: []int64{0, 0}}, tasks, -int64(d.Lo))
	out := plural(int(max(sz.CPUs, sizing.NodeCPUs(req))), "CPU")
	if sz.MemMiB > 0 {
		out += fmt.Sprintf(", %d MiB", sz.MemMiB)
	}
	k := 0
	for _, g := range req.Gres {
		if k < len(sz.Gres) {
			out += fmt.Sprintf(", %d %s", sz.Gres[k].Count, gresName(g.Name, g.Type))
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
		out += fmt.Sprintf(" on %s", hostlist.Fold(req.NodeList))
	}
	return out
}
