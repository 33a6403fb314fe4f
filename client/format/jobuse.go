package format

import (
	"fmt"
	"strconv"

	"github.com/sluice-hpc/sluice/client/msg"
)

// JobUse is the use that a job has made of its allocation: as reported by its nodes at the end, or so far while it runs. A figure
// that was not measured is unknown, not zero.
type JobUse struct {
	CPUUsec            uint64 // CPU time, user and system
	RSSKiB, HeldRSSKiB uint64 // sum of the nodes' peak memory, and of the memory allocated
	GPUs               GPUUse
}

// GPUUse is the use that a job has made of its GPUs. For a part of a GPU the figures are those of the whole GPU, because drivers
// provide no others.
type GPUUse struct {
	Devices  int     // GPUs or MIG instances, with or without figures
	UtilOf   int     // number of devices whose driver provides the utilization
	Util     float64 // their mean utilization, in percent
	MemoryOf int
	MemMiB   int64 // sum of the devices' peak memory
	MostMiB  int64 // the largest of these
	EnergyOf int
	EnergyMJ int64 // millijoules
}

// UseOf sums up the usage of a job.
func UseOf(r *msg.JobRecord) (u JobUse) {
	for _, s := range r.GetUsage() {
		u.CPUUsec += s.GetCpuUsecUser() + s.GetCpuUsecSystem()
		u.RSSKiB += s.GetMaxRssKib()
		for _, d := range s.GetDevices() {
			u.GPUs.add(d)
		}
	}
	for _, a := range r.GetAlloc() {
		u.HeldRSSKiB += a.GetMemMib() << 10
	}
	if u.GPUs.UtilOf > 0 {
		u.GPUs.Util /= float64(u.GPUs.UtilOf)
	}
	return u
}

func (g *GPUUse) add(d *msg.DeviceUse) {
	g.Devices++
	if d.GetSamples() == 0 {
		return
	}
	if v := d.GetUtilPercent(); v >= 0 {
		g.Util, g.UtilOf = g.Util+float64(v), g.UtilOf+1
	}
	if v := d.GetMaxMemoryMib(); v >= 0 {
		g.MemMiB, g.MostMiB, g.MemoryOf = g.MemMiB+v, max(g.MostMiB, v), g.MemoryOf+1
	}
	if v := d.GetEnergyMj(); v >= 0 && d.GetSamples() > 1 { // a counter needs two samples
		g.EnergyMJ, g.EnergyOf = g.EnergyMJ+v, g.EnergyOf+1
	}
}

// HoldsGPUs reports whether a job has GPUs or parts of them.
func HoldsGPUs(r *msg.JobRecord) bool {
	for _, a := range r.GetAlloc() {
		for _, d := range a.GetDevices() {
			if d.GetName() == "gpu" || d.GetShare() > 0 {
				return true
			}
		}
	}
	return false
}

// notKnown is shown for a figure that was not measured.
const notKnown = "n/a"

func share(part, whole float64) string {
	if whole <= 0 {
		return notKnown
	}
	return fmt.Sprintf("%.2f%%", 100*part/whole)
}

// jobUse writes the line with the job's usage, once a node has reported. Without -d only jobs with GPUs have it, so that the blocks
// of all others are identical to Slurm's. GPUMem is the sum of the GPUs' peak memory, ConsumedEnergy is in joules.
func jobUse(k *Block, r *msg.JobRecord, details int) {
	gpus := HoldsGPUs(r)
	if len(r.GetUsage()) == 0 || details == 0 && !gpus {
		return
	}
	u := UseOf(r)
	k.line()
	k.put("CPUEfficiency", share(float64(u.CPUUsec)/1e6, float64(UsedSeconds(k.c, r)*int64(r.GetNumCpus()))))
	k.put(" MemEfficiency", share(float64(u.RSSKiB), float64(u.HeldRSSKiB)))
	if !gpus {
		return
	}
	known := func(n int, text string) string {
		if n == 0 {
			return notKnown
		}
		return text
	}
	k.put(" GPUUtil", known(u.GPUs.UtilOf, fmt.Sprintf("%.2f%%", u.GPUs.Util)))
	k.put(" GPUMem", known(u.GPUs.MemoryOf, strconv.FormatInt(u.GPUs.MemMiB, 10)+"M"))
	k.put(" ConsumedEnergy", known(u.GPUs.EnergyOf, strconv.FormatInt(u.GPUs.EnergyMJ/1000, 10)))
}
