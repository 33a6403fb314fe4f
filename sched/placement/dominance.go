package placement

import (
	"encoding/binary"
	"slices"

	"github.com/sluice-hpc/sluice/sched/record"
)

// bulk holds a shape's amounts, and what has to be equal for them to be compared.
type bulk struct {
	Kind    string
	Amounts []int64
}

// bulkOf splits a request. A request whose placement does not get harder with every amount (tasks that may be spread, consecutive nodes,
// few switches, bound devices) is a kind of its own.
func (sh *Shape) bulkOf(key shapeKey) bulk {
	r, d := sh.Request, &sh.Demand
	kind := binary.AppendVarint(nil, int64(key.part))
	if key.resv != nil {
		kind = append(kind, key.resv.Rec.Name...)
	}
	kind = append(append(append(kind, 0), key.user...), 0)
	perSocket := slices.ContainsFunc(r.Gres, func(g record.GresRequest) bool { return g.Per == record.PerSocket })
	if d.Flexible || r.Binding || r.Contiguous || r.Switches > 0 || len(r.NodeCounts) > 0 || perSocket || sh.depth > 1 {
		return bulk{Kind: string(binary.AppendVarint(append(kind, 1), int64(sh.id)))}
	}
	var b bulk
	for _, x := range []int{d.Lo, d.PerNode, r.CPUsPerTask, r.MinCPUs, r.Sockets, r.CoresPerSocket, r.ThreadsPerCore, r.CPUsPerGPU} {
		b.Amounts = append(b.Amounts, int64(x))
	}
	b.Amounts = append(b.Amounts, r.MemNodeMiB, r.MemCPUMiB, r.MemGPUMiB, r.TmpMiB)
	plain := *r
	plain.Gres, plain.Licenses = slices.Clone(r.Gres), slices.Clone(r.Licenses)
	for i := range plain.Gres {
		g := &plain.Gres[i]
		if g.Per == record.PerJob {
			g.Count /= int64(d.Lo)
		}
		b.Amounts = append(b.Amounts, g.Count)
		g.Count = min(g.Count, 1)
	}
	for i := range plain.Licenses {
		b.Amounts = append(b.Amounts, plain.Licenses[i].Count)
		plain.Licenses[i].Count = 0
	}
	plain.MinNodes, plain.MaxNodes, plain.Tasks, plain.CPUsPerTask, plain.TasksPerNode, plain.MinCPUs = 0, 0, 0, 0, 0, 0
	plain.Sockets, plain.CoresPerSocket, plain.ThreadsPerCore, plain.CPUsPerGPU, plain.TmpMiB = 0, 0, 0, 0, 0
	// The option for memory decides the meaning of the amount; 0 for a node is all of it.
	plain.MemNodeMiB, plain.MemCPUMiB, plain.MemGPUMiB = min(r.MemNodeMiB, 1), min(r.MemCPUMiB, 1), min(r.MemGPUMiB, 1)
	b.Kind = string(plain.AppendKey(append(kind, 2)))
	return b
}
