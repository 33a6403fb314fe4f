package sched

import "slices"

// limited is the limit that keeps a job of the class from starting; "" when none does.
func (p *pass) limited(c *class, limitS int64) Code {
	if len(p.limits) == 0 {
		return ""
	}
	j := c.root.job.rec
	sz := sizeOf(c.shape.req)
	for i := range p.limits {
		l := &p.limits[i]
		if l.appliesTo(j) && (over(l.Jobs, 1) || over(l.CPUs, sz.cpus) || over(l.Nodes, sz.nodes) || over(l.GPUs, sz.gpus) || over(l.MemMiB, sz.memMiB) || over(l.TimeS, limitS)) {
			return l.Reason
		}
	}
	return ""
}

// timedLimits: jobs of different time limits may be judged differently.
func timedLimits(limits []*Limit) bool {
	return slices.ContainsFunc(limits, func(l *Limit) bool { return l.TimeS >= 0 })
}

func over(room, need int64) bool { return room >= 0 && need > room }

func (l *Limit) appliesTo(j *Job) bool {
	return (l.User == "" || l.User == j.User) && (l.Account == "" || l.Account == j.Account) && (l.QOS == "" || l.QOS == j.QOS)
}

// useLimits takes what was allocated from the limits that apply.
func (p *pass) useLimits(c *class, allocs []Alloc) {
	if len(p.limits) == 0 {
		return
	}
	j := c.root.job.rec
	for i := range p.limits {
		l := &p.limits[i]
		if l.PerJob || !l.appliesTo(j) {
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
