package state

import "time"

// Settings are the settings of slurm.conf that reactor and admit need. Durations are seconds, memory MiB. Immutable.
type Settings struct {
	Cluster           string
	ConfSum           string // checksum of the files; empty: nodes are not asked for theirs
	BundleHash        string // hash of the bundle for hosts without files; empty: there is none
	SlurmUserUID      uint32
	SlurmdUID         uint32 // the only user whose jobs the nodes can run; 0 = root: every user's
	KillWaitS         uint32
	OverTimeLimitS    uint32 // time by which jobs may exceed their limit
	NodeTimeoutS      uint32 // SlurmdTimeout; 0 = never
	RebootProgram     string
	MailDomain        string // appended to the user's name when --mail-user names no one
	ResumeTimeoutS    uint32 // time that a reboot may take
	HeartbeatS        uint32
	ReturnToService   int
	MinJobAgeS        uint32
	FirstJobID        uint32 // lowest id that the controller gives; jobs from before it was set may have lower ones
	MaxJobCount       uint32
	MaxArraySize      uint32
	MaxStepCount      uint32 // steps of a job; 0 = 40000
	MaxTasksPerNode   uint32 // tasks of a step on a node; 0 = 512
	MaxNodeCount      uint32 // dynamic nodes included; 0 = no dynamic nodes
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
	MaxUserBytes      int64  // bytes that a user may hold in the state; 0 = no bound
	MaxScriptBytes    int    // bytes of a batch script; 0 = the limit of a request
	EnforcePartLimits string // NO (or empty), ANY or ALL
	EnforceAssocs     bool   // AccountingStorageEnforce: users may only use accounts that they are in
	EnforceQOS        bool   // and QOS that they may use
	EnforceLimits     bool   // and keep the limits of both
	EnforceSafe       bool   // and start no job that could use more of a budget until its time limit than is left
	DisableRootJobs   bool
	PriorityBasic     bool
	Licenses          []License
	Switches          []Switch // of topology.conf, leaves first
	KillInvalidDepend bool     // DependencyParameters=kill_invalid_depend
	RequeueExit       []uint8  // exit codes with which a batch script requeues its job
	RequeueExitHold   []uint8  // and holds it
	PrologSlurmctld   bool     // PrologSlurmctld is set
	EpilogSlurmctld   bool
	Power             *PowerSettings // nil: nodes are not powered down and up

	Zone *time.Location // the cluster's, for crontabs and recurring reservations
}

// Location returns the time zone of the cluster, UTC by default.
func (s *Settings) Location() *time.Location {
	if s.Zone == nil {
		return time.UTC
	}
	return s.Zone
}

// Switch is a switch of topology.conf.
type Switch struct {
	Name      string
	Level     int // 0 = its children are nodes
	LinkSpeed uint32
	Nodes     []string // all below it
	Switches  []string // directly below it
}

// License is a kind of licence of the whole cluster, and its number.
type License struct {
	Name  string
	Count int
}
