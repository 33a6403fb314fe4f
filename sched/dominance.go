package sched

import (
	"encoding/binary"
	"slices"
)

// A job that is at least as large and as long as one that could not start in
// this pass cannot start either: within a pass what is free only shrinks. Only
// requests that differ in nothing but amounts are compared.

// bulk is a shape's amounts, and what has to be equal for them to be compared.
type bulk struct {
	kind    string
	amounts []int64
}

// bulkOf takes a request apart. A request whose placement does not get harder
// with every amount (tasks that may be spread, nodes in a row, few switches, bound
// devices) is a kind of its own.
func (sh *shape) bulkOf(key shapeKey) bulk {
	r, d := sh.req, &sh.demand
	kind := binary.AppendVarint(nil, int64(key.part))
	if key.resv != nil {
		kind = append(kind, key.resv.rec.Name...)
	}
	kind = append(append(append(kind, 0), key.user...), 0)
	perSocket := slices.ContainsFunc(r.Gres, func(g GresRequest) bool { return g.Per == PerSocket })
	if d.flexible || r.Binding || r.Contiguous || r.Switches > 0 || len(r.NodeCounts) > 0 || perSocket || sh.depth > 1 {
		return bulk{kind: string(binary.AppendVarint(append(kind, 1), int64(sh.id)))}
	}
	var b bulk
	for _, x := range []int{d.lo, d.perNode, r.CPUsPerTask, r.MinCPUs, r.Sockets, r.CoresPerSocket, r.ThreadsPerCore, r.CPUsPerGPU} {
		b.amounts = append(b.amounts, int64(x))
	}
	b.amounts = append(b.amounts, r.MemNodeMiB, r.MemCPUMiB, r.MemGPUMiB, r.TmpMiB)
	plain := *r
	plain.Gres, plain.Licenses = slices.Clone(r.Gres), slices.Clone(r.Licenses)
	for i := range plain.Gres {
		g := &plain.Gres[i]
		if g.Per == PerJob {
			g.Count /= int64(d.lo)
		}
		b.amounts = append(b.amounts, g.Count)
		g.Count = min(g.Count, 1)
	}
	for i := range plain.Licenses {
		b.amounts = append(b.amounts, plain.Licenses[i].Count)
		plain.Licenses[i].Count = 0
	}
	plain.MinNodes, plain.MaxNodes, plain.Tasks, plain.CPUsPerTask, plain.TasksPerNode, plain.MinCPUs = 0, 0, 0, 0, 0, 0
	plain.Sockets, plain.CoresPerSocket, plain.ThreadsPerCore, plain.CPUsPerGPU, plain.TmpMiB = 0, 0, 0, 0, 0
	// Which of the ways to ask for memory it is decides what the amount means; 0
	// for a node is all of it.
	plain.MemNodeMiB, plain.MemCPUMiB, plain.MemGPUMiB = min(r.MemNodeMiB, 1), min(r.MemCPUMiB, 1), min(r.MemGPUMiB, 1)
	b.kind = string(plain.appendKey(append(kind, 2)))
	return b
}

// defeat is what could not start in this pass, and for how long.
type defeat struct {
	amounts []int64
	least   int64
}

func (f *defeat) within(amounts []int64, least int64) bool {
	if least < f.least {
		return false
	}
	for i, x := range f.amounts {
		if amounts[i] < x {
			return false
		}
	}
	return true
}

// maxDefeats bounds what is compared with. Those beyond are tried for
// themselves.
const maxDefeats = 32

// hopeless reports whether something no larger and no longer has failed.
func (p *pass) hopeless(c *class, least int64) bool {
	b := &c.shape.bulk
	for i := range p.defeats[b.kind] {
		if p.defeats[b.kind][i].within(b.amounts, least) {
			return true
		}
	}
	return false
}

// defeated notes that a job of c could not start; what is within it need not
// be kept.
func (p *pass) defeated(c *class, least int64) {
	b := &c.shape.bulk
	f := defeat{b.amounts, least}
	list := slices.DeleteFunc(p.defeats[b.kind], func(g defeat) bool { return f.within(g.amounts, g.least) })
	if len(list) < maxDefeats {
		list = append(list, f)
	}
	p.defeats[b.kind] = list
}
