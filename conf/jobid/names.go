package jobid

import (
	"fmt"
	"slices"
	"sort"
)

// Limits of one request. A lookup is a binary search in the plain ranges of an array and a division for each of its stepped ones.
const (
	// MaxNamedRanges bounds the ranges of all ids in a request together; a single task counts as a range.
	MaxNamedRanges = 65536
	// MaxNamedSteps bounds the ranges with a step per array.
	MaxNamedSteps = 256
	// fewTasks is the largest number of tasks for which a stepped range is written out, because that is then the smaller form.
	fewTasks = 8
)

// Names are the jobs and tasks that a request names, with stepped ranges kept as (first, last, step): "1_[0-8388606:2]" takes 12
// bytes instead of one span per index. The zero value names nothing. Call Add for everything, then Sort, then query.
type Names struct {
	whole  map[uint32]struct{}
	tasks  map[uint32]*Tasks
	ranges int
}

// Tasks are tasks of one array.
type Tasks struct {
	spans   Set
	stepped []Range
}

// Add adds the jobs and tasks of an id. It fails beyond the limits; what has been added is then unusable.
func (n *Names) Add(id ID) error {
	if n.whole == nil {
		n.whole, n.tasks = map[uint32]struct{}{}, map[uint32]*Tasks{}
	}
	if id.Tasks == nil {
		if _, ok := n.whole[id.Job]; !ok {
			n.ranges++
		}
		n.whole[id.Job] = struct{}{}
	} else {
		n.ranges += len(id.Tasks.Ranges)
	}
	if n.ranges > MaxNamedRanges {
		return fmt.Errorf("one request names more than %d jobs, tasks and ranges of tasks", MaxNamedRanges)
	}
	if id.Tasks == nil {
		return nil
	}
	t := n.tasks[id.Job]
	if t == nil {
		t = &Tasks{}
		n.tasks[id.Job] = t
	}
	for _, r := range id.Tasks.Ranges {
		if t.add(r); len(t.stepped) > MaxNamedSteps {
			return fmt.Errorf("the request names more than %d ranges with a step of array %d", MaxNamedSteps, id.Job)
		}
	}
	return nil
}

// add appends a range; Sort restores the order.
func (t *Tasks) add(r Range) {
	switch {
	case r.Step == 1 || r.First == r.Last:
		t.spans = append(t.spans, Span{r.First, r.Last})
	case r.Count() <= fewTasks:
		for i := uint64(r.First); i <= uint64(r.Last); i += uint64(r.Step) {
			t.spans = append(t.spans, Span{uint32(i), uint32(i)})
		}
	default:
		for i := range t.stepped {
			if t.stepped[i].join(r) {
				return
			}
		}
		t.stepped = append(t.stepped, r)
	}
}

// join extends a range by another one with the same step and phase, if they overlap or touch.
func (r *Range) join(o Range) bool {
	if r.Step != o.Step || r.First%r.Step != o.First%o.Step ||
		uint64(o.First) > uint64(r.Last)+uint64(r.Step) || uint64(r.First) > uint64(o.Last)+uint64(o.Step) {
		return false
	}
	r.First, r.Last = min(r.First, o.First), max(r.Last, o.Last)
	return true
}

// has reports whether an index is in the range.
func (r Range) has(task uint32) bool {
	return task >= r.First && task <= r.Last && (task-r.First)%r.Step == 0
}

// meets reports whether the range has an index within a span.
func (r Range) meets(s Span) bool {
	if s.Last < r.First || s.First > r.Last {
		return false
	}
	from := max(s.First, r.First)
	next := uint64(from)
	if rest := (from - r.First) % r.Step; rest > 0 {
		next += uint64(r.Step - rest)
	}
	return next <= uint64(min(s.Last, r.Last))
}

// Sort orders what was added; queries need it.
func (n *Names) Sort() {
	for _, t := range n.tasks {
		t.spans = normal(t.spans)
	}
}

// Whole reports whether a job is named without tasks.
func (n *Names) Whole(job uint32) bool {
	_, ok := n.whole[job]
	return ok
}

// Tasks returns the named tasks of an array, or nil.
func (n *Names) Tasks(array uint32) *Tasks { return n.tasks[array] }

// Jobs returns the jobs named without tasks, ascending; Arrays those named in any way.
func (n *Names) Jobs() []uint32 { return keys(n.whole) }

// Arrays: see Jobs.
func (n *Names) Arrays() []uint32 {
	list := append(keys(n.whole), keys(n.tasks)...)
	slices.Sort(list)
	return slices.Compact(list)
}

func keys[V any](m map[uint32]V) []uint32 {
	list := make([]uint32, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// Has reports whether task is among them.
func (t *Tasks) Has(task uint32) bool {
	return t.spans.Has(task) || slices.ContainsFunc(t.stepped, func(r Range) bool { return r.has(task) })
}

// Meet reports whether any task of a set is among them. It stops at the first match.
func (t *Tasks) Meet(s Set) bool {
	for _, p := range s {
		i := sort.Search(len(t.spans), func(i int) bool { return t.spans[i].Last >= p.First })
		if i < len(t.spans) && t.spans[i].First <= p.Last {
			return true
		}
		if slices.ContainsFunc(t.stepped, func(r Range) bool { return r.meets(p) }) {
			return true
		}
	}
	return false
}
