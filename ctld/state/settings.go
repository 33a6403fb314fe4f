package state

import "time"

// Settings is what of slurm.conf decides in reactor and admit. Durations are seconds, memory MiB. Immutable.
type Settings struct {
	Cluster           string
	ConfSum           string // of the files; empty: nodes are not asked for theirs
	BundleHash        string // of what hosts without files get; empty: nothing
	SlurmUserUID      uint32
	SlurmdUID         uint32 // whose jobs the nodes can run; 0 = root: everybody's
	KillWaitS         uint32
	OverTimeLimitS    uint32 // how long jobs may exceed their limit
	NodeTimeoutS      uint32 // SlurmdTimeout; 0 = never
	RebootProgram     string
	MailDomain        string // of whoever --mail-user does not name
	ResumeTimeoutS    uint32 // how long a reboot may take
	HeartbeatS        uint32
	ReturnToService   int
	MinJobAgeS        uint32
	FirstJobID        uint32 // of those that the controller gives; there may be lower ones from before it was set
	MaxJobCount       uint32
	MaxArraySize      uint32
	MaxStepCount      uint32 // steps of a job; 0 = 40000
	MaxTasksPerNode   uint32 // tasks of a step on a node; 0 = 512
	MaxNodeCount      uint32 // dynamic nodes included; 0 = there are none of these
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
	WholeNodes        bool // SelectType=select/linear: jobs have their nodes to themselves
	HoldOnPrologFail  bool // unless nohold_on_prolog_fail
	RequeueDelayS     uint32
	MaxSwitchWaitS    uint32 // max_switch_wait; 0 = no bound
	MaxJobsPerUser    uint32
	MaxUserBytes      int64  // what a user may hold in the state; 0 = no bound
	MaxScriptBytes    int    // of a batch script; 0 = as much as a request may have
	EnforcePartLimits string // NO (or empty), ANY or ALL
	EnforceAssocs     bool   // AccountingStorageEnforce: users use accounts that they are in
	EnforceQOS        bool   // and QOS that they may use
	EnforceLimits     bool   // and keep the limits of both
	EnforceSafe       bool   // and start no job that could use more until its time limit than is left of a budget
	DisableRootJobs   bool
	PriorityBasic     bool
	Licenses          []License
	Switches          []Switch // of topology.conf, leaves first
	KillInvalidDepend bool     // DependencyParameters=kill_invalid_depend
	RequeueExit       []uint8  // exit codes of batch scripts with which a job goes back into the queue
	RequeueExitHold   []uint8  // and there is held
	PrologSlurmctld   bool     // there is a program of that name
	EpilogSlurmctld   bool
	Power             *PowerSettings // nil: nodes are not powered down and up

	Zone *time.Location // the cluster's: the days and hours of crontabs and of reservations that recur
}

// Location is the time zone of the cluster, UTC where nothing is said.
func (s *Settings) Location() *time.Location {
	if s.Zone == nil {
		return time.UTC
	}
	return s.Zone
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
