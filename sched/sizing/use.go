package sizing

import "github.com/sluice-hpc/sluice/sched/record"

// Use is the use of a node's resources by tasks.
type Use struct {
	CPUs, GPUs int64
	MemMiB     int64 // 0: not counted, or the whole memory of the node (WholeMemory)
}

// On returns the use of a node by tasks of r. The node allocates CPUs in units (the threads of a core). share is that of Devices.
func On(r *record.Request, tasks, share, unit int64) Use {
	return With(r, tasks, GPUs(r, tasks, share), unit)
}

// With is On for a known number of GPUs.
func With(r *record.Request, tasks, gpus, unit int64) Use {
	u := Use{CPUs: (cpus(r, 1, tasks, gpus) + unit - 1) / unit * unit, GPUs: gpus}
	u.MemMiB = memory(r, 1, u.CPUs, u.GPUs)
	return u
}

// GPUs returns the number of GPUs for tasks of r on a node. share is that of Devices.
func GPUs(r *record.Request, tasks, share int64) (n int64) {
	for i := range r.Gres {
		if g := &r.Gres[i]; g.Name == "gpu" {
			n = min(n+Devices(r, g, tasks, share), maxCounted)
		}
	}
	return n
}

// Within returns u limited to cpus CPUs, which the tasks share if they need more.
func (u Use) Within(r *record.Request, cpus int64) Use {
	if u.CPUs > cpus {
		u.CPUs, u.MemMiB = cpus, memory(r, 1, cpus, u.GPUs)
	}
	return u
}

// All returns the use of a job that needs u of a node and gets all its CPUs and GPUs, with the memory that goes with them.
func (u Use) All(r *record.Request, cpus, gpus int64) Use {
	u.CPUs, u.GPUs = max(u.CPUs, cpus), max(u.GPUs, gpus)
	u.MemMiB = max(u.MemMiB, memory(r, 1, u.CPUs, gpus))
	return u
}

// Devices returns the number of a generic resource for tasks of r on a node. share is the number of those requested per job (record.PerJob)
// on this node, or, when negative, the number of nodes over which they are spread evenly.
func Devices(r *record.Request, g *record.GresRequest, tasks, share int64) int64 {
	switch {
	case g.Per != record.PerJob:
		return devices(r, g, 1, tasks)
	case share < 0:
		return g.Count / -share
	}
	return share
}

// devices returns the number of a resource for tasks on nodes; for one requested per job, its total.
func devices(r *record.Request, g *record.GresRequest, nodes, tasks int64) int64 {
	switch g.Per {
	case record.PerTask:
		return times(g.Count, tasks)
	case record.PerSocket:
		return times(times(g.Count, nodes), int64(max(1, r.Sockets)))
	case record.PerNode:
		return times(g.Count, nodes)
	}
	return g.Count
}

// cpus returns the number of CPUs for tasks on nodes with GPUs: those of the tasks (of one on each node, where tasks share CPUs), at least
// --mincpus on each node and the CPUs that go with the GPUs.
func cpus(r *record.Request, nodes, tasks, gpus int64) int64 {
	if r.Overcommit {
		tasks = nodes
	}
	return max(times(tasks, int64(max(1, r.CPUsPerTask))), times(nodes, int64(max(1, r.MinCPUs))), times(gpus, int64(r.CPUsPerGPU)))
}

// memory returns the memory that goes with nodes, CPUs and GPUs, in MiB; 0 also for the whole memory of the nodes (WholeMemory).
func memory(r *record.Request, nodes, cpus, gpus int64) int64 {
	switch {
	case r.MemCPUMiB > 0:
		return times(cpus, r.MemCPUMiB)
	case r.MemGPUMiB > 0:
		return times(gpus, r.MemGPUMiB)
	}
	return times(nodes, r.MemNodeMiB)
}

// WholeMemory reports --mem=0: all memory of each node.
func WholeMemory(r *record.Request) bool {
	return r.MemSaid && r.MemNodeMiB == 0 && r.MemCPUMiB <= 0 && r.MemGPUMiB <= 0
}

// NodeCPUs returns the number of CPUs that a node must have, however many the job gets: those of the largest number of tasks on a node
// (--ntasks-per-node), also with --overcommit, as in Slurm.
func NodeCPUs(r *record.Request) int64 {
	return max(times(int64(max(1, r.TasksPerNode)), int64(max(1, r.CPUsPerTask))), int64(r.MinCPUs))
}

// TasksOf returns how many tasks of r fit on cpus CPUs, at most most: with --overcommit they share CPUs.
func TasksOf(r *record.Request, cpus int64, most int) int {
	if r.Overcommit {
		return most
	}
	return int(min(int64(most), cpus/int64(max(1, r.CPUsPerTask))))
}

// Most returns the greatest number of tasks, from lo to hi, for which fits holds. fits has to hold for lo, and to be monotonic: if it holds
// for a number, it holds for all smaller ones.
func Most(lo, hi int, fits func(tasks int) bool) int {
	for past := hi + 1; past-lo > 1; {
		if mid := (lo + past) / 2; fits(mid) {
			lo = mid
		} else {
			past = mid
		}
	}
	return lo
}

// maxCounted bounds counted amounts: no node has more.
const maxCounted = int64(1) << 60

// times multiplies, at most to maxCounted.
func times(a, b int64) int64 {
	if a > 0 && b > maxCounted/a {
		return maxCounted
	}
	return a * b
}

// CeilDiv returns a/b, rounded up.
func CeilDiv(a, b int) int { return (a + b - 1) / b }
