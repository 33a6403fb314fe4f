//go:build cgo

package nvml

import (
	"errors"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/sluice-hpc/sluice/noded/gpu"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Samples implements gpu.Device. A figure that the library refuses is NA; only a lost GPU is an error.
func (d *device) Samples() ([]*pb.DeviceSample, error) {
	at := time.Now().UnixNano()
	one, err := d.sample(d.uuid, at)
	if err != nil {
		return nil, err
	}
	out := []*pb.DeviceSample{one}
	instances := d.migDevices()
	d.forgetCounters(instances)
	for _, m := range instances {
		s, err := (&device{s: d.s, h: m.h, uuid: m.uuid}).memory(m.uuid, at)
		if err != nil {
			continue
		}
		s.UtilPercent = d.instanceLoad(m)
		// Temperature and clocks are those of the GPU; an instance's power is not available.
		s.TemperatureC, s.SmClockMhz, s.MemoryClockMhz, s.EccUncorrected, s.Throttle = one.TemperatureC, one.SmClockMhz,
			one.MemoryClockMhz, one.EccUncorrected, one.Throttle
		out = append(out, s)
	}
	return out, nil
}

// memory returns a sample with only the memory.
func (d *device) memory(uuid string, at int64) (*pb.DeviceSample, error) {
	s := &pb.DeviceSample{Id: uuid, AtNs: at, UtilPercent: gpu.NA, MemoryUsedMib: gpu.NA, TemperatureC: gpu.NA, PowerMw: gpu.NA,
		EnergyMj: gpu.NA, SmClockMhz: gpu.NA,
		MemoryClockMhz: gpu.NA, EccUncorrected: gpu.NA, Throttle: "n/a"}
	memory, ret := d.h.GetMemoryInfo()
	if ret == nvml.SUCCESS {
		s.MemoryUsedMib = int64(memory.Used >> 20)
	}
	if err := d.s.check(ret, "sample GPU "+uuid); errors.Is(err, gpu.ErrLost) {
		return nil, err
	}
	return s, nil
}

func (d *device) sample(uuid string, at int64) (*pb.DeviceSample, error) {
	s, err := d.memory(uuid, at)
	if err != nil {
		return nil, err
	}
	lost := false
	figure := func(symbol string, to *int64, ask func() (int64, nvml.Return)) {
		if lost || !d.s.has(symbol) {
			return
		}
		v, ret := ask()
		lost = ret == nvml.ERROR_GPU_IS_LOST
		if ret == nvml.SUCCESS {
			*to = v
		}
	}
	figure("nvmlDeviceGetUtilizationRates", &s.UtilPercent, func() (int64, nvml.Return) {
		u, ret := d.h.GetUtilizationRates()
		return int64(u.Gpu), ret
	})
	figure("nvmlDeviceGetTemperature", &s.TemperatureC, func() (int64, nvml.Return) {
		t, ret := d.h.GetTemperature(nvml.TEMPERATURE_GPU)
		return int64(t), ret
	})
	figure("nvmlDeviceGetPowerUsage", &s.PowerMw, func() (int64, nvml.Return) {
		p, ret := d.h.GetPowerUsage()
		return int64(p), ret
	})
	figure("nvmlDeviceGetTotalEnergyConsumption", &s.EnergyMj, func() (int64, nvml.Return) {
		e, ret := d.h.GetTotalEnergyConsumption()
		return int64(e), ret
	})
	figure("nvmlDeviceGetClockInfo", &s.SmClockMhz, func() (int64, nvml.Return) {
		c, ret := d.h.GetClockInfo(nvml.CLOCK_SM)
		return int64(c), ret
	})
	figure("nvmlDeviceGetClockInfo", &s.MemoryClockMhz, func() (int64, nvml.Return) {
		c, ret := d.h.GetClockInfo(nvml.CLOCK_MEM)
		return int64(c), ret
	})
	figure("nvmlDeviceGetTotalEccErrors", &s.EccUncorrected, func() (int64, nvml.Return) {
		n, ret := d.h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		return int64(n), ret
	})
	if lost {
		return nil, d.s.check(nvml.ERROR_GPU_IS_LOST, "sample GPU "+uuid)
	}
	s.Throttle = d.throttle()
	return s, nil
}

// throttles are the reasons for low clocks that matter to people. Idleness and requested clocks do not.
var throttles = []struct {
	bit  uint64
	text string
}{
	{nvml.ClocksEventReasonSwPowerCap, "power cap"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
	{nvml.ClocksEventReasonSwThermalSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown, "thermal"},
	{nvml.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
	{nvml.ClocksEventReasonSyncBoost, "sync boost"},
}

func (d *device) throttle() string {
	var mask uint64
	ret := absent
	switch {
	case d.s.has("nvmlDeviceGetCurrentClocksEventReasons"):
		mask, ret = d.h.GetCurrentClocksEventReasons()
	case d.s.has("nvmlDeviceGetCurrentClocksThrottleReasons"): // before 535
		mask, ret = d.h.GetCurrentClocksThrottleReasons()
	}
	if ret != nvml.SUCCESS {
		return "n/a"
	}
	var out []string
	for _, t := range throttles {
		if mask&t.bit != 0 {
			out = append(out, t.text)
		}
	}
	return strings.Join(out, ", ")
}
