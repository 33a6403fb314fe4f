package sched

import (
	"cmp"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/sched/reason"
	"github.com/sluice-hpc/sluice/sched/record"
)

// bigCluster is n nodes of five kinds, four of them with GPUs.
func bigCluster(n int) ([]*record.Node, []*record.Partition) {
	kinds := []struct {
		cpus, gpus int
		typ        string
		mem        int64
	}{{96, 8, "a100", 786432}, {64, 2, "p100", 262144}, {96, 8, "v100", 524288}, {128, 4, "a100", 524288}, {128, 0, "", 262144}}
	part := &record.Partition{Name: "p"}
	var nodes []*record.Node
	for i := range n {
		k := kinds[i%len(kinds)]
		node := &record.Node{Name: fmt.Sprintf("n%05d", i), CPUs: k.cpus, Sockets: 2, CoresPerSocket: k.cpus / 2, MemMiB: k.mem}
		if k.gpus > 0 {
			g := record.Gres{Name: "gpu", Type: k.typ}
			for d := range k.gpus {
				g.Devices = append(g.Devices, record.Device{Index: d})
			}
			node.Gres = []record.Gres{g}
		}
		nodes = append(nodes, node)
		part.Nodes = append(part.Nodes, node.Name)
	}
	return nodes, []*record.Partition{part}
}

// bigQueue returns n jobs in a number of different shapes.
func bigQueue(n, shapes int) []*record.Job {
	r := rand.New(rand.NewSource(1))
	reqs := make([]*record.Request, shapes)
	limits := make([]int64, shapes)
	for i := range reqs {
		q := &record.Request{Tasks: 1 << r.Intn(6), MinNodes: 1, MaxNodes: 1, MemCPUMiB: int64(1+r.Intn(4)) * 1024}
		switch r.Intn(4) {
		case 0:
			q.Gres = []record.GresRequest{{Name: "gpu", Count: int64(1 << r.Intn(4))}}
		case 1:
			q.Gres = []record.GresRequest{{Name: "gpu", Type: "a100", Count: int64(1 << r.Intn(3))}}
		case 2:
			nodes := 1 << r.Intn(5)
			q.MinNodes, q.MaxNodes, q.Tasks, q.TasksPerNode = nodes, nodes, nodes*8, 8
		}
		reqs[i], limits[i] = q, int64(1+r.Intn(48))*1800
	}
	jobs := make([]*record.Job, n)
	for i := range jobs {
		k := r.Intn(shapes)
		jobs[i] = &record.Job{
			ID:         uint32(i + 1),
			Request:    reqs[k],
			LimitS:     limits[k],
			Submit:     int64(1000 + i/100),
			Partitions: []string{"p"},
			User:       fmt.Sprint("u", i%50),
			Reason:     reason.Reason{Code: reason.Priority},
			PredictedS: limits[k] / int64(1+r.Intn(5)),
		}
	}
	return jobs
}

// fill runs a plan's starts, in new slices.
func fill(in *record.Snapshot, p *record.Plan) {
	started := make(map[uint32]bool, len(p.Start))
	running := slices.Clone(in.Running)
	for _, st := range p.Start {
		started[st.Job.ID] = true
		running = append(
			running,
			&record.Run{
				ID:        st.Job.ID,
				Task:      st.Task,
				Job:       st.Job,
				Partition: st.Partition,
				Start:     in.Now,
				End:       record.Add(in.Now, st.LimitS),
				Allocs:    st.Allocs,
			},
		)
	}
	in.Pending = slices.DeleteFunc(slices.Clone(in.Pending), func(j *record.Job) bool { return started[j.ID] })
	slices.SortFunc(running, func(a, b *record.Run) int { return cmp.Compare(a.ID, b.ID) })
	in.Running = running
}

func benchParams() record.Params {
	p := record.DefaultParams()
	p.Weights = record.Weights{Basic: true}
	return p
}

// BenchmarkFirstPass is a pass of a new scheduler over an idle cluster:
// reading the snapshot, building every index, and starting what fits.
func BenchmarkFirstPass(b *testing.B) {
	for _, size := range []struct{ nodes, jobs int }{{10, 100}, {100, 1000}, {1000, 10_000}, {10_000, 100_000}} {
		nodes, parts := bigCluster(size.nodes)
		in := &record.Snapshot{Now: 10_000, Nodes: nodes, Partitions: parts, Pending: bigQueue(size.jobs, 100)}
		b.Run(fmt.Sprintf("nodes=%d/jobs=%d", size.nodes, size.jobs), func(b *testing.B) { fromNothing(b, in) })
	}
}

// BenchmarkFullQueue is a pass of a new scheduler over a full cluster.
func BenchmarkFullQueue(b *testing.B) {
	nodes, parts := bigCluster(10_000)
	in := &record.Snapshot{Now: 10_000, Nodes: nodes, Partitions: parts, Pending: bigQueue(150_000, 100)}
	fill(in, New(benchParams()).Plan(in))
	in.Pending = in.Pending[:100_000]
	fromNothing(b, in)
}

func fromNothing(b *testing.B, in *record.Snapshot) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var spent time.Duration
	started, n := 0, 0
	for b.Loop() {
		began := cpuTime(b)
		p := New(benchParams()).Plan(in)
		spent += cpuTime(b) - began
		started += len(p.Start)
		n++
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "cpu-ns/op")
	b.ReportMetric(float64(started)/spent.Seconds(), "starts/s")
}

// event measures the pass after one job has ended, with a queue that is as
// long as before: what starts is submitted again.
func event(b *testing.B, nodeCount int, jobs []*record.Job) {
	eventUnder(b, benchParams(), nodeCount, jobs)
}

func eventUnder(b *testing.B, params record.Params, nodeCount int, jobs []*record.Job) {
	nodes, parts := bigCluster(nodeCount)
	s := New(params)
	in := &record.Snapshot{Now: 10_000, Nodes: nodes, Partitions: parts, Pending: bigQueue(len(jobs)+4*nodeCount, 100)}
	fill(in, s.Plan(in))
	in.Pending = jobs
	fill(in, s.Plan(in))
	r := rand.New(rand.NewSource(2))
	probes, started, n, next := 0, 0, 0, uint32(20_000_000)
	var spent time.Duration
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		in.Now++
		k := r.Intn(len(in.Running))
		in.Running = slices.Delete(slices.Clone(in.Running), k, k+1)
		began := cpuTime(b)
		p := s.Plan(in)
		spent += cpuTime(b) - began
		fill(in, p)
		for i := range p.Start {
			again := *p.Start[i].Job
			next++
			again.ID = next
			in.Pending = append(in.Pending, &again)
		}
		probes += p.Stats.Probes
		started += len(p.Start)
		n++
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "cpu-ns/op")
	b.ReportMetric(float64(probes)/float64(n), "probes/op")
	b.ReportMetric(float64(started)/spent.Seconds(), "starts/s")
}

// BenchmarkEventByQueue: 1,000 nodes, queues of 100 shapes.
func BenchmarkEventByQueue(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("jobs=%d", n), func(b *testing.B) { event(b, 1000, later(bigQueue(n, 100))) })
	}
}

// BenchmarkEventByNodes: a queue of 10,000 jobs in 100 shapes.
func BenchmarkEventByNodes(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) { event(b, n, later(bigQueue(10_000, 100))) })
	}
}

// BenchmarkEventWeights: multifactor priority, under which no two of 10,000 jobs in 100 shapes have the same claim, or all have.
func BenchmarkEventWeights(b *testing.B) {
	for name, weights := range map[string]record.Weights{"distinct": {Age: 1 << 30}, "equal": {QOS: 1000}} {
		b.Run(name, func(b *testing.B) {
			p := benchParams()
			p.Weights = weights
			jobs := later(bigQueue(10_000, 100))
			for i, j := range jobs {
				j.Submit = int64(i % 9000)
			}
			eventUnder(b, p, 1000, jobs)
		})
	}
}

// BenchmarkEventLargest: 100,000 jobs in 100 shapes on 10,000 nodes.
func BenchmarkEventLargest(b *testing.B) { event(b, 10_000, later(bigQueue(100_000, 100))) }

// BenchmarkEventLimits: each job has a time limit of its own.
func BenchmarkEventLimits(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("jobs=%d", n), func(b *testing.B) {
			jobs := later(bigQueue(n, 100))
			for i, j := range jobs {
				j.LimitS += int64(i)
			}
			event(b, 1000, jobs)
		})
	}
}

// BenchmarkEventShapes: each job has a shape of its own.
func BenchmarkEventShapes(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("jobs=%d", n), func(b *testing.B) {
			jobs := later(bigQueue(n, 100))
			for i, j := range jobs {
				r := *j.Request
				r.MemCPUMiB += int64(i)
				j.Request = &r
			}
			event(b, 1000, jobs)
		})
	}
}

// cpuTime is what this thread has computed so far: on a machine that others use
// too it says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	if err := syscall.Getrusage(thread, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// later gives jobs ids beyond those that fill the cluster.
func later(jobs []*record.Job) []*record.Job {
	for _, j := range jobs {
		j.ID += 10_000_000
	}
	return jobs
}

// BenchmarkExplain is one question about a job of a full cluster's queue: the first, one in the middle, the last.
func BenchmarkExplain(b *testing.B) {
	nodes, parts := bigCluster(10_000)
	in := &record.Snapshot{Now: 10_000, Nodes: nodes, Partitions: parts, Pending: bigQueue(150_000, 100)}
	fill(in, New(benchParams()).Plan(in))
	in.Pending = in.Pending[:100_000]
	for _, at := range []int{0, 50_000, 99_999} {
		b.Run(fmt.Sprintf("place=%d", at), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var spent time.Duration
			n := 0
			for b.Loop() {
				began := cpuTime(b)
				if _, ok := New(benchParams()).Explain(in, in.Pending[at].ID); !ok {
					b.Fatal("the job is not pending")
				}
				spent += cpuTime(b) - began
				n++
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "cpu-ns/op")
		})
	}
}
