package record

import "github.com/sluice-hpc/sluice/sched/reason"

// Forever is the time that never comes: the end of a job without a limit.
const Forever = int64(1) << 60

// UnlimitedS is the assumed run time of a job without a time limit, in seconds: a year, as in Slurm's backfill. If it were infinite, a job
// that waits for its nodes could be promised nothing, and smaller jobs would pass it as long as they come.
const UnlimitedS = 365 * 24 * 3600

// Snapshot is the complete input of a decision.
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
	Licenses     []License // total counts; use is counted from Running
	QOS          []*QOS
	Shares       []Share // fair-share factors; a user without one has 0. Pass the same slice while they are the same
	Limits       []Limit // of associations and QOS, by the indexes in Job.Limits. Pass the same slice, or a longer one, while unchanged
	Left         []int64 // the rest under each. Pass the same slice while unchanged
	// Freed is the increase of each rest after FreedS seconds if nothing starts or ends: the amounts that running jobs use up. A rest
	// beyond its end does not change.
	Freed []int64
	// Typical requests, most frequent first, for Placement FGD. Compared by pointer: pass the same slice while it is unchanged.
	Typical []Typical
}

// FreedS is the time of Snapshot.Freed: long enough for the increase to be exact.
const FreedS = 1e6

// Cursor says where a truncated pass stopped. Opaque; the zero value is the head.
type Cursor struct {
	Tier     uint16
	Priority uint32
	Submit   int64
	ID       uint32
}

// Plan is the set of actions for now.
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

// Preempt preempts a running job.
type Preempt struct {
	ID     uint32
	Task   int32
	Mode   PreemptMode
	GraceS int64
	For    uint32 // the job that replaces it
	Why    string
}

// Reserve is the promise to a waiting job: no later job may make it start after At.
type Reserve struct {
	ID        uint32
	Task      int32
	Partition string
	At, End   int64
	Nodes     []string
	Promised  bool // false: only a forecast
	First     bool // for the first waiting job, as early as possible
}

// JobReason is the reason of a waiting job.
type JobReason struct {
	ID uint32
	reason.Reason
}

// Add returns t+d, at most Forever.
func Add(t, d int64) int64 {
	if t >= Forever || d >= Forever || t+d >= Forever {
		return Forever
	}
	return t + d
}
