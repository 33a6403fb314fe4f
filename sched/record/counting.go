package record

import (
	"math"
	"slices"
)

// What a request comes to in nodes, tasks, CPUs, memory and devices is counted here and nowhere else: for a node (node.NeedOf), for the
// whole job (Count: what is shown of it, its priority, its limits) and for the choice of node counts (WorkOut).

// Counts are what a request asks for in all, before any node is chosen: the least that it can come to.
type Counts struct {
	Nodes, Tasks, CPUs int64
	MemMiB             int64 // 0: none, or the whole memory of its nodes
	GPUs               int64
	Gres               []GresCount // in the order of the request
}

// GresCount is how much of one generic resource a request asks for in all.
type GresCount struct {
	Name, Type string
	Count      int64
}

// Count counts what r asks for.
func Count(r *Request) Counts {
	d := WorkOut(r)
	c := Counts{Nodes: int64(d.Lo), Tasks: int64(d.Tasks)}
	for _, g := range r.Gres {
		n := g.On(c.Nodes, c.Tasks, r)
		if g.Name == "gpu" {
			c.GPUs = min(c.GPUs+n, maxCounted)
		}
		c.Gres = append(c.Gres, GresCount{g.Name, g.Type, n})
	}
	c.CPUs = r.CPUs(c.Nodes, c.Tasks, c.GPUs)
	c.MemMiB = r.Memory(c.Nodes, c.CPUs, c.GPUs)
	return c
}

// On is how many devices so many tasks on so many nodes have.
func (g *GresRequest) On(nodes, tasks int64, r *Request) int64 {
	switch g.Per {
	case PerTask:
		return times(g.Count, tasks)
	case PerSocket:
		return times(times(g.Count, nodes), int64(max(1, r.Sockets)))
	case PerNode:
		return times(g.Count, nodes)
	}
	return g.Count
}

// CPUs is how many CPUs so many tasks on so many nodes with so many GPUs have: those of the tasks (of one on each node, where tasks
// share CPUs), at least --mincpus on each node and what goes with the GPUs.
func (r *Request) CPUs(nodes, tasks, gpus int64) int64 {
	if r.Overcommit {
		tasks = nodes
	}
	return max(times(tasks, int64(max(1, r.CPUsPerTask))), times(nodes, int64(max(1, r.MinCPUs))), times(gpus, int64(r.CPUsPerGPU)))
}

// Memory is how much memory goes with so many nodes, CPUs and GPUs; 0 also for the whole memory of the nodes (wholeMemory).
func (r *Request) Memory(nodes, cpus, gpus int64) int64 {
	switch {
	case r.MemCPUMiB > 0:
		return times(cpus, r.MemCPUMiB)
	case r.MemGPUMiB > 0:
		return times(gpus, r.MemGPUMiB)
	}
	return times(nodes, r.MemNodeMiB)
}

// WholeMemory: --mem=0, all that each node has.
func (r *Request) WholeMemory() bool {
	return r.MemSaid && r.MemNodeMiB == 0 && r.MemCPUMiB <= 0 && r.MemGPUMiB <= 0
}

// maxCounted bounds what is counted: no node has more.
const maxCounted = int64(1) << 60

// times multiplies, up to maxCounted.
func times(a, b int64) int64 {
	if a > 0 && b > maxCounted/a {
		return maxCounted
	}
	return a * b
}

// Demand is a request with its node and task counts worked out.
type Demand struct {
	Lo, Hi     int // nodes
	counts     []NodeCount
	Tasks      int // in all
	PerNode    int // tasks on each node when even
	MaxPerNode int // most tasks on a node; 0: no limit
	Even       bool
	Flexible   bool // tasks or devices may be spread unevenly
	JobGres    []GresRequest
}

// WorkOut settles counts: sbatch(1), -N, -n, --ntasks-per-node.
func WorkOut(r *Request) Demand {
	d := Demand{Lo: max(1, r.MinNodes), Hi: r.MaxNodes, Tasks: r.Tasks, counts: r.NodeCounts, MaxPerNode: r.TasksPerNode}
	said := r.MinNodes > 0 || r.MaxNodes > 0
	if d.Tasks == 0 {
		d.Tasks = d.Lo * max(1, r.TasksPerNode)
		if !said && len(r.NodeList) > d.Lo {
			d.Lo, d.Hi = len(r.NodeList), len(r.NodeList)
			d.Tasks = d.Lo * max(1, r.TasksPerNode)
		}
		d.PerNode, d.Even = max(1, r.TasksPerNode), true
	}
	if d.MaxPerNode > 0 {
		d.Lo = max(d.Lo, CeilDiv(d.Tasks, d.MaxPerNode))
	}
	d.Lo = max(d.Lo, len(r.NodeList))
	if d.Hi == 0 {
		perJob := slices.ContainsFunc(r.Gres, func(g GresRequest) bool { return g.Per == PerJob })
		switch {
		case d.Even && (r.MinNodes > 0 || perJob): // devices in all may come from several nodes
			d.Hi = math.MaxInt32
		case d.Even: // so many tasks on each node, and not so many nodes: those that hold one such share
			d.Hi = d.Lo
		default:
			d.Hi = d.Tasks
		}
	}
	d.Hi = max(d.Hi, d.Lo)
	d.settleEven(r)
	for _, g := range r.Gres {
		if g.Per == PerJob {
			d.JobGres = append(d.JobGres, g)
		}
	}
	d.Flexible = !d.Even || len(d.JobGres) > 0 && d.Hi > 1
	if len(d.JobGres) > 0 && d.Lo == d.Hi {
		d.Flexible = !d.Even || slices.ContainsFunc(d.JobGres, func(g GresRequest) bool { return g.Count%int64(d.Lo) != 0 })
	}
	return d
}

// Wide reports whether a request is for as many nodes as there are: --spread-job, or a range (sbatch(1), -N: "as many nodes as
// possible within the range specified and without delaying the initiation of the job"). Devices in all stay together.
func (r *Request) Wide() bool {
	ranged := r.MaxNodes > max(r.MinNodes, 1) && !r.UseMinNodes &&
		!slices.ContainsFunc(r.Gres, func(g GresRequest) bool { return g.Per == PerJob })
	return r.Spread || ranged
}

// settleEven recognises requests in which each node has the same share.
func (d *Demand) settleEven(r *Request) {
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

// CeilDiv is a/b, rounded up.
func CeilDiv(a, b int) int { return (a + b - 1) / b }

// Allowed reports whether n nodes is a count that the request permits.
func (d *Demand) Allowed(n int) bool {
	if n < d.Lo || n > d.Hi {
		return false
	}
	if len(d.counts) == 0 {
		return true
	}
	return slices.ContainsFunc(d.counts, func(c NodeCount) bool {
		return n >= c.Min && n <= c.Max && (n-c.Min)%max(1, c.Step) == 0
	})
}
