package state

import (
	"cmp"
	"slices"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Profile finds a profile of a GPU by the type that a job asks for: "3g.20gb", "a100_3g.20gb"; nil when it has none.
func Profile(d *pb.Device, typ string) *pb.MigProfile {
	for _, p := range d.GetMigProfiles() {
		if typ == p.Name || strings.HasSuffix(typ, "_"+p.Name) {
			return p
		}
	}
	return nil
}

// Cuttable reports whether instances can be cut out of a GPU now: its MIG mode is on, or the node can switch it on, which before Hopper
// needs a reset of GPUs.
func Cuttable(d *pb.Device) bool {
	return d.Parent == "" && len(d.MigProfiles) > 0 && (d.MigMode == "on" || d.MigMode == "off" && d.MigNoReset)
}

// Overlap reports whether two MIG instances of a GPU would take the same memory slices. Unknown profiles overlap.
func Overlap(gpu *pb.Device, a, b *pb.GresDevice) bool {
	p, q := Profile(gpu, a.Type), Profile(gpu, b.Type)
	return p == nil || q == nil || a.MigStart < b.MigStart+q.Size && b.MigStart < a.MigStart+p.Size
}

// InstanceIndex returns the index of the instance that begins at a slice of a GPU, numbered as the node daemon does: behind all GPUs, eight
// for each, so that a new instance changes no other index.
func (v *Inventory) InstanceIndex(gpu, start uint32) uint32 {
	whole := uint32(0)
	for _, d := range v.byID {
		if d.Name == "gpu" && d.Parent == "" {
			whole++
		}
	}
	return whole + slotsAGPU*gpu + start
}

// slotsAGPU is the number of indexes that the node daemon keeps for the instances of one GPU.
const slotsAGPU = 8

// Instance returns the identity under which a held device is sampled: its own, or that of the instance which the node has made for it.
// Empty when the node has not reported one.
func (v *Inventory) Instance(d *pb.GresDevice) string {
	if d.Parent == "" {
		return v.Current(d).GetId()
	}
	if v == nil {
		return ""
	}
	for id, o := range v.byID {
		if o.Parent == d.Parent && o.MigStart == d.MigStart {
			return id
		}
	}
	return ""
}

// Uncut returns the reason why no instance can be cut out of a GPU that supports it; "" when it can, or the GPU does not support it.
func Uncut(d *pb.Device) string {
	switch {
	case len(d.MigProfiles) == 0 || d.Parent != "" || Cuttable(d):
	case strings.HasPrefix(d.MigMode, "pending"):
		return "its MIG mode is " + d.MigMode + ", the GPU must be reset first; until then it is allocated as a whole"
	case d.MigMode == "off":
		return "its MIG mode is off, and switching it on requires a reset (nvidia-smi -i " + d.Pci +
			" -mig 1, then --gpu-reset); until then it is allocated as a whole"
	}
	return ""
}

// Part translates a device that a job holds into the node's current devices: the device, and the MIG instance where the job holds a part of
// it. The two modes may meet: a job got a fixed instance, and GPUs are now cut on request, or the reverse.
func (v *Inventory) Part(d *pb.GresDevice) (have *pb.Device, part *pb.GresDevice) {
	have = v.Current(d)
	switch {
	case have == nil:
		return nil, nil
	case d.Parent != "" && v.dynamic:
		return have, d
	case d.Parent != "":
		if fixed := v.byID[v.Instance(d)]; fixed != nil {
			return fixed, nil
		}
		return have, d
	case have.Parent != "" && v.dynamic && len(v.byID[have.Parent].GetMigProfiles()) > 0:
		return v.byID[have.Parent], &pb.GresDevice{Name: d.Name, Type: have.Type, Parent: have.Parent, MigStart: have.MigStart}
	}
	return have, nil
}

// Parts returns the instances into which a GPU is cut on request now, in order of their first slice.
func (v *Inventory) Parts(gpu *pb.Device) []*pb.Device {
	if !v.dynamic || len(gpu.MigProfiles) == 0 {
		return nil
	}
	var out []*pb.Device
	for _, d := range v.byID {
		if d.Parent == gpu.Id {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *pb.Device) int { return cmp.Compare(a.MigStart, b.MigStart) })
	return out
}
