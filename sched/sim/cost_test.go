package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// costTable is the CPU time of passes over the nodes of openb, repeated or cut to a number, with queues of its 100 most frequent
// tasks: a pass of a new scheduler over a full cluster, and the pass after one job has ended.
func costTable(t *testing.T) string {
	nodes, pods, err := ReadOpenb(needTrace(t, "openb_node_list_gpu_node.csv.gz"), needTrace(t, "openb_pod_list_default.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := typicalOf(pods)
	kinds = kinds[:min(len(kinds), 100)]
	var b bytes.Buffer
	b.WriteString("| nodes | queue | first pass ms | pass after an event ms | starts/s |\n|---|---|---|---|---|\n")
	for _, size := range [][2]int{{1000, 100}, {1000, 1000}, {1000, 10_000}, {1000, 100_000}, {10, 10_000}, {100, 10_000},
		{10_000, 10_000}, {10_000, 100_000}} {
		c := newCost(nodes, kinds, size[0], size[1])
		first := c.spent(func() { sched.New(c.params).Plan(&c.in) })
		event, starts := c.events(50)
		fmt.Fprintf(
			&b,
			"| %d | %d | %.1f | %.2f | %.0f |\n",
			size[0],
			size[1],
			1e3*first.Seconds(),
			1e3*event.Seconds()/50,
			float64(starts)/event.Seconds(),
		)
	}
	return b.String()
}

// cost is a full cluster with a queue.
type cost struct {
	params record.Params
	in     record.Snapshot
	rand   *rand.Rand
	kinds  []record.Typical
	next   uint32
}

func newCost(nodes []*record.Node, kinds []record.Typical, count, queue int) *cost {
	c := &cost{params: defaults(), rand: rand.New(rand.NewSource(1)), kinds: kinds}
	part := &record.Partition{Name: "all"}
	for i := range count {
		n := *nodes[i%len(nodes)]
		n.Name = fmt.Sprintf("n%05d", i)
		c.in.Nodes, part.Nodes = append(c.in.Nodes, &n), append(part.Nodes, n.Name)
	}
	c.in.Now, c.in.Partitions = 100_000, []*record.Partition{part}
	for { // until it is full
		before := len(c.in.Running)
		for range 4 * count {
			c.submit()
		}
		c.apply(sched.New(c.params).Plan(&c.in))
		c.in.Pending = nil
		if len(c.in.Running)-before < count/20+1 {
			break
		}
	}
	for range queue {
		c.submit()
	}
	return c
}

func (c *cost) submit() {
	c.next++
	k := c.rand.Intn(len(c.kinds))
	c.in.Pending = append(
		c.in.Pending,
		&record.Job{ID: c.next, Request: c.kinds[k].Request, LimitS: int64(1+k%48) * 1800, PredictedS: int64(1+k%48) * 600,
			Submit: c.in.Now, Partitions: allPartition, User: "u", Reason: reason.Reason{Code: reason.Priority}},
	)
}

func (c *cost) apply(p *record.Plan) {
	started := map[uint32]bool{}
	running := slices.Clone(c.in.Running)
	for _, s := range p.Start {
		started[s.Job.ID] = true
		running = append(
			running,
			&record.Run{
				ID:        s.Job.ID,
				Task:      -1,
				Job:       s.Job,
				Partition: s.Partition,
				Start:     c.in.Now,
				End:       c.in.Now + s.LimitS,
				Allocs:    s.Allocs,
			},
		)
	}
	slices.SortFunc(running, func(a, b *record.Run) int { return cmp.Compare(a.ID, b.ID) })
	c.in.Running = running
	c.in.Pending = slices.DeleteFunc(slices.Clone(c.in.Pending), func(j *record.Job) bool { return started[j.ID] })
}

// events is the time of n passes, each after one job has ended, and how many jobs they started. The queue stays as long as it is.
func (c *cost) events(n int) (spent time.Duration, starts int) {
	s := sched.New(c.params)
	c.apply(s.Plan(&c.in))
	for range n {
		c.in.Now++
		k := c.rand.Intn(len(c.in.Running))
		c.in.Running = slices.Delete(slices.Clone(c.in.Running), k, k+1)
		var p *record.Plan
		spent += c.spent(func() { p = s.Plan(&c.in) })
		starts += len(p.Start)
		c.apply(p)
		for range p.Start {
			c.submit()
		}
	}
	return spent, starts
}

// spent is the CPU time of this thread, which says more than the clock on a machine that others use.
func (c *cost) spent(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() int64 {
		var u syscall.Rusage
		const thread = 1 // RUSAGE_THREAD
		_ = syscall.Getrusage(thread, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	do()
	return time.Duration(used() - before)
}
