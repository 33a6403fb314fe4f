// Package gpu manages the GPUs of a node and the other devices that gres.conf declares: inventory, health, samples, use
// by steps, and the creation of instances on GPUs that can be cut (MIG).
//
// The driver is behind two narrow interfaces, Source and Device. Package nvml implements them over NVIDIA's management
// library. Fake simulates machines of several kinds, with faults that a test or a script provokes, and real character
// devices, which the device controller can open and close.
//
// Decisions are pure functions: Merge (gres.conf and driver → devices), the health of one device (health.go), the use by
// a step (Recorder). Monitor is the loop around them.
//
// A GPU is identified by its UUID and opened by its minor number; its index is its place in the order of PCI addresses.
// The three are different numberings: on a DGX A100 index 0 is /dev/nvidia2. Allocations store the UUID, so a card whose
// index has changed still belongs to the same job.
package gpu

import (
	"errors"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// NA is what a figure is that the driver does not say. It is not zero.
const NA = -1

// ErrLost is what a Device's methods return (wrapped) when the GPU does not answer any more: it has fallen off the bus.
var ErrLost = errors.New("the GPU is lost: it has fallen off the bus or does not answer")

// ErrNotSupported is what they return for what this GPU or this driver cannot do.
var ErrNotSupported = errors.New("not supported by this GPU or its driver")

// Source is a driver and its GPUs. Its methods may be called from several goroutines.
type Source interface {
	// Driver is the version of the driver.
	Driver() string
	// Devices gives every GPU that answers, in any order, found anew. A GPU that does not answer is an error beside the others.
	Devices() ([]Device, error)
	// Wait gives the next event of any GPU; ok is false when none came in time.
	Wait(timeout time.Duration) (e Event, ok bool, err error)
	// Control are the device files that every process needs which uses any GPU: /dev/nvidiactl, /dev/nvidia-uvm. Those that are there.
	Control() []string
	Close() error
}

// Device is one GPU, with the instances it is cut into.
type Device interface {
	UUID() string
	Info() (Info, error)
	// Samples are what it is doing now: the GPU's own first, then those of its instances. What is not said is NA.
	Samples() ([]*pb.DeviceSample, error)
	// Processes are those that use it, with those that use its instances.
	Processes() ([]Process, error)
	Health() (Health, error)
	// SetMIG switches the cutting into instances on or off. The mode afterwards is Info's; a change that needs a reset is pending.
	SetMIG(on bool) error
	// CreateInstance makes a GPU instance with one compute instance that takes all of it.
	CreateInstance(p *pb.MigProfile, start uint32) error
	// DestroyInstance fails while a process uses it.
	DestroyInstance(uuid string) error
}

// Info is what does not change while nobody reconfigures the GPU.
type Info struct {
	UUID      string
	Model     string   // "NVIDIA A100-SXM4-40GB"
	PCI       string   // "00000000:07:00.0"
	Minor     int      // of /dev/nvidiaN; NA = not known
	Files     []string // what its holder opens
	MemoryMiB uint64
	NUMA      int    // NA = not known
	CPUs      []int  // the kernel's numbers of the processors near it; nil = not known
	ECC       string // "on", "off", "n/a"
	MIG       string // mode: "" cannot, "off", "on", "pending on", "pending off"
	Profiles  []*pb.MigProfile
	NoReset   bool // its MIG mode changes without a reset (Hopper and later)
	Instances []Instance
	Links     map[string]int // NVLinks by the PCI address of the other end; SwitchLinks for those that end in a switch
	Near      map[string]int // closeness on PCIe by the UUID of the other GPU: 5 the same board … 1 the same NUMA node, 0 across sockets
}

// SwitchLinks is the key of Info.Links for links that end in an NVSwitch, through which all GPUs with such links reach each other.
const SwitchLinks = "switch"

// Instance is a MIG instance of a GPU.
type Instance struct {
	UUID      string
	Profile   string // "3g.20gb"
	Start     uint32 // first memory slice
	Size      uint32 // memory slices
	MemoryMiB uint64
	Files     []string // of its GPU and its own capabilities
}

// Process is one that uses a GPU.
type Process struct {
	PID      int
	Instance string // UUID of the MIG instance it uses; empty: the GPU, or not known
}

// Health is what a driver says about damage.
type Health struct {
	Uncorrectable int64  // ECC errors that could not be corrected since the driver was loaded; NA = it does not count them
	Broken        string // why it is a fault whatever else: "row remapping failed", "the GPU has to be reset"; empty = it is not
	Pending       string // what is not a fault and needs a reset: "row remapping pending: reset the GPU"
}

// Event is something that a driver reports unasked.
type Event struct {
	UUID string
	XID  uint64 // NVIDIA's number of the error; 0: something else
	Text string // of what is no XID
}
