package acct

import (
	"slices"

	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// usageOf returns the usage of a step, by node, for nodes on which it has ended.
func usageOf(s *msg.StepRecord) (list []*msg.StepUsage) {
	for _, n := range s.GetNodes() {
		if n.GetUsage() != nil {
			u := *n.GetUsage()
			u.Node = n.GetNode()
			list = append(list, &u)
		}
	}
	return list
}

// Together returns the usage of a job and its srun steps on each node. CPU time and traffic are added up; of memory it takes the
// maximum, because steps may have run one after the other. GPUs are already measured for the job as a whole. It returns nil if
// there are no such steps.
func Together(j *msg.JobRecord, made []*msg.StepRecord) (list []*msg.StepUsage) {
	if len(made) == 0 {
		return nil
	}
	for _, u := range j.GetUsage() {
		u := *u
		list = append(list, &u)
	}
	for _, s := range made {
		for _, u := range usageOf(s) {
			i := slices.IndexFunc(list, func(have *msg.StepUsage) bool { return have.GetNode() == u.GetNode() })
			if i < 0 {
				list = append(list, u)
				continue
			}
			sum := list[i]
			sum.CpuUsecUser, sum.CpuUsecSystem = sum.CpuUsecUser+u.CpuUsecUser, sum.CpuUsecSystem+u.CpuUsecSystem
			sum.ReadBytes, sum.WriteBytes = sum.ReadBytes+u.ReadBytes, sum.WriteBytes+u.WriteBytes
			sum.PageFaults += u.PageFaults
			sum.RssKib, sum.VmKib = sum.RssKib+u.RssKib, sum.VmKib+u.VmKib
			sum.MaxRssKib, sum.MaxVmKib = max(sum.MaxRssKib, u.MaxRssKib), max(sum.MaxVmKib, u.MaxVmKib)
			if len(sum.Devices) == 0 {
				sum.Devices = u.Devices
			}
		}
	}
	return list
}

// firstTask is the lowest rank on a node: usage is known by node, not by task.
func (r Row) firstTask(node string) uint64 {
	for _, n := range r.made.GetNodes() {
		if n.GetNode() == node && len(n.GetTasks()) > 0 {
			return uint64(slices.Min(n.GetTasks()))
		}
	}
	return 0
}

// layout is the distribution of a step's tasks; unknown for the batch step.
func (r Row) layout() string {
	if r.made == nil {
		return "Unknown"
	}
	return format.StepLayout(r.made)
}

// On reports whether a row was on one of the nodes.
func (r Row) On(nodes []string) bool {
	have, _ := hostlist.Expand(nodeList(r))
	return slices.ContainsFunc(have, func(n string) bool { return slices.Contains(nodes, n) })
}
