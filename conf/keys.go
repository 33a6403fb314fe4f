package conf

import (
	"math"
	"slices"
	"strings"
	"sync"
)

// key is a key of slurm.conf on a line of its own. It has an effect if why is empty. If both set and why are given, the value is
// checked and shown by scontrol show config, but has no effect. words.go lists the words of list values that have an effect.
type key struct {
	name string // in Slurm's spelling
	set  func(c *Config, value string) error
	why  string // why it has no effect, and the alternative
}

// Reasons shared by several keys.
const (
	whyAccounts      = "this part of accounts and limits is not supported"
	whyResv          = "reservations run no programs"
	whyCoreSpec      = "cores are not reserved for the system; leave them out of CPUs="
	whyTopology      = "topology.conf defines the switch of a node; topology.yaml is not supported"
	whyOneController = "there is only one controller; to fail over, start it on another host"
)

// keys are all keys of slurm.conf by lower-case name, built on first use.
var keys = sync.OnceValue(func() map[string]key {
	m := map[string]key{}
	for _, k := range parsed() {
		m[strings.ToLower(k.name)] = k
	}
	for why, names := range ignored() {
		for name := range strings.FieldsSeq(names) {
			m[strings.ToLower(name)] = key{name: name, why: why}
		}
	}
	return m
})

// keyNames are the names of keys and of records on lines of their own, sorted: a misspelt key is compared with these.
var keyNames = sync.OnceValue(func() []string {
	names := []string{"NodeName", "PartitionName", "DownNodes", "NodeSet", "Include"}
	for _, k := range keys() {
		names = append(names, k.name)
	}
	slices.Sort(names)
	return names
})

// parsed are the keys whose value is read. A test fails for a key without a why that nothing outside this package reads, and for
// one with a why that something does.
func parsed() []key {
	return []key{
		{name: "AccountingStorageEnforce", set: list(func(c *Config) *[]string { return &c.AccountingStorageEnforce })},
		{name: "AccountingStorageParameters", set: params(func(c *Config) *Params { return &c.AccountingStorageParameters })},
		{name: "AccountingStorageTRES", set: list(func(c *Config) *[]string { return &c.AccountingStorageTRES })},
		{name: "AccountingStoreFlags", set: list(func(c *Config) *[]string { return &c.AccountingStoreFlags })},
		{name: "BatchStartTimeout", set: seconds(func(c *Config) *int64 { return &c.BatchStartTimeoutSec }),
			why: "a launch is acknowledged by the node; a node that does not answer is DOWN after SlurmdTimeout"},
		{name: "ClusterName", set: setClusterName},
		{name: "CompleteWait", set: seconds(func(c *Config) *int64 { return &c.CompleteWaitSec }),
			why: "resources are reused as soon as a job's cgroup is empty"},
		{name: "CpuFreqGovernors", set: list(func(c *Config) *[]string { return &c.CPUFreqGovernors }),
			why: "CPU frequencies are left to the kernel"},
		{name: "DebugFlags", set: list(func(c *Config) *[]string { return &c.DebugFlags })},
		{name: "DefCpuPerGPU", set: number(func(c *Config) *int { return &c.DefCPUPerGPU }, 0, 65533)},
		{name: "DefMemPerCPU", set: mebibytes(func(c *Config) *uint64 { return &c.DefMemPerCPUMiB })},
		{name: "DefMemPerGPU", set: mebibytes(func(c *Config) *uint64 { return &c.DefMemPerGPUMiB })},
		{name: "DefMemPerNode", set: mebibytes(func(c *Config) *uint64 { return &c.DefMemPerNodeMiB })},
		{name: "DependencyParameters", set: params(func(c *Config) *Params { return &c.DependencyParameters })},
		{name: "DisableRootJobs", set: yesNo(func(c *Config) *bool { return &c.DisableRootJobs })},
		{name: "Epilog", set: text(func(c *Config) *string { return &c.Epilog })},
		{name: "EpilogSlurmctld", set: text(func(c *Config) *string { return &c.EpilogSlurmctld })},
		{name: "FairShareDampeningFactor", set: number(func(c *Config) *int { return &c.FairShareDampeningFactor }, 1, 65533),
			why: "shares are compared by Fair Tree, which has no such factor"},
		{name: "FirstJobId", set: number(func(c *Config) *uint32 { return &c.FirstJobID }, 1, 0x3ffffff)},
		{name: "GpuFreqDef", set: text(func(c *Config) *string { return &c.GPUFreqDef }),
			why: "frequencies of GPUs are left to the driver"},
		{name: "GresTypes", set: list(func(c *Config) *[]string { return &c.GresTypes }),
			why: "devices are found without it; it is only compared with Gres= and gres.conf"},
		{name: "HealthCheckInterval", set: seconds(func(c *Config) *int64 { return &c.HealthCheckIntervalSec })},
		{name: "HealthCheckNodeState", set: list(func(c *Config) *[]string { return &c.HealthCheckNodeState })},
		{name: "HealthCheckProgram", set: text(func(c *Config) *string { return &c.HealthCheckProgram })},
		{name: "InactiveLimit", set: seconds(func(c *Config) *int64 { return &c.InactiveLimitSec })},
		{name: "InteractiveStepOptions", set: text(func(c *Config) *string { return &c.InteractiveStepOptions })},
		{name: "JobAcctGatherFrequency", set: text(func(c *Config) *string { return &c.JobAcctGatherFrequency }),
			why: "usage is read from the job's cgroup, on request and at the end of the job"},
		{name: "JobAcctGatherParams", set: list(func(c *Config) *[]string { return &c.JobAcctGatherParams })},
		{name: "JobCompLoc", set: text(func(c *Config) *string { return &c.JobCompLoc })},
		{name: "JobCompType", set: text(func(c *Config) *string { return &c.JobCompType })},
		{name: "JobContainerType", set: text(func(c *Config) *string { return &c.JobContainerType })},
		{name: "JobFileAppend", set: yesNo(func(c *Config) *bool { return &c.JobFileAppend })},
		{name: "JobRequeue", set: yesNo(func(c *Config) *bool { return &c.JobRequeue })},
		{name: "JobSubmitPlugins", set: list(func(c *Config) *[]string { return &c.JobSubmitPlugins })},
		{name: "KillOnBadExit", set: yesNo(func(c *Config) *bool { return &c.KillOnBadExit })},
		{name: "KillWait", set: seconds(func(c *Config) *int64 { return &c.KillWaitSec })},
		{name: "LaunchParameters", set: params(func(c *Config) *Params { return &c.LaunchParameters })},
		{name: "LogTimeFormat", set: setLogTimeFormat},
		{name: "MailDomain", set: text(func(c *Config) *string { return &c.MailDomain })},
		{name: "MailProg", set: text(func(c *Config) *string { return &c.MailProg })},
		{name: "MaxArraySize", set: number(func(c *Config) *uint32 { return &c.MaxArraySize }, 0, 4000001)},
		{name: "MaxJobCount", set: number(func(c *Config) *int { return &c.MaxJobCount }, 1, math.MaxInt32)},
		{name: "MaxJobId", set: number(func(c *Config) *uint32 { return &c.MaxJobID }, 1, 0x3ffffff),
			why: "ids are assigned in order, without a limit"},
		{name: "MaxMemPerCPU", set: mebibytes(func(c *Config) *uint64 { return &c.MaxMemPerCPUMiB })},
		{name: "MaxMemPerNode", set: mebibytes(func(c *Config) *uint64 { return &c.MaxMemPerNodeMiB })},
		{name: "MaxNodeCount", set: number(func(c *Config) *int { return &c.MaxNodeCount }, 1, 65536)},
		{name: "MaxStepCount", set: number(func(c *Config) *int { return &c.MaxStepCount }, 1, math.MaxInt32)},
		{name: "MaxTasksPerNode", set: number(func(c *Config) *int { return &c.MaxTasksPerNode }, 1, 65533)},
		{name: "MessageTimeout", set: seconds(func(c *Config) *int64 { return &c.MessageTimeoutSec })},
		{name: "MinJobAge", set: seconds(func(c *Config) *int64 { return &c.MinJobAgeSec })},
		{name: "MpiDefault", set: text(func(c *Config) *string { return &c.MpiDefault })},
		{name: "NamespaceType", set: text(func(c *Config) *string { return &c.NamespaceType })},
		{name: "OverTimeLimit", set: minutes(func(c *Config) *int64 { return &c.OverTimeLimitMin })},
		{name: "PreemptExemptTime", set: minutes(func(c *Config) *int64 { return &c.PreemptExemptTimeMin })},
		{name: "PreemptParameters", set: params(func(c *Config) *Params { return &c.PreemptParameters })},
		{name: "PreemptType", set: text(func(c *Config) *string { return &c.PreemptType })},
		{name: "PriorityCalcPeriod", set: minutes(func(c *Config) *int64 { return &c.PriorityCalcPeriodMin })},
		{name: "PriorityDecayHalfLife", set: minutes(func(c *Config) *int64 { return &c.PriorityDecayHalfLifeMin })},
		{name: "PriorityFavorSmall", set: yesNo(func(c *Config) *bool { return &c.PriorityFavorSmall })},
		{name: "PriorityFlags", set: list(func(c *Config) *[]string { return &c.PriorityFlags })},
		{name: "PriorityMaxAge", set: minutes(func(c *Config) *int64 { return &c.PriorityMaxAgeMin })},
		{name: "PriorityType", set: text(func(c *Config) *string { return &c.PriorityType })},
		{name: "PriorityWeightAge", set: number(func(c *Config) *uint32 { return &c.PriorityWeightAge }, 0, math.MaxUint32)},
		{name: "PriorityWeightAssoc", set: number(func(c *Config) *uint32 { return &c.PriorityWeightAssoc }, 0, math.MaxUint32)},
		{name: "PriorityWeightFairshare", set: number(func(c *Config) *uint32 { return &c.PriorityWeightFairshare }, 0, math.MaxUint32)},
		{name: "PriorityWeightJobSize", set: number(func(c *Config) *uint32 { return &c.PriorityWeightJobSize }, 0, math.MaxUint32)},
		{name: "PriorityWeightPartition", set: number(func(c *Config) *uint32 { return &c.PriorityWeightPartition }, 0, math.MaxUint32)},
		{name: "PriorityWeightQOS", set: number(func(c *Config) *uint32 { return &c.PriorityWeightQOS }, 0, math.MaxUint32)},
		{name: "MetricsParameters", set: params(func(c *Config) *Params { return &c.MetricsParameters })},
		{name: "MetricsType", set: text(func(c *Config) *string { return &c.MetricsType })},
		{name: "PrivateData", set: list(func(c *Config) *[]string { return &c.PrivateData })},
		{name: "ProctrackType", set: text(func(c *Config) *string { return &c.ProctrackType }),
			why: "processes are tracked by cgroups, or without root by their process tree"},
		{name: "Prolog", set: text(func(c *Config) *string { return &c.Prolog })},
		{name: "PrologEpilogTimeout", set: seconds(func(c *Config) *int64 { return &c.PrologEpilogTimeoutSec })},
		{name: "PrologFlags", set: list(func(c *Config) *[]string { return &c.PrologFlags })},
		{name: "PrologSlurmctld", set: text(func(c *Config) *string { return &c.PrologSlurmctld })},
		{name: "PropagatePrioProcess", set: number(func(c *Config) *int { return &c.PropagatePrioProcess }, 0, 2),
			why: "tasks run with the nice value of the node daemon"},
		{name: "PropagateResourceLimits", set: limits(func(c *Config) *[]string { return &c.PropagateResourceLimits })},
		{name: "PropagateResourceLimitsExcept", set: limits(func(c *Config) *[]string { return &c.PropagateLimitsExcept })},
		{name: "RebootProgram", set: text(func(c *Config) *string { return &c.RebootProgram })},
		{name: "RequeueExit", set: exitCodes(func(c *Config) *string { return &c.RequeueExit })},
		{name: "RequeueExitHold", set: exitCodes(func(c *Config) *string { return &c.RequeueExitHold })},
		{name: "ResumeFailProgram", set: text(func(c *Config) *string { return &c.ResumeFailProgram })},
		{name: "ResumeProgram", set: text(func(c *Config) *string { return &c.ResumeProgram })},
		{name: "ResumeRate", set: number(func(c *Config) *int { return &c.ResumeRate }, 0, 65533)},
		{name: "ResumeTimeout", set: seconds(func(c *Config) *int64 { return &c.ResumeTimeoutSec })},
		{name: "ResvEpilog", set: text(func(c *Config) *string { return &c.ResvEpilog }), why: whyResv},
		{name: "ResvOverRun", set: minutes(func(c *Config) *int64 { return &c.ResvOverRunMin }),
			why: "jobs of a reservation keep their own time limit"},
		{name: "ResvProlog", set: text(func(c *Config) *string { return &c.ResvProlog }), why: whyResv},
		{name: "ReturnToService", set: number(func(c *Config) *int { return &c.ReturnToService }, 0, 2)},
		{name: "SchedulerParameters", set: params(func(c *Config) *Params { return &c.SchedulerParameters })},
		{name: "SchedulerTimeSlice", set: seconds(func(c *Config) *int64 { return &c.SchedulerTimeSliceSec }),
			why: "jobs that share CPUs run side by side and do not take turns"},
		{name: "SchedulerType", set: text(func(c *Config) *string { return &c.SchedulerType })},
		{name: "SelectType", set: text(func(c *Config) *string { return &c.SelectType })},
		{name: "SelectTypeParameters", set: list(func(c *Config) *[]string { return &c.SelectTypeParameters })},
		{name: "SlurmctldAddr", set: text(func(c *Config) *string { return &c.SlurmctldAddr }),
			why: "the controller listens on all addresses; start it with --listen ADDR:PORT"},
		{name: "SlurmctldLogFile", set: text(func(c *Config) *string { return &c.SlurmctldLogFile })},
		{name: "SlurmctldParameters", set: params(func(c *Config) *Params { return &c.SlurmctldParameters })},
		{name: "SlurmctldPidFile", set: text(func(c *Config) *string { return &c.SlurmctldPidFile })},
		{name: "SlurmctldTimeout", set: seconds(func(c *Config) *int64 { return &c.SlurmctldTimeoutSec }), why: whyOneController},
		{name: "SlurmdLogFile", set: text(func(c *Config) *string { return &c.SlurmdLogFile })},
		{name: "SlurmdParameters", set: params(func(c *Config) *Params { return &c.SlurmdParameters })},
		{name: "SlurmdPidFile", set: text(func(c *Config) *string { return &c.SlurmdPidFile })},
		{name: "SlurmdPort", set: number(func(c *Config) *int { return &c.SlurmdPort }, 1, 65535)},
		{name: "SlurmdSpoolDir", set: text(func(c *Config) *string { return &c.SlurmdSpoolDir })},
		{name: "SlurmdTimeout", set: seconds(func(c *Config) *int64 { return &c.SlurmdTimeoutSec })},
		{name: "SlurmdUser", set: text(func(c *Config) *string { return &c.SlurmdUser })},
		{name: "SlurmUser", set: text(func(c *Config) *string { return &c.SlurmUser })},
		{name: "SrunEpilog", set: text(func(c *Config) *string { return &c.SrunEpilog })},
		{name: "SrunProlog", set: text(func(c *Config) *string { return &c.SrunProlog })},
		{name: "StateSaveLocation", set: text(func(c *Config) *string { return &c.StateSaveLocation })},
		{name: "SuspendExcNodes", set: text(func(c *Config) *string { return &c.SuspendExcNodes })},
		{name: "SuspendExcParts", set: list(func(c *Config) *[]string { return &c.SuspendExcParts })},
		{name: "SuspendExcStates", set: list(func(c *Config) *[]string { return &c.SuspendExcStates })},
		{name: "SuspendProgram", set: text(func(c *Config) *string { return &c.SuspendProgram })},
		{name: "SuspendRate", set: number(func(c *Config) *int { return &c.SuspendRate }, 0, 65533)},
		{name: "SuspendTime", set: seconds(func(c *Config) *int64 { return &c.SuspendTimeSec })},
		{name: "SuspendTimeout", set: seconds(func(c *Config) *int64 { return &c.SuspendTimeoutSec })},
		{name: "TaskEpilog", set: text(func(c *Config) *string { return &c.TaskEpilog })},
		{name: "TaskPlugin", set: list(func(c *Config) *[]string { return &c.TaskPlugin })},
		{name: "TaskPluginParam", set: list(func(c *Config) *[]string { return &c.TaskPluginParam })},
		{name: "TaskProlog", set: text(func(c *Config) *string { return &c.TaskProlog })},
		{name: "TmpFS", set: text(func(c *Config) *string { return &c.TmpFS }), why: "TmpDisk is always measured on /tmp"},
		{name: "TopologyParam", set: list(func(c *Config) *[]string { return &c.TopologyParam }),
			why: "the only topology is topology/tree, without options"},
		{name: "TopologyPlugin", set: text(func(c *Config) *string { return &c.TopologyPlugin })},
		{name: "TrackWCKey", set: yesNo(func(c *Config) *bool { return &c.TrackWCKey })},
		{name: "UnkillableStepProgram", set: text(func(c *Config) *string { return &c.UnkillableStepProgram })},
		{name: "UnkillableStepTimeout", set: seconds(func(c *Config) *int64 { return &c.UnkillableStepTimeoutSec })},
		{name: "WaitTime", set: seconds(func(c *Config) *int64 { return &c.WaitTimeSec })},

		{name: "SlurmctldHost", set: setHost},
		{name: "ControlMachine", set: keep},
		{name: "ControlAddr", set: keep},
		{name: "SlurmctldPort", set: setControllerPort},
		{name: "SrunPortRange", set: setPortRange},
		{name: "SlurmctldDebug", set: debugLevel(func(c *Config) *string { return &c.SlurmctldDebug })},
		{name: "SlurmctldSyslogDebug", set: debugLevel(func(c *Config) *string { return &c.SlurmctldSyslogDebug })},
		{name: "SlurmdSyslogDebug", set: debugLevel(func(c *Config) *string { return &c.SlurmdSyslogDebug })},
		{name: "SlurmdDebug", set: debugLevel(func(c *Config) *string { return &c.SlurmdDebug })},
		{name: "EnforcePartLimits", set: setEnforcePartLimits},
		{name: "PreemptMode", set: setPreemptMode},
		{name: "PriorityUsageResetPeriod", set: setResetPeriod},
		{name: "PriorityWeightTRES", set: setPriorityWeightTRES, why: "the priority has no TRES factor; set PriorityWeightJobSize"},
		{name: "Licenses", set: setLicenses},
		{name: "JobDefaults", set: setJobDefaults},
	}
}

// ignored are the keys that Slurm knows, according to slurm.conf(5) of 22.05 and later, and that have no effect here: by reason,
// names in Slurm's spelling.
func ignored() map[string]string {
	return map[string]string{
		"Sluice authenticates local callers by their socket and daemons by certificates; there is no munge": `
		AuthType AuthInfo AuthAltTypes AuthAltParameters CredType CryptoType JobCredentialPrivateKey
		JobCredentialPublicCertificate HashPlugin TLSType TLSParameters CertmgrType CertmgrParameters CertgenType
		CertgenParameters`,
		"accounting is built into the controller; there is no slurmdbd to reach": `
		AccountingStorageBackupHost AccountingStorageExternalHost AccountingStorageHost
		AccountingStoragePass AccountingStoragePort AccountingStorageType AccountingStorageUser MaxDBDMsgs`,
		"the only job completion plugin is jobcomp/filetxt": `
		JobCompHost JobCompParams JobCompPass JobCompPassScript JobCompPort JobCompUser`,
		"Sluice has no plugins": `
		PluginDir PlugStackConfig SlurmctldPlugstack CliFilterPlugins CliFilterParameters PrEpPlugins PrEpParameters
		NodeFeaturesPlugins PrioritySiteFactorPlugin PrioritySiteFactorParameters
		PriorityParameters CoreSpecPlugin LaunchType RoutePlugin MCSPlugin MCSParameters DataParserParameters
		UrlParserType HttpParserType`,
		"clients that read metrics need a token or a certificate (docs/monitoring.md)": `MetricsAuthUsers`,
		"usage is always read from the job's cgroup": `
		AcctGatherNodeFreq AcctGatherEnergyType AcctGatherInterconnectType
		AcctGatherInfinibandType AcctGatherFilesystemType AcctGatherProfileType ExtSensorsFreq ExtSensorsType VSizeFactor`,
		whyOneController: `
		BackupAddr BackupController SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg`,
		"Sluice keeps one stream to each node and has no message tree": `
		TreeWidth TCPTimeout EioTimeout KeepAliveTime CommunicationParameters EpilogMsgTime`,
		"interconnects are left to MPI and the kernel": `SwitchType SwitchParameters MpiParams`,
		"burst buffers are not supported":              `BurstBufferType BurstBufferParameters`,
		"federations are not supported":                `FederationParameters`,
		"power capping is not supported":               `PowerParameters PowerPlugin`,
		"CPU frequencies are left to the kernel":       `CpuFreqDef`,
		"usage is always read from the job's cgroup; the value none only disables JobAcctGatherParams=OverMemoryKill": `JobAcctGatherType`,
		"environment variables set the defaults of sbcast and srun --bcast (SBCAST_COMPRESS and " +
			"others)": `BcastExclude BcastParameters`,
		"use the logging of the service manager": `
		SlurmSchedLogFile SlurmSchedLogLevel`,
		"a job has the groups of the process that submitted it": `GroupUpdateForce GroupUpdateTime`,
		"sbatch takes the login environment where it runs":      `GetEnvTimeout`,
		"scrontab is always on":                                 `ScronParameters`,
		"sessions are opened by the node daemon itself":         `UsePAM`,
		"X11 forwarding is not supported":                       `X11Parameters`,
		"changes to partitions are not kept on a reconfigure":   `ReconfigFlags`,
		"cores are not reserved for the system":                 `AllowSpecResourcesUsage`,
		"it was removed from Slurm and had no effect":           `FastSchedule`,
		"the number of requeues is not limited":                 `MaxBatchRequeue`,
		"one timeout serves both; set PrologEpilogTimeout":      `PrologTimeout EpilogTimeout`,
	}
}

// removed are keys that Slurm rejects by name, with their replacement.
func removed() map[string]string {
	return map[string]string{
		"sallocdefaultcommand":      "it was removed from Slurm; set LaunchParameters=use_interactive_step",
		"accountingstorageloc":      "it was removed from Slurm; delete the line",
		"accountingstorejobcomment": "it was removed from Slurm; set AccountingStoreFlags=job_comment",
		"cachegroups":               "it was removed from Slurm; delete the line",
		"checkpointtype":            "it was removed from Slurm; delete the line",
		"jobcheckpointdir":          "it was removed from Slurm; delete the line",
		"schedulerport":             "it was removed from Slurm; delete the line",
		"schedulerrootfilter":       "it was removed from Slurm; delete the line",
		"memlimitenforce":           "it was removed from Slurm; set ConstrainRAMSpace=yes in cgroup.conf",
		"frontendname":              "front-end nodes are not supported",
	}
}
