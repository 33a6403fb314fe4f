package rpc

import (
	"context"
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Topology returns the switches of topology.conf (scontrol(1), show topology).
func (s *Service) Topology(_ context.Context, r *pb.TopologyRequest) (*pb.TopologyReply, error) {
	v := s.Writer.View()
	reply := &pb.TopologyReply{}
	wanted := switchesFor(v, r.Name)
	for i := range v.Settings.Switches {
		if w := &v.Settings.Switches[i]; wanted == nil || slices.Contains(wanted, w.Name) {
			reply.Switches = append(reply.Switches, &pb.SwitchRecord{Name: w.Name, Level: uint32(w.Level), LinkSpeed: w.LinkSpeed,
				Nodes: hostlist.Fold(w.Nodes), Switches: hostlist.Fold(w.Switches)})
		}
	}
	return reply, nil
}

// switchesFor returns the switches for a name: the switch itself, or those that connect all nodes of the list; nil = all.
func switchesFor(v *state.View, name string) []string {
	if name == "" {
		return nil
	}
	if slices.ContainsFunc(v.Settings.Switches, func(w state.Switch) bool { return w.Name == name }) {
		return []string{name}
	}
	out := []string{}
	nodes, err := hostlist.Expand(name)
	for i, host := range nodes {
		n := v.Node(host)
		if err != nil || n == nil {
			return []string{}
		}
		if i == 0 {
			out = slices.Clone(n.Switches)
		}
		out = slices.DeleteFunc(out, func(w string) bool { return !slices.Contains(n.Switches, w) })
	}
	if out == nil {
		out = []string{}
	}
	return out
}
