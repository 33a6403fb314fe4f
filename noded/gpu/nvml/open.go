//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/sluice-hpc/sluice/noded/gpu"
)

// Missing is the line of --version in a build that cannot talk to a driver; this one can.
const Missing = ""

// Open loads the library and connects to the driver. The error tells why there is none.
func Open() (gpu.Source, error) { return open(nvml.New(), "/") }

// source is the driver, through the library.
type source struct {
	lib    nvml.Interface
	root   string // "/", or another root in tests
	driver string
	events nvml.EventSet
	heard  bool // some GPU reports events, or did

	mu      sync.Mutex
	missing map[string]bool // results of symbol lookups: missing in this driver
	// counters are the last samples of MIG instances, by UUID.
	counters map[string]counters
}

func open(lib nvml.Interface, root string) (*source, error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, errors.New("NVIDIA's management library (libnvidia-ml.so.1) is not on this machine")
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, errors.New("NVIDIA's driver is not loaded")
	default:
		return nil, fmt.Errorf("NVIDIA's management library does not start: %s", words(lib, ret))
	}
	s := &source{lib: lib, root: root, missing: map[string]bool{}, counters: map[string]counters{}}
	if v, ret := lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		s.driver = v
	}
	s.listen()
	return s, nil
}

// words describes a return value, without a function that an old library lacks.
func words(lib nvml.Interface, ret nvml.Return) string {
	if lib.Extensions().LookupSymbol("nvmlErrorString") == nil {
		return fmt.Sprintf("%v (%d)", ret, int(ret))
	}
	return fmt.Sprintf("error %d", int(ret))
}

// has reports whether the library has a function. A call to a missing one would end the process.
func (s *source) has(symbol string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing, looked := s.missing[symbol]
	if !looked {
		missing = s.lib.Extensions().LookupSymbol(symbol) != nil
		s.missing[symbol] = missing
	}
	return !missing
}

// check converts a return value to an error about what.
func (s *source) check(ret nvml.Return, what string) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_GPU_IS_LOST:
		return fmt.Errorf("cannot %s: %w", what, gpu.ErrLost)
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		return fmt.Errorf("cannot %s: %w", what, gpu.ErrNotSupported)
	}
	return fmt.Errorf("cannot %s: %s", what, words(s.lib, ret))
}

// absent is the return value for a missing function.
const absent = nvml.ERROR_FUNCTION_NOT_FOUND

func (s *source) path(p string) string { return filepath.Join(s.root, p) }

// Driver implements gpu.Source.
func (s *source) Driver() string { return s.driver }

// Close implements gpu.Source.
func (s *source) Close() error {
	if s.events != nil {
		_ = s.events.Free()
	}
	for _, c := range s.counters {
		_ = c.sample.Free()
	}
	return s.check(s.lib.Shutdown(), "release NVIDIA's management library")
}

// controlFiles are opened by every process that uses CUDA.
var controlFiles = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

// Control implements gpu.Source.
func (s *source) Control() (out []string) {
	for _, f := range controlFiles {
		if _, err := os.Stat(s.path(f)); err == nil {
			out = append(out, s.path(f))
		}
	}
	return out
}

// Devices implements gpu.Source.
func (s *source) Devices() (out []gpu.Device, err error) {
	n, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, s.check(ret, "count the GPUs")
	}
	var errs []error
	for i := range n {
		h, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			errs = append(errs, s.check(ret, fmt.Sprintf("reach GPU %d", i)))
			continue
		}
		uuid, ret := h.GetUUID()
		if ret != nvml.SUCCESS {
			errs = append(errs, s.check(ret, fmt.Sprintf("tell the UUID of GPU %d", i)))
			continue
		}
		out = append(out, &device{s: s, h: h, uuid: uuid})
	}
	return out, errors.Join(errs...)
}

// wanted are the events that are faults of a GPU.
const wanted = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError

// listen subscribes to the events of every GPU that reports any.
func (s *source) listen() {
	if !s.has("nvmlEventSetCreate") || !s.has("nvmlDeviceRegisterEvents") {
		return
	}
	devices, _ := s.Devices()
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS || len(devices) == 0 {
		return
	}
	any := false
	for _, d := range devices {
		h := d.(*device).h
		can, ret := h.GetSupportedEventTypes()
		if ret == nvml.SUCCESS && can&wanted != 0 {
			any = h.RegisterEvents(can&wanted, set) == nvml.SUCCESS || any
		}
	}
	if !any {
		_ = set.Free()
		return
	}
	s.events, s.heard = set, true
}

// Wait implements gpu.Source.
func (s *source) Wait(timeout time.Duration) (gpu.Event, bool, error) {
	switch {
	case s.events == nil && !s.heard:
		return gpu.Event{}, false, fmt.Errorf("cannot wait for events: %w", gpu.ErrNotSupported)
	case s.events == nil:
		if s.listen(); s.events == nil {
			return gpu.Event{}, false, errors.New("cannot wait for events: no GPU that reports any answers")
		}
	}
	data, ret := s.events.Wait(uint32(timeout.Milliseconds()))
	if ret == nvml.ERROR_TIMEOUT {
		return gpu.Event{}, false, nil
	}
	if ret == nvml.ERROR_GPU_IS_LOST { // subscribe to the others without it next time
		_ = s.events.Free()
		s.events = nil
	}
	if err := s.check(ret, "wait for events of GPUs"); err != nil {
		return gpu.Event{}, false, err
	}
	uuid, ret := data.Device.GetUUID()
	if err := s.check(ret, "tell which GPU an event is of"); err != nil {
		return gpu.Event{}, false, err
	}
	e := gpu.Event{UUID: uuid}
	switch data.EventType {
	case nvml.EventTypeXidCriticalError:
		e.XID = data.EventData
	case nvml.EventTypeDoubleBitEccError:
		e.Text = "double bit ECC error"
	default:
		return gpu.Event{}, false, nil
	}
	return e, true, nil
}

// busID converts the text of a PCI address.
func busID(raw [32]int8) string { return strings.ToUpper(text(raw[:])) }

// text converts a C string.
func text(raw []int8) string {
	var b strings.Builder
	for _, c := range raw {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
