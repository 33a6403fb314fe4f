//go:build cgo

package nvml

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/sluice-hpc/sluice/noded/gpu"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// profileForms are the library's profile numbers, with the compute slices and the suffix of the name.
var profileForms = map[int]struct {
	slices uint32
	suffix string
}{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE: {1, ""}, nvml.GPU_INSTANCE_PROFILE_2_SLICE: {2, ""}, nvml.GPU_INSTANCE_PROFILE_3_SLICE: {3, ""},
	nvml.GPU_INSTANCE_PROFILE_4_SLICE: {4, ""}, nvml.GPU_INSTANCE_PROFILE_6_SLICE: {6, ""}, nvml.GPU_INSTANCE_PROFILE_7_SLICE: {7, ""},
	nvml.GPU_INSTANCE_PROFILE_8_SLICE: {8, ""}, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: {1, "+me"},
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1: {2, "+me"},
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2: {1, ""}, // with the memory of two slices
}

// mig reads a GPU's mode, profiles and instances.
func (d *device) mig(in *gpu.Info, totalBytes uint64) error {
	if !d.s.has("nvmlDeviceGetMigMode") {
		return nil
	}
	now, pending, ret := d.h.GetMigMode()
	if ret != nvml.SUCCESS {
		if err := d.s.check(ret, "tell the MIG mode of GPU "+d.uuid); errors.Is(err, gpu.ErrLost) {
			return err
		}
		return nil
	}
	mode := map[int]string{nvml.DEVICE_MIG_DISABLE: "off", nvml.DEVICE_MIG_ENABLE: "on"}
	if in.MIG = mode[now]; pending != now {
		in.MIG = "pending " + mode[pending]
	}
	if d.s.has("nvmlDeviceGetArchitecture") {
		arch, ret := d.h.GetArchitecture()
		in.NoReset = ret == nvml.SUCCESS && arch >= nvml.DEVICE_ARCH_HOPPER && arch != nvml.DEVICE_ARCH_UNKNOWN
	}
	in.Profiles = d.profiles(totalBytes)
	for _, m := range d.migDevices() {
		in.Instances = append(in.Instances, d.instance(m, in))
	}
	return nil
}

// profiles returns the GPU's profiles.
func (d *device) profiles(totalBytes uint64) (out []*pb.MigProfile) {
	if !d.s.has("nvmlDeviceGetGpuInstanceProfileInfo") || !d.s.has("nvmlDeviceGetGpuInstancePossiblePlacements") {
		return nil
	}
	for id := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		form, known := profileForms[id]
		if !known {
			continue // without compute, or for graphics
		}
		info, ret := d.h.GetGpuInstanceProfileInfo(id)
		if ret != nvml.SUCCESS {
			continue
		}
		p := &pb.MigProfile{Name: d.profileName(id, info.MemorySizeMB, totalBytes), Slices: form.slices, MemoryMib: info.MemorySizeMB,
			Id: uint32(id)}
		places, ret := d.h.GetGpuInstancePossiblePlacements(&info)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, pl := range places {
			p.Starts, p.Size = append(p.Starts, pl.Start), pl.Size
		}
		if slices.Sort(p.Starts); len(p.Starts) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// profileName returns the driver's name of a profile; with older drivers, which do not tell, the name by NVIDIA's rule.
func (d *device) profileName(id int, memoryMiB, totalBytes uint64) string {
	if d.s.has("nvmlDeviceGetGpuInstanceProfileInfoV") {
		if info, ret := d.h.GetGpuInstanceProfileInfoV(id).V2(); ret == nvml.SUCCESS {
			if name := strings.TrimPrefix(text(info.Name[:]), "MIG "); name != "" {
				return name
			}
		}
	}
	return ruledName(id, memoryMiB, totalBytes)
}

// ruledName builds the name from the compute slices and the memory in GB, a multiple of an eighth of the GPU's.
func ruledName(id int, memoryMiB, totalBytes uint64) string {
	eighths := max(1, math.Round(float64(memoryMiB<<20)/float64(max(1, totalBytes))*8))
	gb := math.Round(eighths / 8 * float64((totalBytes+1<<30-1)>>30))
	return fmt.Sprintf("%dg.%dgb%s", profileForms[id].slices, int(gb), profileForms[id].suffix)
}

// migDevice is an instance that a process can use: a GPU instance with a compute instance.
type migDevice struct {
	h      nvml.Device
	uuid   string
	gi, ci int
}

func (d *device) migDevices() (out []migDevice) {
	if !d.s.has("nvmlDeviceGetMaxMigDeviceCount") || !d.s.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
	n, ret := d.h.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	for i := range n {
		h, ret := d.h.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // numbers may be missing
		}
		uuid, ret1 := h.GetUUID()
		gi, ret2 := h.GetGpuInstanceId()
		ci, ret3 := h.GetComputeInstanceId()
		if ret1 == nvml.SUCCESS && ret2 == nvml.SUCCESS && ret3 == nvml.SUCCESS {
			out = append(out, migDevice{h, uuid, gi, ci})
		}
	}
	return out
}

// instanceIDs returns the UUIDs of the instances by the number of their GPU instance.
func (d *device) instanceIDs() map[uint32]string {
	out := map[uint32]string{}
	for _, m := range d.migDevices() {
		out[uint32(m.gi)] = m.uuid
	}
	return out
}

// instance describes an instance, as far as the library tells.
func (d *device) instance(m migDevice, in *gpu.Info) gpu.Instance {
	out := gpu.Instance{UUID: m.uuid, Profile: "unknown", Files: slices.Clone(in.Files)}
	if memory, ret := m.h.GetMemoryInfo(); ret == nvml.SUCCESS {
		out.MemoryMiB = memory.Total >> 20
	}
	if gi, ret := d.h.GetGpuInstanceById(m.gi); ret == nvml.SUCCESS {
		if info, ret := gi.GetInfo(); ret == nvml.SUCCESS {
			out.Start, out.Size = info.Placement.Start, info.Placement.Size
			if p := d.profileOf(info.ProfileId, in.Profiles); p != nil {
				out.Profile = p.Name
			}
		}
	}
	for _, level := range []string{fmt.Sprintf("gi%d", m.gi), fmt.Sprintf("gi%d/ci%d", m.gi, m.ci)} {
		if f := d.s.capability(fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%d/mig/%s/access", in.Minor, level)); f != "" {
			out.Files = append(out.Files, f)
		}
	}
	return out
}

// profileOf finds a profile by the driver's number, which differs from the number in queries.
func (d *device) profileOf(number uint32, list []*pb.MigProfile) *pb.MigProfile {
	for _, p := range list {
		if info, ret := d.h.GetGpuInstanceProfileInfo(int(p.Id)); ret == nvml.SUCCESS && info.Id == number {
			return p
		}
	}
	return nil
}

// capability returns the device file of a capability, and creates it if missing: NVIDIA's tools do that only when they run (MIG
// User Guide, "Device Nodes and Capabilities").
func (s *source) capability(access string) string {
	b, err := os.ReadFile(s.path(access))
	if err != nil {
		return ""
	}
	minor, mode := -1, 0o444
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		switch {
		case err != nil:
		case key == "DeviceFileMinor":
			minor = n
		case key == "DeviceFileMode":
			mode = n
		}
	}
	if minor < 0 {
		return ""
	}
	path := s.path("/dev/nvidia-caps/nvidia-cap" + strconv.Itoa(minor))
	if _, err := os.Stat(path); err != nil {
		if major := s.major("nvidia-caps"); major > 0 {
			_ = os.MkdirAll(s.path("/dev/nvidia-caps"), 0o755)
			if unix.Mknod(path, unix.S_IFCHR|uint32(mode), int(unix.Mkdev(major, uint32(minor)))) == nil {
				_ = os.Chmod(path, os.FileMode(mode))
			}
		}
	}
	return path
}

// major returns the major number of a character driver; 0: not present.
func (s *source) major(name string) uint32 {
	f, err := os.Open(s.path("/proc/devices"))
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		n, rest, _ := strings.Cut(strings.TrimSpace(sc.Text()), " ")
		if rest == name {
			v, _ := strconv.ParseUint(n, 10, 12)
			return uint32(v)
		}
	}
	return 0
}

// SetMIG implements gpu.Device.
func (d *device) SetMIG(on bool) error {
	if !d.s.has("nvmlDeviceSetMigMode") {
		return d.s.check(absent, "switch MIG of GPU "+d.uuid)
	}
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	// The second result and the mode that Info reads tell whether the change took effect at once.
	ret, _ := d.h.SetMigMode(mode)
	return d.s.check(ret, "switch MIG of GPU "+d.uuid)
}

// computeProfiles are the compute instances that take a whole GPU instance, by its slices.
var computeProfiles = map[uint32]int{1: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 2: nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE,
	3: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE,
	4: nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE, 6: nvml.COMPUTE_INSTANCE_PROFILE_6_SLICE, 7: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE,
	8: nvml.COMPUTE_INSTANCE_PROFILE_8_SLICE}

// CreateInstance implements gpu.Device. It removes GPU instances without a compute instance that are in the way: nobody can use
// them, and a daemon that ends between the two calls leaves one.
func (d *device) CreateInstance(p *pb.MigProfile, start uint32) error {
	for _, f := range []string{"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance",
		"nvmlGpuInstanceGetComputeInstanceProfileInfo"} {
		if !d.s.has(f) {
			return d.s.check(absent, "cut GPU "+d.uuid)
		}
	}
	info, ret := d.h.GetGpuInstanceProfileInfo(int(p.Id))
	if ret != nvml.SUCCESS {
		return d.s.check(ret, fmt.Sprintf("cut a %s out of GPU %s", p.Name, d.uuid))
	}
	place := &nvml.GpuInstancePlacement{Start: start, Size: p.Size}
	gi, ret := d.h.CreateGpuInstanceWithPlacement(&info, place)
	if ret == nvml.ERROR_INSUFFICIENT_RESOURCES && d.removeEmpty() > 0 {
		gi, ret = d.h.CreateGpuInstanceWithPlacement(&info, place)
	}
	if ret != nvml.SUCCESS {
		return d.s.check(ret, fmt.Sprintf("cut a %s out of GPU %s", p.Name, d.uuid))
	}
	ci, ret := gi.GetComputeInstanceProfileInfo(computeProfiles[p.Slices], nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	if ret == nvml.SUCCESS {
		_, ret = gi.CreateComputeInstance(&ci)
	}
	if ret != nvml.SUCCESS {
		_ = gi.Destroy()
		return d.s.check(ret, fmt.Sprintf("make a compute instance in the %s of GPU %s", p.Name, d.uuid))
	}
	return nil
}

// gpuInstances returns all GPU instances, of any profile.
func (d *device) gpuInstances() (out []nvml.GpuInstance) {
	if !d.s.has("nvmlDeviceGetGpuInstances") {
		return nil
	}
	for id := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		if info, ret := d.h.GetGpuInstanceProfileInfo(id); ret == nvml.SUCCESS {
			if list, ret := d.h.GetGpuInstances(&info); ret == nvml.SUCCESS {
				out = append(out, list...)
			}
		}
	}
	return out
}

// computeInstances returns the compute instances of a GPU instance.
func computeInstances(gi nvml.GpuInstance) (out []nvml.ComputeInstance) {
	for id := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		if info, ret := gi.GetComputeInstanceProfileInfo(id, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED); ret == nvml.SUCCESS {
			if list, ret := gi.GetComputeInstances(&info); ret == nvml.SUCCESS {
				out = append(out, list...)
			}
		}
	}
	return out
}

func (d *device) removeEmpty() (n int) {
	for _, gi := range d.gpuInstances() {
		if len(computeInstances(gi)) == 0 && gi.Destroy() == nvml.SUCCESS {
			n++
		}
	}
	return n
}

// DestroyInstance implements gpu.Device. The driver refuses while a process uses it.
func (d *device) DestroyInstance(uuid string) error {
	what := fmt.Sprintf("destroy instance %s of GPU %s", uuid, d.uuid)
	for _, f := range []string{"nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy", "nvmlDeviceGetGpuInstanceById"} {
		if !d.s.has(f) {
			return d.s.check(absent, what)
		}
	}
	for _, m := range d.migDevices() {
		if m.uuid != uuid {
			continue
		}
		gi, ret := d.h.GetGpuInstanceById(m.gi)
		if ret != nvml.SUCCESS {
			return d.s.check(ret, what)
		}
		for _, ci := range computeInstances(gi) {
			if ret := ci.Destroy(); ret != nvml.SUCCESS {
				return d.s.check(ret, what)
			}
		}
		return d.s.check(gi.Destroy(), what)
	}
	return fmt.Errorf("cannot %s: there is none", what)
}
