package planner

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/conf/tres"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
)

// devices turns an allocation into records, and the text that scontrol shows of it: "gpu:a100:2(IDX:0-1)".
func devices(n *state.Node, gres []sched.GresAlloc) (list []*pb.GresDevice, text string) {
	type shown struct {
		tres.Gres
		index state.Cores
	}
	var parts []shown
	for _, g := range gres {
		count := uint64(max(g.Count, int64(len(g.Devices))))
		at := slices.IndexFunc(parts, func(p shown) bool { return p.Name == g.Name && p.Type == g.Type })
		if at < 0 {
			parts = append(parts, shown{Gres: tres.Gres{Name: g.Name, Type: g.Type}})
			at = len(parts) - 1
		}
		parts[at].Count += count
		if len(g.Devices) == 0 {
			list = append(list, &pb.GresDevice{Name: g.Name, Type: g.Type, Count: uint32(g.Count)})
			continue
		}
		for i, d := range g.Devices {
			one := &pb.GresDevice{Name: g.Name, Type: g.Type, Index: uint32(d), Share: uint32(g.Shares)}
			if n != nil {
				one.Id = n.Inv.Current(one).GetId()
			}
			if g.Starts != nil && n != nil {
				one.Parent, one.Id, one.Share, one.MigStart = one.Id, "", 0, uint32(g.Starts[i])
				one.Index = n.Inv.InstanceIndex(one.Index, one.MigStart)
			}
			list = append(list, one)
			set, _ := state.ParseCores(strconv.Itoa(int(one.Index)))
			parts[at].index = parts[at].index.With(set)
		}
	}
	words := make([]string, len(parts))
	for i, p := range parts {
		words[i] = p.String()
		if p.index.Count() > 0 {
			words[i] += "(IDX:" + p.index.String() + ")"
		}
	}
	return list, strings.Join(words, ",")
}
