package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// nodesGone is squeue's text when the nodes that a job could use are unavailable, unless the job named them.
const nodesGone = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"

// Fault returns the reason why no job of the shape can start, whatever is free; over: its limit exceeds the partition's.
func (pl *Placer) Fault(sh *Shape, over bool) reason.Reason {
	p := sh.part.Rec
	d := &sh.Demand
	switch {
	case p.State == record.PartitionDown:
		return reason.Reason{Code: reason.PartitionDown}
	case p.State == record.PartitionInactive:
		return reason.Reason{Code: reason.PartitionInactive}
	case over:
		return reason.Reason{Code: reason.PartitionTimeLimit}
	case p.MaxNodes > 0 && d.Lo > p.MaxNodes, p.MinNodes > 0 && d.Hi < p.MinNodes:
		return reason.Reason{Code: reason.PartitionNodeLimit}
	case p.MaxMemNodeMiB > 0 && sh.LeastMemory() > p.MaxMemNodeMiB:
		return reason.Reason{Code: reason.MaxMemPerLimit}
	case sh.fault.Code != "":
		return sh.fault
	}
	if r := sh.Resv; r != nil {
		if r.Rec.End <= pl.ix.Now || r.Rec.Start > pl.ix.Now && !r.Rec.Flex {
			return reason.Reason{Code: reason.Reservation}
		}
	}
	if len(sh.Request.Licenses) > 0 && !pl.ix.Licenses.Exist(sh.Request) {
		return reason.Reason{Code: reason.Licenses}
	}
	return pl.nodeFault(sh)
}

// LeastMemory returns the least memory that the job takes of a node, in MiB, with as few tasks there as it may have; 0 when it fits on
// none.
func (sh *Shape) LeastMemory() int64 {
	d, least := &sh.Demand, int64(0)
	for i := range sh.Alts {
		c := &sh.Alts[i]
		tasks := c.Tasks
		if c.Flex {
			tasks = max(tasks, sizing.CeilDiv(d.Tasks, d.Hi), min(d.Tasks, d.MaxPerNode))
		}
		for _, n := range c.Nodes {
			if mem := sh.NeedFor(c, n.Config, tasks, c.GPUs).MemMiB; least == 0 || mem < least {
				least = mem
			}
		}
	}
	return least
}

// nodeFault returns the fault that not enough nodes could hold the job even when idle, or that not enough of those are up. Maintenance has
// an end: a conservative pass promises a start after it.
func (pl *Placer) nodeFault(sh *Shape) reason.Reason {
	exist := false
	for i := range sh.Alts {
		c := &sh.Alts[i]
		if !sh.enough(c, func(*node.Node) bool { return true }) {
			continue
		}
		exist = true
		if sh.enough(c, func(n *node.Node) bool {
			return n.Rec.State == record.NodeUsable && (pl.params.Policy == record.Conservative || !pl.ix.Maintained(n, sh.Resv))
		}) {
			return reason.Reason{}
		}
	}
	if !exist && pl.withheld(sh) {
		return reason.Reason{Code: reason.Resources}
	}
	if text := sh.Refused(); !exist && text != "" {
		return reason.Reason{Code: reason.BadConstraints, Text: "BadConstraints, " + text}
	}
	if !exist {
		return reason.Reason{Code: cmp.Or(pl.outgrown(sh.Request, sh.part), reason.BadConstraints)}
	}
	return pl.goneReason(sh)
}

// Refused names the nodes that could hold a part of the job but refuse its user; "" when none does.
func (sh *Shape) Refused() string {
	var names []string
	for i := range sh.Alts {
		names = append(names, sh.Alts[i].Refuse...)
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	nodes := hostlist.Fold(slices.Compact(names))
	if sh.Request.LowUID == 1 {
		return "jobs of root are refused by " + nodes + " (AllowRootJobs in node.conf)"
	}
	return fmt.Sprintf("jobs of uid %d are refused by %s (MinimumUID in node.conf)", sh.Request.LowUID-1, nodes)
}

// outgrown returns the reason of a request for more nodes, or more CPUs in total, than the partition has; "" of any other. The partition
// may grow, so Slurm accepts such a job unless EnforcePartLimits forbids it, and lets it wait.
func (pl *Placer) outgrown(req *record.Request, part *index.Partition) reason.Code {
	if req.MinNodes > len(part.Nodes) {
		return reason.PartitionConfig
	}
	if open := req.MaxNodes == 0 || req.MaxNodes >= len(part.Nodes); open &&
		int64(max(req.Tasks, 1))*int64(max(req.CPUsPerTask, 1)) > pl.ix.CPUsOf(part) {
		return reason.PartitionConfig
	}
	return ""
}

// withheld reports whether some node of the partition withholds a requested resource now, so that the job may fit one day.
func (pl *Placer) withheld(sh *Shape) bool {
	for _, i := range sh.part.Nodes {
		for _, name := range pl.ix.Nodes.Vals[i].Rec.Withheld {
			if slices.ContainsFunc(sh.Request.Gres, func(g record.GresRequest) bool {
				return g.Name == name || name == "gpu" && (g.Name == "shard" || g.Name == "mps")
			}) {
				return true
			}
		}
	}
	return false
}

// enough reports whether the nodes for which ok holds could hold the job if they were empty. A job runs below one topmost switch.
func (sh *Shape) enough(c *Candidates, ok func(*node.Node) bool) bool {
	if len(c.Nodes) == 0 || c.Hi == 1 || c.Nodes[0].Above == nil {
		return sh.enoughOf(c, ok)
	}
	tried := map[int32]bool{}
	for p := range c.Nodes {
		root := c.RootOf(int32(p))
		if !tried[root] && sh.enoughOf(c, func(n *node.Node) bool { return n.Above[0] == root && ok(n) }) {
			return true
		}
		tried[root] = true
	}
	return false
}

func (sh *Shape) enoughOf(c *Candidates, ok func(*node.Node) bool) bool {
	d := &sh.Demand
	nodes, tasks, room := 0, 0, int64(0)
	must := 0
	caps := map[*node.Config]int{}
	for p, n := range c.Nodes {
		if !ok(n) {
			continue
		}
		nodes++
		for _, m := range c.Must {
			if int(m) == p {
				must++
			}
		}
		if !c.Flex {
			continue
		}
		k, known := caps[n.Config]
		if !known {
			k = sh.capOf(c, n, n.Config.Full)
			caps[n.Config] = k
		}
		tasks += k
		devices := sh.deviceRoom(c, n.Config, n.Config.Full)
		if of := sh.Demand.PerDevice; of > 0 {
			devices = min(devices, int64(k/of))
		}
		room += devices
	}
	if nodes < c.Lo || c.Lacks || must < len(c.Must) {
		return false
	}
	return !c.Flex || (tasks >= d.Tasks || sh.Request.Overcommit) && (len(d.JobGres) == 0 || room >= d.JobGres[0].Count)
}

// goneReason returns the reason of a job that could run if all nodes were up: named ones are down, or too few of the others are up.
func (pl *Placer) goneReason(sh *Shape) reason.Reason {
	var gone []string
	for _, i := range pl.ix.NodeList(sh.Request.NodeList) {
		n := pl.ix.Nodes.Vals[i]
		if pl.ix.Maintained(n, sh.Resv) {
			return reason.Reason{Code: reason.ReqNodeNotAvail, Text: "ReqNodeNotAvail, Reserved for maintenance"}
		}
		if n.Rec.State != record.NodeUsable {
			gone = append(gone, n.Rec.Name)
		}
	}
	if len(gone) > 0 {
		return reason.Reason{Code: reason.ReqNodeNotAvail, Text: "ReqNodeNotAvail, UnavailableNodes:" + hostlist.Fold(gone)}
	}
	for i := range sh.Alts {
		if sh.enough(&sh.Alts[i], func(n *node.Node) bool { return n.Rec.State == record.NodeUsable }) {
			return reason.Reason{Code: reason.ReqNodeNotAvail, Text: "ReqNodeNotAvail, Reserved for maintenance"}
		}
	}
	return reason.Reason{Code: reason.Resources, Text: nodesGone}
}
