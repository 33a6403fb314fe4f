package record

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// Hold says who holds a job.
type Hold uint8

const (
	NotHeld Hold = iota
	HeldUser
	HeldAdmin
	HeldRequeue // JobHoldMaxRequeue, launch_failed_requeued_held: HoldReason says which
)

// Dependency is what has become of a job's dependencies; the caller resolves them.
type Dependency uint8

const (
	DependencyMet Dependency = iota
	DependencyWaits
	DependencyNever // DependencyNeverSatisfied
)

// Job is a pending job, or the pending part of an array: one record however
// many tasks it has.
type Job struct {
	ID         uint32
	Array      *Array // nil: not an array
	Name       string
	User       string
	Groups     []uint32
	Account    string
	QOS        string
	Partitions []string // any of these
	Request    *Request // may be shared between jobs; compared by pointer, then by value

	Submit     int64
	Eligible   int64 // when it became or becomes eligible (begin, dependency); 0: Submit
	Accrue     int64 // from when on its age counts in its priority; 0: EligibleAt; Forever: not now
	Begin      int64 // --begin; 0: at once
	Deadline   int64 // must have ended by then; 0: none
	LimitS     int64 // 0: the partition's default
	TimeMinS   int64 // --time-min; 0: LimitS is the only choice
	PredictedS int64 // expected run time, for the order of backfill only; 0: unknown

	Hold       Hold
	HoldReason string // overrides the reason of a held job
	Dependency Dependency

	Priority     uint32 // fixed priority; 0: computed from the factors
	Nice         int32
	SiteFactor   int32
	AssocFactor  float64   // 0..1
	NoPreemptors bool      // never preempts for itself
	Limits       []int32   // what limits it: places in Snapshot.Limits
	PartLimits   [][]int32 // what limits it in each of Partitions, where that is not the same in all; Limits is nil then

	Reason Reason // what the caller has on record; plans list only differences
	// Promised: a plan has promised the job a start as the first that waits
	// (Reserve.First). It is not put off again.
	Promised bool
}

// LimitsIn is what limits a job in one of its partitions.
func (j *Job) LimitsIn(partition string) []int32 {
	if i := slices.Index(j.Partitions, partition); i >= 0 && i < len(j.PartLimits) {
		return j.PartLimits[i]
	}
	return j.Limits
}

// SameLimits reports whether two jobs of the same partitions have the same limits.
func (j *Job) SameLimits(o *Job) bool {
	return slices.Equal(j.Limits, o.Limits) && slices.EqualFunc(j.PartLimits, o.PartLimits, slices.Equal)
}

// Array is the pending part of a job array.
type Array struct {
	Tasks  []TaskRange // pending task ids, ascending, not overlapping
	Limit  int         // at most so many at once (%limit); 0: no limit
	Active int         // tasks that run now
}

// TaskRange is First, First+Step, … up to and including Last. Step 0 means 1.
type TaskRange struct{ First, Last, Step uint32 }

// Request is what a job needs, after the caller has applied the configured
// defaults (DefMemPerCPU and the like). Zero means not said; a request that
// says nothing about memory needs none.
type Request struct {
	MinNodes   int
	MaxNodes   int
	NodeCounts []NodeCount // 2,4,8 or 4-16:4; when set, MinNodes and MaxNodes are its ends

	Tasks        int // -n
	CPUsPerTask  int // -c
	TasksPerNode int // --ntasks-per-node: exactly when Tasks is not said, else at most
	MinCPUs      int // --mincpus, per node
	Overcommit   bool

	Sockets, CoresPerSocket, ThreadsPerCore int // -B and its parts: least a node must have

	MemNodeMiB int64 // --mem; meaningful when MemSaid
	MemCPUMiB  int64
	MemGPUMiB  int64
	MemSaid    bool // --mem was given: MemNodeMiB 0 then is the whole node
	TmpMiB     int64

	Gres       []GresRequest
	CPUsPerGPU int
	// TasksPerGPU has the tasks of a job follow its devices of GresRequest PerJob: so many on each node for each device there
	// (--ntasks-per-gpu). 0, or where there are not so many tasks in all: they are placed by CPUs.
	TasksPerGPU int
	Binding     bool // --gres-flags=enforce-binding: only cores near the devices

	Features string   // -C
	NodeList []string // -w: all of these
	Exclude  []string // -x
	Switches int      // at most so many leaf switches; 0: no matter
	// SwitchWaitS is how long the job waits for that before any nodes will do,
	// at most Params.MaxSwitchWaitS; 0: as long as that.
	SwitchWaitS int64

	Exclusive     bool
	ExclusiveUser bool // nodes shared with the same user's jobs only
	Oversubscribe bool // -s
	Contiguous    bool
	Spread        bool // --spread-job
	UseMinNodes   bool

	Licenses    []License
	Reservation string

	// LowUID is the uid of the job's user plus one, if some node refuses the user's jobs; else 0, so that requests of others are alike.
	LowUID uint32
}

// Wide reports whether a request is for as many nodes as there are: --spread-job, or a range (sbatch(1), -N: "as many nodes as
// possible within the range specified and without delaying the initiation of the job"). Devices in all stay together.
func (r *Request) Wide() bool {
	ranged := r.MaxNodes > max(r.MinNodes, 1) && !r.UseMinNodes &&
		!slices.ContainsFunc(r.Gres, func(g GresRequest) bool { return g.Per == PerJob })
	return r.Spread || ranged
}

// NodeCount is Min, Min+Step, … Max. Step 0 means 1.
type NodeCount struct{ Min, Max, Step int }

// GresPer says what a GresRequest counts for.
type GresPer uint8

const (
	PerNode GresPer = iota
	PerJob
	PerSocket
	PerTask
)

// GresRequest asks for Count of a generic resource. Type "" is any type.
type GresRequest struct {
	Name  string
	Type  string
	Count int64
	Per   GresPer
}

// Run is a job, or one array task, that holds resources.
type Run struct {
	ID        uint32
	Task      int32 // -1: not an array task
	Job       *Job  // the record it was started from
	Partition string
	// Reservation it was started in; "" is that of its request.
	Reservation string
	Priority    uint32 // at its start
	Start       int64
	End         int64 // by which it must have ended; at or before Now counts as Now+1
	Allocs      []Alloc
	Suspended   bool // holds memory and devices, not CPUs
	// NotPreemptable keeps it from being chosen again: already told to go, or exempt.
	NotPreemptable bool
}

// Alloc is what a job holds on one node.
type Alloc struct {
	Node   string
	Tasks  int
	CPUs   int  // CPUs counted against the node, whole cores where cores are allocated
	Cores  Bits // core numbers; empty on nodes whose cores are only counted
	MemMiB int64
	Gres   []GresAlloc
}

// GresAlloc is a part of Alloc: devices by Index, or a count of a resource
// without devices. Shares is the part taken of each device (the same for all);
// 0 is the device whole.
type GresAlloc struct {
	Name, Type string
	Count      int64
	Devices    []int
	Shares     int64
	// Starts are, of instances that are cut out of Devices, the slices at which
	// they begin; Shares is their size.
	Starts []int
}

// Share is a user's fair-share factor, 0..1.
type Share struct {
	Account, User string
	Factor        float64
}

// Limit is a limit of an association or a QOS.
type Limit struct {
	PerJob bool // it is compared with each job alone, not used up
	// What is a trackable resource ("cpu", "mem" in MiB, "node", "billing", "gres/gpu", "gres/gpu:a100"), LimitJobs, LimitWall,
	// LimitShare, or LimitMins, LimitSpent, LimitEach or LimitLeast and a resource.
	What   string
	Reason Code // "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", …
	// Of LimitMins: by how much counts what a job needs in order to start, and what it takes.
	Need, Use Factor
	// Back is how many places before this one the same limit is for jobs that count otherwise, from which what is taken is taken; 0: none.
	Back int32
}

// What is limited besides resources.
const (
	LimitJobs = "jobs"
	LimitWall = "wall" // seconds
	// LimitShare is a condition: 1 is left if the user's fair-share factor is high enough, else 0.
	LimitShare = "share"
	// LimitMins and a trackable resource: how much of it a job has, times the seconds of its time limit.
	LimitMins = "mins/"
	// LimitSpent and a trackable resource or LimitJobs: what is left is of a budget. A job that has any of it may start as long as
	// anything is left.
	LimitSpent = "spent/"
	// LimitEach and a trackable resource: how much of it a job has on each of its nodes, on average and rounded down, as Slurm counts.
	LimitEach = "each/"
	// LimitLeast and a trackable resource: how much of it a job has, which is to be no less. Both are negative, so that less is more.
	LimitLeast = "least/"
)

// Timed reports whether what is limited depends on the time limit of a job.
func (l *Limit) Timed() bool { return l.What == LimitWall || strings.HasPrefix(l.What, LimitMins) }

// Product is n times as many seconds, or Forever.
func Product(n, seconds int64) int64 {
	if n > 0 && seconds > Forever/n {
		return Forever
	}
	return n * seconds
}

// Nth is the nth pending task.
func (a *Array) Nth(n int) uint32 {
	for _, r := range a.Tasks {
		if r.Last < r.First {
			continue
		}
		step := max(1, r.Step)
		k := int((r.Last-r.First)/step) + 1
		if n < k {
			return r.First + uint32(n)*step
		}
		n -= k
	}
	return 0
}

// Count is how many tasks are pending.
func (a *Array) Count() int {
	n := 0
	for _, r := range a.Tasks {
		if r.Last >= r.First {
			n += int((r.Last-r.First)/max(1, r.Step)) + 1
		}
	}
	return n
}

// Startable is how many of them the limit lets start.
func (a *Array) Startable() int {
	n := a.Count()
	if a.Limit > 0 {
		n = min(n, a.Limit-a.Active)
	}
	return n
}

// EligibleAt is from when on the job has been waiting for resources.
func EligibleAt(j *Job) int64 { return max(j.Submit, j.Begin, j.Eligible) }

// AgesFrom is from when on the job's age counts in its priority.
func AgesFrom(j *Job) int64 {
	if j.Accrue != 0 {
		return j.Accrue
	}
	return EligibleAt(j)
}

// LimitOf is the limit that holds for the job in the partition; Forever when there is none.
func LimitOf(j *Job, p *Partition) int64 {
	limit := j.LimitS
	if limit <= 0 {
		limit = p.DefaultTimeS
	}
	if limit <= 0 {
		limit = p.MaxTimeS
	}
	if limit <= 0 || limit > Forever {
		limit = Forever
	}
	return limit
}

// CompareRuns orders runs by job and task.
func CompareRuns(a, b *Run) int {
	if c := cmp.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	return cmp.Compare(a.Task, b.Task)
}

// Key is the same for requests that are equal, and for no others.
func (r *Request) Key() string { return string(r.AppendKey(make([]byte, 0, 128))) }

// AppendKey appends the bytes of Key.
func (r *Request) AppendKey(b []byte) []byte {
	for _, x := range []int{r.MinNodes, r.MaxNodes, r.Tasks, r.CPUsPerTask, r.TasksPerNode, r.MinCPUs, r.Sockets,
		r.CoresPerSocket, r.ThreadsPerCore,
		int(r.MemNodeMiB), int(r.MemCPUMiB), int(r.MemGPUMiB), int(r.TmpMiB), r.CPUsPerGPU, r.TasksPerGPU, r.Switches, int(r.SwitchWaitS),
		int(r.LowUID)} {
		b = binary.AppendVarint(b, int64(x))
	}
	for _, x := range []bool{r.Overcommit, r.MemSaid, r.Binding, r.Exclusive, r.ExclusiveUser, r.Oversubscribe, r.Contiguous, r.Spread,
		r.UseMinNodes} {
		if x {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(r.NodeCounts)))
	for _, n := range r.NodeCounts {
		b = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(b, int64(n.Min)), int64(n.Max)), int64(n.Step))
	}
	text := func(words ...string) {
		b = binary.AppendUvarint(b, uint64(len(words)))
		for _, w := range words {
			b = append(binary.AppendUvarint(b, uint64(len(w))), w...)
		}
	}
	text(r.Features, r.Reservation)
	text(r.NodeList...)
	text(r.Exclude...)
	b = binary.AppendUvarint(b, uint64(len(r.Gres)))
	for _, g := range r.Gres {
		text(g.Name, g.Type)
		b = append(binary.AppendVarint(b, g.Count), byte(g.Per))
	}
	b = binary.AppendUvarint(b, uint64(len(r.Licenses)))
	for _, l := range r.Licenses {
		text(l.Name)
		b = binary.AppendVarint(b, l.Count)
	}
	return b
}
