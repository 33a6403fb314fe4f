package planner

import (
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// devices converts an allocation to records, and to scontrol's text: "gpu:a100:2(IDX:0-1)".
func devices(n *state.Node, gres []record.GresAlloc) (list []*pb.GresDevice, text string) {
	for _, g := range gres {
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
		}
	}
	return list, state.GresText(list)
}
