package gpuhours

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/convert"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// maxLooked bounds the waiting jobs that one look judges, the first in their order; maxVisits bounds the nodes that it examines for all of
// them: some tens of milliseconds. A name of a list of nodes counts as nameVisits.
const (
	maxLooked  = 1000
	maxVisits  = 2_000_000
	nameVisits = 5
)

// place is a node that accepts jobs and has free GPUs.
type place struct {
	*state.Node
	at        int // its index among the places of a look
	free      []freeGPUs
	all       int   // of every type
	cpus, mem int64 // free
}

type freeGPUs struct {
	typ string
	n   int
}

func newPlace(n *state.Node, free []freeGPUs) *place {
	p := &place{Node: n, free: free, cpus: int64(n.Cpus) - int64(n.AllocCpus), mem: int64(n.RealMemoryMib) - int64(n.AllocMemMib)}
	for _, f := range free {
		p.all += f.n
	}
	return p
}

func (p *place) of(typ string) int {
	if typ == "" {
		return p.all
	}
	for i := range p.free {
		if p.free[i].typ == typ {
			return p.free[i].n
		}
	}
	return 0
}

func (p *place) take(typ string, n int) {
	for i := range p.free {
		if f := &p.free[i]; typ == "" || f.typ == typ {
			some := min(n, f.n)
			f.n, p.all, n = f.n-some, p.all-some, n-some
		}
	}
}

// want is the part of a waiting job's request that matters here.
type want struct {
	job        *pb.JobRecord
	tasks      int64 // of an array's record
	gpus       int64
	partitions []string
	judged     bool // the job can be judged by the fields below
	typ        string
	nodes      int64 // 0: any number of them
	cpus, mem  int64
	only, not  set // only nil: anywhere
}

// wait counts the GPUs that waiting jobs request, the free ones meanwhile, and those lost to fragmentation.
func (m *Moment) wait(v *state.View, pool []*place) {
	var list []*want
	for j := range v.Jobs.All() {
		if w := wanted(v, j); w != nil {
			list = append(list, w)
			m.All.Waiting += float64(w.gpus * w.tasks)
			for _, p := range w.partitions {
				m.of(p).Waiting += float64(w.gpus * w.tasks)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	m.All.Asked = m.All.Free
	for _, s := range m.Partitions {
		if s.Waiting > 0 {
			s.Asked = s.Free
		}
	}
	reserved := reservedNodes(v)
	pool = slices.DeleteFunc(pool, func(p *place) bool { return reserved[p.Name] })
	slices.SortFunc(list, func(a, b *want) int {
		return cmp.Or(cmp.Compare(b.job.Priority, a.job.Priority), cmp.Compare(a.job.Id, b.job.Id))
	})
	users, lists := v.Users(), newLists(pool)
	for i, w := range list {
		if i == maxLooked || len(pool) == 0 {
			return
		}
		if w.ask(users, lists); lists.visits > maxVisits {
			return
		}
		if !w.judged {
			continue
		}
		lists.visits += len(pool)
		at := w.reach(pool)
		for range w.tasks {
			if lists.visits += len(at); lists.visits > maxVisits {
				return
			}
			if !m.judge(w, at) {
				break
			}
			at = slices.DeleteFunc(at, func(p *place) bool { return p.of(w.typ) == 0 })
		}
		pool = slices.DeleteFunc(pool, func(p *place) bool { return p.all == 0 })
	}
}

// wanted returns the want of a job that waits for GPUs and only for resources, nil for all others.
func wanted(v *state.View, j *pb.JobRecord) *want {
	if !state.Pending(j) || j.Reason != "Resources" && j.Reason != "Priority" || !strings.Contains(j.ReqTres, "gres/gpu") {
		return nil
	}
	n := GPUs(j.ReqTres)
	if n == 0 {
		return nil
	}
	return &want{job: j, tasks: Tasks(j), gpus: n, partitions: strings.Split(convert.PartitionList(v, j.Spec), ",")}
}

// ask computes the job's needs beside its GPUs.
func (w *want) ask(users state.Users, lists *lists) {
	s := w.job.Spec
	if s.Features != "" || s.BatchFeatures != "" || s.Switches != "" || s.Licenses != "" || s.Reservation != "" || s.Sharing != "" {
		return
	}
	r := convert.Anywhere(s, users)
	if s.ReqNodes != "" {
		l := lists.read(s.ReqNodes)
		r.NodeList, w.only = l.names, l.places
	}
	if s.ExcNodes != "" {
		w.not = lists.read(s.ExcNodes).places
	}
	c := sizing.Count(r)
	if c.GPUs == 0 {
		return
	}
	fixed := r.MinNodes > 1 && r.MinNodes == r.MaxNodes
	for _, g := range r.Gres {
		if g.Name != "gpu" || w.typ != "" && g.Type != w.typ {
			return // several kinds of devices
		}
		w.typ = g.Type
		fixed = fixed || g.Per == record.PerNode || g.Per == record.PerSocket
	}
	w.judged, w.gpus, w.cpus, w.mem = true, c.GPUs, c.CPUs, c.MemMiB
	if fixed {
		w.nodes = max(c.Nodes, 1)
	}
}

// reach returns the places that the job may use.
func (w *want) reach(pool []*place) (out []*place) {
	for _, p := range pool {
		if p.of(w.typ) > 0 && slices.ContainsFunc(p.Partitions, func(name string) bool { return slices.Contains(w.partitions, name) }) &&
			(w.only == nil || w.only.has(p.at)) && !w.not.has(p.at) {
			out = append(out, p)
		}
	}
	return out
}

// judge decides whether fragmentation keeps a job out, and takes the GPUs that it would have had. It reports whether there were enough.
func (m *Moment) judge(w *want, at []*place) bool {
	total := int64(0)
	for _, p := range at {
		total += int64(p.of(w.typ))
	}
	if total < w.gpus {
		return false
	}
	placed := w.fits(at, true)
	if !placed {
		one := Lost{GPUs: float64(w.gpus)}
		if w.fits(at, false) {
			one.Beside = one.GPUs
		}
		k := Loss{w.job.Spec.Uid, cmp.Or(w.job.Spec.Account, admit.DefaultAccount), w.job.Partition}
		sum := m.Lost[k]
		sum.GPUs, sum.Beside = sum.GPUs+one.GPUs, sum.Beside+one.Beside
		m.Lost[k] = sum
		m.All.Lost += one.GPUs
	}
	left := int(w.gpus)
	for _, p := range at {
		some := min(left, p.of(w.typ))
		p.take(w.typ, some)
		if placed { // with the CPUs and memory that go with them; over several nodes evenly, which is exact enough here
			p.cpus -= w.cpus * int64(some) / w.gpus
			p.mem -= w.mem * int64(some) / w.gpus
		} else {
			for _, name := range p.Partitions {
				if slices.Contains(w.partitions, name) {
					m.of(name).Lost += float64(some)
				}
			}
		}
		left -= some
	}
	return true
}

// fits reports whether the free GPUs are where a job can use them: enough on as many nodes as it wants, with beside also the CPUs and the
// memory that go with them.
func (w *want) fits(at []*place, beside bool) bool {
	if w.nodes > 0 {
		enough, gpus := int64(0), (w.gpus+w.nodes-1)/w.nodes
		for _, p := range at {
			if int64(p.of(w.typ)) >= gpus && (!beside || p.cpus*w.nodes >= w.cpus && p.mem*w.nodes >= w.mem) {
				enough++
			}
		}
		return enough >= w.nodes
	}
	sum := int64(0)
	for _, p := range at {
		n := int64(p.of(w.typ))
		if beside && w.cpus > 0 {
			n = min(n, max(p.cpus, 0)*w.gpus/w.cpus)
		}
		if beside && w.mem > 0 {
			n = min(n, max(p.mem, 0)*w.gpus/w.mem)
		}
		sum += n
	}
	return sum >= w.gpus
}

// reservedNodes returns the nodes of reservations that have begun.
func reservedNodes(v *state.View) map[string]bool {
	out := map[string]bool{}
	for _, r := range v.Reservations() {
		if r.StartNs > v.NowNS || r.EndNs <= v.NowNS {
			continue
		}
		names, _ := hostlist.Expand(r.Nodes)
		for _, n := range names {
			out[n] = true
		}
	}
	return out
}

// GPUs returns the number of GPUs in a list of trackable resources.
func GPUs(list string) (n int64) {
	for part := range strings.SplitSeq(list, ",") {
		if text, ok := strings.CutPrefix(part, "gres/gpu="); ok {
			for _, c := range text {
				if c < '0' || c > '9' || n > 1<<40 {
					return n
				}
				n = n*10 + int64(c-'0')
			}
			return n
		}
	}
	return 0
}

// Tasks returns how many jobs a record stands for: one, or the tasks of an array that have not started.
func Tasks(j *pb.JobRecord) int64 {
	if j.ArrayTasks == "" {
		return 1
	}
	return max(1, int64(state.ArraySet(j).Count()))
}
