package conf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// constrain decides which resources jobs are confined to: cores, memory, devices.
//
// If slurm.conf sets TaskPlugin, it was written for Slurm, so TaskPlugin and cgroup.conf apply as slurm.conf(5) and cgroup.conf(5)
// describe: without task/cgroup nothing is constrained, with it whatever cgroup.conf enables, and task/affinity binds jobs to their
// cores. Scripts that have run for years keep running after the migration, even if they use more memory than they request. Without
// TaskPlugin everything is constrained unless cgroup.conf disables it: no site wants jobs to take each other's memory.
func (l *loader) constrain() {
	c := l.c
	g, file := &c.Cgroup, c.Cgroup
	_, said := c.raw["taskplugin"]
	if !said && (g.ConstrainCores || g.ConstrainRAMSpace || g.ConstrainDevices) {
		c.TaskPlugin = []string{"task/cgroup"}
	}
	cgroup := false
	if said {
		has := func(plugin string) bool {
			return slices.ContainsFunc(c.TaskPlugin,
				func(p string) bool { return strings.EqualFold(strings.TrimPrefix(p, "task/"), plugin) })
		}
		cgroup = has("cgroup")
		g.ConstrainCores = cgroup && g.ConstrainCores && g.Given("ConstrainCores") || has("affinity")
		g.ConstrainRAMSpace = cgroup && g.ConstrainRAMSpace && g.Given("ConstrainRAMSpace")
		g.ConstrainSwapSpace = cgroup && g.ConstrainSwapSpace
		g.ConstrainDevices = cgroup && g.ConstrainDevices && g.Given("ConstrainDevices")
	}
	if g.ConstrainSwapSpace && !g.ConstrainRAMSpace { // cgroup.conf(5), ConstrainSwapSpace
		g.ConstrainRAMSpace = true
		g.AllowedRAMPercent, g.AllowedSwapPercent = 100+g.AllowedSwapPercent, 0
	}
	if v := c.rawOr("JobAcctGatherType", ""); overMemoryKill(c) && v != "" && !strings.EqualFold(v, "jobacct_gather/none") {
		g.ConstrainRAMSpace = true
	}
	if said {
		l.adviseToConstrain(cgroup, file)
	} else {
		l.adviseOfConstraints()
	}
}

// overMemoryKill reports whether JobAcctGatherParams asks to kill jobs that exceed their memory.
func overMemoryKill(c *Config) bool {
	return slices.ContainsFunc(c.JobAcctGatherParams, func(w string) bool { return strings.EqualFold(w, "OverMemoryKill") })
}

func (l *loader) advise(at place, help, format string, args ...any) {
	l.c.Advice.add(Fault{File: at.file, Line: at.line, Msg: fmt.Sprintf(format, args...), Help: help})
}

// adviseToConstrain lists what jobs can take from each other, and the lines that would prevent it; file is cgroup.conf as written.
func (l *loader) adviseToConstrain(cgroup bool, file Cgroup) {
	g := l.c.Cgroup
	var free, lines []string
	for _, r := range []struct {
		on, written bool
		key, what   string
	}{
		{g.ConstrainRAMSpace, file.ConstrainRAMSpace, "ConstrainRAMSpace", "more memory than they request"},
		{g.ConstrainCores, file.ConstrainCores, "ConstrainCores", "each other's cores"},
		{g.ConstrainDevices, file.ConstrainDevices, "ConstrainDevices", "each other's GPUs"},
	} {
		if r.on {
			continue
		}
		free = append(free, r.what)
		if !r.written || !file.Given(r.key) {
			lines = append(lines, r.key+"=yes")
		}
	}
	if len(free) == 0 {
		return
	}
	help := "add " + strings.Join(lines, ", ") + " to cgroup.conf"
	if !cgroup {
		help = "write TaskPlugin=task/affinity,task/cgroup"
		if len(lines) > 0 {
			help += ", and " + strings.Join(lines, ", ") + " in cgroup.conf"
		}
	}
	l.advise(l.at("TaskPlugin"), help, "jobs may use %s", strings.Join(free, ", "))
}

// adviseOfConstraints says that jobs are confined to their allocation by default, without a line that asks for it.
func (l *loader) adviseOfConstraints() {
	g := l.c.Cgroup
	if g.ConstrainRAMSpace && !g.Given("ConstrainRAMSpace") {
		l.advise(place{file: l.c.Path},
			"set TaskPlugin=task/cgroup to enforce cgroup.conf, or TaskPlugin=task/none to enforce nothing",
			"TaskPlugin is not set: jobs are confined to the cores, memory and devices that they request, unlike in Slurm")
	}
}

// CountsMemory reports whether memory is a consumable resource (SelectTypeParameters).
func (c *Config) CountsMemory() bool {
	return slices.ContainsFunc(c.SelectTypeParameters, func(w string) bool { return strings.Contains(strings.ToUpper(w), "MEMORY") })
}

// adviseDefaults names the partitions whose defaults let a job block others: it gets all memory of its nodes, or no time limit.
func (l *loader) adviseDefaults() {
	c := l.c
	var whole, endless []string
	for _, p := range c.Partitions {
		if c.CountsMemory() && p.OverSubscribe.Mode != "EXCLUSIVE" &&
			p.DefMemPerCPUMiB|p.DefMemPerNodeMiB|c.DefMemPerCPUMiB|c.DefMemPerNodeMiB == 0 {
			whole = append(whole, p.Name)
		}
		if p.DefaultTimeMin == NotSet && p.MaxTimeMin == timespec.Unlimited {
			endless = append(endless, p.Name)
		}
	}
	if len(whole) > 0 {
		help := "set DefMemPerCPU to the memory of a node in MiB, divided by its CPUs"
		if least := c.leastMemoryPerCPU(); least > 0 {
			help = fmt.Sprintf("set DefMemPerCPU=%d, the memory per CPU that every node has", least)
		}
		l.advise(l.at("SelectTypeParameters"), help,
			"a job without --mem takes all memory of its nodes, and no other job fits there: %s %s",
			partitions(whole), strings.Join(whole, ", "))
	}
	if len(endless) > 0 {
		l.advise(place{file: c.Path}, "set DefaultTime", "a job without --time has no time limit: %s %s", partitions(endless),
			strings.Join(endless, ", "))
	}
}

func partitions(names []string) string {
	if len(names) == 1 {
		return "partition"
	}
	return "partitions"
}

// leastMemoryPerCPU is the smallest memory per CPU of any node, in MiB; 0 if nodes or their memory are unknown.
func (c *Config) leastMemoryPerCPU() (least uint64) {
	for i, n := range c.Nodes {
		if per := (n.RealMemoryMiB - n.MemSpecLimitMiB) / uint64(n.CPUs); i == 0 || per < least {
			least = per
		}
	}
	return least
}
