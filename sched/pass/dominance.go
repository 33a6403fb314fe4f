package pass

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/queue"
)

// A job that is at least as large and as long as one that could not start in this pass cannot start either, because free resources only
// shrink within a pass. Only requests that differ in nothing but amounts are compared.

// defeat describes a job that could not start in this pass.
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

// defeats holds those of a pass, by kind of request.
type defeats map[string][]defeat

// maxDefeats bounds the comparisons. Jobs beyond are tried.
const maxDefeats = 32

// cover reports whether a job that is no larger and no longer has failed.
func (d defeats) cover(c *queue.Family, least int64) bool {
	b := &c.Shape.Bulk
	for i := range d[b.Kind] {
		if d[b.Kind][i].within(b.Amounts, least) {
			return true
		}
	}
	return false
}

// add notes that a job of c could not start; it replaces those that it covers.
func (d defeats) add(c *queue.Family, least int64) {
	b := &c.Shape.Bulk
	f := defeat{b.Amounts, least}
	list := slices.DeleteFunc(d[b.Kind], func(g defeat) bool { return f.within(g.amounts, g.least) })
	if len(list) < maxDefeats {
		list = append(list, f)
	}
	d[b.Kind] = list
}
