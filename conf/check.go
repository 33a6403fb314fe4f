package conf

import (
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// check reports missing settings and contradictions between lines.
func (l *loader) check() {
	l.checkRequired()
	l.checkScalars()
	l.checkNodes()
	l.checkPartitions()
	l.checkGres()
	l.readGPU()
	l.checkWords()
	l.checkLogTime()
}

// at returns the place of a key, or the file as a whole.
func (l *loader) at(key string) place {
	if p, ok := l.c.setAt[strings.ToLower(key)]; ok {
		return p
	}
	return place{file: l.c.Path}
}

func (l *loader) checkRequired() {
	whole := place{file: l.c.Path}
	if _, tried := l.c.setAt["clustername"]; l.c.ClusterName == "" && !tried {
		l.fault(whole, "add ClusterName=mycluster", "ClusterName is missing")
	}
	if _, tried := l.c.setAt["slurmctldhost"]; len(l.c.SlurmctldHosts) == 0 && !tried {
		l.fault(whole, "add SlurmctldHost=host", "SlurmctldHost is missing")
	}
	if l.nodeLines == 0 && l.c.MaxNodeCount == 0 {
		l.fault(whole, "add NodeName=name CPUs=…, or MaxNodeCount=n for nodes that join by themselves", "no node is defined")
	}
	if len(l.partitions) == 0 {
		l.fault(whole, "add PartitionName=debug Nodes=ALL Default=YES", "no partition is defined")
	}
}

// exclusive reports keys of which only one may be set.
func (l *loader) exclusive(at place, given func(string) bool, where string, names ...string) {
	var set []string
	for _, name := range names {
		if given(strings.ToLower(name)) {
			set = append(set, name)
		}
	}
	if len(set) > 1 {
		l.fault(at, "keep only one of them", "%s are mutually exclusive%s", strings.Join(set, " and "), where)
	}
}

func (l *loader) checkScalars() {
	c := l.c
	given := func(key string) bool { _, ok := c.raw[key]; return ok }
	l.exclusive(l.at("DefMemPerNode"), given, "", "DefMemPerCPU", "DefMemPerNode")
	l.exclusive(l.at("MaxMemPerNode"), given, "", "MaxMemPerCPU", "MaxMemPerNode")
	if given("propagateresourcelimits") {
		l.exclusive(l.at("PropagateResourceLimitsExcept"), given, "", "PropagateResourceLimits", "PropagateResourceLimitsExcept")
	}
	if c.FirstJobID > c.MaxJobID {
		l.fault(l.at("FirstJobId"), "", "FirstJobId=%d is larger than MaxJobId=%d", c.FirstJobID, c.MaxJobID)
	}
	if c.DefMemPerCPUMiB > 0 && c.MaxMemPerCPUMiB > 0 && c.DefMemPerCPUMiB > c.MaxMemPerCPUMiB {
		l.fault(l.at("DefMemPerCPU"), "", "DefMemPerCPU=%d is larger than MaxMemPerCPU=%d", c.DefMemPerCPUMiB, c.MaxMemPerCPUMiB)
	}
	if c.DefMemPerNodeMiB > 0 && c.MaxMemPerNodeMiB > 0 && c.DefMemPerNodeMiB > c.MaxMemPerNodeMiB {
		l.fault(l.at("DefMemPerNode"), "", "DefMemPerNode=%d is larger than MaxMemPerNode=%d", c.DefMemPerNodeMiB, c.MaxMemPerNodeMiB)
	}
	if _, err := c.PurgeJobAfter(); err != nil {
		l.fault(l.at("AccountingStorageParameters"), "write PurgeJobAfter=12months, 365days or 72hours", "AccountingStorageParameters: %s",
			err)
	}
	if c.SlurmctldPort == c.SlurmdPort {
		l.fault(l.at("SlurmdPort"), "", "SlurmctldPort and SlurmdPort are both %d", c.SlurmdPort)
	}
	if slices.Contains(c.PreemptMode, "SUSPEND") && !slices.Contains(c.PreemptMode, "GANG") {
		l.fault(l.at("PreemptMode"), "write PreemptMode=SUSPEND,GANG", "SUSPEND needs GANG")
	}
	if c.PreemptType != "preempt/none" && slices.Contains(c.PreemptMode, "OFF") {
		l.fault(l.at("PreemptType"), "set PreemptMode=CANCEL, REQUEUE or SUSPEND,GANG", "PreemptType=%s contradicts PreemptMode=OFF",
			c.PreemptType)
	}
	for key, allowed := range map[string][]string{
		"SchedulerType": {"sched/backfill", "sched/builtin"},
		"PriorityType":  {"priority/basic", "priority/multifactor"},
		"PreemptType":   {"preempt/none", "preempt/partition_prio", "preempt/qos"},
		"SelectType":    {"select/cons_tres", "select/cons_res", "select/linear", "select/cray_aries"},
	} {
		if v, ok := c.Value(key); ok {
			if _, err := oneOf(v, allowed...); err != nil {
				l.fault(l.at(key), didYouMean(v, allowed), "%s: %s", key, err)
			}
		}
	}
	if _, err := SuspendExcept(c.SuspendExcNodes); err != nil {
		l.fault(l.at("SuspendExcNodes"), "", "SuspendExcNodes: %s", err)
	}
}

func (l *loader) checkNodes() {
	type address struct {
		addr string
		port int
	}
	seen := map[address]*Node{}
	for _, n := range l.c.Nodes {
		if n.Port < 0 || n.State == "CLOUD" || n.State == "FUTURE" {
			continue
		}
		key := address{n.Addr, n.Port}
		if first, clash := seen[key]; clash {
			l.fault(place{n.File, n.Line}, "give each a Port of its own, such as Port=[27821-27824]",
				"nodes %s and %s share the address %s and port %d", first.Name, n.Name, n.Addr, n.Port)
			return
		}
		seen[key] = n
	}
	if m := l.c.MaxNodeCount; m > 0 && len(l.c.Nodes) > m {
		l.fault(l.at("MaxNodeCount"), "", "MaxNodeCount=%d, but %d nodes are defined", m, len(l.c.Nodes))
	}
}

func (l *loader) checkPartitions() {
	var def *Partition
	for _, p := range l.c.Partitions {
		at := place{p.File, p.Line}
		given := func(key string) bool { return p.given[key] }
		where := " in partition " + p.Name
		l.exclusive(at, given, where, "DefMemPerCPU", "DefMemPerNode")
		l.exclusive(at, given, where, "MaxMemPerCPU", "MaxMemPerNode")
		if p.MaxCPUsPerNode == 0 {
			l.fault(at, "write MaxCPUsPerNode=UNLIMITED, or leave it out",
				"partition %s: MaxCPUsPerNode=0 leaves no CPU of a node to its jobs", p.Name)
		}
		if p.MaxNodes != timespec.Unlimited && int64(p.MinNodes) > p.MaxNodes {
			l.fault(at, "", "partition %s: MinNodes=%d is larger than MaxNodes=%d", p.Name, p.MinNodes, p.MaxNodes)
		}
		if p.MaxTimeMin != timespec.Unlimited && (p.DefaultTimeMin > p.MaxTimeMin || p.DefaultTimeMin == timespec.Unlimited) {
			l.fault(at, "", "partition %s: DefaultTime=%s is longer than MaxTime=%s", p.Name,
				timespec.ClockMinutes(p.DefaultTimeMin), timespec.ClockMinutes(p.MaxTimeMin))
		}
		if p.Default {
			if def != nil {
				l.warn(at, "keep Default=YES on one of them", "partition %s replaces %s as the default", p.Name, def.Name)
				def.Default = false // the last one counts, as in Slurm
			}
			def = p
		}
	}
	for _, p := range l.c.Partitions {
		if p.Alternate != "" && l.c.partition[p.Alternate] == nil {
			l.fault(place{p.File, p.Line}, "", "partition %s: Alternate=%s does not exist", p.Name, p.Alternate)
		}
	}
	if def == nil && len(l.c.Partitions) > 0 {
		l.warn(place{file: l.c.Path}, "add Default=YES to one of them", "no partition is the default, so jobs must name one")
	}
}
