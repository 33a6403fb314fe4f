package sizing

import (
	"strings"

	"github.com/sluice-hpc/sluice/sched/record"
)

// LimitNeed returns the least amount of a limited quantity (record.Limit) that a request needs.
func LimitNeed(what string, c *Counts, limitS int64) (n int64) {
	switch what {
	case record.LimitJobs, record.LimitShare:
		return 1
	case record.LimitWall:
		return limitS
	case "cpu", "billing":
		return c.CPUs
	case "mem":
		return c.MemMiB
	case "node":
		return c.Nodes
	}
	if tres, ok := strings.CutPrefix(what, record.LimitMins); ok {
		return record.Product(LimitNeed(tres, c, 0), limitS)
	}
	if tres, ok := strings.CutPrefix(what, record.LimitSpent); ok {
		return min(1, LimitNeed(tres, c, 0))
	}
	if tres, ok := strings.CutPrefix(what, record.LimitEach); ok {
		return LimitNeed(tres, c, 0) / max(1, c.MaxNodes)
	}
	if tres, ok := strings.CutPrefix(what, record.LimitLeast); ok {
		return -c.most(tres)
	}
	for _, g := range c.Gres {
		if IsGres(what, g.Name, g.Type) {
			n += g.Count
		}
	}
	return n
}

// most returns the largest amount of a limited quantity that a request could get.
func (c *Counts) most(what string) int64 {
	switch {
	case what == "node":
		return c.MaxNodes
	case c.Whole, what == "mem" && WholeMemory(c.request):
		return record.Forever // not known yet
	}
	d := WorkOut(c.request)
	on := countOn(c.request, c.MaxNodes, int64(d.TasksOn(d.Hi)))
	return LimitNeed(what, &on, 0)
}

// LimitNeedAtOnce is LimitNeed, except that for LimitEach and LimitLeast it assumes the fewest nodes that the request could get.
func LimitNeedAtOnce(what string, c *Counts, limitS int64) int64 {
	if tres, ok := strings.CutPrefix(what, record.LimitEach); ok {
		return LimitNeed(tres, c, 0) / max(1, c.Nodes)
	}
	if tres, ok := strings.CutPrefix(what, record.LimitLeast); ok && (tres != "mem" || !WholeMemory(c.request)) {
		return -LimitNeed(tres, c, 0)
	}
	return LimitNeed(what, c, limitS)
}

// IsGres reports whether a generic resource counts towards a TRES: "gres/gpu" is all of them, "gres/gpu:a100" those of a type.
func IsGres(what, name, typ string) bool {
	rest, ok := strings.CutPrefix(what, "gres/")
	if !ok {
		return false
	}
	of, only, typed := strings.Cut(rest, ":")
	return of == name && (!typed || only == typ)
}
