package rpc

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// gresUsed is what of a node's generic resources its jobs hold, as sinfo and scontrol show it ("gpu:a100:2(IDX:0-1)", and
// "gpu:a100:0(IDX:N/A)" when none is held), and the same as TRES ("gres/gpu=2").
func gresUsed(v *state.View, n *state.Node) (used, total string) {
	list, err := tres.ParseNodeGres(n.Gres)
	if err != nil {
		return "", ""
	}
	held := heldDevices(v, n)
	sums := map[string]uint64{}
	var order, parts []string
	for _, g := range list {
		var index state.Cores
		count := uint64(0)
		for _, d := range held {
			if d.Name != g.Name || d.Type != g.Type {
				continue
			}
			count += uint64(max(d.Count, 1))
			if d.Count == 0 {
				set, _ := state.ParseCores(strconv.FormatUint(uint64(d.Index), 10))
				index = index.With(set)
			}
		}
		text := index.String()
		if text == "" {
			text = "N/A"
		}
		parts = append(parts, fmt.Sprintf("%s(IDX:%s)", tres.Gres{Name: g.Name, Type: g.Type, Count: count}, text))
		if _, known := sums[g.Name]; !known {
			order = append(order, g.Name)
		}
		sums[g.Name] += count
	}
	for _, name := range order {
		if sums[name] > 0 {
			total += fmt.Sprintf(",gres/%s=%d", name, sums[name])
		}
	}
	return strings.Join(parts, ","), total
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
