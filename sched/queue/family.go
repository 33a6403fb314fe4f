package queue

import (
	"slices"

	"github.com/sluice-hpc/sluice/sched/index"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// Family is the classes whose jobs differ only in whom they belong to. What cannot be placed for one of them cannot be placed for any, so
// a pass begins with the class whose first job comes first and looks at the others only while something may become of them: ten thousand
// users with limits of their own cost a full cluster nothing. Classes held by a limit are not even among those.
type Family struct {
	key    familyKey
	Shape  *placement.Shape
	Part   *index.Partition
	fault  record.Reason
	faultN uint64 // the epoch it was worked out in

	classes map[string]*Class // by who
	first   []*Class          // those that no limit holds, as a heap by their first job
	stale   bool              // the heap has to be made anew
	said    record.Reason     // what classes say that no pass has looked at
	Counts  sizing.Counts     // what a job asks for
	Share   int64             // of the cluster, of the resource that a job takes most of, in 2^-16

	awayN    uint64 // the epoch of the next two: see awayFor
	AwayFrom int64
	away     record.Reason
	Longest  int64 // no job of the family has been given longer

	// of the pass that is under way
	Pass   uint64
	Beaten bool          // nothing of it fits any more
	Tested int           // how many jobs had started when something of it still did, plus one
	Wait   record.Reason // where that is not Priority
}

type familyKey struct {
	shape *placement.Shape
	part  int32
	over  bool  // longer than the partition allows
	limit int64 // where limits depend on it; else 0
	qos   string
}

// First is the class whose first job comes first; nil where limits hold all.
func (f *Family) First() *Class {
	if len(f.first) == 0 {
		return nil
	}
	return f.first[0]
}

// Next are the classes that come next after c and after no other: at most two. Each class is next after one.
func (c *Class) Next() []*Class {
	list := c.Family.first
	return list[min(2*c.at+1, len(list)):min(2*c.at+3, len(list))]
}

// Each visits all classes, also those that limits hold.
func (f *Family) Each(visit func(*Class)) {
	for _, c := range f.classes {
		visit(c)
	}
}

// settle gives c its place in the heap, after its jobs or what holds it have changed.
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

// fix moves the class at i to where it belongs, and returns the lowest place that is not what it was.
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

// pull works out what the classes from i up know of those below them.
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

// remake makes the heap anew, after many classes have changed.
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

// Standing is what the jobs of c say while no pass looks at them.
func (q *Queue) Standing(c *Class) record.Reason {
	if c.lacking > 0 && c.said.Code == record.WaitPriority {
		for _, i := range c.limits {
			if q.lacks(c.Family, i) {
				return record.Reason{Code: q.limits[i].Reason}
			}
		}
	}
	return c.said
}

// Say changes what the classes of a family say that the pass under way has not looked at.
func (q *Queue) Say(f *Family, r record.Reason, pass uint64) {
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
