package queue

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Family holds the classes whose jobs differ only in their owners. If a job of one cannot be placed, no job of the others can, so a pass
// begins with the class whose first job comes first and looks at the others only while they may get something: ten thousand users with
// limits of their own cost a full cluster nothing. Classes held by a limit are left out entirely.
type Family struct {
	key    familyKey
	Shape  *placement.Shape
	Part   *index.Partition
	fault  reason.Reason
	faultN uint64 // the epoch of fault

	classes map[string]*Class // by who
	first   []*Class          // classes that no limit holds, as a heap by their first job
	stale   bool              // the heap has to be rebuilt
	said    reason.Reason     // the reason of classes that no pass has looked at
	Counts  sizing.Counts     // the resources of a job
	Share   int64             // of the cluster, in 2^-16, for the resource of which a job takes most

	awayN    uint64 // the epoch of the next two: see AwayFor
	AwayFrom int64
	away     reason.Reason
	Longest  int64 // longest limit of a job of the family so far

	// of the current pass
	Pass   uint64
	Beaten bool          // nothing of it fits any more
	Tested int           // number of started jobs when the family last fitted, plus one
	Wait   reason.Reason // set if it is not Priority
}

type familyKey struct {
	shape *placement.Shape
	part  int32
	over  bool  // exceeds the partition's limit
	limit int64 // the time limit, if limits depend on it; else 0
	qos   string
}

// First returns the class whose first job comes first; nil where limits hold all.
func (f *Family) First() *Class {
	if len(f.first) == 0 {
		return nil
	}
	return f.first[0]
}

// Next returns the children of c in the heap: at most two. Each class is the child of one other.
func (c *Class) Next() []*Class {
	list := c.Family.first
	return list[min(2*c.at+1, len(list)):min(2*c.at+3, len(list))]
}

// Each visits all classes, including those that limits hold.
func (f *Family) Each(visit func(*Class)) {
	for _, c := range f.classes {
		visit(c)
	}
}

// settle puts c in its place in the heap, after its jobs or limits have changed.
func (f *Family) settle(c *Class) {
	c.head = c.Root.First()
	in := c.head != nil && c.lacking == 0
	i := c.at
	switch {
	case in && i < 0:
		i = len(f.first)
		f.first = append(f.first, c)
	case !in && i >= 0:
		last := len(f.first) - 1
		f.first[i] = f.first[last]
		f.first[i].at = i
		f.first = slices.Delete(f.first, last, last+1)
		c.at = -1
		f.pull(last)
		if i == last {
			return
		}
	case !in:
		return
	}
	f.pull(f.fix(i))
}

// fix moves the class at i to its place, and returns the lowest place that changed.
func (f *Family) fix(i int) (lowest int) {
	list := f.first
	c := list[i]
	put := func(at int, x *Class) { list[at], x.at = x, at }
	lowest = i
	for i > 0 && CompareEntries(c.head, list[(i-1)/2].head) < 0 {
		put(i, list[(i-1)/2])
		i = (i - 1) / 2
	}
	for 2*i+1 < len(list) {
		k := 2*i + 1
		if k+1 < len(list) && CompareEntries(list[k+1].head, list[k].head) < 0 {
			k++
		}
		if CompareEntries(list[k].head, c.head) >= 0 {
			break
		}
		put(i, list[k])
		i = k
	}
	put(i, c)
	return max(lowest, i)
}

// pull recomputes the aggregates of the classes from i up.
func (f *Family) pull(i int) {
	for ; ; i = (i - 1) / 2 {
		if i < len(f.first) {
			c := f.first[i]
			c.Below = c.Root.Min
			for _, next := range c.Next() {
				c.Below = c.Below.with(&next.Below)
			}
		}
		if i == 0 {
			return
		}
	}
}

// remake rebuilds the heap, after many classes have changed.
func (f *Family) remake() {
	f.first = f.first[:0]
	for _, c := range f.classes {
		if c.head, c.at = c.Root.First(), -1; c.head != nil && c.lacking == 0 {
			c.at = len(f.first)
			f.first = append(f.first, c)
		}
	}
	for i := len(f.first) - 1; i >= 0; i-- {
		f.fix(i)
	}
	for i := len(f.first) - 1; i >= 0; i-- {
		c := f.first[i]
		c.Below = c.Root.Min
		for _, next := range c.Next() {
			c.Below = c.Below.with(&next.Below)
		}
	}
}

// Standing returns the reason of the jobs of c while no pass looks at them.
func (q *Queue) Standing(c *Class) reason.Reason {
	if c.lacking > 0 && c.said.Code == reason.Priority {
		for _, i := range c.limits {
			if q.lacks(c.Family, i) {
				return reason.Reason{Code: q.limits[i].Reason}
			}
		}
	}
	return c.said
}

// Say changes the reason of the classes of a family that the current pass has not looked at.
func (q *Queue) Say(f *Family, r reason.Reason, pass uint64) {
	if f.said == r {
		return
	}
	f.said = r
	for _, c := range f.classes {
		if c.Pass != pass {
			q.SetUniform(c, q.Standing(c))
		}
	}
}
