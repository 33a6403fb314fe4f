// Package isolate decides which devices of a node a step may open: a pure function of the node's devices, the step's
// devices and the kernel's device numbers. Package cgroup enforces the result.
//
// Everything is open except the devices that the node gives to jobs:
//
//   - A device that gres.conf declares by its file is closed by that file's number, unless it is the step's.
//   - Of the GPU driver's major numbers everything is closed, also what is not known here (a GPU that appears later,
//     instances that are cut while the step runs). Opened again are the files of the step's own GPUs, including a MIG
//     instance's capabilities, and, for a step that has a GPU at all, the driver's controls (nvidiactl, nvidia-uvm,
//     nvidia-modeset), which every process needs that uses any GPU and which give no access to one.
//   - What the kernel's graphics drivers have made of a GPU (/dev/dri/…) is closed and opened with it.
//
// So a step without a GPU can open nothing of the driver's, not even its controls: it has no use for them, and they have
// been the way into the kernel more than once. Slurm leaves those open. A file that belongs to several devices (the GPU
// of two MIG instances) is open to the holder of any.
package isolate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Number is a device as the kernel knows it.
type Number struct {
	Block        bool
	Major, Minor int64
}

// Kernel says what numbers devices have.
type Kernel interface {
	// File gives the number of a device file; links are followed.
	File(path string) (Number, error)
	// Majors are those of character devices, by the name of their driver (/proc/devices).
	Majors() map[string]int64
	// Graphics are the files by which the GPU at a PCI address draws (/dev/dri/card1, /dev/dri/renderD129); often none.
	Graphics(pci string) []string
}

// Node is what a node has.
type Node struct {
	Devices []*pb.Device
	Spare   []*pb.Device // that are there and not given to any job: what the driver knows and gres.conf leaves out
	Control []string     // the files that every holder of a GPU opens besides
}

// FromDriver says whether the driver knows a device, whatever a line of gres.conf says of it besides.
func FromDriver(d *pb.Device) bool {
	return d.GetDeclared() == "nvml" || strings.HasPrefix(d.GetId(), "GPU-") || strings.HasPrefix(d.GetId(), "MIG-")
}

// NVIDIA's numbers (devices.txt; the major has been fixed since 1999).
const (
	nvidiaMajor   = 195
	nvidiaModeset = 254
	nvidiaControl = 255
)

// Rules for a step that was given mine. faults are devices of the node that have no number: their files are missing, say. Those
// cannot be closed, and nobody can open them either.
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

// Held finds the devices of an allocation: by identity, else by name and index. What shares a device (shard, mps) holds it, and
// an instance that was still to be cut is known by its place.
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

// sorter gathers what is closed and what is open.
type sorter struct {
	kernel Kernel
	majors map[string]int64
	nvidia int64
	whole  map[int64]bool // majors of character devices that are closed as a whole
	closed map[Number]bool
	open   map[Number]bool
	faults []error
}

// device sorts one device in, and says whether it is one of the GPU driver's.
func (s *sorter) device(d *pb.Device, mine bool) (driver bool) {
	driver = FromDriver(d)
	for _, path := range d.GetFiles() {
		n, err := s.kernel.File(path)
		if err != nil {
			s.faults = append(s.faults, fmt.Errorf("cannot tell which device %s is, the file of %s %d: %w", path, d.GetName(),
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

// controls closes what else the driver has, and opens what every holder of a GPU needs.
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
			continue // made when it is first used, nvidia-uvm for instance
		}
		s.put(n, open)
	}
}

// rules closes first and opens then: the last rule that matches counts.
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
