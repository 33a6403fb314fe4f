package steps

import (
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// MaxTasks bounds the tasks of a step, and usualPerNode is the default of MaxTasksPerNode: with --overcommit CPUs do not bound them.
const (
	MaxTasks     = 1 << 20
	usualPerNode = 512
)

// Placement is the placement of a step.
type Placement struct {
	Nodes []*pb.StepNode // in the order of SLURM_NODEID
	Tasks uint32
	CPUs  uint32
}

// Place finds room for a step of a job beside the running ones, with at most perNode tasks on a node (0: the default). busy: not now;
// never: not in this allocation.
func Place(j *pb.JobRecord, live []*pb.StepRecord, spec *pb.StepSpec, perNode uint32) (p *Placement, busy, never *pb.Problem) {
	if perNode == 0 {
		perNode = usualPerNode
	}
	r, never := newRequest(j, spec, int(perNode))
	if never != nil {
		return nil, nil, never
	}
	empty := r.nodesOf(j, nil)
	if r.req.TasksPerGPU > 0 && r.choose(empty) != nil { // the job got its CPUs in another way
		r.req.TasksPerGPU = 0
	}
	if never = r.choose(empty); never != nil {
		if lead := r.lead(j); lead != "" && never.Code == uint32(pb.CodeInvalidGres) {
			never = never.WithLead("%s", lead)
		}
		return nil, nil, never
	}
	var others []*pb.StepRecord
	if !r.overlap {
		others = live
	}
	nodes := r.nodesOf(j, others)
	if p := r.choose(nodes); p != nil {
		return nil, pb.NewProblem(pb.CodeNodesBusy, "other steps of job %s have what it needs", state.JobName(j)), nil
	}
	return r.shares(), nil, nil
}

// Overlaps reports whether a step is not counted, because it shares its resources.
func Overlaps(s *pb.StepSpec) bool { return s.GetOverlap() || s.GetInteractive() || s.GetCopy() }

// request is a requested step.
type request struct {
	spec    *pb.StepSpec
	overlap bool
	exact   bool
	cpus    int // of a task
	tasks   int // 0: as many as fit on the nodes
	perNode int // tasks at most, 0 = no bound
	most    int // the cluster's limit
	// explaining: a copy that is only used to find out what another one lacks
	explaining bool

	min     int // nodes
	max     int
	wanted  []string // nodes that it must have
	allowed map[string]bool
	hosts   []string // of each task
	req     record.Request
	each    bool               // r.tasks are those of min nodes, and more nodes have more
	all     bool               // all the job's devices
	chosen  []*node            // by the last call of choose
	counts  []int              // tasks of each
	given   [][]*pb.GresDevice // and devices
}

func newRequest(j *pb.JobRecord, spec *pb.StepSpec, most int) (*request, *pb.Problem) {
	r := &request{spec: spec, most: most, overlap: Overlaps(spec), cpus: max(1, int(spec.CpusPerTask)), tasks: int(spec.NumTasks),
		perNode: int(spec.NtasksPerNode), hosts: spec.Hosts}
	r.exact = spec.Exact || spec.CpusPerTask > 0 || spec.ThreadsPerCore > 0
	var p *pb.Problem
	if r.req, p = readNeed(spec); p != nil {
		return nil, p
	}
	r.all = !spec.NoGres && len(r.req.Gres) == 0
	if p := r.names(j); p != nil {
		return nil, p
	}
	if len(r.hosts) > 0 {
		r.tasks = len(r.hosts)
		for _, h := range r.hosts {
			if !slices.Contains(r.wanted, h) {
				r.wanted = append(r.wanted, h)
			}
		}
	}
	if k := j.GetSpec().GetNtasksPerTres(); k > 0 && spec.NumTasks > 0 && spec.NumTasks == j.Spec.NumTasks {
		r.req.TasksPerGPU = int(k) // all tasks of the job: they are where its GPUs are
	}
	r.min, r.max = max(1, int(spec.MinNodes), len(r.wanted)), int(spec.MaxNodes)
	if len(r.hosts) > 0 {
		r.max = len(r.wanted)
	}
	if r.max == 0 {
		r.max = len(r.allowed)
	}
	switch {
	case r.tasks > MaxTasks || spec.CpusPerTask > MaxTasks:
		return nil, pb.NewProblem(pb.CodeTooManyCPUs, "a step can have at most %d tasks", MaxTasks)
	case r.tasks == 0 && r.perNode == 0 && spec.CpusPerTask > 0 && spec.MinNodes > 0: // as many as fit
	case r.tasks == 0:
		r.req.MinNodes = r.min
		r.tasks, r.each = sizing.WorkOut(&r.req).Tasks, true
	case r.tasks < r.min:
		r.min = max(1, r.tasks, len(r.wanted))
	}
	if r.tasks > 0 && r.tasks < len(r.wanted) {
		return nil, pb.NewProblem(pb.CodeNodeConfig, "%d tasks cannot run on %d nodes", r.tasks, len(r.wanted))
	}
	r.max = max(r.max, r.min)
	if has := liveNodes(j); int(spec.MinNodes) > has { // in srun's words
		return nil, pb.NewProblem(pb.CodeNodeConfig, "the step requests more nodes than the job has").
			WithLead("Only allocated %d nodes asked for %d", has, spec.MinNodes)
	}
	if nodes := min(r.max, len(r.allowed)); r.tasks > nodes*r.most {
		return nil, pb.NewProblem(pb.CodeTaskCount, "a step can have %d tasks on a node (MaxTasksPerNode), but requests %d on %d nodes",
			r.most, r.tasks, nodes)
	}
	if r.min > len(r.allowed) {
		return nil, pb.NewProblem(pb.CodeNodeConfig, "the step requests %d nodes, but can use %d of the job's", r.min, len(r.allowed))
	}
	return r, nil
}

func liveNodes(j *pb.JobRecord) (n int) {
	for _, a := range j.Alloc {
		if !a.Ended {
			n++
		}
	}
	return n
}

// names parses -w, -x and -r.
func (r *request) names(j *pb.JobRecord) *pb.Problem {
	r.allowed = make(map[string]bool, len(j.Alloc))
	skip := int(max(0, r.spec.Relative))
	for _, a := range j.Alloc {
		switch {
		case a.Ended:
		case skip > 0:
			skip--
		default:
			r.allowed[a.Node] = true
		}
	}
	if min := max(1, int(r.spec.MinNodes)); r.spec.Relative > 0 && len(r.allowed) < min { // in srun's words
		return pb.NewProblem(pb.CodeNodeConfig, "the job has no such nodes").
			WithLead("--relative and --nodes option incompatible with count of allocated nodes (%d+%d>%d)", r.spec.Relative, min,
				liveNodes(j))
	}
	if len(r.allowed) == 0 {
		return pb.NewProblem(pb.CodeNodeConfig, "job %s has no such nodes", state.JobName(j))
	}
	excluded, err := hostlist.Expand(r.spec.ExcNodes)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
	}
	for _, n := range excluded {
		delete(r.allowed, n)
	}
	wanted, err := hostlist.Expand(r.spec.ReqNodes)
	if err != nil {
		return pb.NewProblem(pb.CodeInvalidNodeName, "%v", err)
	}
	for _, n := range append(wanted, r.hosts...) {
		if !r.allowed[n] {
			return pb.NewProblem(pb.CodeNodeConfig, "node %.80s is not a node of job %s that the step can use", n, state.JobName(j))
		}
	}
	for _, n := range wanted {
		if !slices.Contains(r.wanted, n) {
			r.wanted = append(r.wanted, n)
		}
	}
	return nil
}

// choose decides which nodes the step gets, and the number of tasks on each.
func (r *request) choose(nodes []*node) *pb.Problem {
	if len(r.hosts) > 0 {
		return r.arbitrary(nodes)
	}
	var must, rest []*node
	for _, n := range nodes {
		n.fits = r.fits(n)
		switch {
		case slices.Contains(r.wanted, n.name):
			if n.fits == 0 {
				return r.lacking(n)
			}
			must = append(must, n)
		case n.fits > 0:
			rest = append(rest, n)
		}
	}
	idle := slices.DeleteFunc(slices.Clone(rest), func(n *node) bool { return !n.whole })
	if r.pick(must, idle) || r.pick(must, rest) {
		return nil
	}
	slices.SortStableFunc(rest, func(a, b *node) int { return b.fits - a.fits })
	if r.pick(must, rest) || r.pickDevices(must, rest) {
		return nil
	}
	if len(must)+len(rest) < r.min && len(nodes) > 0 {
		for _, n := range nodes {
			if n.fits == 0 {
				return r.lacking(n)
			}
		}
	}
	return r.short(nodes)
}

// short describes the resources that the nodes together lack.
func (r *request) short(nodes []*node) *pb.Problem {
	few := pb.NewProblem(pb.CodeTooManyCPUs, "the step needs room for %d tasks of %d CPUs", r.tasks, r.cpus)
	if r.explaining || r.nothing() {
		return few
	}
	bare := *r
	bare.explaining = true
	if bare.onlyCPUs(); bare.choose(nodes) != nil {
		return few
	}
	bare.req.MemNodeMiB, bare.req.MemCPUMiB = r.req.MemNodeMiB, r.req.MemCPUMiB
	rest := *r
	rest.explaining = true
	if rest.noMemory(); bare.choose(nodes) != nil || rest.choose(nodes) == nil {
		return pb.NewProblem(pb.CodeInvalidMemory, "the nodes lack the memory that the step requests")
	}
	return pb.NewProblem(pb.CodeInvalidGres, "the nodes lack the generic resources that the step requests")
}

// pick takes nodes in this order until there are enough for all tasks.
func (r *request) pick(must, rest []*node) bool {
	list, room := slices.Clone(must), roomOf(must)
	for _, n := range rest {
		if len(list) >= r.min && room >= r.tasks || len(list) == r.max {
			break
		}
		list, room = append(list, n), room+n.fits
	}
	return r.settle(list, r.tasks)
}

// pickDevices takes first the nodes with the most of the devices that the step requests in total, until there are enough. If the step has
// no number of tasks, each node gets as many as the first.
func (r *request) pickDevices(must, rest []*node) bool {
	at := slices.IndexFunc(r.req.Gres, func(g record.GresRequest) bool { return g.Per == record.PerJob })
	if at < 0 {
		return false
	}
	have := func(n *node) int { return int(count(n.devices, &r.req.Gres[at])) }
	slices.SortStableFunc(rest, func(a, b *node) int { return have(b) - have(a) })
	for k := range min(len(rest)+1, r.max-len(must)+1) {
		list, tasks := slices.Concat(must, rest[:k]), r.tasks
		if r.each {
			d := sizing.WorkOut(&r.req)
			tasks = max(tasks, d.TasksOn(len(list)))
		}
		if r.settle(list, tasks) {
			return true
		}
	}
	return false
}

func roomOf(nodes []*node) (room int) {
	for _, n := range nodes {
		room += n.fits
	}
	return room
}

// settle gives the step these nodes and tasks tasks (0: as many as fit), if they suffice and there is a task for each of them.
func (r *request) settle(list []*node, tasks int) bool {
	room := roomOf(list)
	if len(list) < r.min || room < max(tasks, 1) || tasks > 0 && tasks < len(list) {
		return false
	}
	slices.SortFunc(list, func(a, b *node) int { return a.index - b.index })
	if tasks == 0 {
		tasks = min(room, MaxTasks)
	}
	r.chosen, r.counts = list, spread(r.spec.Distribution, list, tasks)
	return r.enough()
}

// arbitrary gives each task its named node.
func (r *request) arbitrary(nodes []*node) *pb.Problem {
	r.chosen, r.counts = nil, nil
	for _, name := range r.wanted {
		i := slices.IndexFunc(nodes, func(n *node) bool { return n.name == name })
		if i < 0 {
			return pb.NewProblem(pb.CodeNodeConfig, "node %.80s is not one of the job's", name)
		}
		count := 0
		for _, h := range r.hosts {
			if h == name {
				count++
			}
		}
		nodes[i].fits = r.fits(nodes[i])
		if nodes[i].fits < count {
			return r.lacking(nodes[i])
		}
		r.chosen, r.counts = append(r.chosen, nodes[i]), append(r.counts, count)
	}
	if !r.enough() {
		return r.lacking(r.chosen[0])
	}
	return nil
}

// onlyCPUs removes requests for memory and devices.
func (r *request) onlyCPUs() {
	r.all, r.req.Gres = false, nil
	r.noMemory()
}

// noMemory removes requests for memory.
func (r *request) noMemory() { r.req.MemNodeMiB, r.req.MemCPUMiB, r.req.MemGPUMiB = 0, 0, 0 }

// lacking describes the resources that a node lacks.
func (r *request) lacking(n *node) *pb.Problem {
	one := *r
	one.onlyCPUs()
	switch {
	case one.fits(n) == 0:
		return pb.NewProblem(pb.CodeTooManyCPUs, "node %s has %d CPUs for the step, a task needs %d", n.name, n.cpus, r.cpus)
	case r.use(n, 1, max(1, r.gpusOf(n, 1))).MemMiB > amountOf(n.mem):
		return pb.NewProblem(pb.CodeInvalidMemory, "node %s has %d MiB for the step", n.name, n.mem)
	}
	return pb.NewProblem(pb.CodeInvalidGres, "node %s lacks the generic resources that the step requests", n.name)
}

// fits returns how many tasks a node can take now.
func (r *request) fits(n *node) int {
	if !r.exact && !n.whole || r.all && n.taken { // it needs everything that the job has there
		return 0
	}
	cpus := n.cpus
	if r.exact {
		cpus -= cpus % n.perCore
	}
	fits := sizing.TasksOf(&r.req, int64(cpus), MaxTasks)
	if r.spec.Overcommit && n.cpus > 0 {
		fits = MaxTasks
	}
	if r.perNode > 0 {
		fits = min(fits, r.perNode)
	}
	if k := r.req.TasksPerGPU; k > 0 {
		fits = min(fits, gpus(n.devices)*k)
	}
	if r.spec.Interactive || r.spec.Copy {
		fits = max(fits, 1)
	}
	return sizing.Most(0, min(fits, r.most), func(tasks int) bool { return r.holds(n, tasks) })
}

// shares returns the parts of the nodes that the step gets.
func (r *request) shares() *Placement {
	p := &Placement{Nodes: make([]*pb.StepNode, len(r.chosen))}
	for i, n := range r.chosen {
		u := r.use(n, r.counts[i], int64(gpus(r.given[i])))
		p.Nodes[i] = &pb.StepNode{Node: n.name, Devices: r.given[i], Cpus: uint32(u.CPUs), CpuIds: n.take(int(u.CPUs)).String(),
			MemMib: uint64(u.MemMiB)}
		p.CPUs += uint32(u.CPUs)
		p.Tasks += uint32(r.counts[i])
	}
	r.rank(p)
	return p
}
