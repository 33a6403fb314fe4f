package pass

import (
	"math"
	"strings"

	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// room holds the rest under the limits of associations and QOS; a pass uses it up as it starts jobs. A job looks at its own few.
type room struct {
	limits []record.Limit
	left   []int64
	freed  []int64
	taken  map[int32]int64 // by the pass, under the first entry of a limit with several
	wait   int64           // seconds until running jobs will have used up enough for a job that lacks it; Forever: there is no such job
}

// lacks returns the limit that keeps a job of the class from starting; "" when none does.
func (r *room) lacks(c *turn, limitS int64) reason.Code {
	return r.short(c.Root.Job.Rec.LimitsIn(c.Part.Rec.Name), func(what string) int64 { return sizing.LimitNeed(what, &c.Counts, limitS) })
}

// short returns the limit under which a job lacks what it needs.
func (r *room) short(limits []int32, need func(what string) int64) reason.Code {
	for _, i := range limits {
		l := &r.limits[i]
		if lack := counted(l, l.Need, need(l.What)) - (r.left[i] - r.taken[i-l.Back]); lack > 0 {
			r.wait = min(r.wait, r.until(i, lack))
			return l.Reason
		}
	}
	return ""
}

// until returns in how many seconds time alone frees lack under a limit.
func (r *room) until(i int32, lack int64) int64 {
	if int(i) >= len(r.freed) || r.freed[i] <= 0 {
		return record.Forever
	}
	s := math.Ceil(float64(lack) / float64(r.freed[i]) * record.FreedS)
	if s >= float64(record.Forever) {
		return record.Forever
	}
	return int64(max(1, s))
}

// lacksFor is lacks for the allocation of a job of the class with such limits, which may exceed its request.
func (r *room) lacksFor(c *turn, limits []int32, allocs []record.Alloc, limitS int64) reason.Code {
	return r.short(limits, func(what string) int64 {
		if tres, ok := strings.CutPrefix(what, record.LimitLeast); ok {
			return min(-held(tres, allocs), sizing.LimitNeedAtOnce(what, &c.Counts, 0))
		}
		if tres, ok := strings.CutPrefix(what, record.LimitSpent); ok {
			return min(1, held(tres, allocs))
		}
		return heldFor(what, allocs, limitS)
	})
}

// use subtracts an allocation. Budgets that are used up by time passing are not reduced.
func (r *room) use(limits []int32, allocs []record.Alloc, limitS int64) {
	for _, i := range limits {
		if l := &r.limits[i]; !l.PerJob {
			first := i - l.Back
			r.taken[first] = min(r.taken[first]+counted(l, l.Use, heldFor(l.What, allocs, limitS)), record.Forever)
		}
	}
}

// counted returns an amount times its factor for a limit.
func counted(l *record.Limit, f record.Factor, n int64) int64 {
	if strings.HasPrefix(l.What, record.LimitMins) {
		return f.Of(n)
	}
	return n
}

// heldFor is held; for LimitMins times the time limit, for LimitEach per node.
func heldFor(what string, allocs []record.Alloc, limitS int64) int64 {
	if tres, ok := strings.CutPrefix(what, record.LimitMins); ok {
		return record.Product(held(tres, allocs), limitS)
	}
	if tres, ok := strings.CutPrefix(what, record.LimitEach); ok {
		return held(tres, allocs) / int64(max(1, len(allocs)))
	}
	return held(what, allocs)
}

// held returns the allocated amount of a limited resource, regardless of time.
func held(what string, allocs []record.Alloc) (n int64) {
	for i := range allocs {
		a := &allocs[i]
		switch what {
		case record.LimitJobs, record.LimitShare:
			return 1
		case record.LimitWall:
			return 0
		case "node":
			n++
		case "cpu", "billing":
			n += int64(a.CPUs)
		case "mem":
			n += a.MemMiB
		default:
			for _, g := range a.Gres {
				if g.Shares == 0 && sizing.IsGres(what, g.Name, g.Type) {
					n += g.Count
				}
			}
		}
	}
	return n
}
