//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/sluice-hpc/sluice/noded/gpu"
)

// device is one GPU.
type device struct {
	s    *source
	h    nvml.Device
	uuid string
}

// affinityCPUs is the number of processors to query for a GPU's affinity.
const affinityCPUs = 1024 // the library takes eight times as many bits

// UUID implements gpu.Device.
func (d *device) UUID() string { return d.uuid }

// Info implements gpu.Device. Name, address and minor number are required; other values may be unknown.
func (d *device) Info() (gpu.Info, error) {
	in := gpu.Info{UUID: d.uuid, Minor: gpu.NA, NUMA: gpu.NA, ECC: "n/a"}
	var ret nvml.Return
	if in.Model, ret = d.h.GetName(); ret != nvml.SUCCESS {
		return in, d.s.check(ret, "tell the model of GPU "+d.uuid)
	}
	pci, ret := d.h.GetPciInfo()
	if ret != nvml.SUCCESS {
		return in, d.s.check(ret, "tell the PCI address of GPU "+d.uuid)
	}
	if in.PCI = busID(pci.BusId); in.PCI == "" { // the first version of this call
		in.PCI = strings.ToUpper(text(pci.BusIdLegacy[:]))
	}
	minor, ret := d.h.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return in, d.s.check(ret, "tell the device file of GPU "+d.uuid)
	}
	in.Minor, in.Files = minor, []string{d.s.path("/dev/nvidia" + strconv.Itoa(minor))}
	memory, ret := d.h.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return in, d.s.check(ret, "tell the memory of GPU "+d.uuid)
	}
	in.MemoryMiB = memory.Total >> 20
	d.place(&in)
	d.ecc(&in)
	d.links(&in)
	return in, d.mig(&in, memory.Total)
}

// place finds the processors and the NUMA node near a GPU.
func (d *device) place(in *gpu.Info) {
	if d.s.has("nvmlDeviceGetCpuAffinity") {
		if set, ret := d.h.GetCpuAffinity(affinityCPUs); ret == nvml.SUCCESS {
			for w, word := range set {
				for b := range 64 {
					if word>>b&1 == 1 {
						in.CPUs = append(in.CPUs, w*64+b)
					}
				}
			}
		}
	}
	// The kernel writes domains with four digits.
	addr := strings.ToLower(in.PCI)
	if len(addr) > 12 {
		addr = addr[len(addr)-12:]
	}
	if b, err := os.ReadFile(d.s.path("/sys/bus/pci/devices/" + addr + "/numa_node")); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n >= 0 {
			in.NUMA = n
		}
	}
}

func (d *device) ecc(in *gpu.Info) {
	if !d.s.has("nvmlDeviceGetEccMode") {
		return
	}
	if now, _, ret := d.h.GetEccMode(); ret == nvml.SUCCESS {
		in.ECC = "off"
		if now == nvml.FEATURE_ENABLED {
			in.ECC = "on"
		}
	}
}

// links counts the active NVLinks, and finds the PCIe closeness of the other GPUs.
func (d *device) links(in *gpu.Info) {
	in.Links, in.Near = map[string]int{}, map[string]int{}
	if d.s.has("nvmlDeviceGetNvLinkState") && d.s.has("nvmlDeviceGetNvLinkRemotePciInfo") {
		for link := range nvml.NVLINK_MAX_LINKS {
			up, ret := d.h.GetNvLinkState(link)
			if ret != nvml.SUCCESS && link == 0 {
				break // it has no NVLinks
			}
			if ret != nvml.SUCCESS || up != nvml.FEATURE_ENABLED {
				continue
			}
			in.Links[d.otherEnd(link)]++
		}
	}
	delete(in.Links, "")
	if len(in.Links) > 0 || !d.s.has("nvmlDeviceGetTopologyCommonAncestor") {
		return
	}
	others, _ := d.s.Devices()
	for _, o := range others {
		if level, ret := d.h.GetTopologyCommonAncestor(o.(*device).h); o.UUID() != d.uuid && ret == nvml.SUCCESS {
			in.Near[o.UUID()] = 5 - min(5, int(level)/10)
		}
	}
}

// otherEnd returns where an NVLink ends: a switch, or the PCI address of a GPU; empty: elsewhere.
func (d *device) otherEnd(link int) string {
	if d.s.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
		switch kind, ret := d.h.GetNvLinkRemoteDeviceType(link); {
		case ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH:
			return gpu.SwitchLinks
		case ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_IBMNPU:
			return ""
		}
	}
	if pci, ret := d.h.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
		return busID(pci.BusId)
	}
	return ""
}

// Processes implements gpu.Device: processes with a CUDA context. Those that only draw on a screen do not disturb jobs.
func (d *device) Processes() (out []gpu.Process, err error) {
	if !d.s.has("nvmlDeviceGetComputeRunningProcesses") && !d.s.has("nvmlDeviceGetComputeRunningProcesses_v2") &&
		!d.s.has("nvmlDeviceGetComputeRunningProcesses_v3") {
		return nil, nil
	}
	list, ret := d.h.GetComputeRunningProcesses()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil, nil
	}
	if err := d.s.check(ret, "tell who uses GPU "+d.uuid); err != nil {
		return nil, err
	}
	var instances map[uint32]string
	for _, p := range list {
		q := gpu.Process{PID: int(p.Pid)}
		if p.GpuInstanceId != ^uint32(0) {
			if instances == nil {
				instances = d.instanceIDs()
			}
			q.Instance = instances[p.GpuInstanceId]
		}
		out = append(out, q)
	}
	return out, nil
}

// Health implements gpu.Device.
func (d *device) Health() (gpu.Health, error) {
	h := gpu.Health{Uncorrectable: gpu.NA}
	var errs []error
	note := func(ret nvml.Return, what string) bool {
		switch ret {
		case nvml.SUCCESS:
			return true
		case nvml.ERROR_RESET_REQUIRED:
			h.Broken = "the GPU has to be reset"
		case nvml.ERROR_NOT_SUPPORTED, absent:
		default:
			errs = append(errs, d.s.check(ret, fmt.Sprintf("%s of GPU %s", what, d.uuid)))
		}
		return false
	}
	if d.s.has("nvmlDeviceGetTotalEccErrors") {
		if n, ret := d.h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); note(ret, "count the ECC errors") {
			h.Uncorrectable = int64(n)
		}
	}
	if d.s.has("nvmlDeviceGetRemappedRows") {
		if _, _, pending, failed, ret := d.h.GetRemappedRows(); note(ret, "tell the remapped rows") {
			if pending {
				h.Pending = gpu.RemapPending
			}
			if failed {
				h.Broken = gpu.RemapFailed
			}
		}
	}
	if d.s.has("nvmlDeviceGetRetiredPagesPendingStatus") && h.Pending == "" {
		if pending, ret := d.h.GetRetiredPagesPendingStatus(); note(ret, "tell the retired pages") && pending == nvml.FEATURE_ENABLED {
			h.Pending = "retirement of memory pages waits for a reset of the GPU"
		}
	}
	return h, errors.Join(errs...)
}
