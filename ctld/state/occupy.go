package state

import (
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Held holds the cores in use on a node by the number of jobs that have them: Held[k] are those that more than k jobs have. Where CPUs are
// not shared it has one set. Immutable.
type Held []Cores

// InUse returns the cores that at least one job has.
func (h Held) InUse() Cores { return h.By(1) }

// By returns the cores that at least n jobs have.
func (h Held) By(n int) Cores {
	if n < 1 || n > len(h) {
		return nil
	}
	return h[n-1]
}

// With adds a job with the cores c.
func (h Held) With(c Cores) Held {
	out := slices.Clone(h)
	for i := 0; c.any(); i++ {
		if i == len(out) {
			return append(out, c)
		}
		both := out[i].And(c)
		out[i], c = out[i].With(c), both
	}
	return out
}

// Without removes a job with the cores c.
func (h Held) Without(c Cores) Held {
	out := slices.Clone(h)
	for i := len(out) - 1; i >= 0 && c.any(); i-- {
		last := out[i].And(c)
		out[i], c = out[i].Without(last), c.Without(last)
		if i == len(out)-1 && !out[i].any() {
			out = out[:i]
		}
	}
	return out
}

// distinct returns how many CPUs the cores have, given that jobs hold cpus CPUs of them and share some.
func (h Held) distinct(cpus uint32) uint32 {
	if len(h) < 2 {
		return cpus
	}
	all := 0
	for _, c := range h {
		all += c.Count()
	}
	return uint32(uint64(cpus) * uint64(h[0].Count()) / uint64(all))
}

func (c Cores) any() bool {
	for _, w := range c {
		if w != 0 {
			return true
		}
	}
	return false
}

// And returns the cores that are in both sets.
func (c Cores) And(o Cores) Cores {
	r := make(Cores, min(len(c), len(o)))
	for i := range r {
		r[i] = c[i] & o[i]
	}
	return r
}

// JobSuspended: a running job was stopped. It keeps its memory and devices; other jobs may take its CPUs until it is resumed. Job is the
// record with CpusFree in its shares.
type JobSuspended struct {
	Job *pb.JobRecord
	Why string
}

func (e JobSuspended) apply(tx *Tx) {
	tx.changeCPUs(tx.Job(e.Job.Id), -1)
	tx.putJob(e.Job, true)
}

// Attrs implements Event.
func (e JobSuspended) Attrs() []any { return []any{"job", e.Job.Id, "why", e.Why} }

// JobResumed: a suspended job continues on its old CPUs, even if others have taken them.
type JobResumed struct {
	Job *pb.JobRecord
	Why string
}

func (e JobResumed) apply(tx *Tx) {
	tx.putJob(e.Job, true)
	tx.changeCPUs(e.Job, 1)
}

// Attrs implements Event.
func (e JobResumed) Attrs() []any { return []any{"job", e.Job.Id, "why", e.Why} }

// changeCPUs takes (by = 1) or returns (-1) the CPUs of a job that stays on its nodes.
func (tx *Tx) changeCPUs(j *pb.JobRecord, by int) {
	for _, a := range j.GetAlloc() {
		if n := tx.Node(a.Node); n != nil && !a.Ended && !a.CpusFree {
			c := *n
			c.NodeRecord = CloneNode(n.NodeRecord)
			c.hold(a, by)
			tx.putNode(&c, false)
			tx.wakeNode(a.Node)
		}
	}
}

// hold counts the CPUs of a share as taken (by = 1) or free (-1).
func (n *Node) hold(a *pb.NodeAlloc, by int) {
	cores, err := ParseCores(a.CpuIds)
	switch {
	case a.CpusFree:
		return
	case by > 0:
		n.HeldCPUs += a.Cpus
		if err == nil {
			n.Held = n.Held.With(cores)
		}
	default:
		n.HeldCPUs -= min(a.Cpus, n.HeldCPUs)
		if err == nil {
			n.Held = n.Held.Without(cores)
		}
	}
	// where CPUs have no numbers, a resumed job's come on top of the others'
	n.AllocCpus = min(n.Held.distinct(n.HeldCPUs), n.Cpus)
}

// occupy counts a job's share of a node as taken.
func (tx *Tx) occupy(j *pb.JobRecord, a *pb.NodeAlloc) {
	n := tx.Node(a.Node)
	if n == nil || a.Ended {
		return
	}
	tx.putNode(n.occupied(j, a), false)
	tx.wakeNode(a.Node)
}

func (n *Node) occupied(j *pb.JobRecord, a *pb.NodeAlloc) *Node {
	c := *n
	c.NodeRecord = CloneNode(n.NodeRecord)
	c.hold(a, 1)
	c.AllocMemMib += a.MemMib
	c.Jobs = insertID(n.Jobs, j.Id)
	c.LastBusyNs = max(j.StartNs, n.LastBusyNs)
	return &c
}

// vacate returns a job's share of a node.
func (tx *Tx) vacate(j *pb.JobRecord, node string) {
	n := tx.Node(node)
	if n == nil {
		return
	}
	tx.wakeNode(node)
	for _, a := range j.Alloc {
		if a.Node == node {
			tx.putNode(n.vacated(j, a, tx.NowNS), false)
			return
		}
	}
}

func (n *Node) vacated(j *pb.JobRecord, a *pb.NodeAlloc, nowNS int64) *Node {
	c := *n
	c.NodeRecord = CloneNode(n.NodeRecord)
	c.hold(a, -1)
	c.AllocMemMib -= min(a.MemMib, c.AllocMemMib)
	c.Jobs = removeID(n.Jobs, j.Id)
	c.LastBusyNs = nowNS
	return &c
}
