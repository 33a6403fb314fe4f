package gpu

import (
	"fmt"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// model is a GPU model that Fake can simulate.
type model struct {
	name      string // as NVML reports it
	memoryMiB uint64
	idleMW    int64
	maxMW     int64
	links     int  // NVLinks of each GPU
	switched  bool // they connect to NVSwitches
	ecc       string
	slices    []uint64 // GB in the names of the MIG profiles of 1, 2, 3, 4 and 7 compute slices; nil = no MIG
	noReset   bool     // MIG changes without a reset (Hopper and later)
	noEnergy  bool     // no energy counter (before Volta)
}

var models = map[string]model{
	"a100": {name: "NVIDIA A100-SXM4-40GB", memoryMiB: 40960, idleMW: 55_000, maxMW: 400_000, links: 12, switched: true, ecc: "on",
		slices: []uint64{5, 10, 20, 20, 40}},
	"a100_80gb": {name: "NVIDIA A100-SXM4-80GB", memoryMiB: 81920, idleMW: 60_000, maxMW: 400_000, links: 12, switched: true, ecc: "on",
		slices: []uint64{10, 20, 40, 40, 80}},
	"h100": {name: "NVIDIA H100 80GB HBM3", memoryMiB: 81559, idleMW: 70_000, maxMW: 700_000, links: 18, switched: true, ecc: "on",
		slices: []uint64{10, 20, 40, 40, 80}, noReset: true},
	"h200": {name: "NVIDIA H200", memoryMiB: 143771, idleMW: 75_000, maxMW: 700_000, links: 18, switched: true, ecc: "on",
		slices: []uint64{18, 35, 71, 71, 141}, noReset: true},
	"b200": {name: "NVIDIA B200", memoryMiB: 183359, idleMW: 140_000, maxMW: 1_000_000, links: 18, switched: true, ecc: "on",
		slices: []uint64{23, 45, 90, 90, 180}, noReset: true},
	"v100":      {name: "Tesla V100-SXM2-32GB", memoryMiB: 32768, idleMW: 40_000, maxMW: 300_000, links: 6, ecc: "on"},
	"titan_xp":  {name: "NVIDIA TITAN Xp", memoryMiB: 12288, idleMW: 9_000, maxMW: 250_000, ecc: "n/a", noEnergy: true},
	"titan_v":   {name: "NVIDIA TITAN V", memoryMiB: 12288, idleMW: 25_000, maxMW: 250_000, ecc: "n/a"},
	"rtx_3090":  {name: "NVIDIA GeForce RTX 3090", memoryMiB: 24576, idleMW: 20_000, maxMW: 350_000, ecc: "n/a"},
	"rtx_a6000": {name: "NVIDIA RTX A6000", memoryMiB: 49140, idleMW: 22_000, maxMW: 300_000, ecc: "off"},
	"l40s":      {name: "NVIDIA L40S", memoryMiB: 46068, idleMW: 35_000, maxMW: 350_000, ecc: "on"},
	"t4":        {name: "Tesla T4", memoryMiB: 15360, idleMW: 10_000, maxMW: 70_000, ecc: "on"},
}

// profiles returns the MIG profiles of a GPU with eight memory slices (NVIDIA, MIG User Guide, "Supported MIG profiles").
func (m model) profiles() []*pb.MigProfile {
	if m.slices == nil {
		return nil
	}
	var out []*pb.MigProfile
	for i, shape := range []struct {
		compute, size uint32
		starts        []uint32
		id            uint32 // NVML_GPU_INSTANCE_PROFILE_…
	}{
		{1, 1, []uint32{0, 1, 2, 3, 4, 5, 6}, 0}, {2, 2, []uint32{0, 2, 4}, 1}, {3, 4, []uint32{0, 4}, 2}, {4, 4, []uint32{0}, 3},
		{7, 8, []uint32{0}, 4},
	} {
		out = append(out, &pb.MigProfile{Name: fmt.Sprintf("%dg.%dgb", shape.compute, m.slices[i]), Slices: shape.compute,
			MemoryMib: m.memoryMiB * uint64(shape.size) / 8, Starts: shape.starts, Size: shape.size, Id: shape.id})
	}
	return out
}

// minorsDGX are a DGX's minor numbers by index: not in the order of PCI addresses.
var minorsDGX = [8]int{2, 3, 0, 1, 6, 7, 4, 5}

// buses are the PCI bus numbers of a DGX A100.
var buses = [8]int{0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd}

// busOf and minorOf number the GPUs of a simulated machine. Fewer than eight have their minors backwards, like a workstation
// whose second slot was filled first.
func busOf(index, total int) int {
	if total == 8 {
		return buses[index]
	}
	return 0x01 + 3*index
}

func minorOf(index, total int) int {
	if total == 8 {
		return minorsDGX[index]
	}
	return total - 1 - index
}
