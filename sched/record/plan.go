package record

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
	Shares       []Share // fair-share factors; a user without one has 0. The same slice while they are the same
	Limits       []Limit // of associations and QOS; Job.Limits names those of a job. Hand over the same slice, or a longer one, while
	Left         []int64 // they are the same, and while the same is left under each of them the same slice of that.
	// Freed is how much more is left under each after FreedS seconds if nothing starts or ends: what running jobs use up of it. What has
	// no place there stays as it is.
	Freed []int64
	// Typical requests, most frequent first, for Placement FGD. Compared by
	// place: hand over the same slice while it is the same.
	Typical []Typical
}

// FreedS is the time of Snapshot.Freed: long enough for what is freed to be exact.
const FreedS = 1e6

// Cursor says where a truncated pass stopped. Opaque; the zero value is the head.
type Cursor struct {
	Tier     uint16
	Priority uint32
	Submit   int64
	ID       uint32
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

// Add is t+d; Forever is the most.
func Add(t, d int64) int64 {
	if t >= Forever || d >= Forever || t+d >= Forever {
		return Forever
	}
	return t + d
}
