package pass

import (
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// room is what is left under the limits of associations and QOS; a pass uses it up as it starts jobs.
type room []record.Limit

func roomOf(limits []*record.Limit) room {
	var r room
	for _, l := range limits {
		r = append(r, *l)
	}
	return r
}

// lacks is the limit that keeps a job of the class from starting; "" when none does.
func (r room) lacks(c *turn, limitS int64) record.Code {
	if len(r) == 0 {
		return ""
	}
	j := c.Root.Job.Rec
	sz := sizing.Count(c.Shape.Request)
	for i := range r {
		l := &r[i]
		if l.AppliesTo(j) &&
			(over(l.Jobs, 1) || over(l.CPUs, sz.CPUs) || over(l.Nodes, sz.Nodes) || over(l.GPUs, sz.GPUs) ||
				over(l.MemMiB, sz.MemMiB) || over(l.TimeS, limitS)) {
			return l.Reason
		}
	}
	return ""
}

func over(room, need int64) bool { return room >= 0 && need > room }

// use takes what was allocated from the limits that apply.
func (r room) use(c *turn, allocs []record.Alloc) {
	if len(r) == 0 {
		return
	}
	j := c.Root.Job.Rec
	for i := range r {
		l := &r[i]
		if l.PerJob || !l.AppliesTo(j) {
			continue
		}
		spend(&l.Jobs, 1)
		spend(&l.Nodes, int64(len(allocs)))
		for k := range allocs {
			spend(&l.CPUs, int64(allocs[k].CPUs))
			spend(&l.MemMiB, allocs[k].MemMiB)
			for _, g := range allocs[k].Gres {
				if g.Name == "gpu" {
					spend(&l.GPUs, g.Count)
				}
			}
		}
	}
}

func spend(room *int64, n int64) {
	if *room >= 0 {
		*room = max(0, *room-n)
	}
}
