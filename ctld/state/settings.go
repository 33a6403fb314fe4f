package state

// Settings is what of slurm.conf decides in reactor and admit. Durations are seconds, memory MiB. Immutable.
type Settings struct {
	Cluster           string
	SlurmUserUID      uint32
	KillWaitS         uint32
	NodeTimeoutS      uint32 // SlurmdTimeout; 0 = never
	HeartbeatS        uint32
	ReturnToService   int
	MinJobAgeS        uint32
	MaxJobCount       uint32
	MaxArraySize      uint32
	MaxBatchRequeue   uint32
	JobRequeue        bool
	ConfigOverrides   bool // SlurmdParameters=config_overrides
	DefMemPerCPUMiB   uint64
	DefMemPerNodeMiB  uint64
	MaxMemPerCPUMiB   uint64
	MaxMemPerNodeMiB  uint64
	CountMemory       bool // SelectTypeParameters has _Memory
	HoldOnPrologFail  bool // unless nohold_on_prolog_fail
	RequeueDelayS     uint32
	MaxJobsPerUser    uint32
	EnforcePartLimits bool
	JobFileAppend     bool
	DisableRootJobs   bool
	PriorityBasic     bool
	Licenses          []License
	KillInvalidDepend bool // DependencyParameters=kill_invalid_depend
}

// License is a kind of licence of the whole cluster, and how many there are.
type License struct {
	Name  string
	Count int
}
