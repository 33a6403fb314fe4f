package rpc

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// showPartition adds the generic resources of a partition's nodes to its TRES, in the order in which nodes have them.
func showPartition(v *state.View, p *pb.PartitionRecord) *pb.PartitionRecord {
	have := map[string]uint64{}
	var order []string
	for _, name := range v.PartitionNodes(p.Name) {
		n := v.Node(name)
		if n == nil || n.Inv == nil {
			continue
		}
		for i := range n.Inv.Kinds {
			k := &n.Inv.Kinds[i]
			if !slices.Contains(order, k.Name) {
				order = append(order, k.Name)
			}
			have[k.Name] += k.Count
		}
	}
	if len(order) == 0 {
		return p
	}
	shown := proto.Clone(p).(*pb.PartitionRecord)
	for _, name := range order {
		shown.Tres += fmt.Sprintf(",gres/%s=%d", name, have[name])
	}
	return shown
}
