package gpu

import (
	"cmp"
	"slices"

	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// slotsAGPU is the number of indexes reserved for the instances of one GPU: one for each memory slice.
const slotsAGPU = 8

// Inventory converts a driver's report to devices, in the order of their PCI addresses: the GPUs first, then their instances.
// GPUs have the indexes from 0. An instance's index is the number of GPUs, plus eight for each GPU before its own, plus its first
// memory slice, so that a new instance changes no other's index.
func Inventory(infos []Info, top hw.Topology) []*pb.Device {
	infos = slices.Clone(infos)
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Or(cmp.Compare(a.PCI, b.PCI), cmp.Compare(a.UUID, b.UUID)) })
	links := linkMatrix(infos)
	var gpus, instances []*pb.Device
	for i, in := range infos {
		d := &pb.Device{Name: "gpu", Type: ShortType(in.Model), Index: uint32(i), Id: in.UUID, Files: in.Files, Minor: int32(in.Minor),
			Pci: in.PCI, Model: in.Model,
			MemoryMib: in.MemoryMiB, Numa: int32(in.NUMA), Cores: nearCores(in.CPUs, top), Links: links[i], MigMode: in.MIG,
			MigProfiles: in.Profiles, MigNoReset: in.NoReset, Ecc: in.ECC, Declared: "nvml"}
		gpus = append(gpus, d)
		for _, inst := range in.Instances {
			instances = append(instances, &pb.Device{Name: "gpu", Type: instanceType(d.Type, inst.Profile),
				Index: uint32(len(infos)+slotsAGPU*i) + inst.Start, Id: inst.UUID,
				Files: inst.Files, Minor: d.Minor, Pci: in.PCI, Model: in.Model + " MIG " + inst.Profile, MemoryMib: inst.MemoryMiB,
				Numa: d.Numa, Cores: d.Cores,
				Parent: in.UUID, MigStart: inst.Start, Ecc: in.ECC, Declared: "nvml"})
		}
	}
	slices.SortFunc(instances, func(a, b *pb.Device) int { return cmp.Compare(a.Index, b.Index) })
	return append(gpus, instances...)
}

// nearCores converts the kernel's processors to the node's cores, numbered by socket and core from 0 as in gres.conf's Cores.
// Empty: unknown, or all of them, which is no preference.
func nearCores(cpus []int, top hw.Topology) string {
	if len(cpus) == 0 {
		return ""
	}
	near := map[int]bool{}
	for _, c := range cpus {
		near[c] = true
	}
	place, n := map[int]int{}, 0
	cores := map[int]bool{}
	for _, c := range top {
		if _, ok := place[c.Core]; !ok {
			place[c.Core] = n
			n++
		}
		if near[c.ID] {
			cores[place[c.Core]] = true
		}
	}
	if len(cores) == n {
		return ""
	}
	var out []int
	for c := range cores {
		out = append(out, c)
	}
	return hw.FormatList(out)
}

// linkMatrix returns for each pair of GPUs their links: NVLinks if any GPU has some, else their closeness on PCIe, so that GPUs
// of one switch are allocated together. nil: nothing is known, or there is one GPU.
func linkMatrix(infos []Info) [][]uint32 {
	out := make([][]uint32, len(infos))
	if len(infos) < 2 {
		return out
	}
	nvlink := slices.ContainsFunc(infos, func(in Info) bool { return len(in.Links) > 0 })
	known := false
	for i, a := range infos {
		out[i] = make([]uint32, len(infos))
		for j, b := range infos {
			switch {
			case i == j:
			case nvlink:
				out[i][j] = uint32(max(a.Links[b.PCI], min(a.Links[SwitchLinks], b.Links[SwitchLinks])))
			default:
				out[i][j] = uint32(a.Near[b.UUID])
			}
			known = known || out[i][j] > 0
		}
	}
	if !known {
		return make([][]uint32, len(infos))
	}
	return out
}
