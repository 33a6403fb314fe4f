// Package sched decides which pending jobs start, where, and why the others
// wait. It is a pure function of its input: no clock, no goroutine, no I/O.
//
// # The protocol
//
// The caller owns the state. It hands over a Snapshot and receives a Plan:
//
//	s := sched.New(params)
//	plan := s.Plan(snapshot)
//
// A plan is advice. Each Start, Preempt and Reason is checked against the
// state of that moment by the caller, who drops what has become stale; the
// next snapshot says what became of it. Nothing has to be undone in the
// Scheduler: it believes only the snapshot.
//
// # Cheap snapshots
//
// Records (Node, Partition, Job, Run, …) are immutable: a changed record is a
// new pointer. A Scheduler remembers the pointers of the previous snapshot and
// looks only into records whose pointer differs, so the caller may keep
// slices of pointers, copy them with the few changed entries replaced, and
// hand them over: 100,000 unchanged pointers cost about a tenth of a
// millisecond. Slices sorted by their key (Node.Name, Partition.Name, Job.ID,
// Run.ID then Run.Task) are fast; unsorted ones give the same plan, slower,
// because they are sorted first. The slices and records must not be written
// to while Plan runs, nor the records afterwards.
//
// What is remembered between passes is an index and never a decision: the
// same snapshot gives the same plan from a fresh Scheduler and from one that
// has seen a million others.
//
// Times are whole seconds since 1970; durations are whole seconds (suffix S);
// memory is MiB.
package sched

// Forever is the time that never comes: the end of a job without a limit.
const Forever = int64(1) << 60

// UnlimitedS is how long a job without a time limit is taken to run, in seconds: a year, as in Slurm's backfill. Were it for ever, who
// waits for its nodes could be promised nothing, and whatever is small enough would pass it as long as such jobs come.
const UnlimitedS = 365 * 24 * 3600

// Snapshot is everything a decision may depend on.
type Snapshot struct {
	Seq    uint64 // the caller's state number; copied to the plan
	Now    int64
	Budget int    // fit probes this pass may spend; 0: Params.Budget
	Resume Cursor // Plan.Resume of a truncated plan; zero to begin at the head

	Nodes        []*Node
	Partitions   []*Partition
	Pending      []*Job // every pending job, held and dependent ones included
	Running      []*Run // everything that holds resources: running, completing, suspended
	Reservations []*Reservation
	Licenses     []License // total counts; what runs is counted from Running
	QOS          []*QOS
	Shares       []Share  // fair-share factors; a user without one has 0
	Limits       []*Limit // remaining room under association and QOS limits
	// Typical requests, most frequent first, for Placement FGD. Compared by
	// place: hand over the same slice while it is the same.
	Typical []Typical
}

// Cursor says where a truncated pass stopped. Opaque; the zero value is the head.
type Cursor struct {
	Tier     uint16
	Priority uint32
	Submit   int64
	ID       uint32
}

// NodeState is what the scheduler needs to know of a node's state.
type NodeState uint8

const (
	NodeUsable  NodeState = iota
	NodeDrained           // drained or draining: what runs goes on, nothing starts
	NodeDown              // down, not responding, powered off, failing
	NodeMaint             // under maintenance
	NodeFuture            // not part of the cluster yet: not even counted for Admissible
)

// Node is a node's record. CPUs are numbered core by core: CPU c belongs to
// core c / Threads, core k to socket k / CoresPerSocket.
type Node struct {
	Name           string
	State          NodeState
	Reason         string // of a node that is not usable, for explanations
	CPUs           int    // total; 0 means Sockets*CoresPerSocket*Threads
	Sockets        int    // 0 means 1
	CoresPerSocket int    // 0 means CPUs/(Sockets*Threads)
	Threads        int    // threads per core; 0 means 1
	SpecCores      Bits   // cores set aside for the system: never allocated
	MemMiB         int64
	SpecMemMiB     int64 // set aside for the system
	TmpMiB         int64
	Features       []string // active features
	Weight         int      // lower is used first
	Withheld       []string // names of generic resources of which it has more than Gres says, given to nobody for now
	Switch         string   // names of the switches above it, the topmost first, with slashes between them; "" when unknown
	Gres           []Gres
}

// Gres is one kind of generic resource on a node: one name and type.
type Gres struct {
	Name    string // "gpu"
	Type    string // "a100"; may be ""
	Count   int64  // for resources without devices
	Devices []Device
	// Shared names the resource by which a part of one device can be asked for
	// ("shard", "mps"); each device has Shares of them. A device of which a
	// share is taken is not available whole, and the reverse.
	Shared string
	Shares int64
	// Profiles are instances that its devices can be cut into as jobs ask for
	// them; such devices have no shares.
	Profiles []MigProfile
}

// Device is one device file's worth of a Gres. Plans name it by Index, which
// is unique within the Gres.
type Device struct {
	Index int
	Cores Bits  // cores near it; empty when unknown
	Links []int // link count to each other device of the same Gres, in order; may be nil
}

// PartitionState says whether a partition accepts and starts jobs.
type PartitionState uint8

const (
	PartitionUp       PartitionState = iota
	PartitionDown                    // accepts, starts nothing
	PartitionDrain                   // accepts nothing, starts what is queued
	PartitionInactive                // accepts nothing, starts nothing
)

// ShareMode is OverSubscribe= of a partition.
type ShareMode uint8

const (
	ShareNo ShareMode = iota
	ShareExclusive
	ShareYes   // jobs may ask to share CPUs, MaxShare deep
	ShareForce // jobs share CPUs, MaxShare deep
)

// PreemptMode says what happens to a job that gives way.
type PreemptMode uint8

const (
	PreemptOff PreemptMode = iota
	PreemptRequeue
	PreemptCancel
	PreemptSuspend
)

// Partition is a partition's record. Zero limits mean none.
type Partition struct {
	Name           string
	Nodes          []string
	State          PartitionState
	PriorityTier   uint16
	PriorityFactor uint16 // PriorityJobFactor
	MaxTimeS       int64
	DefaultTimeS   int64 // limit of a job that has none; 0: MaxTimeS
	MinNodes       int
	MaxNodes       int
	MaxCPUsPerNode int
	MaxMemNodeMiB  int64 // MaxMemPerNode
	Share          ShareMode
	MaxShare       int // jobs per CPU under ShareYes and ShareForce; 0 means 4
	LLN            bool
	ExclusiveUser  bool // its jobs take nodes for one user alone
	PreemptMode    PreemptMode
	GraceTimeS     int64
}

// TRESWeights weighs trackable resources.
type TRESWeights struct {
	CPU, MemGiB, Node, GPU float64
}

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
	AssocFactor  float64 // 0..1
	NoPreemptors bool    // never preempts for itself

	Reason Reason // what the caller has on record; plans list only differences
	// Promised: a plan has promised the job a start as the first that waits
	// (Reserve.First). It is not put off again.
	Promised bool
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
	Binding    bool // --gres-flags=enforce-binding: only cores near the devices

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

// License is a count of a cluster-wide license.
type License struct {
	Name  string
	Count int64
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

// Reservation sets nodes, or cores and devices of nodes, aside for a time.
type Reservation struct {
	Name       string
	Start, End int64
	Again      []Span // later times of one that recurs, ascending
	Nodes      []string
	// Parts says what of each node is set aside: its cores and devices. Empty:
	// the nodes whole. Memory is not set aside.
	Parts []Alloc
	// Who may use it: one of Users or with one of Groups, where either is said,
	// and with one of Accounts where they are; and nobody of NotUsers and
	// NotAccounts.
	Users, NotUsers       []string
	Groups                []uint32
	Accounts, NotAccounts []string
	Maint                 bool
	Overlap               bool
	Flex                  bool // its jobs may begin before it, end after it and use other nodes
	Magnetic              bool // jobs that may use it do so without asking
	IgnoreJobs            bool
	Licenses              []License
	// MaxStartDelayS is how long jobs that do not ask for it may keep its nodes
	// beyond its start.
	MaxStartDelayS int64
}

// Span is a time from Start until before End.
type Span struct{ Start, End int64 }

// QOS is what of a quality of service matters here.
type QOS struct {
	Name        string
	Priority    uint32
	Preempts    []string // QOS whose jobs it may preempt
	PreemptMode PreemptMode
	GraceTimeS  int64
	ExemptS     int64 // its jobs run so long before they can be preempted
}

// Share is a user's fair-share factor, 0..1.
type Share struct {
	Account, User string
	Factor        float64
}

// Limit is the room left under one limit of an association or a QOS. Jobs it
// applies to are those that match User, Account and QOS where they are set.
// Counts below 0 do not limit.
type Limit struct {
	Reason              Code // "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", …
	User, Account, QOS  string
	PerJob              bool // compared with each job alone, not used up
	Jobs, CPUs, Nodes   int64
	GPUs, MemMiB, TimeS int64
}

// Plan is what to do now.
type Plan struct {
	Seq       uint64
	Now       int64
	Start     []Start
	Preempt   []Preempt
	Reserve   []Reserve
	Reasons   []JobReason // jobs whose reason differs from Job.Reason, by ID
	Never     []uint32    // jobs past their deadline or that cannot meet it: end them
	Truncated bool        // the budget was used up: plan again, with Resume
	Resume    Cursor
	// Wake is the next moment at which time alone can change the plan (a job
	// becomes eligible, a reservation begins or ends): plan again then even
	// without an event. Forever when there is none.
	Wake  int64
	Stats Stats
}

// Stats counts the work of a pass.
type Stats struct {
	Probes  int // (job, node) questions asked
	Tried   int // jobs and classes of equal jobs tried
	Changed int // records that differed from the previous snapshot
}

// Start says that a job starts now.
type Start struct {
	Job         *Job
	Task        int32 // -1: not an array task
	Partition   string
	Priority    uint32
	LimitS      int64 // chosen between TimeMinS and LimitS; Forever: none
	Reservation string
	Allocs      []Alloc // by node name
	Backfilled  bool
}

// Preempt says that a running job gives way.
type Preempt struct {
	ID     uint32
	Task   int32
	Mode   PreemptMode
	GraceS int64
	For    uint32 // the job that takes its place
	Why    string
}

// Reserve is the promise to a job that waits: no job that came after it may
// make it start later than At.
type Reserve struct {
	ID        uint32
	Task      int32
	Partition string
	At, End   int64
	Nodes     []string
	Promised  bool // false: a forecast only
	First     bool // to the first that waits, as early as can be
}

// JobReason is why a job waits.
type JobReason struct {
	ID uint32
	Reason
}

// Reason is a Slurm reason and the words that squeue shows for it.
type Reason struct {
	Code Code
	Text string // when it says more than Code: "ReqNodeNotAvail, UnavailableNodes:n3"
}

// String is what squeue shows.
func (r Reason) String() string {
	if r.Text != "" {
		return r.Text
	}
	return string(r.Code)
}

// Code is a Slurm reason word.
type Code string

// Reasons, as squeue(1) names them. "" and None mean that there is none yet.
const (
	None                     Code = "None"
	WaitPriority             Code = "Priority"
	WaitResources            Code = "Resources"
	WaitDependency           Code = "Dependency"
	DependencyNeverSatisfied Code = "DependencyNeverSatisfied"
	BeginTime                Code = "BeginTime"
	JobHeldUser              Code = "JobHeldUser"
	JobHeldAdmin             Code = "JobHeldAdmin"
	JobHoldMaxRequeue        Code = "JobHoldMaxRequeue"
	JobArrayTaskLimit        Code = "JobArrayTaskLimit"
	WaitPartitionDown        Code = "PartitionDown"
	WaitPartitionInactive    Code = "PartitionInactive"
	PartitionNodeLimit       Code = "PartitionNodeLimit"
	PartitionConfig          Code = "PartitionConfig"
	MaxMemPerLimit           Code = "MaxMemPerLimit"
	PartitionTimeLimit       Code = "PartitionTimeLimit"
	ReqNodeNotAvail          Code = "ReqNodeNotAvail"
	WaitReservation          Code = "Reservation"
	ReservationDeleted       Code = "ReservationDeleted"
	BadConstraints           Code = "BadConstraints"
	WaitLicenses             Code = "Licenses"
	DeadLine                 Code = "DeadLine"
)

// Policy is how waiting jobs are promised a start.
type Policy uint8

const (
	// EASY promises a start to the first Reservations jobs of each partition
	// that have to wait (one unless said otherwise) and lets the rest start
	// early where no promise breaks.
	EASY Policy = iota
	// FIFO starts jobs of a partition strictly in order (sched/builtin).
	FIFO
	// Conservative promises every job it looks at a start.
	Conservative
)

// Params is the configuration of a Scheduler. The zero value is usable: see Defaults.
type Params struct {
	Policy       Policy
	Reservations int // promises per partition under EASY; 0 means 1
	Depth        int // jobs looked at per pass; 0 means all
	UserDepth    int // jobs looked at per user and pass (bf_max_job_user); 0 means all
	Budget       int // fit probes per pass; 0 means 20,000,000
	WindowS      int64
	ResolutionS  int64 // promises are rounded up to it; 0 means 1

	// Order is how backfill candidates are taken once the jobs before them wait.
	Order Order
	// GuardS is how long a job waits before ShortestFirst takes it in order of
	// priority again. 0 means 24 hours.
	GuardS int64
	// HeadGuardS is how long the first job that has to wait does so before it is
	// promised a start; 0 promises at once, as the textbook has it. Until then
	// whatever fits starts. A promise, once due, is kept in either case.
	HeadGuardS int64
	// ShortQueue is how many jobs may be pending for the guard not to count: in
	// a queue that short the first is promised its start at once.
	ShortQueue int
	// MaxWaitS bounds how long a job waits, as far as it can be: a start no later
	// than that is kept free for it while a job that starts now could still run by
	// then; 0 bounds nothing. What starts before it in the meantime is what fits.
	MaxWaitS int64

	// WholeCores allocates cores rather than threads (CR_Core*); NoMemory does
	// not count memory (not CR_*_Memory). WholeNodes is select/linear and
	// OverSubscribe=EXCLUSIVE everywhere.
	WholeCores bool
	NoMemory   bool
	WholeNodes bool
	LLN        bool
	Placement  Placement
	Preempt    PreemptType
	// MaxSwitchWaitS is how long jobs wait for the switches they ask for at most; 0 means 300.
	MaxSwitchWaitS int64
	// PreemptMode is the cluster's; partitions and QOS override it.
	PreemptMode PreemptMode
	GraceTimeS  int64

	Weights Weights
}

// Order is an order of backfill candidates. Whether one fits is always decided
// by its time limit.
type Order uint8

const (
	// QueueOrder is by priority.
	QueueOrder Order = iota
	// ShortestFirst is by predicted run time; who has waited for GuardS comes
	// first, by priority.
	ShortestFirst
	// Merit is by predicted run time, divided by the job's share of the
	// cluster and by 1 + (days waited)²: short jobs first, wide ones among
	// them, and none forgotten. Prompted by the WFP family (Tang et al.,
	// CLUSTER'09); docs/scheduling.md has the measurements.
	Merit
)

// DefaultParams is the configuration that did best on the traces: see
// docs/scheduling.md.
func DefaultParams() Params {
	return Params{Order: Merit, HeadGuardS: 42 * 3600, ShortQueue: 2, MaxWaitS: 72 * 3600}
}

// Placement is the rule that chooses among nodes that fit.
type Placement uint8

const (
	// Pack fills partly used nodes first and keeps groups of devices whole.
	Pack Placement = iota
	// FGD places where fragmentation of devices grows least (Weng et al.,
	// ATC'23), best fit on ties.
	FGD
	// BestFit leaves the least behind, summed over resources.
	BestFit
)

// PreemptType is PreemptType=.
type PreemptType uint8

const (
	PreemptNone PreemptType = iota
	PreemptPartition
	PreemptQOS
)
