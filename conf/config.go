package conf

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/conf/tres"
)

// Config is a whole configuration. Load fills in Slurm's defaults. A Config does not change after Load, so it can be shared.
//
// Durations are in the unit in which their name ends; timespec.Unlimited (-1) means no limit. Memory is in MiB, 0 if not set.
type Config struct {
	// Path is the file that was read; Files are all files in the order in which they were first read.
	Path  string
	Files []string
	// Sum is the SHA-256, in hexadecimal, of slurm.conf, gres.conf, cgroup.conf, job_container.conf and oci.conf without comments:
	// hosts with the same Sum use the same configuration.
	Sum string
	// Ignored are keys that are accepted but have no effect.
	Ignored []Ignored
	// Warnings are about settings that have an effect, but perhaps not the intended one.
	Warnings Faults
	// Advice recommends better settings.
	Advice Faults

	ClusterName    string
	SlurmctldHosts []Host // the first one is the controller
	SlurmctldAddr  string
	SlurmUser      string
	SlurmdUser     string
	SlurmctldPort  int
	SlurmdPort     int
	SrunPortRange  PortRange

	StateSaveLocation string
	SlurmdSpoolDir    string // with %n and %h; see NodePath
	SlurmctldPidFile  string // empty if slurm.conf does not set it: then, unlike in Slurm, no file is written
	SlurmdPidFile     string // likewise; with %n and %h
	SlurmctldLogFile  string
	SlurmdLogFile     string // with %n and %h
	SlurmctldDebug    string // quiet, fatal, error, info, verbose, debug … debug5
	SlurmdDebug       string
	// The same for syslog. Empty disables syslog, as for a Slurm daemon in the foreground.
	SlurmctldSyslogDebug, SlurmdSyslogDebug string
	DebugFlags                              []string
	LogTimeFormat                           string // in the form that package logfile expects; empty: not set
	TmpFS                                   string

	SchedulerType        string
	SchedulerParameters  Params
	SelectType           string
	SelectTypeParameters []string
	EnforcePartLimits    string // NO, ANY or ALL
	GresTypes            []string
	Licenses             []License
	TopologyPlugin       string
	TopologyParam        []string
	DependencyParameters Params
	SlurmctldParameters  Params
	SlurmdParameters     Params
	GPU                  GPU     // from SlurmdParameters
	Privacy              Privacy // from SlurmdParameters
	JobContainerType     string
	NamespaceType        string
	JobContainers        []*JobContainer
	OCI                  *OCI // nil without oci.conf
	LaunchParameters     Params

	MaxJobCount     int
	MaxArraySize    uint32 // the largest index plus one
	MaxJobID        uint32
	FirstJobID      uint32
	MaxStepCount    int
	MaxTasksPerNode int
	MaxNodeCount    int // static and dynamic nodes together; 0: the number of configured nodes, so no dynamic ones

	DefMemPerCPUMiB  uint64
	DefMemPerNodeMiB uint64
	DefMemPerGPUMiB  uint64
	MaxMemPerCPUMiB  uint64
	MaxMemPerNodeMiB uint64
	DefCPUPerGPU     int

	JobRequeue      bool
	JobFileAppend   bool
	KillOnBadExit   bool
	DisableRootJobs bool
	JobCompType     string // "jobcomp/filetxt", …; empty: none
	JobCompLoc      string
	RequeueExit     string
	RequeueExitHold string
	ReturnToService int // 0, 1, 2: slurm.conf(5)
	TrackWCKey      bool
	PrivateData     []string
	MetricsType     string // "metrics/openmetrics" or empty: metrics are served; "none": they are not
	// MetricsParameters are ignore_private_data and Sluice's own listen, tokens and top (docs/monitoring.md).
	MetricsParameters Params

	KillWaitSec              int64
	WaitTimeSec              int64
	MinJobAgeSec             int64
	InactiveLimitSec         int64
	SlurmctldTimeoutSec      int64
	SlurmdTimeoutSec         int64
	MessageTimeoutSec        int64
	BatchStartTimeoutSec     int64
	CompleteWaitSec          int64
	UnkillableStepTimeoutSec int64
	UnkillableStepProgram    string
	OverTimeLimitMin         int64
	ResvOverRunMin           int64

	PriorityType                string
	PriorityFlags               []string
	PriorityFavorSmall          bool
	PriorityDecayHalfLifeMin    int64 // 0: usage does not decay
	PriorityCalcPeriodMin       int64
	PriorityMaxAgeMin           int64
	PriorityUsageResetPeriod    string
	PriorityWeightAge           uint32
	PriorityWeightAssoc         uint32
	PriorityWeightFairshare     uint32
	PriorityWeightJobSize       uint32
	PriorityWeightPartition     uint32
	PriorityWeightQOS           uint32
	PriorityWeightTRES          []tres.Weight
	FairShareDampeningFactor    int
	PreemptType                 string
	PreemptMode                 []string // OFF, CANCEL, REQUEUE, SUSPEND, GANG, WITHIN
	PreemptExemptTimeMin        int64
	PreemptParameters           Params
	SchedulerTimeSliceSec       int64
	AccountingStorageEnforce    []string
	AccountingStorageParameters Params // PurgeJobAfter=, see PurgeJobAfter
	AccountingStorageTRES       []string
	AccountingStoreFlags        []string
	JobAcctGatherFrequency      string
	JobAcctGatherParams         []string
	InteractiveStepOptions      string
	PropagateResourceLimits     []string // ALL, NONE or names of limits
	PropagateLimitsExcept       []string
	PropagatePrioProcess        int

	Prolog                 string
	Epilog                 string
	PrologSlurmctld        string
	EpilogSlurmctld        string
	PrologFlags            []string
	PrologEpilogTimeoutSec int64 // Unlimited: none
	TaskProlog             string
	TaskEpilog             string
	SrunProlog             string
	SrunEpilog             string
	ResvProlog             string
	ResvEpilog             string
	HealthCheckProgram     string
	HealthCheckIntervalSec int64
	HealthCheckNodeState   []string
	MailProg               string
	MailDomain             string
	RebootProgram          string
	TaskPlugin             []string
	TaskPluginParam        []string
	ProctrackType          string
	MpiDefault             string
	JobSubmitPlugins       []string
	CPUFreqGovernors       []string
	GPUFreqDef             string

	SuspendProgram    string
	ResumeProgram     string
	ResumeFailProgram string
	SuspendTimeSec    int64 // Unlimited: idle nodes are never suspended
	SuspendTimeoutSec int64
	ResumeTimeoutSec  int64
	SuspendRate       int // nodes a minute
	ResumeRate        int
	SuspendExcNodes   string
	SuspendExcParts   []string
	SuspendExcStates  []string

	Nodes      []*Node // in the order of the files
	Partitions []*Partition
	Gres       []GresLine
	GresFile   string // empty if the file does not exist
	Cgroup     Cgroup
	Switches   []*Switch // of topology.conf, leaves first
	leaf       map[string]*Switch

	raw         map[string]string // by lower-case key: the last value
	setAt       map[string]place  // and its place
	nodeByID    map[string]*Node
	nodeDefault map[string]pair // NodeName=DEFAULT as of the end of the file
	partition   map[string]*Partition
}

// Ignored is a key that is accepted but has no effect.
type Ignored struct {
	Key, Value string // the key in Slurm's spelling
	Why        string
	File       string
	Line       int
}

// String writes "ignored: key — why".
func (i Ignored) String() string { return "ignored: " + i.Key + " — " + i.Why }

// Host is one SlurmctldHost. Addr is the address to connect to, by default Name.
type Host struct{ Name, Addr string }

func (h Host) String() string {
	if h.Addr == h.Name {
		return h.Name
	}
	return h.Name + "(" + h.Addr + ")"
}

// PortRange is inclusive; the zero value means any port.
type PortRange struct{ First, Last int }

// License is one kind of licence and its count.
type License struct {
	Name  string
	Count int
}

// Params is a list such as SchedulerParameters: names, some with a value.
type Params struct {
	raw   string
	value map[string]string // by lower-case name
}

func parseParams(s string) Params {
	p := Params{raw: s, value: map[string]string{}}
	for part := range strings.SplitSeq(s, ",") {
		if name, value, _ := strings.Cut(part, "="); name != "" {
			p.value[strings.ToLower(name)] = value
		}
	}
	return p
}

// Has reports whether name is in the list, with or without a value.
func (p Params) Has(name string) bool {
	_, ok := p.value[strings.ToLower(name)]
	return ok
}

// Get returns the value of name, "" if it has none.
func (p Params) Get(name string) string { return p.value[strings.ToLower(name)] }

// Int returns the value of name as a number, or def if it is not in the list. Load has rejected values of Slurm's numeric
// parameters that are not numbers.
func (p Params) Int(name string, def int) int {
	if n, err := strconv.Atoi(p.Get(name)); err == nil {
		return n
	}
	return def
}

// Hosts returns the hosts listed in the value of name: names and ranges separated by colons, because commas separate parameters.
func (p Params) Hosts(name string) map[string]bool {
	names, _ := relayHosts(p.Get(name)) // Load has rejected invalid lists
	hosts := make(map[string]bool, len(names))
	for _, n := range names {
		hosts[n] = true
	}
	return hosts
}

func relayHosts(value string) ([]string, error) {
	if value == "" {
		return nil, nil
	}
	return hostlist.Expand(strings.ReplaceAll(value, ":", ","))
}

// String returns the list as it was written.
func (p Params) String() string { return p.raw }

// Value returns the value of a key of slurm.conf, in any case; false if the file does not set it.
func (c *Config) Value(key string) (string, bool) {
	v, ok := c.raw[strings.ToLower(key)]
	return v, ok
}

// Node finds a node by its NodeName.
func (c *Config) Node(name string) (*Node, bool) {
	n, ok := c.nodeByID[name]
	return n, ok
}

// PropagatedLimits returns the limits that propagate: ALL, NONE, or a list of names.
func (c *Config) PropagatedLimits() string {
	if len(c.PropagateLimitsExcept) == 0 {
		return join(c.PropagateResourceLimits, "ALL")
	}
	var out []string
	for _, name := range limitNames {
		if !slices.ContainsFunc(c.PropagateLimitsExcept, func(w string) bool {
			w = strings.TrimPrefix(strings.ToUpper(w), "RLIMIT_")
			return w == name || w == "ALL"
		}) {
			out = append(out, name)
		}
	}
	return join(out, "NONE")
}

// NodePath replaces %n by the node's name and %h by its host name, as in SlurmdSpoolDir.
func NodePath(path string, n *Node) string {
	return strings.NewReplacer("%n", n.Name, "%h", n.Hostname).Replace(path)
}

// defaults returns Slurm's defaults, from slurm.conf(5). SelectType follows later versions (cons_tres): Sluice has no other way of
// sharing nodes.
func defaults() *Config {
	return &Config{
		SlurmUser: "root", SlurmdUser: "root", SlurmctldPort: 6817, SlurmdPort: 6818,
		StateSaveLocation: "/var/spool", SlurmdSpoolDir: "/var/spool/slurmd",
		SlurmctldDebug: "info", SlurmdDebug: "info", TmpFS: "/tmp",
		SchedulerType: "sched/backfill", SelectType: "select/cons_tres", SelectTypeParameters: []string{"CR_CORE_MEMORY"},
		EnforcePartLimits: "NO", TopologyPlugin: "topology/none",
		MaxJobCount: 10000, MaxArraySize: 1001, MaxJobID: 67043328, FirstJobID: 1, MaxStepCount: 40000, MaxTasksPerNode: 512,
		JobRequeue: true, KillWaitSec: 30, MinJobAgeSec: 300, SlurmctldTimeoutSec: 120, SlurmdTimeoutSec: 300,
		MessageTimeoutSec: 10, BatchStartTimeoutSec: 10, UnkillableStepTimeoutSec: 60,
		PriorityType: "priority/basic", PriorityDecayHalfLifeMin: 7 * 1440, PriorityCalcPeriodMin: 5,
		PriorityMaxAgeMin: 7 * 1440, PriorityUsageResetPeriod: "NONE", FairShareDampeningFactor: 1,
		PreemptType: "preempt/none", PreemptMode: []string{"OFF"}, SchedulerTimeSliceSec: 30,
		JobAcctGatherFrequency: "30", InteractiveStepOptions: "--interactive --preserve-env --pty $SHELL",
		PropagateResourceLimits: []string{"ALL"}, PrologEpilogTimeoutSec: timespec.Unlimited,
		HealthCheckNodeState: []string{"ANY"}, MailProg: "/bin/mail",
		ProctrackType: "proctrack/cgroup", MpiDefault: "none",
		CPUFreqGovernors: []string{"OnDemand", "Performance", "UserSpace"}, GPUFreqDef: "high,memory=high",
		SuspendTimeSec: timespec.Unlimited, SuspendTimeoutSec: 30, ResumeTimeoutSec: 60, SuspendRate: 60, ResumeRate: 300,
		Cgroup: defaultCgroup(),
		raw:    map[string]string{}, setAt: map[string]place{}, nodeByID: map[string]*Node{}, partition: map[string]*Partition{},
	}
}
