//go:build cgo

package nvml

import (
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/sluice-hpc/sluice/noded/gpu"
)

// The load of a MIG instance comes from GPM, the performance counters of Hopper and later: the difference of two samples. Before
// Hopper it is not available.

// gpmSymbols are the functions of GPM.
var gpmSymbols = []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMigSampleGet",
	"nvmlGpmMetricsGet"}

// counters are the last sample of an instance.
type counters struct {
	gpu    string
	sample nvml.GpmSample
}

// instanceLoad returns the load of an instance since the last call; NA if unknown, as on the first call for an instance.
func (d *device) instanceLoad(m migDevice) int64 {
	for _, f := range gpmSymbols {
		if !d.s.has(f) {
			return gpu.NA
		}
	}
	if can, ret := d.h.GpmQueryDeviceSupport(); ret != nvml.SUCCESS || can.IsSupportedDevice == 0 {
		return gpu.NA
	}
	now, ret := d.s.lib.GpmSampleAlloc()
	if ret != nvml.SUCCESS {
		return gpu.NA
	}
	if now.MigGet(d.h, m.gi) != nvml.SUCCESS {
		_ = now.Free()
		return gpu.NA
	}
	d.s.mu.Lock()
	before, known := d.s.counters[m.uuid]
	d.s.counters[m.uuid] = counters{d.uuid, now}
	d.s.mu.Unlock()
	if !known {
		return gpu.NA
	}
	defer before.sample.Free()
	between := &nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: before.sample, Sample2: now}
	between.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)
	if d.s.lib.GpmMetricsGet(between) != nvml.SUCCESS || nvml.Return(between.Metrics[0].NvmlReturn) != nvml.SUCCESS ||
		math.IsNaN(between.Metrics[0].Value) {
		return gpu.NA
	}
	return int64(math.Round(min(100, max(0, between.Metrics[0].Value))))
}

// forgetCounters frees the samples of a GPU's former instances.
func (d *device) forgetCounters(there []migDevice) {
	keep := map[string]bool{}
	for _, m := range there {
		keep[m.uuid] = true
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	for uuid, c := range d.s.counters {
		if c.gpu == d.uuid && !keep[uuid] {
			_ = c.sample.Free()
			delete(d.s.counters, uuid)
		}
	}
}
