package state

import "time"

// Settings is what of slurm.conf decides in reactor and admit. Durations are seconds, memory MiB. Immutable.
type Settings struct {
	Cluster           string
	SlurmUserUID      uint32
	SlurmdUID         uint32 // whose jobs the nodes can run; 0 = root: everybody's
	KillWaitS         uint32
	OverTimeLimitS    uint32 // how long jobs may exceed their limit
	NodeTimeoutS      uint32 // SlurmdTimeout; 0 = never
	RebootProgram     string
	ResumeTimeoutS    uint32 // how long a reboot may take
	HeartbeatS        uint32
	ReturnToService   int
	MinJobAgeS        uint32
	MaxJobCount       uint32
	MaxArraySize      uint32
	MaxBatchRequeue   uint32
	JobRequeue        bool
	TrackTRES         []string // AccountingStorageTRES; empty = all
	DefMemPerGPUMiB   uint64
	DefCPUPerGPU      uint32
	GPUFaultDrains    bool // SlurmdParameters=gpu_fault=drain
	ConfigOverrides   bool // SlurmdParameters=config_overrides
	DefMemPerCPUMiB   uint64
	DefMemPerNodeMiB  uint64
	MaxMemPerCPUMiB   uint64
	MaxMemPerNodeMiB  uint64
	CountMemory       bool // SelectTypeParameters has _Memory
	WholeCores        bool // SelectTypeParameters has CR_Core: cores are allocated, not threads
	HoldOnPrologFail  bool // unless nohold_on_prolog_fail
	RequeueDelayS     uint32
	MaxJobsPerUser    uint32
	EnforcePartLimits string // NO (or empty), ANY or ALL
	JobFileAppend     bool
	DisableRootJobs   bool
	PriorityBasic     bool
	Licenses          []License
	Switches          []Switch // of topology.conf, leaves first
	KillInvalidDepend bool     // DependencyParameters=kill_invalid_depend

	Zone *time.Location // of crontabs; nil = the machine's
}

// Switch is a switch of topology.conf.
type Switch struct {
	Name      string
	Level     int // 0 = it has nodes
	LinkSpeed uint32
	Nodes     []string // all below it
	Switches  []string // directly below it
}

// License is a kind of licence of the whole cluster, and how many there are.
type License struct {
	Name  string
	Count int
}
