package sizing

import "github.com/sluice-hpc/sluice/sched/record"

// Use is what tasks use of a node.
type Use struct {
	CPUs, GPUs int64
	MemMiB     int64 // 0: none is counted, or it is the whole memory of the node (WholeMemory)
}

// On is what so many tasks of r use of a node whose CPUs are given out in units of so many (the threads of a core). share is Devices'.
func On(r *record.Request, tasks, share, unit int64) Use {
	return With(r, tasks, GPUs(r, tasks, share), unit)
}

// With is On for a known number of GPUs.
func With(r *record.Request, tasks, gpus, unit int64) Use {
	u := Use{CPUs: (cpus(r, 1, tasks, gpus) + unit - 1) / unit * unit, GPUs: gpus}
	u.MemMiB = memory(r, 1, u.CPUs, u.GPUs)
	return u
}

// GPUs is how many GPUs so many tasks of r have on a node. share is Devices'.
func GPUs(r *record.Request, tasks, share int64) (n int64) {
	for i := range r.Gres {
		if g := &r.Gres[i]; g.Name == "gpu" {
			n = min(n+Devices(r, g, tasks, share), maxCounted)
		}
	}
	return n
}

// Within is u where tasks share the CPUs that there are, so many, if they need more.
func (u Use) Within(r *record.Request, cpus int64) Use {
	if u.CPUs > cpus {
		u.CPUs, u.MemMiB = cpus, memory(r, 1, cpus, u.GPUs)
	}
	return u
}

// All is what a job uses that has u of a node and gets all of it, so many CPUs and GPUs: the memory that goes with them, too.
func (u Use) All(r *record.Request, cpus, gpus int64) Use {
	u.CPUs, u.GPUs = max(u.CPUs, cpus), max(u.GPUs, gpus)
	u.MemMiB = max(u.MemMiB, memory(r, 1, u.CPUs, gpus))
	return u
}

// Devices is how many of a generic resource so many tasks of r have on a node. share is how many of those that r asks for in all
// (record.PerJob) are there, or, when negative, over how many nodes they are spread evenly.
func Devices(r *record.Request, g *record.GresRequest, tasks, share int64) int64 {
	switch {
	case g.Per != record.PerJob:
		return devices(r, g, 1, tasks)
	case share < 0:
		return g.Count / -share
	}
	return share
}

// devices is how many of a resource so many tasks on so many nodes have; all that there are of those that are asked for in all.
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

// cpus is how many CPUs so many tasks on so many nodes with so many GPUs have: those of the tasks (of one on each node, where tasks
// share CPUs), at least --mincpus on each node and what goes with the GPUs.
func cpus(r *record.Request, nodes, tasks, gpus int64) int64 {
	if r.Overcommit {
		tasks = nodes
	}
	return max(times(tasks, int64(max(1, r.CPUsPerTask))), times(nodes, int64(max(1, r.MinCPUs))), times(gpus, int64(r.CPUsPerGPU)))
}

// memory is how much memory goes with so many nodes, CPUs and GPUs, in MiB; 0 also for the whole memory of the nodes (WholeMemory).
func memory(r *record.Request, nodes, cpus, gpus int64) int64 {
	switch {
	case r.MemCPUMiB > 0:
		return times(cpus, r.MemCPUMiB)
	case r.MemGPUMiB > 0:
		return times(gpus, r.MemGPUMiB)
	}
	return times(nodes, r.MemNodeMiB)
}

// WholeMemory: --mem=0, all that each node has.
func WholeMemory(r *record.Request) bool {
	return r.MemSaid && r.MemNodeMiB == 0 && r.MemCPUMiB <= 0 && r.MemGPUMiB <= 0
}

// NodeCPUs is how many CPUs a node must have, whatever of them the job gets: those of all tasks that there may be on a node
// (--ntasks-per-node), also with --overcommit, as in Slurm.
func NodeCPUs(r *record.Request) int64 {
	return max(times(int64(max(1, r.TasksPerNode)), int64(max(1, r.CPUsPerTask))), int64(r.MinCPUs))
}

// TasksOf is how many tasks of r so many CPUs are enough for, at most so many: --overcommit has tasks share them.
func TasksOf(r *record.Request, cpus int64, most int) int {
	if r.Overcommit {
		return most
	}
	return int(min(int64(most), cpus/int64(max(1, r.CPUsPerTask))))
}

// Most is the greatest number of tasks, from lo to hi, for which fits holds. It has to hold for lo, and where it does for some number it
// has to for all that are smaller: tasks that are left out use nothing.
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

// maxCounted bounds what is counted: no node has more.
const maxCounted = int64(1) << 60

// times multiplies, up to maxCounted.
func times(a, b int64) int64 {
	if a > 0 && b > maxCounted/a {
		return maxCounted
	}
	return a * b
}

// CeilDiv is a/b, rounded up.
func CeilDiv(a, b int) int { return (a + b - 1) / b }
