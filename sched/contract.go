package sched

import (
	"github.com/sluice-hpc/sluice/sched/explain"
	"github.com/sluice-hpc/sluice/sched/placement"
	"github.com/sluice-hpc/sluice/sched/priority"
	"github.com/sluice-hpc/sluice/sched/record"
	"github.com/sluice-hpc/sluice/sched/sizing"
)

// The contract in the terms of the packages below: what they declare is documented there.

// What a cluster consists of.
type (
	NodeState      = record.NodeState
	Node           = record.Node
	Gres           = record.Gres
	Device         = record.Device
	PartitionState = record.PartitionState
	ShareMode      = record.ShareMode
	PreemptMode    = record.PreemptMode
	Partition      = record.Partition
	License        = record.License
	Reservation    = record.Reservation
	Span           = record.Span
	QOS            = record.QOS
)

const (
	NodeUsable        = record.NodeUsable
	NodeDrained       = record.NodeDrained
	NodeDown          = record.NodeDown
	NodeMaint         = record.NodeMaint
	NodeFuture        = record.NodeFuture
	PartitionUp       = record.PartitionUp
	PartitionDown     = record.PartitionDown
	PartitionDrain    = record.PartitionDrain
	PartitionInactive = record.PartitionInactive
	ShareNo           = record.ShareNo
	ShareExclusive    = record.ShareExclusive
	ShareYes          = record.ShareYes
	ShareForce        = record.ShareForce
	PreemptOff        = record.PreemptOff
	PreemptRequeue    = record.PreemptRequeue
	PreemptCancel     = record.PreemptCancel
	PreemptSuspend    = record.PreemptSuspend
)

// Jobs, what they ask for, and what they hold.
type (
	Hold        = record.Hold
	Dependency  = record.Dependency
	Job         = record.Job
	Array       = record.Array
	TaskRange   = record.TaskRange
	Request     = record.Request
	NodeCount   = record.NodeCount
	GresPer     = record.GresPer
	GresRequest = record.GresRequest
	Run         = record.Run
	Alloc       = record.Alloc
	GresAlloc   = record.GresAlloc
	Share       = record.Share
	Limit       = record.Limit
)

const (
	NotHeld         = record.NotHeld
	HeldUser        = record.HeldUser
	HeldAdmin       = record.HeldAdmin
	HeldRequeue     = record.HeldRequeue
	DependencyMet   = record.DependencyMet
	DependencyWaits = record.DependencyWaits
	DependencyNever = record.DependencyNever
	PerNode         = record.PerNode
	PerJob          = record.PerJob
	PerSocket       = record.PerSocket
	PerTask         = record.PerTask
)

// What a plan is made from, and the plan.
type (
	Snapshot  = record.Snapshot
	Cursor    = record.Cursor
	Plan      = record.Plan
	Stats     = record.Stats
	Start     = record.Start
	Preempt   = record.Preempt
	Reserve   = record.Reserve
	JobReason = record.JobReason
	Reason    = record.Reason
	Code      = record.Code
)

const (
	Forever                  = record.Forever
	UnlimitedS               = record.UnlimitedS
	None                     = record.None
	WaitPriority             = record.WaitPriority
	WaitResources            = record.WaitResources
	WaitDependency           = record.WaitDependency
	DependencyNeverSatisfied = record.DependencyNeverSatisfied
	BeginTime                = record.BeginTime
	JobHeldUser              = record.JobHeldUser
	JobHeldAdmin             = record.JobHeldAdmin
	JobHoldMaxRequeue        = record.JobHoldMaxRequeue
	JobArrayTaskLimit        = record.JobArrayTaskLimit
	WaitPartitionDown        = record.WaitPartitionDown
	WaitPartitionInactive    = record.WaitPartitionInactive
	PartitionNodeLimit       = record.PartitionNodeLimit
	PartitionConfig          = record.PartitionConfig
	MaxMemPerLimit           = record.MaxMemPerLimit
	PartitionTimeLimit       = record.PartitionTimeLimit
	ReqNodeNotAvail          = record.ReqNodeNotAvail
	WaitReservation          = record.WaitReservation
	ReservationDeleted       = record.ReservationDeleted
	BadConstraints           = record.BadConstraints
	WaitLicenses             = record.WaitLicenses
	DeadLine                 = record.DeadLine
)

// How plans are made.
type (
	Weights     = record.Weights
	Typical     = record.Typical
	TRESWeights = record.TRESWeights
	Policy      = record.Policy
	Params      = record.Params
	Order       = record.Order
	Placement   = record.Placement
	PreemptType = record.PreemptType
)

const (
	EASY             = record.EASY
	FIFO             = record.FIFO
	Conservative     = record.Conservative
	QueueOrder       = record.QueueOrder
	ShortestFirst    = record.ShortestFirst
	Merit            = record.Merit
	Pack             = record.Pack
	FGD              = record.FGD
	BestFit          = record.BestFit
	PreemptNone      = record.PreemptNone
	PreemptPartition = record.PreemptPartition
	PreemptQOS       = record.PreemptQOS
)

// Instances of GPUs.
type (
	MigProfile = record.MigProfile
)

// Sets of numbers.
type (
	Bits = record.Bits
)

// What a request comes to.
type (
	Counts    = sizing.Counts
	GresCount = sizing.GresCount
)

// What no node could ever hold.
type (
	Admitter = placement.Admitter
)

// Why a job waits.
type (
	Explanation = explain.Explanation
	Failing     = explain.Failing
	Way         = explain.Way
)

// DefaultParams is the configuration that did best on the traces: see
// docs/scheduling.md.
func DefaultParams() Params { return record.DefaultParams() }

// BitsOf is the set of the given numbers.
func BitsOf(list ...int) Bits { return record.BitsOf(list...) }

// Count counts what r asks for.
func Count(r *Request) Counts { return sizing.Count(r) }

// LimitNeed is how much a request needs at least of what a Limit is of.
func LimitNeed(what string, c *Counts, limitS int64) int64 { return sizing.LimitNeed(what, c, limitS) }

// What is limited besides resources.
const (
	LimitJobs = record.LimitJobs
	LimitWall = record.LimitWall
	LimitMins = record.LimitMins
)

// Product is n times as many seconds, or Forever.
func Product(n, seconds int64) int64 { return record.Product(n, seconds) }

// ChooseCut chooses where on the devices of a node an instance of profiles[want] costs least: see record.ChooseCut.
func ChooseCut(profiles []MigProfile, want int, used []uint64) (device, start int, ok bool) {
	return record.ChooseCut(profiles, want, used)
}

// Priorities are the terms of the jobs' priorities in a snapshot, and their totals,
// for sprio and squeue.
func Priorities(p *Params, in *Snapshot, jobs []*Job) []priority.Parts {
	return priority.Of(p, in, jobs)
}

// NewAdmitter answers Admissible for many jobs over the nodes, partitions and reservations of a snapshot, which must not change.
func NewAdmitter(p *Params, in *Snapshot) *Admitter { return placement.NewAdmitter(p, in) }

// Admissible reports whether some set of nodes of one of the job's partitions
// could ever hold it, whatever is free or up now. Otherwise why says what the
// largest node of the partition has, for the refusal at submission. Nodes that
// are down or drained count: such a job waits with a reason.
func Admissible(j *Job, nodes []*Node, parts []*Partition) (ok bool, why string) {
	idle := make([]*Node, len(nodes))
	for i, n := range nodes {
		idle[i] = n
		if n.State != NodeFuture && n.State != NodeUsable {
			c := *n
			c.State = NodeUsable
			idle[i] = &c
		}
	}
	n, why := NewAdmitter(&Params{}, &Snapshot{Nodes: idle, Partitions: parts}).Admit(j)
	return n > 0, why
}
