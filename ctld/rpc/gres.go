package rpc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// showGres fills in the displayed generic resources of a node: their numbers, those in use, and those withheld with the reasons.
func showGres(v *state.View, n *state.Node, r *pb.NodeRecord) {
	r.Reported = nil // every device of every node, which no client displays
	if n.Inv == nil {
		return
	}
	held := heldDevices(v, n)
	var used, drained, notes []string
	total, have := map[string]uint64{}, map[string]uint64{}
	var order []string
	since := int64(0) // of the first fault
	for i := range n.Inv.Kinds {
		k := &n.Inv.Kinds[i]
		if !slices.Contains(order, k.Name) {
			order = append(order, k.Name)
		}
		have[k.Name] += k.Count
		text, count := usedOf(n, k, held)
		used = append(used, append([]string{text}, instancesOf(k, held)...)...)
		total[k.Name] += count
		if k.Shared {
			continue
		}
		if text, why := drainedOf(k); text != "" {
			drained, notes = append(drained, text), append(notes, why...)
		}
		for _, d := range k.Devices {
			if d.FaultNs != 0 && (since == 0 || d.FaultNs < since) {
				since = d.FaultNs
			}
		}
	}
	r.Gres, r.GresUsed, r.GresDrain = n.Inv.Gres, strings.Join(used, ","), strings.Join(drained, ",")
	r.CfgTres, _, _ = strings.Cut(r.CfgTres, ",gres/")
	for _, name := range order {
		r.CfgTres += fmt.Sprintf(",gres/%s=%d", name, have[name])
		if total[name] > 0 {
			r.AllocTres += fmt.Sprintf(",gres/%s=%d", name, total[name])
		}
	}
	r.AllocTres = strings.TrimPrefix(r.AllocTres, ",")
	if r.Reason == "" && len(notes) > 0 { // for sinfo -R, where the node has no reason of its own
		r.Reason, r.ReasonUser, r.ReasonNs = strings.Join(notes, "; "), "slurm", since
	}
	for _, differ := range n.Inv.Differ { // device faults are listed above
		if !slices.ContainsFunc(notes, func(s string) bool { return strings.HasSuffix(s, ": "+differ) }) {
			notes = append(notes, differ)
		}
	}
	if off := n.ClockOffNs; off != 0 {
		notes = append(notes, clockNote(off))
	}
	r.Diagnosis = strings.Join(notes, "; ")
}

// clockNote describes a clock that is off nanoseconds ahead.
func clockNote(off int64) string {
	word := "ahead of"
	if off < 0 {
		word, off = "behind", -off
	}
	return fmt.Sprintf("its clock is %s %s the controller's", time.Duration(off).Round(time.Second), word)
}

// usedOf formats the part of a kind that jobs hold: "gpu:a100:2(IDX:0-1)", "gpu:a100:0(IDX:N/A)" when none is held, and for shards the
// number on each device: "shard:3(3/8,0/8)".
func usedOf(n *state.Node, k *state.Kind, held []*pb.GresDevice) (text string, count uint64) {
	var index state.Cores
	parts := map[uint32]uint64{}
	for _, d := range held {
		if d.Name != k.Name {
			continue
		}
		if d.Count > 0 {
			if d.Type == k.Type {
				count += uint64(d.Count)
			}
			continue
		}
		have := n.Inv.Current(d)
		if have == nil || !slices.ContainsFunc(k.Devices, func(o *pb.Device) bool { return o.Index == have.Index }) {
			continue
		}
		one, _ := state.ParseCores(strconv.FormatUint(uint64(have.Index), 10))
		if d.Parent != "" && index.Overlaps(one) {
			continue // part of a GPU that was counted already
		}
		count += uint64(max(d.Share, 1))
		parts[have.Index] += uint64(d.Share)
		index = index.With(one)
	}
	text = tres.Gres{Name: k.Name, Type: k.Type, Count: count}.String()
	switch {
	case k.Shared:
		var list []string
		for _, d := range k.Devices {
			list = append(list, fmt.Sprintf("%d/%d", parts[d.Index], d.Shares))
		}
		return text + "(" + strings.Join(list, ",") + ")", count
	case len(k.Devices) == 0 && k.Name != "gpu":
		return text, count
	}
	return text + "(IDX:" + cmp.Or(index.String(), "N/A") + ")", count
}

// instancesOf formats the MIG instances that jobs hold of the GPUs of a kind, by type: "gpu:a100_3g.20gb:2(IDX:8,12)".
func instancesOf(k *state.Kind, held []*pb.GresDevice) []string {
	index := map[string]state.Cores{}
	var order []string
	for _, d := range held {
		if d.Parent == "" || !slices.ContainsFunc(k.Devices, func(o *pb.Device) bool { return o.Id == d.Parent }) {
			continue
		}
		if index[d.Type] == nil {
			order = append(order, d.Type)
		}
		one, _ := state.ParseCores(strconv.FormatUint(uint64(d.Index), 10))
		index[d.Type] = index[d.Type].With(one)
	}
	slices.Sort(order)
	for i, typ := range order {
		order[i] = fmt.Sprintf("%s(IDX:%s)", tres.Gres{Name: k.Name, Type: typ, Count: uint64(index[typ].Count())}, index[typ])
	}
	return order
}

// drainedOf formats the withheld devices of a kind, "gpu:a100:1(IDX:3)", and gives the reasons.
func drainedOf(k *state.Kind) (text string, why []string) {
	var index state.Cores
	for _, d := range k.Devices {
		if w := state.Withheld(d); w != "" {
			one, _ := state.ParseCores(strconv.FormatUint(uint64(d.Index), 10))
			index = index.With(one)
			why = append(why, state.DeviceName(d)+": "+w)
		}
	}
	if len(why) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s(IDX:%s)", tres.Gres{Name: k.Name, Type: k.Type, Count: uint64(len(why))}, index), why
}

func heldDevices(v *state.View, n *state.Node) []*pb.GresDevice {
	var out []*pb.GresDevice
	for _, id := range n.Jobs {
		j := v.Jobs.Get(id)
		if j == nil {
			continue
		}
		for _, a := range j.Alloc {
			if a.Node == n.Name && !a.Ended {
				out = append(out, a.Devices...)
			}
		}
	}
	return out
}
