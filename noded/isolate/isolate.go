// Package isolate decides which devices of a node a step may open: a pure function of the node's devices, the step's
// devices and the kernel's device numbers. Package cgroup enforces the result.
//
// Everything is open except the devices that the node gives to jobs:
//
//   - A device that gres.conf declares by its file is closed by that file's number, unless it is the step's.
//   - All of the GPU driver's major numbers are closed, including devices unknown so far (a GPU that appears later,
//     instances created while the step runs). Exceptions are the files of the step's own GPUs, including a MIG
//     instance's capabilities, and, for a step with a GPU, the driver's controls (nvidiactl, nvidia-uvm,
//     nvidia-modeset), which every process with a GPU needs and which give access to none.
//   - The graphics devices of a GPU (/dev/dri/…) are closed and opened with it.
//
// So a step without a GPU can open nothing of the driver's, not even its controls: it does not need them, and they have been an
// attack path into the kernel more than once. Slurm leaves those open. A file that belongs to several devices (the GPU of two MIG
// instances) is open to the holder of any.
package isolate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Number identifies a device as the kernel does.
type Number struct {
	Block        bool
	Major, Minor int64
}

// Kernel looks up device numbers.
type Kernel interface {
	// File returns the number of a device file; links are followed.
	File(path string) (Number, error)
	// Majors returns the majors of character devices, by driver name (/proc/devices).
	Majors() map[string]int64
	// Graphics returns the graphics files of the GPU at a PCI address (/dev/dri/card1, /dev/dri/renderD129); often none.
	Graphics(pci string) []string
}

// Node holds the devices of a node.
type Node struct {
	Devices []*pb.Device
	Spare   []*pb.Device // present but not allocated to jobs: known to the driver, left out in gres.conf
	Control []string     // other files that every holder of a GPU opens
}

// FromDriver reports whether the driver knows a device, whatever gres.conf says about it.
func FromDriver(d *pb.Device) bool {
	return d.GetDeclared() == "nvml" || strings.HasPrefix(d.GetId(), "GPU-") || strings.HasPrefix(d.GetId(), "MIG-")
}

// NVIDIA's numbers (devices.txt; the major has been fixed since 1999).
const (
	nvidiaMajor   = 195
	nvidiaModeset = 254
	nvidiaControl = 255
)

// Rules returns the rules for a step with the devices mine. faults are devices of the node without a number, for instance because
// their files are missing. They cannot be closed, but nobody can open them either.
func Rules(n Node, mine []*pb.GresDevice, k Kernel) (rules []*pb.DeviceRule, faults []error) {
	if len(n.Devices)+len(n.Spare) == 0 {
		return nil, nil
	}
	s := &sorter{kernel: k, majors: k.Majors(), whole: map[int64]bool{}, closed: map[Number]bool{}, open: map[Number]bool{}}
	s.nvidia = nvidiaMajor
	for _, name := range []string{"nvidia-frontend", "nvidia"} {
		if m, ok := s.majors[name]; ok {
			s.nvidia = m
		}
	}
	held := Held(n.Devices, mine)
	anyGPU, hasGPU := false, false
	for _, d := range n.Devices {
		isMine := slices.Contains(held, d)
		if s.device(d, isMine) {
			anyGPU = true
			hasGPU = hasGPU || isMine
		}
	}
	for _, d := range n.Spare {
		anyGPU = s.device(d, false) || anyGPU
	}
	if anyGPU {
		s.controls(n.Control, hasGPU)
	}
	return s.rules(), s.faults
}

// Held returns the devices of an allocation: by identity, else by name and index. A share of a device (shard, mps) counts as the
// device, and an instance that is yet to be created is identified by its place.
func Held(devices []*pb.Device, mine []*pb.GresDevice) (held []*pb.Device) {
	for _, g := range mine {
		if g.GetCount() > 0 {
			continue // counted, not a device
		}
		for _, d := range devices {
			if is(g, d) && !slices.Contains(held, d) {
				held = append(held, d)
				break
			}
		}
	}
	return held
}

func is(g *pb.GresDevice, d *pb.Device) bool {
	switch {
	case g.GetId() != "":
		return g.GetId() == d.GetId()
	case g.GetParent() != "":
		return g.GetParent() == d.GetParent() && g.GetMigStart() == d.GetMigStart()
	}
	return (g.GetName() == d.GetName() || g.GetName() == d.GetSharedAs()) && g.GetIndex() == d.GetIndex()
}

// sorter collects closed and open devices.
type sorter struct {
	kernel Kernel
	majors map[string]int64
	nvidia int64
	whole  map[int64]bool // majors of character devices that are closed as a whole
	closed map[Number]bool
	open   map[Number]bool
	faults []error
}

// device adds one device, and reports whether it is the GPU driver's.
func (s *sorter) device(d *pb.Device, mine bool) (driver bool) {
	driver = FromDriver(d)
	for _, path := range d.GetFiles() {
		n, err := s.kernel.File(path)
		if err != nil {
			s.faults = append(s.faults, fmt.Errorf("cannot read which device %s is, the file of %s %d: %w", path, d.GetName(),
				d.GetIndex(), err))
			continue
		}
		if !n.Block && (driver || n.Major == s.nvidia) {
			driver = true
			s.whole[n.Major] = true
		}
		s.put(n, mine)
	}
	if d.GetPci() == "" {
		return driver
	}
	for _, path := range s.kernel.Graphics(d.GetPci()) {
		if n, err := s.kernel.File(path); err == nil {
			s.put(n, mine)
		}
	}
	return driver
}

func (s *sorter) put(n Number, open bool) {
	if open {
		s.open[n] = true
	} else {
		s.closed[n] = true
	}
}

// controls closes the driver's other files, and opens those that every holder of a GPU needs.
func (s *sorter) controls(files []string, open bool) {
	_, real := s.majors["nvidia"]
	_, older := s.majors["nvidia-frontend"]
	if real || older || s.whole[s.nvidia] {
		s.whole[s.nvidia] = true
		if open {
			s.open[Number{Major: s.nvidia, Minor: nvidiaModeset}] = true
			s.open[Number{Major: s.nvidia, Minor: nvidiaControl}] = true
		}
	}
	if caps, ok := s.majors["nvidia-caps"]; ok {
		s.whole[caps] = true
	}
	if uvm, ok := s.majors["nvidia-uvm"]; ok && !open {
		s.whole[uvm] = true
	}
	for _, path := range files {
		n, err := s.kernel.File(path)
		if err != nil {
			continue // created on first use, for instance nvidia-uvm
		}
		s.put(n, open)
	}
}

// rules returns the denials, then the exceptions: the last rule that matches decides.
func (s *sorter) rules() (rules []*pb.DeviceRule) {
	for major := range s.whole {
		rules = append(rules, &pb.DeviceRule{Major: major, Minor: -1})
	}
	for n := range s.closed {
		if !s.open[n] && (n.Block || !s.whole[n.Major]) {
			rules = append(rules, &pb.DeviceRule{Block: n.Block, Major: n.Major, Minor: n.Minor})
		}
	}
	for n := range s.open {
		if !n.Block && s.whole[n.Major] {
			rules = append(rules, &pb.DeviceRule{Allow: true, Major: n.Major, Minor: n.Minor})
		}
	}
	slices.SortFunc(rules, func(a, b *pb.DeviceRule) int {
		return cmp.Or(boolean(a.Allow, b.Allow), boolean(a.Block, b.Block), cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	return rules
}

func boolean(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
