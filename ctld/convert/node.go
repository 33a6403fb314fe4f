package convert

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// Node makes the scheduler's record of a node. With all, it includes what the node withholds now (nodeGres).
func Node(n *state.Node, all bool) *record.Node {
	s := &record.Node{Name: n.Name, State: NodeState(n), Reason: n.Reason, CPUs: int(n.Cpus), Sockets: int(n.Sockets),
		CoresPerSocket: int(n.NodeRecord.Cores), Threads: int(n.Threads), MemMiB: int64(n.RealMemoryMib), SpecMemMiB: int64(n.MemSpecMib),
		TmpMiB: int64(n.TmpDiskMib), Weight: int(n.Weight)}
	s.RefusesRoot, s.RefusesBelow = n.RefusesRoot, n.RefusesBelow
	at, dozes := n.AsleepAt()
	if n.Asleep() || dozes {
		s.WakeS, s.AwayUntil = int64(max(n.Power.UpS, 1)), seconds(at)
	}
	s.Gres, s.Withheld = nodeGres(n, all), withheld(n)
	s.Switch = strings.Join(n.Switches, "/")
	if n.ActiveFeatures != "" {
		s.Features = strings.Split(n.ActiveFeatures, ",")
	}
	return s
}

// seconds converts nanoseconds, rounding up.
func seconds(ns int64) int64 { return (ns + 1e9 - 1) / 1e9 }

func NodeState(n *state.Node) record.NodeState {
	_, dozes := n.AsleepAt()
	switch {
	case n.State == pb.NodeState_NODE_FUTURE:
		return record.NodeFuture
	case n.Asleep(), dozes:
		return record.NodeUsable
	case n.State != pb.NodeState_NODE_IDLE || !n.LinkUp ||
		n.StateFlags&(pb.NodeNoRespond|pb.NodeFail|state.PowerFlags|pb.NodeRebootIssued) != 0:
		return record.NodeDown
	case n.StateFlags&pb.NodeMaint != 0:
		return record.NodeMaint
	case n.StateFlags&(pb.NodeDrain|pb.NodeInvalidReg) != 0 || len(n.Strays) > 0 || n.GoesDown():
		return record.NodeDrained
	}
	return record.NodeUsable
}

// nodeGres returns a node's generic resources. It leaves out those that are not consumed, because any job may use them, and withheld
// devices. With all, it includes everything that the node could ever have: for the check whether a request is possible.
func nodeGres(n *state.Node, all bool) []record.Gres {
	if n.Inv == nil {
		return nil
	}
	var out []record.Gres
	for i := range n.Inv.Kinds {
		k := &n.Inv.Kinds[i]
		switch {
		case k.NoConsume || k.Shared:
		case len(k.Devices) == 0 && (k.Name != "gpu" || k.Count == 0):
			out = append(out, record.Gres{Name: k.Name, Type: k.Type, Count: int64(k.Count)})
		default:
			out = append(out, deviceGres(n, k, all)...)
		}
	}
	return out
}

// deviceGres makes the scheduler's records of the devices of a kind: one for those with the same number of shares.
func deviceGres(n *state.Node, k *state.Kind, all bool) []record.Gres {
	var groups [][]*pb.Device
	last := uint32(0)
	for _, d := range k.Devices {
		last = max(last, d.Index)
		if !all && state.Withheld(d) != "" {
			continue
		}
		i := slices.IndexFunc(groups, func(g []*pb.Device) bool { return sameWorth(n, g[0], d, all) })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], d)
	}
	out := make([]record.Gres, len(groups))
	for i, g := range groups {
		out[i] = record.Gres{Name: k.Name, Type: k.Type, Count: int64(len(g)), Shared: SharedAs(g[0]), Shares: int64(g[0].Shares),
			Profiles: profiles(n, g[0], all)}
		for _, d := range g {
			cores, _ := state.ParseCores(d.Cores) // unknown if invalid
			out[i].Devices = append(out[i].Devices, record.Device{Index: int(d.Index), Cores: record.Bits(cores), Links: links(g, d)})
		}
	}
	if missing := int(min(k.Count, maxMissing)) - len(k.Devices); all && missing > 0 {
		if len(out) == 0 {
			out = append(out, record.Gres{Name: k.Name, Type: k.Type})
		}
		for range missing {
			last++
			out[0].Devices = append(out[0].Devices, record.Device{Index: int(last)})
			out[0].Count++
		}
	}
	return out
}

// sameWorth reports whether two devices of a kind belong to one record.
func sameWorth(n *state.Node, a, b *pb.Device, all bool) bool {
	return SharedAs(a) == SharedAs(b) && a.Shares == b.Shares && slices.EqualFunc(profiles(n, a, all), profiles(n, b, all),
		func(p, q record.MigProfile) bool {
			return p.Name == q.Name && p.Size == q.Size && slices.Equal(p.Starts, q.Starts)
		})
}

// profiles returns the instances that a GPU may be cut into on request.
func profiles(n *state.Node, d *pb.Device, all bool) []record.MigProfile {
	if !n.GresConf.DynamicMIG || d.Shares > 0 || d.Parent != "" || !all && !state.Cuttable(d) {
		return nil
	}
	var out []record.MigProfile
	for _, p := range d.MigProfiles {
		one := record.MigProfile{Name: p.Name, Size: int(p.Size)}
		for _, s := range p.Starts {
			if s+p.Size > 64 {
				return nil
			}
			one.Starts = append(one.Starts, int(s))
		}
		slices.Sort(one.Starts)
		if p.Size > 0 && len(one.Starts) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// maxMissing bounds the devices of a kind that are known to be missing.
const maxMissing = 1024

func SharedAs(d *pb.Device) string {
	if d.Shares == 0 {
		return ""
	}
	return cmp.Or(d.SharedAs, "shard")
}

// links returns the links of a device to each of a group, nil when unknown.
func links(group []*pb.Device, d *pb.Device) []int {
	out := make([]int, len(group))
	for i, o := range group {
		if int(o.Index) >= len(d.Links) {
			return nil
		}
		out[i] = int(d.Links[o.Index])
	}
	return out
}

// withheld returns the names of the resources with units that the node has, or should have, and that are not given out.
func withheld(n *state.Node) []string {
	if n.Inv == nil {
		return nil
	}
	var out []string
	for i := range n.Inv.Kinds {
		k := &n.Inv.Kinds[i]
		kept := k.Name == "gpu" && uint64(len(k.Devices)) < k.Count || slices.ContainsFunc(k.Devices, func(d *pb.Device) bool {
			return state.Withheld(d) != "" || n.GresConf.DynamicMIG && state.Uncut(d) != ""
		})
		if kept && !slices.Contains(out, k.Name) {
			out = append(out, k.Name)
		}
	}
	return out
}

// GresAllocs converts the devices of a record for the scheduler: by the node's present index of each device, which may differ from the one
// at the job's start. Missing devices are left out.
func GresAllocs(n *state.Node, a *pb.NodeAlloc) []record.GresAlloc {
	var out []record.GresAlloc
	for _, d := range a.Devices {
		index, name, typ, shares := int(d.Index), d.Name, d.Type, int64(d.Share)
		var part *pb.GresDevice
		if d.Count == 0 && n != nil && n.Inv != nil {
			var have *pb.Device
			if have, part = n.Inv.Part(d); have == nil {
				continue
			}
			index = int(have.Index)
			if shares > 0 && SharedAs(have) != d.Name { // no longer shared: those who share it have it
				name, shares = have.Name, 0
			}
			if part != nil {
				typ, shares = part.Type, int64(state.Profile(have, part.Type).GetSize())
			}
		}
		i := len(out) - 1
		if i < 0 || out[i].Name != name || out[i].Type != typ || out[i].Shares != shares {
			out = append(out, record.GresAlloc{Name: name, Type: typ, Shares: shares})
			i++
		}
		if d.Count > 0 {
			out[i].Count += int64(d.Count)
			continue
		}
		out[i].Devices = append(out[i].Devices, index)
		if part != nil {
			out[i].Starts = append(out[i].Starts, int(part.MigStart))
			shares = 1
		}
		out[i].Count += max(shares, 1)
	}
	return out
}
