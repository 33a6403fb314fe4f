package index

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/sluice-hpc/sluice/sched/node"
	"github.com/sluice-hpc/sluice/sched/record"
)

// AddRun, RemoveRun and changeRun follow the running jobs.
func (ix *Index) AddRun(rec *record.Run) *node.Run {
	end := ix.endOf(rec)
	r := &node.Run{Rec: rec, End: max(end, ix.Now+1), Late: end <= ix.Now, Heap: -1, Alone: ix.exclusiveUser(rec)}
	depth, in := ix.depthOf(rec)
	for i := range rec.Allocs {
		a := &rec.Allocs[i]
		at, ok := ix.byName[a.Node]
		if !ok {
			continue
		}
		n := ix.Nodes.Vals[at]
		pool := int32(0)
		if depth > 1 {
			pool = in.Index + 1
		}
		ix.runParts(r, n, a, pool)
	}
	if rec.Job != nil {
		ix.NoteUser(rec.Job.Request)
		r.Lic = ix.Licenses.Need(rec.Job.Request)
	}
	ix.occupy(r)
	ix.ends.push(r)
	return r
}

// exclusiveUser reports whether a run's nodes are for its user alone.
func (ix *Index) exclusiveUser(rec *record.Run) bool {
	if part := ix.Partition(rec.Partition); part != nil && part.Rec.ExclusiveUser {
		return true
	}
	return rec.Job != nil && rec.Job.Request != nil && rec.Job.Request.ExclusiveUser
}

// runParts adds what a run takes of the real node and of its parts.
func (ix *Index) runParts(r *node.Run, n *node.Node, a *record.Alloc, pool int32) {
	cores := a.Cores
	if r.Rec.Suspended {
		cores = nil
	}
	real := node.Part{Node: n, Use: ix.useOf(n, a, r.Rec), Cores: cores, Pool: pool, Alloc: a}
	for _, sub := range n.Subs {
		both := sub.Overlap(a)
		part := node.Part{Node: sub, Use: ix.useOf(sub, both, r.Rec), Cores: both.Cores, Pool: pool, Alloc: both}
		part.Use[node.DimMem] = real.Use[node.DimMem]
		if r.Rec.Suspended {
			part.Cores = nil
		}
		r.Parts = append(r.Parts, part)
		if both.CPUs > 0 || len(both.Gres) > 0 {
			use := ix.useOf(n, both, r.Rec)
			clear(use[n.Config.Caps:]) // a partition's limit does not apply to the reservation's part
			real.Backs = append(real.Backs, node.Back{From: sub.Resv.Rec.Start, To: sub.Resv.Rec.End, Use: use})
		}
	}
	r.Parts = append(r.Parts, real)
}

// endOf returns the assumed end of a run. A run without a limit gets a year, and after that another.
func (ix *Index) endOf(rec *record.Run) int64 {
	if rec.End < record.Forever {
		return rec.End
	}
	years := max(0, ix.Now-rec.Start) / record.UnlimitedS
	return rec.Start + (years+1)*record.UnlimitedS
}

func (ix *Index) occupy(r *node.Run) {
	for i := range r.Parts {
		p := &r.Parts[i]
		p.Node.Prof.Use(0, r.End, p.Use)
		p.GiveBack(0, r.End, 1)
		p.Node.Hold(p, 1)
		p.Node.Runs = append(p.Node.Runs, r)
		ix.touch(p.Node)
	}
	if r.Lic != nil {
		ix.Licenses.Prof.Use(0, r.End, r.Lic)
	}
}

func (ix *Index) vacate(r *node.Run) {
	for i := range r.Parts {
		p := &r.Parts[i]
		p.Node.Prof.Free(0, r.End, p.Use)
		p.GiveBack(0, r.End, -1)
		p.Node.Hold(p, -1)
		if at := slices.Index(p.Node.Runs, r); at >= 0 {
			last := len(p.Node.Runs) - 1
			p.Node.Runs[at] = p.Node.Runs[last]
			p.Node.Runs[last] = nil
			p.Node.Runs = p.Node.Runs[:last]
		}
		ix.touch(p.Node)
	}
	if r.Lic != nil {
		ix.Licenses.Prof.Free(0, r.End, r.Lic)
	}
}

// RemoveRun undoes AddRun.
func (ix *Index) RemoveRun(r *node.Run) {
	ix.vacate(r)
	ix.ends.drop(r)
}

func (ix *Index) changeRun(r *node.Run, rec *record.Run) *node.Run {
	ix.RemoveRun(r)
	return ix.AddRun(rec)
}

// extendLate lets runs that should have ended keep their resources for one more second, or for another year where they have no limit:
// nothing may be promised on them now.
func (ix *Index) extendLate() {
	for len(ix.ends.list) > 0 && ix.ends.list[0].End <= ix.Now {
		r := ix.ends.list[0]
		end := max(ix.endOf(r.Rec), ix.Now+1)
		for i := range r.Parts {
			p := &r.Parts[i]
			p.Node.Prof.Use(r.End, end, p.Use)
			p.GiveBack(r.End, end, 1)
			ix.touch(p.Node)
		}
		if r.Lic != nil {
			ix.Licenses.Prof.Use(r.End, end, r.Lic)
		}
		r.End, r.Late = end, r.Rec.End < record.Forever
		ix.ends.fix(r)
	}
}

// depthOf returns the sharing depth of a run.
func (ix *Index) depthOf(rec *record.Run) (depth int64, part *Partition) {
	part = ix.Partition(rec.Partition)
	if part == nil || ix.Scale == 1 {
		return 1, nil
	}
	if rec.Job == nil {
		return part.Rec.Depth(nil), part
	}
	return part.Rec.Depth(rec.Job.Request), part
}

// runHeap orders runs by their end.
type runHeap struct{ list []*node.Run }

func (h *runHeap) Len() int { return len(h.list) }

func (h *runHeap) Less(i, j int) bool {
	return cmp.Less(h.list[i].End, h.list[j].End)
}

func (h *runHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].Heap, h.list[j].Heap = i, j
}

func (h *runHeap) Push(x any) {
	r := x.(*node.Run)
	r.Heap = len(h.list)
	h.list = append(h.list, r)
}

func (h *runHeap) Pop() any {
	n := len(h.list) - 1
	r := h.list[n]
	h.list[n] = nil
	h.list = h.list[:n]
	r.Heap = -1
	return r
}

func (h *runHeap) push(r *node.Run) { heap.Push(h, r) }

func (h *runHeap) fix(r *node.Run) { heap.Fix(h, r.Heap) }

func (h *runHeap) drop(r *node.Run) {
	if r.Heap >= 0 {
		heap.Remove(h, r.Heap)
	}
}
