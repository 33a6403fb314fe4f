package conf

import (
	"fmt"
	"strconv"
	"strings"
)

// Cgroup is cgroup.conf together with the settings of slurm.conf that affect it: see constrain.
type Cgroup struct {
	File string // empty if the file does not exist

	CgroupPlugin     string // autodetect, cgroup/v1, cgroup/v2 or disabled
	CgroupMountpoint string

	ConstrainCores     bool
	ConstrainDevices   bool
	ConstrainRAMSpace  bool
	ConstrainSwapSpace bool

	AllowedRAMPercent  float64 // of the job's allocated memory
	AllowedSwapPercent float64 // of the job's allocated memory, in addition to it
	MaxRAMPercent      float64 // of the node's memory
	MaxSwapPercent     float64
	MinRAMSpaceMiB     uint64
	MemorySwappiness   int // -1: the kernel's default

	IgnoreSystemd          bool
	IgnoreSystemdOnFailure bool

	given map[string]bool
}

// Given reports whether the file sets a key, in any case.
func (c Cgroup) Given(key string) bool { return c.given[strings.ToLower(key)] }

func defaultCgroup() Cgroup {
	return Cgroup{
		CgroupPlugin: "autodetect", CgroupMountpoint: "/sys/fs/cgroup",
		ConstrainCores: true, ConstrainDevices: true, ConstrainRAMSpace: true,
		AllowedRAMPercent: 100, MaxRAMPercent: 100, MaxSwapPercent: 100, MinRAMSpaceMiB: 30, MemorySwappiness: -1,
		given: map[string]bool{},
	}
}

func cgroupBool(field func(*Cgroup) *bool) func(*Cgroup, string) error {
	return func(c *Cgroup, v string) error { return readBool(field(c), v) }
}

func cgroupPercent(field func(*Cgroup) *float64) func(*Cgroup, string) error {
	return func(c *Cgroup, v string) error {
		p, err := strconv.ParseFloat(v, 64)
		if err != nil || !(p >= 0 && p <= 10000) {
			return fmt.Errorf("%.40q is not a percentage", v)
		}
		*field(c) = p
		return nil
	}
}

const (
	whyKernelMemory = "supported kernels count kernel memory as part of a job's memory"
	whyOwnCgroups   = "the node daemon creates its own cgroups, without systemd"
)

var cgroupKeys = recordKeys(func() []recordKey[Cgroup] {
	return []recordKey[Cgroup]{
		{name: "CgroupPlugin", set: func(c *Cgroup, v string) (err error) {
			c.CgroupPlugin, err = oneOf(v, "autodetect", "cgroup/v1", "cgroup/v2", "disabled")
			return err
		}},
		{name: "CgroupMountpoint", why: "cgroups are used where they are mounted", set: func(c *Cgroup, v string) error {
			c.CgroupMountpoint = v
			return nil
		}},
		{name: "ConstrainCores", set: cgroupBool(func(c *Cgroup) *bool { return &c.ConstrainCores })},
		{name: "ConstrainDevices", set: cgroupBool(func(c *Cgroup) *bool { return &c.ConstrainDevices })},
		{name: "ConstrainRAMSpace", set: cgroupBool(func(c *Cgroup) *bool { return &c.ConstrainRAMSpace })},
		{name: "ConstrainSwapSpace", set: cgroupBool(func(c *Cgroup) *bool { return &c.ConstrainSwapSpace })},
		{name: "AllowedRAMSpace", set: cgroupPercent(func(c *Cgroup) *float64 { return &c.AllowedRAMPercent })},
		{name: "AllowedSwapSpace", set: cgroupPercent(func(c *Cgroup) *float64 { return &c.AllowedSwapPercent })},
		{name: "MaxRAMPercent", set: cgroupPercent(func(c *Cgroup) *float64 { return &c.MaxRAMPercent })},
		{name: "MaxSwapPercent", set: cgroupPercent(func(c *Cgroup) *float64 { return &c.MaxSwapPercent })},
		{name: "MinRAMSpace", set: func(c *Cgroup, v string) error { return readMiB(&c.MinRAMSpaceMiB, v) }},
		{name: "MemorySwappiness", why: "swapping is left to the kernel", set: func(c *Cgroup, v string) error {
			return readNumber(&c.MemorySwappiness, v, 0, 100)
		}},
		{name: "IgnoreSystemd", set: cgroupBool(func(c *Cgroup) *bool { return &c.IgnoreSystemd }), why: whyOwnCgroups},
		{name: "IgnoreSystemdOnFailure", set: cgroupBool(func(c *Cgroup) *bool { return &c.IgnoreSystemdOnFailure }), why: whyOwnCgroups},
		{name: "AllowedKmemSpace", why: whyKernelMemory},
		{name: "ConstrainKmemSpace", why: whyKernelMemory},
		{name: "MaxKmemPercent", why: whyKernelMemory},
		{name: "MinKmemSpace", why: whyKernelMemory},
		{name: "CgroupAutomount", why: whyOwnCgroups},
		{name: "CgroupReleaseAgentDir", why: whyOwnCgroups},
		{name: "CgroupSlice", why: whyOwnCgroups},
		{name: "EnableControllers", why: whyOwnCgroups},
		{name: "EnableExtraControllers", why: whyOwnCgroups},
		{name: "SystemdTimeout", why: whyOwnCgroups},
		{name: "SignalChildrenProcesses", why: "signals reach every process of a step"},
		{name: "AllowedDevicesFile", why: "it was removed from Slurm; jobs can open every device that is not a GPU or another resource " +
			"of gres.conf"},
		{name: "TaskAffinity", why: "it was removed from Slurm; tasks are bound by ConstrainCores"},
	}
})

// cgroupLine reads one line of cgroup.conf.
func (l *loader) cgroupLine(pairs []pair) {
	for _, p := range pairs {
		l.c.Cgroup.given[strings.ToLower(p.key)] = true
	}
	readRecord(l, "cgroup.conf", cgroupKeys(), pairs, &l.c.Cgroup)
}
