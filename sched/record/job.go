package record

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/sched/reason"
)

// Hold says who holds a job.
type Hold uint8

const (
	NotHeld Hold = iota
	HeldUser
	HeldAdmin
	HeldRequeue // JobHoldMaxRequeue, launch_failed_requeued_held: HoldReason says which
)

// Dependency is the state of a job's dependencies; the caller resolves them.
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
	Accrue     int64 // when its age begins to count in its priority; 0: EligibleAt; Forever: not now
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
	Limits       []int32   // its limits: indexes in Snapshot.Limits
	PartLimits   [][]int32 // its limits in each of Partitions, where they differ; Limits is nil then

	Reason reason.Reason // the caller's recorded reason; plans list only differences
	// Promised: a plan has promised the job a start as the first waiting job (Reserve.First). It is not delayed again.
	Promised bool
}

// LimitsIn returns the limits of a job in one of its partitions.
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
	Limit  int         // most tasks at once (%limit); 0: no limit
	Active int         // running tasks
}

// TaskRange is First, First+Step, … up to and including Last. Step 0 means 1.
type TaskRange struct{ First, Last, Step uint32 }

// Request is a job's request, after the caller has applied the configured defaults (DefMemPerCPU and the like). Zero values are unset; a
// request without memory needs none.
type Request struct {
	MinNodes   int
	MaxNodes   int
	NodeCounts []NodeCount // 2,4,8 or 4-16:4; when set, MinNodes and MaxNodes are its ends

	Tasks        int // -n
	CPUsPerTask  int // -c
	TasksPerNode int // --ntasks-per-node: exact when Tasks is unset, else a maximum
	MinCPUs      int // --mincpus, per node
	Overcommit   bool

	Sockets, CoresPerSocket, ThreadsPerCore int // -B and its parts: the least that a node must have

	MemNodeMiB int64 // --mem; valid when MemSaid
	MemCPUMiB  int64
	MemGPUMiB  int64
	MemSaid    bool // --mem was given: MemNodeMiB 0 is then the whole node
	TmpMiB     int64

	Gres       []GresRequest
	CPUsPerGPU int
	// TasksPerGPU makes the number of tasks on each node follow the devices of GresRequest PerJob there (--ntasks-per-gpu). 0, or if there
	// are not that many tasks in total: tasks are placed by CPUs.
	TasksPerGPU int
	Binding     bool // --gres-flags=enforce-binding: only cores near the devices

	Features string   // -C
	NodeList []string // -w: all of these
	Exclude  []string // -x
	Switches int      // most leaf switches; 0: no limit
	// SwitchWaitS is the time that the job waits for that before it accepts any nodes, at most Params.MaxSwitchWaitS; 0: that time.
	SwitchWaitS int64

	Exclusive     bool
	ExclusiveUser bool // nodes shared with the same user's jobs only
	Oversubscribe bool // -s
	Contiguous    bool
	Spread        bool // --spread-job
	UseMinNodes   bool

	Licenses    []License
	Reservation string

	// LowUID is the uid of the job's user plus one, if some node refuses the user's jobs; otherwise 0, so that other users' requests
	// compare equal.
	LowUID uint32
}

// Wide reports whether a request takes as many nodes as there are: --spread-job, or a range (sbatch(1), -N: "as many nodes as possible
// within the range specified and without delaying the initiation of the job"). Requests with devices per job are not spread over a range.
func (r *Request) Wide() bool {
	ranged := r.MaxNodes > max(r.MinNodes, 1) && !r.UseMinNodes &&
		!slices.ContainsFunc(r.Gres, func(g GresRequest) bool { return g.Per == PerJob })
	return r.Spread || ranged
}

// NodeCount is Min, Min+Step, … Max. Step 0 means 1.
type NodeCount struct{ Min, Max, Step int }

// GresPer is the unit of a GresRequest's count.
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
	// Reservation in which it was started; "" means the reservation of its request.
	Reservation string
	Priority    uint32 // at its start
	Start       int64
	End         int64 // latest end; at or before Now counts as Now+1
	Allocs      []Alloc
	Suspended   bool // holds memory and devices, not CPUs
	// NotPreemptable prevents it from being chosen again: it is already being preempted, or exempt.
	NotPreemptable bool
}

// Alloc is a job's allocation on one node.
type Alloc struct {
	Node   string
	Tasks  int
	CPUs   int  // CPUs counted against the node, whole cores where cores are allocated
	Cores  Bits // core numbers; empty on nodes whose cores are only counted
	MemMiB int64
	Gres   []GresAlloc
}

// GresAlloc is a part of Alloc: devices by Index, or a count of a resource without devices. Shares is the part taken of each device (the
// same for all); 0 is the whole device.
type GresAlloc struct {
	Name, Type string
	Count      int64
	Devices    []int
	Shares     int64
	// Starts are the first slices of instances that are cut out of Devices; Shares is their size.
	Starts []int
}

// Share is a user's fair-share factor, 0..1.
type Share struct {
	Account, User string
	Factor        float64
}

// Limit is a limit of an association or a QOS.
type Limit struct {
	PerJob bool // compared with each job by itself, not used up
	// What is the limited quantity: a trackable resource ("cpu", "mem" in MiB, "node", "billing", "gres/gpu", "gres/gpu:a100"), LimitJobs,
	// LimitWall, LimitShare, or LimitMins, LimitSpent, LimitEach or LimitLeast followed by a resource.
	What   string
	Reason reason.Code // "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", …
	// For LimitMins: factors for the amount that a job needs in order to start, and the amount that it takes.
	Need, Use Factor
	// Back is the distance to an earlier entry of the same limit, for jobs with another factor: amounts taken here are taken there. 0:
	// none.
	Back int32
}

// Limited quantities besides resources.
const (
	LimitJobs = "jobs"
	LimitWall = "wall" // seconds
	// LimitShare is a condition: 1 is left if the user's fair-share factor is high enough, else 0.
	LimitShare = "share"
	// LimitMins and a trackable resource: the job's amount of it, times the seconds of its time limit.
	LimitMins = "mins/"
	// LimitSpent and a trackable resource or LimitJobs: a budget. A job that has any of the resource may start as long as anything is left.
	LimitSpent = "spent/"
	// LimitEach and a trackable resource: the job's amount of it on each of its nodes, on average and rounded down, as Slurm counts.
	LimitEach = "each/"
	// LimitLeast and a trackable resource: a minimum for the job's amount of it. Both are negated, so that a lack compares as an excess.
	LimitLeast = "least/"
)

// Timed reports whether the limited quantity depends on the time limit of a job.
func (l *Limit) Timed() bool { return l.What == LimitWall || strings.HasPrefix(l.What, LimitMins) }

// Product returns n times seconds, at most Forever.
func Product(n, seconds int64) int64 {
	if n > 0 && seconds > Forever/n {
		return Forever
	}
	return n * seconds
}

// Nth returns the nth pending task.
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

// Count returns the number of pending tasks.
func (a *Array) Count() int {
	n := 0
	for _, r := range a.Tasks {
		if r.Last >= r.First {
			n += int((r.Last-r.First)/max(1, r.Step)) + 1
		}
	}
	return n
}

// Startable returns how many of them the limit lets start.
func (a *Array) Startable() int {
	n := a.Count()
	if a.Limit > 0 {
		n = min(n, a.Limit-a.Active)
	}
	return n
}

// EligibleAt returns the time from which the job has been waiting for resources.
func EligibleAt(j *Job) int64 { return max(j.Submit, j.Begin, j.Eligible) }

// AgesFrom returns the time from which the job's age counts in its priority.
func AgesFrom(j *Job) int64 {
	if j.Accrue != 0 {
		return j.Accrue
	}
	return EligibleAt(j)
}

// LimitOf returns the time limit of the job in the partition; Forever when there is none.
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

// Key is the same for equal requests, and differs for all others.
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
