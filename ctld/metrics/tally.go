package metrics

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// jobs adds up jobs: those of the cluster, a partition, a user or an account.
type jobs struct {
	all      float64
	state    [pb.JobState_JOB_OUT_OF_MEMORY + 1]float64 // the base states, less jobs that are shown by a flag
	flagged  map[uint32]float64                         // by flag, of jobs that are shown by it
	held     float64
	depends  float64 // pending because of a dependency
	started  float64 // have started at least once
	finished float64

	cpus, gpus, nodes, memMiB float64 // of running jobs

	// of pending jobs: the largest minimum and maximum of requested nodes; with and without held ones
	minNodes, maxNodes         uint32
	minNodesFree, maxNodesFree uint32
	partLimit                  float64 // wait because of their partition's limit of nodes
}

// shownFlags are the flags by which a job is counted, beside its base state.
var shownFlags = []uint32{pb.JobCompleting, pb.JobStageOut, pb.JobConfiguring, pb.JobResizing, pb.JobRequeued, pb.JobRevoked,
	pb.JobSignaling, pb.JobPowerUp}

// size holds the resources of a job, for all counters.
type size struct {
	tasks                   float64
	cpus, gpus, nodes, memM float64
}

func sizeOf(j *pb.JobRecord) (s size) {
	s.tasks = 1
	if j.ArrayTasks != "" {
		s.tasks = max(1, float64(state.ArraySet(j).Count()))
	}
	if j.State != pb.JobState_JOB_RUNNING && j.State != pb.JobState_JOB_SUSPENDED {
		return s
	}
	for _, a := range j.Alloc {
		if a.Ended {
			continue
		}
		s.nodes++
		s.memM += float64(a.MemMib)
		s.gpus += float64(state.GPUsOf(a))
		if !a.CpusFree {
			s.cpus += float64(a.Cpus)
		}
	}
	return s
}

func (c *jobs) add(j *pb.JobRecord, s size) {
	c.all += s.tasks
	c.state[j.State] += s.tasks
	for _, f := range shownFlags {
		if j.StateFlags&f != 0 {
			if c.flagged == nil {
				c.flagged = map[uint32]float64{}
			}
			c.flagged[f] += s.tasks
		}
	}
	if j.Attempt > 0 {
		c.started += s.tasks
	}
	if j.State.Terminal() {
		c.finished += s.tasks
	}
	c.cpus, c.gpus, c.nodes, c.memMiB = c.cpus+s.cpus, c.gpus+s.gpus, c.nodes+s.nodes, c.memMiB+s.memM
	if j.State == pb.JobState_JOB_PENDING {
		c.wait(j, s.tasks)
	}
}

func (c *jobs) wait(j *pb.JobRecord, tasks float64) {
	least := max(j.Spec.GetMinNodes(), j.NumNodes, 1)
	most := max(j.Spec.GetMaxNodes(), least)
	c.minNodes, c.maxNodes = max(c.minNodes, least), max(c.maxNodes, most)
	if j.Priority == 0 {
		c.held += tasks
	} else {
		c.minNodesFree, c.maxNodesFree = max(c.minNodesFree, least), max(c.maxNodesFree, most)
	}
	switch j.Reason {
	case "Dependency":
		c.depends += tasks
	case "PartitionNodeLimit":
		c.partLimit += tasks
	}
}

// busy is the sort key of users and accounts: the largest comes first.
func (c *jobs) busy() float64 {
	return c.state[pb.JobState_JOB_RUNNING] + c.state[pb.JobState_JOB_PENDING] + c.state[pb.JobState_JOB_SUSPENDED]
}

// merge adds the figures of another one.
func (c *jobs) merge(o *jobs) {
	c.all, c.held, c.depends = c.all+o.all, c.held+o.held, c.depends+o.depends
	c.started, c.finished, c.partLimit = c.started+o.started, c.finished+o.finished, c.partLimit+o.partLimit
	c.cpus, c.gpus, c.nodes, c.memMiB = c.cpus+o.cpus, c.gpus+o.gpus, c.nodes+o.nodes, c.memMiB+o.memMiB
	for i, n := range o.state {
		c.state[i] += n
	}
	for f, n := range o.flagged {
		if c.flagged == nil {
			c.flagged = map[uint32]float64{}
		}
		c.flagged[f] += n
	}
	c.minNodes, c.maxNodes = max(c.minNodes, o.minNodes), max(c.maxNodes, o.maxNodes)
	c.minNodesFree, c.maxNodesFree = max(c.minNodesFree, o.minNodesFree), max(c.maxNodesFree, o.maxNodesFree)
}

// tally is the basis of all pages.
type tally struct {
	view       *state.View
	jobs       jobs
	partitions map[string]*jobs
	users      map[string]*jobs
	accounts   map[string]*jobs
	reasons    map[string]float64
	oldestNS   int64 // when the startable job that has waited longest became eligible; 0: none waits
	nodes      []nodeTally
	partNodes  map[string]*nodes
	allNodes   nodes
}

func newTally(v *state.View) *tally {
	t := &tally{view: v, partitions: map[string]*jobs{}, users: map[string]*jobs{}, accounts: map[string]*jobs{},
		reasons: map[string]float64{}, partNodes: map[string]*nodes{}}
	for _, p := range v.Partitions() {
		t.partitions[p.Name] = &jobs{}
	}
	for j := range v.Jobs.All() {
		t.job(j)
	}
	t.countNodes()
	return t
}

func (t *tally) job(j *pb.JobRecord) {
	s := sizeOf(j)
	t.jobs.add(j, s)
	if p := t.partitions[j.Partition]; p != nil {
		p.add(j, s)
	}
	of(t.users, j.Spec.GetUser()).add(j, s)
	if a := j.Spec.GetAccount(); a != "" {
		of(t.accounts, a).add(j, s)
	}
	if j.State != pb.JobState_JOB_PENDING {
		return
	}
	t.reasons[cmp.Or(j.Reason, "None")] += s.tasks
	if (j.Reason == "Resources" || j.Reason == "Priority") && j.EligibleNs > 0 && (t.oldestNS == 0 || j.EligibleNs < t.oldestNS) {
		t.oldestNS = j.EligibleNs
	}
}

func of(m map[string]*jobs, name string) *jobs {
	c := m[name]
	if c == nil {
		c = &jobs{}
		m[name] = c
	}
	return c
}

// other stands for users and accounts without series of their own.
const other = "other"

// named is a user or an account, and its figures.
type named struct {
	name string
	*jobs
}

// topmost returns the first n by jobs, in the order of their names, and all others as one; one whose name is "other" is part of the latter.
func topmost(m map[string]*jobs, n int) []named {
	list := make([]named, 0, len(m))
	for name, c := range m {
		if name != other {
			list = append(list, named{name, c})
		}
	}
	slices.SortFunc(list, func(a, b named) int {
		return cmp.Or(cmp.Compare(b.busy(), a.busy()), cmp.Compare(b.all, a.all), cmp.Compare(a.name, b.name))
	})
	rest := &jobs{}
	if c := m[other]; c != nil {
		rest.merge(c)
	}
	for _, x := range list[min(n, len(list)):] {
		rest.merge(x.jobs)
	}
	list = list[:min(n, len(list))]
	slices.SortFunc(list, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	if rest.all > 0 {
		list = append(list, named{other, rest})
	}
	return list
}
