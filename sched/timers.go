package sched

import (
	"cmp"
	"container/heap"
	"slices"
)

// timers are jobs that become eligible by themselves. Entries whose job has
// changed meanwhile are ignored when they come up.
type timers struct{ list []timer }

type timer struct {
	at  int64
	job *vjob
}

func (t *timers) Len() int           { return len(t.list) }
func (t *timers) Less(i, j int) bool { return t.list[i].at < t.list[j].at }
func (t *timers) Swap(i, j int)      { t.list[i], t.list[j] = t.list[j], t.list[i] }
func (t *timers) Push(x any)         { t.list = append(t.list, x.(timer)) }
func (t *timers) Pop() any {
	last := t.list[len(t.list)-1]
	t.list[len(t.list)-1] = timer{}
	t.list = t.list[:len(t.list)-1]
	return last
}

func (t *timers) add(at int64, j *vjob) { heap.Push(t, timer{at, j}) }

// next is the earliest time that still matters.
func (t *timers) next() int64 {
	for len(t.list) > 0 {
		if top := t.list[0]; top.job.when == top.at {
			return top.at
		}
		heap.Pop(t)
	}
	return Forever
}

// wakeJobs puts into the queue what has become eligible, and anew what has
// waited long enough for its switches.
func (s *Scheduler) wakeJobs() {
	for s.timers.next() <= s.now {
		j := heap.Pop(&s.timers).(timer).job
		s.removeJob(j)
		s.enqueue(j)
	}
}

// reprioritise recomputes priorities when the calculation period or what they
// are relative to has changed.
func (s *Scheduler) reprioritise(in *Snapshot) {
	period := s.params.Weights.period(s.now)
	if period == s.period && slices.Equal(s.shares, in.Shares) {
		return
	}
	s.period = period
	s.cluster, s.shares = measure(in), slices.Clone(in.Shares)
	if s.params.Weights.Basic {
		return
	}
	dirty := map[*class]struct{}{}
	for _, j := range s.jobs.vals {
		if len(j.entries) == 0 {
			continue
		}
		if prio := s.priorityOf(j.rec); prio != j.prio {
			j.prio = prio
			for _, e := range j.entries {
				dirty[e.class] = struct{}{}
			}
		}
	}
	for c := range dirty {
		list := make([]*entry, 0, c.size)
		c.root.each(func(e *entry) { list = append(list, e) })
		c.root = plant(list)
	}
}

// runHeap orders runs by their end.
type runHeap struct{ list []*vrun }

func (h *runHeap) Len() int { return len(h.list) }
func (h *runHeap) Less(i, j int) bool {
	return cmp.Less(h.list[i].end, h.list[j].end)
}
func (h *runHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].heap, h.list[j].heap = i, j
}
func (h *runHeap) Push(x any) {
	r := x.(*vrun)
	r.heap = len(h.list)
	h.list = append(h.list, r)
}
func (h *runHeap) Pop() any {
	n := len(h.list) - 1
	r := h.list[n]
	h.list[n] = nil
	h.list = h.list[:n]
	r.heap = -1
	return r
}

func (h *runHeap) push(r *vrun) { heap.Push(h, r) }
func (h *runHeap) fix(r *vrun)  { heap.Fix(h, r.heap) }
func (h *runHeap) drop(r *vrun) {
	if r.heap >= 0 {
		heap.Remove(h, r.heap)
	}
}
