package sched

import "github.com/sluice-hpc/sluice/conf/hostlist"

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
// enough of those are up.
func (s *Scheduler) nodeFault(sh *shape) Reason {
	exist := false
	for i := range sh.alts {
		c := &sh.alts[i]
		if !sh.enough(c, func(*vnode) bool { return true }) {
			continue
		}
		exist = true
		if sh.enough(c, func(n *vnode) bool { return n.rec.State == NodeUsable && !s.maintained(n, sh.resv) }) {
			return Reason{}
		}
	}
	if !exist {
		return Reason{Code: BadConstraints}
	}
	return s.goneReason(sh)
}

// maintained: a maintenance reservation is on the node now.
func (s *Scheduler) maintained(n *vnode, resv *vresv) bool {
	for _, w := range n.windows {
		if w.resv != resv && w.resv.rec.Maint && w.start <= s.now && s.now < w.end {
			return true
		}
	}
	return false
}

// enough reports whether the nodes for which ok holds could hold the job if
// they were empty.
func (sh *shape) enough(c *candidates, ok func(*vnode) bool) bool {
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
	if nodes < c.lo || must < len(sh.req.NodeList) {
		return false
	}
	return !c.flex || (tasks >= d.tasks || sh.req.Overcommit) && (len(d.jobGres) == 0 || room >= d.jobGres[0].Count)
}

func (s *Scheduler) goneReason(sh *shape) Reason {
	if len(sh.req.NodeList) == 0 {
		return Reason{Code: WaitResources, Text: nodesGone}
	}
	var gone []string
	maint := false
	for _, i := range s.nodeList(sh.req.NodeList) {
		n := s.nodes.vals[i]
		m := s.maintained(n, sh.resv)
		maint = maint || m
		if n.rec.State != NodeUsable || m {
			gone = append(gone, n.rec.Name)
		}
	}
	if maint {
		return Reason{Code: ReqNodeNotAvail, Text: "ReqNodeNotAvail, Reserved for maintenance"}
	}
	return Reason{Code: ReqNodeNotAvail, Text: "ReqNodeNotAvail, UnavailableNodes:" + foldNames(gone)}
}

func foldNames(names []string) string { return hostlist.Fold(names) }
