// Package gpu manages the GPUs of a node and the other devices that gres.conf declares: inventory, health, samples, use by steps,
// and the creation of instances on GPUs with MIG.
//
// Two narrow interfaces, Source and Device, hide the driver. Package nvml implements them with NVIDIA's management library. Fake
// simulates several kinds of machines, with faults on demand of a test or a script, and with real character devices, which the
// device controller can open and close.
//
// Decisions are pure functions: Merge (gres.conf and driver → devices), the health of one device (health.go), the use by a step
// (Recorder). Monitor is the loop around them.
//
// A GPU is identified by its UUID and opened by its minor number; its index is its place in the order of PCI addresses. The three
// numberings differ: on a DGX A100 index 0 is /dev/nvidia2. Allocations store the UUID, so a card whose index has changed still
// belongs to the same job.
package gpu

import (
	"errors"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// NA marks a figure that the driver does not provide. It is not zero.
const NA = -1

// ErrLost is returned (wrapped) by a Device's methods when the GPU does not answer any more: it has fallen off the bus.
var ErrLost = errors.New("the GPU is lost: it has fallen off the bus or does not answer")

// ErrNotSupported is returned (wrapped) for functions that this GPU or this driver lacks.
var ErrNotSupported = errors.New("not supported by this GPU or its driver")

// Source is a driver with its GPUs. Its methods may be called from several goroutines.
type Source interface {
	// Driver returns the driver's version.
	Driver() string
	// Devices enumerates anew, and returns every GPU that answers, in any order. The error covers those that do not answer.
	Devices() ([]Device, error)
	// Wait returns the next event of any GPU; ok is false if none came in time.
	Wait(timeout time.Duration) (e Event, ok bool, err error)
	// Control returns the existing device files that every process with a GPU needs, such as /dev/nvidiactl and /dev/nvidia-uvm.
	Control() []string
	Close() error
}

// Device is one GPU with its instances.
type Device interface {
	UUID() string
	Info() (Info, error)
	// Samples returns current figures: the GPU's own first, then those of its instances. Figures that are not available are NA.
	Samples() ([]*pb.DeviceSample, error)
	// Processes returns the processes that use the GPU or its instances.
	Processes() ([]Process, error)
	Health() (Health, error)
	// SetMIG switches MIG mode on or off. Info shows the resulting mode; a change that needs a reset is pending.
	SetMIG(on bool) error
	// CreateInstance creates a GPU instance with one compute instance that takes all of it.
	CreateInstance(p *pb.MigProfile, start uint32) error
	// DestroyInstance fails while a process uses the instance.
	DestroyInstance(uuid string) error
}

// Info is what stays the same unless somebody reconfigures the GPU.
type Info struct {
	UUID      string
	Model     string   // "NVIDIA A100-SXM4-40GB"
	PCI       string   // "00000000:07:00.0"
	Minor     int      // of /dev/nvidiaN; NA = unknown
	Files     []string // files that its holder opens
	MemoryMiB uint64
	NUMA      int    // NA = not known
	CPUs      []int  // the kernel's numbers of the processors near it; nil = unknown
	ECC       string // "on", "off", "n/a"
	MIG       string // mode: "" not supported, "off", "on", "pending on", "pending off"
	Profiles  []*pb.MigProfile
	NoReset   bool // its MIG mode changes without a reset (Hopper and later)
	Instances []Instance
	Links     map[string]int // NVLinks by the PCI address of the other end; SwitchLinks for links to a switch
	Near      map[string]int // closeness on PCIe by the other GPU's UUID: 5 the same board … 1 the same NUMA node, 0 across sockets
}

// SwitchLinks is the key of Info.Links for links to an NVSwitch, which connects all GPUs with such links.
const SwitchLinks = "switch"

// Instance is a MIG instance of a GPU.
type Instance struct {
	UUID      string
	Profile   string // "3g.20gb"
	Start     uint32 // first memory slice
	Size      uint32 // memory slices
	MemoryMiB uint64
	Files     []string // its GPU's and its own capabilities
}

// Process is a process that uses a GPU.
type Process struct {
	PID      int
	Instance string // UUID of the MIG instance that it uses; empty: the GPU, or unknown
}

// Health is a driver's report of damage.
type Health struct {
	Uncorrectable int64  // uncorrectable ECC errors since the driver was loaded; NA = not counted
	Broken        string // a fault in any case: "row remapping failed", "the GPU has to be reset"; empty = none
	Pending       string // not a fault, but a reset is needed: "row remapping pending: reset the GPU"
}

// Event is an unsolicited report of a driver.
type Event struct {
	UUID string
	XID  uint64 // NVIDIA's number of the error; 0: something else
	Text string // description if it has no XID
}
