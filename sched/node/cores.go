package node

import "github.com/sluice-hpc/sluice/sched/record"

// coreUse describes the holders of a core: the number of jobs, and their partition (its index plus one) when they share it.
type coreUse struct {
	jobs int16
	pool int32
}

// Sharing describes how a job shares CPUs with others of its partition. Up to Depth jobs may have one CPU; Pool identifies the partition's
// cores (coreUse); Mixed: jobs of the partition may also want CPUs alone.
type Sharing struct {
	Depth int64
	Pool  int32
	Mixed bool
}

// Takeable returns the cores that a job with this sharing may have, in the order in which they should be taken: idle ones, then those with
// the fewest jobs. With Mixed, as few cores as possible are shared, so those with the most jobs come first. Cores in shut are left out.
func (n *Node) Takeable(how Sharing, shut record.Bits) []record.Bits {
	cfg := n.Config
	out := make([]record.Bits, how.Depth)
	for i := range out {
		out[i] = make(record.Bits, (cfg.Cores+63)/64)
	}
	idle := out[0]
	for w := range idle {
		idle[w] = ^uint64(0)
		if w < len(n.Units) {
			idle[w] &^= n.Units[w]
		}
		if w < len(shut) {
			idle[w] &^= shut[w]
		}
	}
	if tail := cfg.Cores & 63; tail != 0 {
		idle[len(idle)-1] &= 1<<tail - 1
	}
	if how.Depth == 1 {
		return out
	}
	for k := range n.cores {
		if u := &n.cores[k]; u.jobs > 0 && int64(u.jobs) < how.Depth && u.pool == how.Pool && !shut.Has(k) {
			out[u.jobs] = out[u.jobs].Set(k)
		}
	}
	if how.Mixed {
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}

// NextEnd returns the latest time at which the first job on the node will have ended.
func (n *Node) NextEnd() int64 {
	t := record.Forever
	for _, r := range n.Runs {
		t = min(t, r.End)
	}
	return t
}

// holdCores keeps count of the jobs on each core.
func (n *Node) holdCores(p *Part, sign int16) {
	for _, k := range p.Cores.List() {
		for len(n.cores) <= k {
			n.cores = append(n.cores, coreUse{})
		}
		u := &n.cores[k]
		if u.jobs == 0 {
			u.pool = p.Pool
		}
		if u.jobs += sign; u.jobs > 0 {
			n.Units = n.Units.Set(k)
		} else if w := k >> 6; w < len(n.Units) {
			n.Units[w] &^= 1 << (uint(k) & 63)
		}
	}
}
