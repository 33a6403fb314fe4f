package conf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/conf/timespec"
)

// constrain decides which resources jobs are held to: their cores, their memory, their devices.
//
// Where slurm.conf has TaskPlugin, it was written for a Slurm, and what it says holds, together with cgroup.conf, as
// slurm.conf(5) and cgroup.conf(5) say: without task/cgroup nothing is constrained, with it what cgroup.conf says yes to, and
// task/affinity ties jobs to their cores. Scripts that have run for years do not die on the day of the change, even if they use
// more memory than they ask for. Where there is no TaskPlugin everything is constrained that cgroup.conf does not say no to: a
// cluster in which jobs can take each other's memory is nobody's wish.
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

// overMemoryKill says that JobAcctGatherParams asks to kill what uses more memory than it was given.
func overMemoryKill(c *Config) bool {
	return slices.ContainsFunc(c.JobAcctGatherParams, func(w string) bool { return strings.EqualFold(w, "OverMemoryKill") })
}

func (l *loader) advise(at place, help, format string, args ...any) {
	l.c.Advice.add(Fault{File: at.file, Line: at.line, Msg: fmt.Sprintf(format, args...), Help: help})
}

// adviseToConstrain says what jobs may take from each other, and which lines would stop it; file is cgroup.conf as written.
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

// adviseOfConstraints says that jobs are held to what they ask for, where nobody has asked for it.
func (l *loader) adviseOfConstraints() {
	g := l.c.Cgroup
	if g.ConstrainRAMSpace && !g.Given("ConstrainRAMSpace") {
		l.advise(place{file: l.c.Path},
			"write TaskPlugin=task/cgroup to enforce what cgroup.conf says, or TaskPlugin=task/none to enforce nothing",
			"there is no TaskPlugin: jobs are confined to the cores, memory and devices that they request, which Slurm would not do")
	}
}

// CountsMemory says that jobs are allocated memory (SelectTypeParameters).
func (c *Config) CountsMemory() bool {
	return slices.ContainsFunc(c.SelectTypeParameters, func(w string) bool { return strings.Contains(strings.ToUpper(w), "MEMORY") })
}

// adviseDefaults names the partitions in which a job that says nothing keeps others out: with all memory of its nodes, or without end.
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
			help = fmt.Sprintf("set DefMemPerCPU=%d, what every node has for each of its CPUs", least)
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

// leastMemoryPerCPU is that of the node with the least memory for each of its CPUs, in MiB; 0 where nodes or their memory are not known.
func (c *Config) leastMemoryPerCPU() (least uint64) {
	for i, n := range c.Nodes {
		if per := (n.RealMemoryMiB - n.MemSpecLimitMiB) / uint64(n.CPUs); i == 0 || per < least {
			least = per
		}
	}
	return least
}
