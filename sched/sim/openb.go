package sim

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Pod is a task of the openb trace.
type Pod struct {
	CPUMilli, MemMiB int64
	GPUs, GPUMilli   int64
	Spec             string // GPU models, separated by "|"
}

// ReadOpenb reads the node and task lists of cluster-trace-gpu-v2023.
func ReadOpenb(nodes, pods string) ([]*record.Node, []Pod, error) {
	rows, err := readCSV(nodes)
	if err != nil {
		return nil, nil, err
	}
	var list []*record.Node
	for _, r := range rows {
		v, err := numbers(r, "cpu_milli", "memory_mib", "gpu")
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read %s: node %s: %w", nodes, r["sn"], err)
		}
		n := &record.Node{Name: r["sn"], CPUs: int(v[0]), MemMiB: v[1], Features: []string{r["model"]}}
		g := record.Gres{Name: "gpu", Type: r["model"], Shared: "shard", Shares: 1000}
		for i := range v[2] {
			g.Devices = append(g.Devices, record.Device{Index: int(i)})
		}
		n.Gres = []record.Gres{g}
		list = append(list, n)
	}
	rows, err = readCSV(pods)
	if err != nil {
		return nil, nil, err
	}
	var out []Pod
	for _, r := range rows {
		v, err := numbers(r, "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read %s: task %s: %w", pods, r["name"], err)
		}
		out = append(out, Pod{v[0], v[1], v[2], v[3], r["gpu_spec"]})
	}
	return list, out, nil
}

// readCSV reads a table with a header, plain or gzipped.
func readCSV(path string) ([]map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read table: %w", err)
	}
	defer f.Close()
	r, err := unzipped(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read table %s: %w", path, err)
	}
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("cannot read table %s: %w", path, err)
	}
	out := make([]map[string]string, 0, len(rows)-1)
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, name := range rows[0] {
			m[name] = row[i]
		}
		out = append(out, m)
	}
	return out, nil
}

func numbers(row map[string]string, names ...string) ([]int64, error) {
	out := make([]int64, len(names))
	for i, n := range names {
		v, err := strconv.ParseInt(row[n], 10, 64)
		if err != nil || v < 0 || v > maxValue {
			return nil, fmt.Errorf("%s is %q", n, row[n])
		}
		out[i] = v
	}
	return out, nil
}

// request converts a pod to a job's request.
func (p Pod) request() record.Request {
	r := record.Request{
		MinNodes:    1,
		MaxNodes:    1,
		Tasks:       1,
		CPUsPerTask: int(p.CPUMilli),
		MemNodeMiB:  p.MemMiB,
		MemSaid:     p.MemMiB > 0,
		Features:    p.Spec,
	}
	if p.CPUMilli == 0 {
		r.Tasks, r.Overcommit = 1, true
	}
	switch {
	case p.GPUs == 1 && p.GPUMilli < 1000:
		r.Gres = []record.GresRequest{{Name: "shard", Count: p.GPUMilli}}
	case p.GPUs > 0:
		r.Gres = []record.GresRequest{{Name: "gpu", Count: p.GPUs}}
	}
	return r
}

func (p Pod) milli() int64 { return p.GPUs * min(p.GPUMilli, 1000) }

// typicalOf returns the most frequent tasks, by (CPU, GPUs, share, models), that cover 95 % of all.
func typicalOf(pods []Pod) []record.Typical {
	count := map[Pod]int64{}
	for _, p := range pods {
		p.MemMiB = 0
		count[p]++
	}
	kinds := make([]Pod, 0, len(count))
	for p := range count {
		kinds = append(kinds, p)
	}
	slices.SortFunc(kinds, func(a, b Pod) int {
		return cmp.Or(
			cmp.Compare(count[b], count[a]),
			cmp.Compare(a.CPUMilli, b.CPUMilli),
			cmp.Compare(a.GPUs, b.GPUs),
			cmp.Compare(a.GPUMilli, b.GPUMilli),
			strings.Compare(a.Spec, b.Spec),
		)
	})
	var out []record.Typical
	covered := int64(0)
	for _, k := range kinds {
		r := k.request()
		out = append(out, record.Typical{Request: &r, Count: count[k]})
		if covered += count[k]; covered*100 >= int64(len(pods))*95 {
			break
		}
	}
	return out
}

// Placement is the openb experiment: no departures, tasks in random order until 1.3 times the GPUs have been requested; tasks that fit
// nowhere are dropped. It returns the placed fraction of all GPU milli.
func Placement(nodes []*record.Node, pods []Pod, rule record.Placement, seed int64) float64 {
	r := rand.New(rand.NewSource(seed))
	capacity := int64(0)
	part := &record.Partition{Name: "all"}
	for _, n := range nodes {
		capacity += int64(len(n.Gres[0].Devices)) * 1000
		part.Nodes = append(part.Nodes, n.Name)
	}
	order := r.Perm(len(pods))
	in := &record.Snapshot{Now: 1, Nodes: nodes, Partitions: []*record.Partition{part}, Typical: typicalOf(pods)}
	s := sched.New(record.Params{Placement: rule, Policy: record.FIFO, Weights: basic})
	placed, asked := int64(0), int64(0)
	reqs := map[Pod]*record.Request{}
	for i := 0; asked*10 < capacity*13; i++ {
		p := pods[r.Intn(len(pods))]
		if i < len(order) {
			p = pods[order[i]]
		}
		asked += p.milli()
		if reqs[p] == nil {
			req := p.request()
			reqs[p] = &req
		}
		in.Pending = []*record.Job{{ID: uint32(i + 1), Partitions: allPartition, Request: reqs[p], Submit: 1, LimitS: record.Forever}}
		plan := s.Plan(in)
		for _, st := range plan.Start {
			placed += p.milli()
			in.Running = append(
				in.Running,
				&record.Run{ID: st.Job.ID, Task: -1, Job: st.Job, Partition: "all", Start: 1, End: record.Forever, Allocs: st.Allocs},
			)
		}
	}
	return float64(placed) / float64(capacity)
}
