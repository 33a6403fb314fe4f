//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/sluice-hpc/sluice/noded/gpu"
	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// complete gives the library's own mock what it does not have and the adapter asks for. What is left out panics, and fails the test.
func complete(s *server.Server) {
	lacking(s, "nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlGpm") // the first one's answer cannot be pretended
	for i, d := range s.Devices {
		m := d.(*server.Device)
		m.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			var p nvml.PciInfo
			for k, c := range fmt.Sprintf("00000000:%02X:00.0", 0xb0-0x10*i) { // the library's order is not that of the addresses
				p.BusId[k] = int8(c)
			}
			return p, nvml.SUCCESS
		}
		m.GetCpuAffinityFunc = func(int) ([]uint, nvml.Return) { return []uint{0xf << (4 * (i / 4)), 0}, nvml.SUCCESS }
		m.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		m.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			if link >= 12 {
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		m.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		}
		figures(m)
		events(m)
		instances(m)
	}
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				return nvml.EventData{Device: s.Devices[3], EventType: nvml.EventTypeXidCriticalError, EventData: 79}, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
}

func figures(m *server.Device) {
	m.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 87, Memory: 40}, nvml.SUCCESS }
	m.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, nvml.SUCCESS }
	m.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 312_000, nvml.SUCCESS }
	m.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	m.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(c), nvml.SUCCESS }
	m.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 2, nvml.SUCCESS }
	m.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 1, true, false, nvml.SUCCESS }
	m.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	m.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) {
		return nvml.ClocksEventReasonSwPowerCap | nvml.ClocksThrottleReasonHwThermalSlowdown | nvml.ClocksEventReasonGpuIdle, nvml.SUCCESS
	}
	m.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 42, UsedGpuMemory: 5 << 30, GpuInstanceId: ^uint32(0)},
			{Pid: 43, UsedGpuMemory: ^uint64(0), GpuInstanceId: 0}}, nvml.SUCCESS
	}
}

func events(m *server.Device) {
	m.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return nvml.EventTypeXidCriticalError | 1, nvml.SUCCESS }
	m.RegisterEventsFunc = func(types uint64, _ nvml.EventSet) nvml.Return {
		if types != nvml.EventTypeXidCriticalError {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.SUCCESS
	}
}

// instances lets processes see the MIG instances that the mock keeps.
func instances(m *server.Device) {
	ordered := func() (out []*server.GpuInstance) {
		for gi := range m.GpuInstances {
			if len(gi.ComputeInstances) > 0 {
				out = append(out, gi)
			}
		}
		slices.SortFunc(out, func(a, b *server.GpuInstance) int { return int(a.Info.Id) - int(b.Info.Id) })
		return out
	}
	m.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	m.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		list := ordered()
		if i >= len(list) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetUUIDFunc: func() (string, nvml.Return) {
				return fmt.Sprintf("MIG-%s-%d", m.UUID, list[i].Info.Id),
					nvml.SUCCESS
			},
			GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return int(list[i].Info.Id), nvml.SUCCESS },
			GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{Total: 19968 << 20, Used: 7 << 20},
					nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	m.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		for gi := range m.GpuInstances {
			if int(gi.Info.Id) == id {
				return gi, nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	create := m.CreateGpuInstanceWithPlacementFunc
	m.CreateGpuInstanceWithPlacementFunc = func(info *nvml.GpuInstanceProfileInfo, p *nvml.GpuInstancePlacement) (nvml.GpuInstance,
		nvml.Return) {
		for gi := range m.GpuInstances {
			if o := gi.Info.Placement; p.Start < o.Start+o.Size && o.Start < p.Start+p.Size {
				return nil, nvml.ERROR_INSUFFICIENT_RESOURCES
			}
		}
		return create(info, p)
	}
}

// lacking makes symbols missing, as in an old driver.
func lacking(s *server.Server, prefixes ...string) {
	s.LookupSymbolFunc = func(symbol string) error {
		for _, p := range prefixes {
			if strings.HasPrefix(symbol, p) {
				return errors.New("undefined symbol: " + symbol)
			}
		}
		return nil
	}
}

func start(t *testing.T, s *server.Server) *source {
	t.Helper()
	src, err := open(s, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func infos(t *testing.T, s *source) (out []gpu.Info) {
	t.Helper()
	devices, err := s.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		in, err := d.Info()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, in)
	}
	return out
}

func TestMachines(t *testing.T) {
	for _, c := range []struct {
		s        *server.Server
		typ      string
		gib      uint64
		noReset  bool
		profiles string
	}{
		{dgxa100.New(), "a100", 40, false, "1g.5gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb 1g.5gb+me 1g.10gb"},
		{dgxh100.New(), "h100", 80, true, "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb 1g.10gb+me 1g.20gb"},
		{dgxh200.New(), "h200", 141, true, "1g.18gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb 1g.18gb+me 1g.35gb"},
		{dgxb200.New(), "b200", 180, true, "1g.23gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb 1g.23gb+me 1g.45gb"},
	} {
		complete(c.s)
		src := start(t, c.s)
		list := gpu.Inventory(infos(t, src), hw.Build(2, 4, 1))
		if len(list) != 8 || src.Driver() != c.s.DriverVersion {
			t.Fatalf("%s: %d devices, driver %s", c.typ, len(list), src.Driver())
		}
		d := list[0] // the last that the library lists has the lowest address
		if d.Type != c.typ || d.Minor != 7 || d.Pci != "00000000:40:00.0" || d.MemoryMib/1024 != c.gib || d.Cores != "4-7" ||
			list[7].Cores != "0-3" || d.Ecc != "on" || d.Links[3] != 12 ||
			d.MigMode != "off" || filepath.Base(d.Files[0]) != "nvidia7" {
			t.Errorf("%s: %v", c.typ, d)
		}
		in := infos(t, src)[0]
		var names []string
		for _, p := range in.Profiles {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != c.profiles || in.NoReset != c.noReset {
			t.Errorf("%s: profiles %s, no reset %v; want %s, %v", c.typ, got, in.NoReset, c.profiles, c.noReset)
		}
	}
}

func TestFigures(t *testing.T) {
	s := dgxa100.New()
	complete(s)
	src := start(t, s)
	devices, _ := src.Devices()
	list, err := devices[0].Samples()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	got := list[0]
	if got.UtilPercent != 87 || got.MemoryUsedMib != 0 || got.TemperatureC != 61 || got.PowerMw != 312_000 || got.EnergyMj != gpu.NA ||
		got.SmClockMhz != 1001 || got.MemoryClockMhz != 1002 ||
		got.EccUncorrected != 2 || got.Throttle != "power cap, thermal" || got.Id != devices[0].UUID() || got.AtNs == 0 {
		t.Errorf("%v", got)
	}
	h, err := devices[0].Health()
	if err != nil || h.Uncorrectable != 2 || h.Pending != gpu.RemapPending || h.Broken != "" {
		t.Errorf("%+v, %v", h, err)
	}
	p, err := devices[0].Processes()
	if err != nil || len(p) != 2 || p[0] != (gpu.Process{PID: 42}) || p[1] != (gpu.Process{PID: 43}) {
		t.Errorf("%+v, %v", p, err)
	}
	e, ok, err := src.Wait(time.Second)
	if err != nil || !ok || e.XID != 79 || e.UUID != devices[3].UUID() {
		t.Errorf("%+v, %v, %v", e, ok, err)
	}
}

// A GPU that is lost costs itself: the others are listed, and each method says that it is lost.
func TestLostGPU(t *testing.T) {
	s := dgxa100.New()
	complete(s)
	src := start(t, s)
	devices, _ := src.Devices()
	m := s.Devices[2].(*server.Device)
	m.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	m.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return 0, nvml.ERROR_GPU_IS_LOST
	}
	_, err1 := devices[2].Samples()
	_, err2 := devices[2].Info()
	_, err3 := devices[2].Health()
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, gpu.ErrLost) {
			t.Errorf("%v", err)
		}
	}
	get := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 2 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return get(i)
	}
	left, err := src.Devices()
	if len(left) != 7 || !errors.Is(err, gpu.ErrLost) {
		t.Errorf("%d, %v", len(left), err)
	}
	m.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.ERROR_RESET_REQUIRED }
	if h, _ := devices[2].Health(); h.Broken != "the GPU has to be reset" {
		t.Errorf("%+v", h)
	}
}

// An old driver lacks functions: nothing that it lacks is called, and what it would say is not known. The mock panics where
// something is called that is not filled in.
func TestOldDriver(t *testing.T) {
	s := dgxa100.New()
	for i, d := range s.Devices {
		m := d.(*server.Device)
		m.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			var p nvml.PciInfo
			for k, c := range fmt.Sprintf("0000:%02x:00.0", i) {
				p.BusId[k] = int8(c)
			}
			return p, nvml.SUCCESS
		}
	}
	lacking(s, "nvmlEvent", "nvmlDevice", "nvmlGpuInstance", "nvmlComputeInstance")
	src := start(t, s)
	in := infos(t, src)
	if in[0].MIG != "" || in[0].CPUs != nil || in[0].ECC != "n/a" || len(in[0].Links) != 0 || in[0].PCI != "0000:00:00.0" {
		t.Errorf("%+v", in[0])
	}
	devices, _ := src.Devices()
	list, err := devices[0].Samples()
	if err != nil || list[0].UtilPercent != gpu.NA || list[0].PowerMw != gpu.NA || list[0].Throttle != "n/a" {
		t.Errorf("%v, %v", list, err)
	}
	h, err := devices[0].Health()
	if err != nil || h.Uncorrectable != gpu.NA {
		t.Errorf("%+v, %v", h, err)
	}
	if p, err := devices[0].Processes(); p != nil || err != nil {
		t.Errorf("%v, %v", p, err)
	}
	if _, _, err := src.Wait(0); !errors.Is(err, gpu.ErrNotSupported) {
		t.Errorf("%v", err)
	}
	for _, err := range []error{devices[0].SetMIG(true), devices[0].CreateInstance(&pb.MigProfile{}, 0), devices[0].DestroyInstance("x")} {
		if !errors.Is(err, gpu.ErrNotSupported) {
			t.Errorf("%v", err)
		}
	}
}

// TestEventsOfOthersWhenOneIsLost: a set of events with a lost GPU says so for ever; the others are listened for in a new one.
func TestEventsOfOthersWhenOneIsLost(t *testing.T) {
	s := dgxa100.New()
	complete(s)
	create, sets, freed := s.EventSetCreateFunc, 0, 0
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		set, ret := create()
		if sets++; sets == 1 {
			m := set.(*mock.EventSet)
			m.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) { return nvml.EventData{}, nvml.ERROR_GPU_IS_LOST }
			m.FreeFunc = func() nvml.Return { freed++; return nvml.SUCCESS }
		}
		return set, ret
	}
	src := start(t, s)
	if _, ok, err := src.Wait(time.Second); ok || !errors.Is(err, gpu.ErrLost) {
		t.Errorf("%v, %v", ok, err)
	}
	if e, ok, err := src.Wait(time.Second); !ok || err != nil || e.XID == 0 || freed != 1 {
		t.Errorf("%+v, %v, %v, %d sets freed", e, ok, err, freed)
	}
}

func TestInstances(t *testing.T) {
	s := dgxa100.New()
	complete(s)
	src := start(t, s)
	for path, text := range map[string]string{
		"proc/driver/nvidia/capabilities/gpu0/mig/gi0/access":     "DeviceFileMinor: 30\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi0/ci0/access": "DeviceFileMinor: 31\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
		"proc/devices": "Character devices:\n  1 mem\n120 nvidia-caps\n",
	} {
		path = src.path(path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	devices, _ := src.Devices()
	d := devices[0]
	if err := d.SetMIG(true); err != nil {
		t.Fatal(err)
	}
	in, _ := d.Info()
	three := in.Profiles[2]
	if in.MIG != "on" || three.Name != "3g.20gb" || !slices.Equal(three.Starts, []uint32{0, 4}) || three.Size != 4 {
		t.Fatalf("mode %s, %v", in.MIG, three)
	}
	if err := d.CreateInstance(three, 4); err != nil {
		t.Fatal(err)
	}
	in, _ = d.Info()
	if len(in.Instances) != 1 {
		t.Fatalf("%+v", in.Instances)
	}
	i := in.Instances[0]
	if i.Profile != "3g.20gb" || i.Start != 4 || i.Size != 4 || i.MemoryMiB != 19968 || len(i.Files) != 3 ||
		filepath.Base(i.Files[1]) != "nvidia-cap30" || filepath.Base(i.Files[2]) != "nvidia-cap31" {
		t.Errorf("%+v", i)
	}
	if os.Geteuid() == 0 {
		if st, err := os.Stat(i.Files[1]); err != nil || st.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("%v, %v: the capability's file is to be made", st, err)
		}
	} else {
		t.Log("not root: the files of capabilities are not made")
	}
	samples, err := d.Samples()
	if err != nil || len(samples) != 2 || samples[1].Id != i.UUID || samples[1].UtilPercent != gpu.NA || samples[1].MemoryUsedMib != 7 ||
		samples[1].TemperatureC != 61 {
		t.Errorf("%v, %v", samples, err)
	}
	if p, _ := d.Processes(); len(p) != 2 || p[1].Instance != i.UUID {
		t.Errorf("%+v", p)
	}
	if err := d.CreateInstance(three, 4); err == nil {
		t.Error("two at one place")
	}
	if err := d.DestroyInstance(i.UUID); err != nil {
		t.Error(err)
	}
	if in, _ = d.Info(); len(in.Instances) != 0 {
		t.Errorf("%+v", in.Instances)
	}
	// A daemon that was killed between the two halves leaves a GPU instance that nobody sees.
	m := s.Devices[0].(*server.Device)
	info, _ := m.GetGpuInstanceProfileInfo(2)
	if _, ret := m.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: 0, Size: 4}); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if err := d.CreateInstance(three, 0); err != nil || len(m.GpuInstances) != 1 {
		t.Errorf("%v, %d GPU instances", err, len(m.GpuInstances))
	}
}

// The load of an instance is what was counted between two samples; every sample is let go of once.
func TestLoadOfInstances(t *testing.T) {
	s := dgxh100.New()
	complete(s)
	lacking(s, "nvmlDeviceGetGpuInstanceProfileInfoV")
	m := s.Devices[0].(*server.Device)
	supported, live := uint32(1), 0
	m.GpmQueryDeviceSupportFunc = func() (nvml.GpmSupport, nvml.Return) {
		return nvml.GpmSupport{IsSupportedDevice: supported}, nvml.SUCCESS
	}
	s.Interface.GpmSampleAllocFunc = func() (nvml.GpmSample, nvml.Return) {
		live++
		freed := false
		return &mock.GpmSample{
			MigGetFunc: func(_ nvml.Device, gi int) nvml.Return { return nvml.SUCCESS },
			FreeFunc: func() nvml.Return {
				if freed {
					t.Error("let go of twice")
				}
				freed = true
				live--
				return nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	s.Interface.GpmMetricsGetFunc = func(g *nvml.GpmMetricsGetType) nvml.Return {
		g.Metrics[0].Value = 61.6
		return nvml.SUCCESS
	}
	src := start(t, s)
	devices, _ := src.Devices()
	d := devices[0]
	if err := d.SetMIG(true); err != nil {
		t.Fatal(err)
	}
	in, _ := d.Info()
	if err := d.CreateInstance(in.Profiles[2], 0); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{gpu.NA, 62, 62} {
		if list, err := d.Samples(); err != nil || len(list) != 2 || list[1].UtilPercent != want {
			t.Errorf("%d: %v, %v", i, list, err)
		}
	}
	supported = 0
	if list, _ := d.Samples(); list[1].UtilPercent != gpu.NA {
		t.Errorf("%v", list[1])
	}
	if live != 1 {
		t.Errorf("%d samples are kept", live)
	}
	in, _ = d.Info()
	if err := d.DestroyInstance(in.Instances[0].UUID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Samples(); err != nil || live != 0 {
		t.Errorf("%d samples are kept, %v", live, err)
	}
}

func TestNoDriver(t *testing.T) {
	for ret, want := range map[nvml.Return]string{nvml.ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1",
		nvml.ERROR_DRIVER_NOT_LOADED: "not loaded", nvml.ERROR_UNKNOWN: "does not start"} {
		s := dgxa100.New()
		s.InitFunc = func() nvml.Return { return ret }
		if _, err := open(s, "/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", ret, err)
		}
	}
	src, err := Open()
	if err != nil {
		t.Logf("this machine: %v", err)
		return
	}
	defer src.Close()
	devices, err := src.Devices()
	t.Logf("this machine: driver %s, %d GPUs, %v", src.Driver(), len(devices), err)
}
