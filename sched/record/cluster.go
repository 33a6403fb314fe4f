package record

import "slices"

// NodeState is the scheduler's view of a node's state.
type NodeState uint8

const (
	NodeUsable  NodeState = iota
	NodeDrained           // drained or draining: running jobs continue, nothing starts
	NodeDown              // down, not responding, powered off, failing
	NodeMaint             // under maintenance
	NodeFuture            // not part of the cluster yet: not even counted for Admissible
)

// Node is a node's record. CPUs are numbered core by core: CPU c belongs to
// core c / Threads, core k to socket k / CoresPerSocket.
type Node struct {
	Name           string
	State          NodeState
	Reason         string // why the node is not usable, for explanations
	CPUs           int    // total; 0 means Sockets*CoresPerSocket*Threads
	Sockets        int    // 0 means 1
	CoresPerSocket int    // 0 means CPUs/(Sockets*Threads)
	Threads        int    // threads per core; 0 means 1
	SpecCores      Bits   // cores set aside for the system: never allocated
	MemMiB         int64
	SpecMemMiB     int64 // set aside for the system
	TmpMiB         int64
	WakeS          int64    // powered down: a job that starts on it gets it after this many seconds
	AwayUntil      int64    // being powered down: nothing can start on it before this time; 0 = it is not
	Features       []string // active features
	Weight         int      // lower is used first
	Withheld       []string // names of generic resources of which some are withheld from jobs for now
	Switch         string   // names of the switches above it, from the top down, separated by slashes; "" when unknown
	Gres           []Gres
	// Users whose jobs it refuses by its own policy: root, and other system users, where the uids of ordinary users begin with RefusesBelow
	// (internal/passwd, System).
	RefusesRoot  bool
	RefusesBelow uint32
}

// Refuses reports whether a node refuses a request's jobs because of their user.
func (n *Node) Refuses(r *Request) bool {
	const nobody = 65534
	return r.LowUID == 1 && n.RefusesRoot || r.LowUID > 1 && r.LowUID-1 < n.RefusesBelow || r.LowUID == nobody+1 && n.RefusesBelow > 1
}

// Gres is one kind of generic resource on a node: one name and type.
type Gres struct {
	Name    string // "gpu"
	Type    string // "a100"; may be ""
	Count   int64  // for resources without devices
	Devices []Device
	// Shared names the resource for a part of one device ("shard", "mps"); each device has Shares of them. A device with a share in use is
	// not available whole, and the reverse.
	Shared string
	Shares int64
	// Profiles are the instances that its devices can be cut into on request; such devices have no shares.
	Profiles []MigProfile
}

// Device is one device of a Gres. Plans name it by Index, which is unique within the Gres.
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
	PartitionDrain                   // accepts nothing, starts queued jobs
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

// PreemptMode is the treatment of a preempted job.
type PreemptMode uint8

const (
	PreemptInherit PreemptMode = iota // the cluster's mode; for the cluster itself, PreemptOff
	PreemptOff
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

// License is a count of a cluster-wide license.
type License struct {
	Name  string
	Count int64
}

// Reservation sets nodes, or cores and devices of nodes, aside for a time.
type Reservation struct {
	Name       string
	Start, End int64
	Again      []Span // later occurrences of a recurring one, ascending
	Nodes      []string
	// Parts are the reserved cores and devices of each node. Empty: whole nodes. Memory is not reserved.
	Parts []Alloc
	// Who may use it: one of Users or with one of Groups, where either is set, and with one of Accounts where they are set; and none of
	// NotUsers and NotAccounts.
	Users, NotUsers       []string
	Groups                []uint32
	Accounts, NotAccounts []string
	Maint                 bool
	Overlap               bool
	Flex                  bool // its jobs may begin before it, end after it and use other nodes
	Magnetic              bool // jobs that may use it do so without asking
	IgnoreJobs            bool
	Licenses              []License
	// MaxStartDelayS is the time for which other jobs may keep its nodes beyond its start.
	MaxStartDelayS int64
}

// Span is a time from Start until before End.
type Span struct{ Start, End int64 }

// QOS holds the scheduler's part of a quality of service.
type QOS struct {
	Name        string
	Priority    uint32
	Preempts    []string // QOS whose jobs it may preempt
	PreemptMode PreemptMode
	GraceTimeS  int64
	ExemptS     int64 // run time before its jobs can be preempted; 0: the cluster's, negative: none
}

// Admits reports whether a job may use the reservation: scontrol(1), Users=, Groups= and Accounts=.
func (r *Reservation) Admits(j *Job) bool {
	if slices.Contains(r.NotUsers, j.User) || slices.Contains(r.NotAccounts, j.Account) {
		return false
	}
	in := len(r.Users)+len(r.Groups) == 0 || slices.Contains(r.Users, j.User) ||
		slices.ContainsFunc(j.Groups, func(g uint32) bool { return slices.Contains(r.Groups, g) })
	return in && (len(r.Accounts) == 0 || slices.Contains(r.Accounts, j.Account))
}

// maxShare is the largest number of jobs per CPU (OverSubscribe=FORCE:n).
const maxShare = 64

// Depth returns how many jobs of the partition may share a CPU with a job of request r, itself included: OverSubscribe= in slurm.conf(5).
// Under FORCE users have no choice; under YES a job has to ask, with --oversubscribe.
func (p *Partition) Depth(r *Request) int64 {
	n := p.MaxShare
	if n <= 0 {
		n = 4
	}
	switch {
	case p.Share == ShareForce, p.Share == ShareYes && r != nil && r.Oversubscribe && !r.Exclusive:
		return int64(min(n, maxShare))
	}
	return 1
}
