package record

// Params is the configuration of a Scheduler. The zero value is usable: see Defaults.
type Params struct {
	Policy       Policy
	Reservations int // promises per partition under EASY; 0 means 1
	Depth        int // jobs looked at per pass; 0 means all
	UserDepth    int // jobs looked at per user and pass (bf_max_job_user); 0 means all
	Budget       int // fit probes per pass; 0 means 20,000,000
	WindowS      int64
	ResolutionS  int64 // promises are rounded up to it; 0 means 1

	// Order is the order of backfill candidates behind a waiting job.
	Order Order
	// GuardS is the waiting time after which ShortestFirst takes a job in order of priority again. 0 means 24 hours.
	GuardS int64
	// HeadGuardS is the waiting time of the first waiting job before it is promised a start; 0 promises at once, as in textbooks. Until
	// then any job that fits starts. A promise that was made is kept in any case.
	HeadGuardS int64
	// ShortQueue is the largest number of pending jobs for which HeadGuardS is ignored: in such a short queue the first job is promised its
	// start at once.
	ShortQueue int
	// MaxWaitS bounds a job's waiting time as far as possible: a start no later than that is kept free for it while a job that starts now
	// could still run by then; 0 means no bound. Jobs that fit may start before it.
	MaxWaitS int64

	// WholeCores allocates cores rather than threads (CR_Core*); NoMemory does not count memory (not CR_*_Memory). WholeNodes is
	// select/linear, or OverSubscribe=EXCLUSIVE everywhere.
	WholeCores bool
	NoMemory   bool
	WholeNodes bool
	LLN        bool
	Placement  Placement
	Preempt    PreemptType
	// MaxSwitchWaitS bounds the time that jobs wait for the requested switches; 0 means 300.
	MaxSwitchWaitS int64
	// PreemptMode is the cluster's; partitions and QOS override it. ExemptS is the run time before a job can be preempted, unless its QOS
	// sets one.
	PreemptMode PreemptMode
	ExemptS     int64

	Weights Weights
}

// DefaultParams returns the configuration that did best on the traces: see docs/scheduling.md.
func DefaultParams() Params {
	return Params{Order: Merit, HeadGuardS: 42 * 3600, ShortQueue: 2, MaxWaitS: 72 * 3600}
}

// Policy decides which waiting jobs are promised a start.
type Policy uint8

const (
	// EASY promises a start to the first Reservations jobs of each partition that have to wait (one by default) and lets the rest start
	// early where no promise breaks.
	EASY Policy = iota
	// FIFO starts jobs of a partition strictly in order (sched/builtin).
	FIFO
	// Conservative promises a start to every job that it looks at.
	Conservative
)

// Order is an order of backfill candidates. Whether one fits always depends on its time limit.
type Order uint8

const (
	// QueueOrder is by priority.
	QueueOrder Order = iota
	// ShortestFirst is by predicted run time; jobs that have waited for GuardS come first, by priority.
	ShortestFirst
	// Merit is by predicted run time, divided by the job's share of the
	// cluster and by 1 + (days waited)²: short jobs first, wide ones among
	// them, and none forgotten. Prompted by the WFP family (Tang et al.,
	// CLUSTER'09); docs/scheduling.md has the measurements.
	Merit
)

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

// Weights configures multifactor priority (PriorityWeight*, PriorityMaxAge, …).
type Weights struct {
	Basic       bool // priority/basic: by submission alone
	Age         uint32
	FairShare   uint32
	JobSize     uint32
	Partition   uint32
	QOS         uint32
	Assoc       uint32
	TRES        TRESWeights
	MaxAgeS     int64 // 0 means 7 days
	SmallFirst  bool  // PriorityFavorSmall
	CalcPeriodS int64 // factors are taken at multiples of it; 0 means 300
}

// Say reports whether priorities order the queue: priority/multifactor with any weight.
func (w *Weights) Say() bool {
	return !w.Basic && (w.Age > 0 || w.FairShare > 0 || w.JobSize > 0 || w.Partition > 0 || w.QOS > 0 || w.Assoc > 0 ||
		w.TRES != TRESWeights{})
}

// Period returns the calculation period that contains now: priorities change only from one to the next, so that the order of the queue does
// not depend on the time of a pass.
func (w *Weights) Period(now int64) int64 {
	p := w.CalcPeriodS
	if p <= 0 {
		p = 300
	}
	return now - now%p
}

// TRESWeights weighs trackable resources.
type TRESWeights struct {
	CPU, MemGiB, Node, GPU float64
}

// Typical is a typical request of the cluster's work, and its frequency. Placement FGD measures fragmentation against these: Weng et al.,
// Beware of Fragmentation, ATC'23.
type Typical struct {
	Request *Request
	Count   int64
}
