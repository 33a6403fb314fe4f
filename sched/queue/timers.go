package queue

import (
	"container/heap"

	"github.com/sluice-hpc/sluice/sched/record"
)

// timers holds jobs that become eligible with time. Entries whose job has changed meanwhile are ignored when they expire.
type timers struct{ list []timer }

type timer struct {
	at  int64
	job *Job
}

func (t *timers) Len() int { return len(t.list) }

func (t *timers) Less(i, j int) bool { return t.list[i].at < t.list[j].at }

func (t *timers) Swap(i, j int) { t.list[i], t.list[j] = t.list[j], t.list[i] }

func (t *timers) Push(x any) { t.list = append(t.list, x.(timer)) }

func (t *timers) Pop() any {
	last := t.list[len(t.list)-1]
	t.list[len(t.list)-1] = timer{}
	t.list = t.list[:len(t.list)-1]
	return last
}

func (t *timers) add(at int64, j *Job) { heap.Push(t, timer{at, j}) }

// Next returns the earliest time that is still relevant.
func (t *timers) Next() int64 {
	for len(t.list) > 0 {
		if top := t.list[0]; top.job.when == top.at {
			return top.at
		}
		heap.Pop(t)
	}
	return record.Forever
}

// wakeJobs puts jobs that have become eligible into the queue, and requeues those that have waited long enough for their switches.
func (q *Queue) wakeJobs() {
	for q.Timers.Next() <= q.ix.Now {
		j := heap.Pop(&q.Timers).(timer).job
		q.removeJob(j)
		q.enqueue(j)
	}
}
