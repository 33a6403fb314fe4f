package acct

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/conf/timespec"
)

// use is one kind of usage of a step: the amount on each node, and the nodes with the most and the least.
type use struct {
	name  string
	tasks uint64 // of the step
	perN  []nodeUse
	now   []uint64 // of a running step, where it differs from perN, the largest value so far
	known bool
}

type nodeUse struct {
	node  string
	value uint64
}

func (u *use) add(node string, v uint64) { u.perN, u.known = append(u.perN, nodeUse{node, v}), true }

func (u *use) total() (sum uint64) {
	if len(u.now) > 0 {
		for _, v := range u.now {
			sum += v
		}
		return sum
	}
	for _, n := range u.perN {
		sum += n.value
	}
	return sum
}

func (u *use) mean() uint64 {
	if len(u.perN) == 0 {
		return 0
	}
	return u.total() / max(uint64(len(u.perN)), u.tasks)
}

func (u *use) most() nodeUse {
	return slices.MaxFunc(u.perN, func(a, b nodeUse) int { return cmp.Compare(a.value, b.value) })
}

func (u *use) least() nodeUse {
	return slices.MinFunc(u.perN, func(a, b nodeUse) int { return cmp.Compare(a.value, b.value) })
}

// collect returns the usage of a row, by kind.
func (r Row) collect() (in, out []use) {
	in, out = collect(r.usage())
	for i := range in {
		in[i].tasks = uint64(r.made.GetNumTasks())
	}
	for i := range out {
		out[i].tasks = uint64(r.made.GetNumTasks())
	}
	return in, out
}

// collect returns a step's usage by name (sacct(1), TRESUsageIn and TRESUsageOut).
func collect(list []*msg.StepUsage) (in, out []use) {
	kinds := map[string]*use{}
	put := func(name, node string, v uint64) {
		if kinds[name] == nil {
			kinds[name] = &use{name: name}
		}
		kinds[name].add(node, v)
	}
	written := use{name: "fs/disk"}
	for _, u := range list {
		node := u.GetNode()
		put("cpu", node, (u.GetCpuUsecUser()+u.GetCpuUsecSystem())/1e6)
		put("fs/disk", node, u.GetReadBytes())
		put("mem", node, u.GetMaxRssKib()<<10)
		put("pages", node, u.GetPageFaults())
		if u.GetMaxVmKib() > 0 { // 0 if the step was too short to be sampled
			put("vmem", node, u.GetMaxVmKib()<<10)
		}
		if u.GetRssKib() > 0 {
			kinds["mem"].now = append(kinds["mem"].now, u.GetRssKib()<<10)
			if v := kinds["vmem"]; v != nil {
				v.now = append(v.now, u.GetVmKib()<<10)
			}
		}
		written.add(node, u.GetWriteBytes())
		energy, known := devices(u, put)
		if known {
			put("energy", node, energy)
		}
	}
	for _, u := range kinds {
		in = append(in, *u)
	}
	slices.SortFunc(in, func(a, b use) int { return cmp.Compare(a.name, b.name) })
	if written.known {
		out = append(out, written)
	}
	return in, out
}

// devices adds the usage of GPUs: the sum of their mean utilizations in percent, as in Slurm, and their memory. Figures that no
// driver provides are left out instead of zero.
func devices(u *msg.StepUsage, put func(name, node string, v uint64)) (energyJ uint64, known bool) {
	var util, memory, energy uint64
	var utilKnown, memoryKnown bool
	for _, d := range u.GetDevices() {
		if d.GetSamples() > 0 && d.GetUtilPercent() >= 0 {
			util, utilKnown = util+uint64(d.GetUtilPercent()), true
		}
		if d.GetSamples() > 0 && d.GetMaxMemoryMib() >= 0 {
			memory, memoryKnown = memory+uint64(d.GetMaxMemoryMib())<<20, true
		}
		if d.GetSamples() > 1 && d.GetEnergyMj() >= 0 { // a counter needs two samples
			energy, known = energy+uint64(d.GetEnergyMj()), true
		}
	}
	if utilKnown {
		put("gres/gpuutil", u.GetNode(), util)
	}
	if memoryKnown {
		put("gres/gpumem", u.GetNode(), memory)
	}
	return energy / 1000, known
}

func (c *Context) useText(name string, v uint64) string {
	switch name {
	case "cpu":
		return timespec.Clock(int64(v))
	case "mem", "vmem", "gres/gpumem":
		return c.Size(v)
	case "fs/disk":
		if c.Units != 0 {
			return inUnit(v, c.Units)
		}
	}
	return strconv.FormatUint(v, 10)
}

// usageList formats one figure of every kind.
func (c *Context) usageList(list []use, figure func(*use) uint64) string {
	var parts []string
	for i := range list {
		parts = append(parts, list[i].name+"="+c.useText(list[i].name, figure(&list[i])))
	}
	return strings.Join(parts, ",")
}

// places formats the node or task of a figure of every kind.
func places(list []use, place func(*use) string) string {
	var parts []string
	for i := range list {
		if p := place(&list[i]); p != "" {
			parts = append(parts, list[i].name+"="+p)
		}
	}
	return strings.Join(parts, ",")
}

func find(list []use, name string) *use {
	for i := range list {
		if list[i].name == name {
			return &list[i]
		}
	}
	return nil
}
