package sched

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// nodesGone is what squeue shows when the nodes a job could use are not there,
// unless it named them.
const nodesGone = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"

// faultOf is why no job of the class can start, whatever is free. It holds for
// an epoch: until a node's state, a partition or a reservation changes.
func (s *Scheduler) faultOf(c *class) Reason {
	if c.faultN == s.epoch {
		return c.fault
	}
	c.faultN = s.epoch
	c.fault = s.findFault(c)
	return c.fault
}

func (s *Scheduler) findFault(c *class) Reason {
	p, sh := c.part.rec, c.shape
	d := &sh.demand
	switch {
	case p.State == PartitionDown:
		return Reason{Code: WaitPartitionDown}
	case p.State == PartitionInactive:
		return Reason{Code: WaitPartitionInactive}
	case c.key.over:
		return Reason{Code: PartitionTimeLimit}
	case p.MaxNodes > 0 && d.lo > p.MaxNodes, p.MinNodes > 0 && d.hi < p.MinNodes:
		return Reason{Code: PartitionNodeLimit}
	case p.MaxMemNodeMiB > 0 && sh.leastMemory() > p.MaxMemNodeMiB:
		return Reason{Code: MaxMemPerLimit}
	case sh.fault.Code != "":
		return sh.fault
	}
	if r := sh.resv; r != nil {
		if over := r.rec.End <= s.now; over || r.rec.Start > s.now && !r.rec.Flex {
			return Reason{Code: WaitReservation}
		}
	}
	if len(sh.req.Licenses) > 0 && !s.licensesExist(sh) {
		return Reason{Code: WaitLicenses}
	}
	return s.nodeFault(sh)
}

// leastMemory is the least that the job takes of the memory of a node, in MiB, with as few tasks there as it may have; 0 when it fits
// on none.
func (sh *shape) leastMemory() int64 {
	d, least := &sh.demand, int64(0)
	for i := range sh.alts {
		c := &sh.alts[i]
		tasks := c.tasks
		if c.flex {
			tasks = max(tasks, ceilDiv(d.tasks, d.hi), min(d.tasks, d.tpnCap))
		}
		for _, n := range c.nodes {
			if mem := sh.vecFor(c, n.cfg, tasks, c.gpus).mem; least == 0 || mem < least {
				least = mem
			}
		}
	}
	return least
}

func (s *Scheduler) licensesExist(sh *shape) bool {
	for _, l := range sh.req.Licenses {
		ok := false
		for _, have := range s.licenses {
			ok = ok || have.Name == l.Name && have.Count >= l.Count
		}
		if !ok {
			return false
		}
	}
	return true
}

// nodeFault: not enough nodes could hold the job even when idle, or not
// enough of those are up. Maintenance has an end: what promises every job a
// start promises one after it.
func (s *Scheduler) nodeFault(sh *shape) Reason {
	exist := false
	for i := range sh.alts {
		c := &sh.alts[i]
		if !sh.enough(c, func(*vnode) bool { return true }) {
			continue
		}
		exist = true
		if sh.enough(c, func(n *vnode) bool {
			return n.rec.State == NodeUsable && (s.params.Policy == Conservative || !s.maintained(n, sh.resv))
		}) {
			return Reason{}
		}
	}
	if !exist && s.withheld(sh) {
		return Reason{Code: WaitResources}
	}
	if !exist {
		return Reason{Code: cmp.Or(s.outgrown(sh.req, sh.part), BadConstraints)}
	}
	return s.goneReason(sh)
}

// outgrown is the reason of a request for more nodes, or more CPUs in all, than the partition has; "" of any other. The partition
// may grow, so that Slurm takes such a job where EnforcePartLimits does not forbid it, and lets it wait.
func (s *Scheduler) outgrown(req *Request, part *vpart) Code {
	if req.MinNodes > len(part.nodes) {
		return PartitionConfig
	}
	if open := req.MaxNodes == 0 || req.MaxNodes >= len(part.nodes); open && int64(max(req.Tasks, 1))*int64(max(req.CPUsPerTask, 1)) > s.cpusOf(part) {
		return PartitionConfig
	}
	return ""
}

// cpusOf counts the CPUs of a partition's nodes.
func (s *Scheduler) cpusOf(part *vpart) int64 {
	var cpus int64
	for _, i := range part.nodes {
		cpus += s.nodes.vals[i].cfg.cpus
	}
	return cpus
}

// withheld: some node of the partition has more of what the job asks for than it gives out now, so that the job may fit one day.
func (s *Scheduler) withheld(sh *shape) bool {
	for _, i := range sh.part.nodes {
		for _, name := range s.nodes.vals[i].rec.Withheld {
			if slices.ContainsFunc(sh.req.Gres, func(g GresRequest) bool {
				return g.Name == name || name == "gpu" && (g.Name == "shard" || g.Name == "mps")
			}) {
				return true
			}
		}
	}
	return false
}

// maintained: a maintenance reservation is on the node now.
func (s *Scheduler) maintained(n *vnode, resv *vresv) bool {
	for _, w := range n.reserved() {
		if !resv.passes(w.resv) && w.resv.rec.Maint && w.start <= s.now && s.now < w.end {
			return true
		}
	}
	return false
}

// enough reports whether the nodes for which ok holds could hold the job if
// they were empty. A job runs below one topmost switch.
func (sh *shape) enough(c *candidates, ok func(*vnode) bool) bool {
	if len(c.nodes) == 0 || c.hi == 1 || c.nodes[0].above == nil {
		return sh.enoughOf(c, ok)
	}
	tried := map[int32]bool{}
	for p := range c.nodes {
		root := c.rootOf(int32(p))
		if !tried[root] && sh.enoughOf(c, func(n *vnode) bool { return n.above[0] == root && ok(n) }) {
			return true
		}
		tried[root] = true
	}
	return false
}

func (sh *shape) enoughOf(c *candidates, ok func(*vnode) bool) bool {
	d := &sh.demand
	nodes, tasks, room := 0, 0, int64(0)
	must := 0
	caps := map[*config]int{}
	for p, n := range c.nodes {
		if !ok(n) {
			continue
		}
		nodes++
		for _, m := range c.must {
			if int(m) == p {
				must++
			}
		}
		if !c.flex {
			continue
		}
		k, known := caps[n.cfg]
		if !known {
			k = sh.capOf(c, n, n.cfg.full)
			caps[n.cfg] = k
		}
		tasks += k
		room += sh.deviceRoom(c, n.cfg, n.cfg.full)
	}
	if nodes < c.lo || c.lacks || must < len(c.must) {
		return false
	}
	return !c.flex || (tasks >= d.tasks || sh.req.Overcommit) && (len(d.jobGres) == 0 || room >= d.jobGres[0].Count)
}

// goneReason is why a job waits that could run if all nodes were up: those that it names are not, or too few of the others.
func (s *Scheduler) goneReason(sh *shape) Reason {
	var gone []string
	for _, i := range s.nodeList(sh.req.NodeList) {
		n := s.nodes.vals[i]
		if s.maintained(n, sh.resv) {
			return Reason{Code: ReqNodeNotAvail, Text: "ReqNodeNotAvail, Reserved for maintenance"}
		}
		if n.rec.State != NodeUsable {
			gone = append(gone, n.rec.Name)
		}
	}
	if len(gone) > 0 {
		return Reason{Code: ReqNodeNotAvail, Text: "ReqNodeNotAvail, UnavailableNodes:" + foldNames(gone)}
	}
	for i := range sh.alts {
		if sh.enough(&sh.alts[i], func(n *vnode) bool { return n.rec.State == NodeUsable }) {
			return Reason{Code: ReqNodeNotAvail, Text: "ReqNodeNotAvail, Reserved for maintenance"}
		}
	}
	return Reason{Code: WaitResources, Text: nodesGone}
}

func foldNames(names []string) string { return hostlist.Fold(names) }
