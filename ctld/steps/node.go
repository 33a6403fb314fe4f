package steps

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// node holds the free resources of a job on one of its nodes.
type node struct {
	name    string
	index   int // in the allocation
	cpus    int
	cores   state.Cores // nil: CPUs have no numbers
	perCore int         // CPUs of each of them
	mem     uint64      // MiB
	devices []*pb.GresDevice
	whole   bool // no other step has CPUs here
	taken   bool // other steps have devices here
	fits    int  // tasks of the requested step
}

// nodesOf returns the nodes that a step may have, less what other steps have.
func (r *request) nodesOf(j *pb.JobRecord, others []*pb.StepRecord) []*node {
	var list []*node
	at := map[string]*node{}
	for i, a := range j.Alloc {
		if !r.allowed[a.Node] {
			continue
		}
		cores, _ := state.ParseCores(a.CpuIds) // cannot fail: this program wrote it
		n := &node{name: a.Node, index: i, cpus: int(a.Cpus), cores: cores, perCore: 1, mem: a.MemMib, whole: true}
		if k := cores.Count(); k > 0 {
			n.perCore = max(1, int(a.Cpus)/k)
		}
		n.devices = append(n.devices, a.Devices...)
		list, at[a.Node] = append(list, n), n
	}
	for _, s := range others {
		if Overlaps(s.Spec) || !state.StepLive(s) {
			continue
		}
		for _, part := range s.Nodes {
			if n := at[part.Node]; n != nil && !part.Ended {
				n.occupy(part)
			}
		}
	}
	return list
}

// occupy subtracts the resources of a step.
func (n *node) occupy(s *pb.StepNode) {
	n.whole = n.whole && s.Cpus == 0
	n.taken = n.taken || len(s.Devices) > 0
	n.cpus -= min(int(s.Cpus), n.cpus)
	if cores, _ := state.ParseCores(s.CpuIds); n.cores != nil {
		n.cores = n.cores.Without(cores)
	}
	n.mem -= min(s.MemMib, n.mem)
	n.devices = without(n.devices, s.Devices)
}

// take returns the cores for cpus CPUs, the lowest first.
func (n *node) take(cpus int) state.Cores {
	if n.cores == nil {
		return nil
	}
	out, left := make(state.Cores, len(n.cores)), (cpus+n.perCore-1)/n.perCore
	for k := range n.cores.All() {
		if left == 0 {
			break
		}
		out[k/64] |= 1 << (k % 64)
		left--
	}
	return out
}
