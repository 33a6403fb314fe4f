package sizing

import (
	"math"
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
)

// Counts are the totals of a request before any node is chosen: the least that it can need.
type Counts struct {
	Nodes, Tasks, CPUs int64
	MaxNodes           int64 // the most nodes that it could get
	MemMiB             int64 // 0: none, or the whole memory of its nodes
	GPUs               int64
	Gres               []GresCount // in the order of the request
	// Whole: it gets everything that its nodes have, however much that is.
	Whole   bool
	request *record.Request
}

// GresCount is the total of one generic resource in a request.
type GresCount struct {
	Name, Type string
	Count      int64
}

// Count counts the resources of r.
func Count(r *record.Request) Counts {
	d := WorkOut(r)
	c := countOn(r, int64(d.Lo), int64(d.Tasks))
	c.MaxNodes, c.Whole, c.request = int64(d.Hi), r.Exclusive, r
	return c
}

// countOn counts the resources of r on a number of nodes.
func countOn(r *record.Request, nodes, tasks int64) Counts {
	c := Counts{Nodes: nodes, Tasks: tasks}
	for _, g := range r.Gres {
		n := devices(r, &g, c.Nodes, c.Tasks)
		if g.Name == "gpu" {
			c.GPUs = min(c.GPUs+n, maxCounted)
		}
		c.Gres = append(c.Gres, GresCount{g.Name, g.Type, n})
	}
	c.CPUs = cpus(r, c.Nodes, c.Tasks, c.GPUs)
	c.MemMiB = memory(r, c.Nodes, c.CPUs, c.GPUs)
	return c
}

// Demand is a request with computed counts of nodes and tasks.
type Demand struct {
	Lo, Hi     int // nodes
	counts     []record.NodeCount
	Tasks      int // in total
	PerNode    int // tasks on each node when even
	MaxPerNode int // most tasks on a node; 0: no limit
	Even       bool
	Short      bool // it may not have as many nodes as its tasks need (--ntasks-per-node)
	EachNode   bool // no total number of tasks, but PerNode on each node
	Flexible   bool // tasks or devices may be spread unevenly
	JobGres    []record.GresRequest
	PerDevice  int // tasks for each device of JobGres, where they follow the devices (--ntasks-per-gpu); 0: tasks are distributed by CPUs
}

// WorkOut computes counts: sbatch(1), -N, -n, --ntasks-per-node.
func WorkOut(r *record.Request) Demand {
	d := Demand{Lo: max(1, r.MinNodes), Hi: r.MaxNodes, Tasks: r.Tasks, counts: r.NodeCounts, MaxPerNode: r.TasksPerNode}
	if each := nodeTasks(r); each > 0 && d.MaxPerNode == 0 {
		d.MaxPerNode = each
	}
	said := r.MinNodes > 0 || r.MaxNodes > 0
	if d.Tasks == 0 {
		d.Tasks = d.Lo * max(1, r.TasksPerNode)
		if !said && len(r.NodeList) > d.Lo {
			d.Lo, d.Hi = len(r.NodeList), len(r.NodeList)
			d.Tasks = d.Lo * max(1, r.TasksPerNode)
		}
		d.PerNode, d.Even, d.EachNode = max(1, r.TasksPerNode), true, true
	}
	if d.MaxPerNode > 0 {
		d.Lo = max(d.Lo, CeilDiv(d.Tasks, d.MaxPerNode))
		d.Short = r.MaxNodes > 0 && d.Lo > max(r.MaxNodes, len(r.NodeList))
	}
	d.Lo = max(d.Lo, len(r.NodeList))
	if d.Hi == 0 {
		perJob := slices.ContainsFunc(r.Gres, func(g record.GresRequest) bool { return g.Per == record.PerJob })
		switch {
		case d.Even && (r.MinNodes > 0 || perJob): // devices per job may come from several nodes
			d.Hi = math.MaxInt32
		case d.Even: // a fixed number of tasks on each node, but no number of nodes: those that hold one such share
			d.Hi = d.Lo
		default:
			d.Hi = d.Tasks
		}
	}
	d.Hi = max(d.Hi, d.Lo)
	d.settleEven(r)
	for _, g := range r.Gres {
		if g.Per == record.PerJob {
			d.JobGres = append(d.JobGres, g)
		}
	}
	if k := r.TasksPerGPU; k > 0 && len(d.JobGres) == 1 && d.JobGres[0].Name == "gpu" && int64(d.Tasks) == int64(k)*d.JobGres[0].Count {
		d.PerDevice = k
	}
	d.Flexible = !d.Even || len(d.JobGres) > 0 && d.Hi > 1
	if len(d.JobGres) > 0 && d.Lo == d.Hi {
		d.Flexible = !d.Even || slices.ContainsFunc(d.JobGres, func(g record.GresRequest) bool { return g.Count%int64(d.Lo) != 0 })
	}
	return d
}

// nodeTasks returns the number of tasks on each node that follows from its GPUs (--ntasks-per-gpu with GPUs per node); 0 where requested
// tasks and nodes contradict that: tasks are then placed by CPUs.
func nodeTasks(r *record.Request) int {
	each := int(min(times(GPUs(r, 0, 0), int64(r.TasksPerGPU)), math.MaxInt32))
	if each == 0 || r.Tasks%each != 0 {
		return 0
	}
	if r.Tasks/each < max(1, r.MinNodes) {
		return 0
	}
	return each
}

// settleEven recognises requests in which each node has the same share.
func (d *Demand) settleEven(r *record.Request) {
	switch {
	case d.Even:
	case d.Lo == 1 && d.Hi == 1:
		d.PerNode, d.Even = d.Tasks, true
	case d.MaxPerNode > 0 && d.Lo == d.Hi && d.Tasks == d.Lo*d.MaxPerNode:
		d.PerNode, d.Even = d.MaxPerNode, true
	case d.Lo == d.Hi && d.Tasks <= d.Lo:
		d.PerNode, d.Even = 1, true
	case r.Overcommit && d.Lo == d.Hi:
		d.PerNode, d.Even = CeilDiv(d.Tasks, d.Lo), true
	}
}

// TasksOn returns the total number of tasks on a number of nodes, each of which has at least one.
func (d *Demand) TasksOn(nodes int) int {
	if d.EachNode {
		return nodes * d.PerNode
	}
	return max(d.Tasks, nodes)
}

// Allowed reports whether n nodes is a count that the request permits.
func (d *Demand) Allowed(n int) bool {
	if n < d.Lo || n > d.Hi {
		return false
	}
	if len(d.counts) == 0 {
		return true
	}
	return slices.ContainsFunc(d.counts, func(c record.NodeCount) bool {
		return n >= c.Min && n <= c.Max && (n-c.Min)%max(1, c.Step) == 0
	})
}
