package reactor

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// A job on a powered down node gets devices that may not exist: for a node that has never been up those of Gres= in slurm.conf, for others
// those that they last had, and a cloud node gets another host each time. So when the node has registered, its jobs get devices that it
// has, before anything is launched.

// settleAsleep assigns those devices to the jobs that wait for a node which is up now. Jobs for which the node has too few are requeued.
func settleAsleep(tx *state.Tx, name string) {
	n := tx.Node(name)
	if n.StateFlags&pb.NodeInvalidReg != 0 {
		loseWaiting(tx, n, func(*pb.JobRecord) string { return n.Reason })
		return
	}
	held := map[string]*holding{}
	var waiting []*pb.JobRecord
	for _, id := range n.Jobs {
		j := tx.Job(id)
		a := state.AllocOn(j, name)
		switch {
		case a == nil:
		case j.StateFlags&pb.JobPowerUp != 0:
			waiting = append(waiting, j)
		default:
			for _, d := range a.Devices {
				if d.Count == 0 {
					hold(n, held, d)
				}
			}
		}
	}
	given := map[uint32][]*pb.GresDevice{}
	for _, j := range waiting { // first the jobs that can keep theirs
		given[j.Id] = keepDevices(n, held, state.AllocOn(j, name).Devices)
	}
	short := map[uint32]string{}
	for _, j := range waiting {
		for i, d := range state.AllocOn(j, name).Devices {
			if given[j.Id][i] == nil {
				given[j.Id][i] = otherDevice(n, held, d)
			}
			if given[j.Id][i] == nil {
				short[j.Id] = fmt.Sprintf("it lacks some of %s", state.AllocOn(j, name).Gres)
			}
		}
		if short[j.Id] == "" {
			takeDevices(tx, j, name, given[j.Id])
		}
	}
	loseWaiting(tx, n, func(j *pb.JobRecord) string { return short[j.Id] })
}

// forgetUse removes from the devices of a node that is powered down the facts that ended with it: programs that used them outside of any
// job, and in the cloud, where the next host is another one, faults. n is a copy of the node's record. A report whose devices could not be
// read is dropped.
func forgetUse(tx *state.Tx, n *state.Node) {
	if n.Reported == nil {
		return
	}
	if n.Reported.Unread {
		takeHardware(tx, n, nil)
		return
	}
	hw := proto.CloneOf(n.Reported)
	for _, d := range hw.Devices {
		if d.Foreign = ""; n.StateFlags&pb.NodeCloud != 0 {
			d.Fault, d.FaultNs = "", 0
		}
	}
	if !proto.Equal(hw, n.Reported) {
		takeHardware(tx, n, hw)
	}
}

// loseWaiting requeues the jobs that wait for a node, if why gives a reason.
func loseWaiting(tx *state.Tx, n *state.Node, why func(*pb.JobRecord) string) {
	for _, id := range n.Jobs {
		j := tx.Job(id)
		if state.AllocOn(j, n.Name) == nil || j.StateFlags&pb.JobPowerUp == 0 {
			continue
		}
		if text := why(j); text != "" {
			text = fmt.Sprintf("node %s was powered up, and %s", n.Name, text)
			c := state.CloneJob(j)
			c.SystemComment = joinText(c.SystemComment, text) // accounting shows the user why the job was requeued
			lose(tx, c, n.Name, text)
		}
	}
}

// keepDevices returns the devices of a list that the node has, with nil in the place of others.
func keepDevices(n *state.Node, held map[string]*holding, list []*pb.GresDevice) []*pb.GresDevice {
	out := make([]*pb.GresDevice, len(list))
	for i, d := range list {
		if d.Count > 0 { // the resource is only counted
			if counts(n, d) {
				out[i] = d
			}
			continue
		}
		have := n.Inv.Current(d)
		if have == nil || !offered(n, have) || d.Id == "" && have.Id != "" || !room(n, held, d) {
			continue
		}
		hold(n, held, d)
		out[i] = d
	}
	return out
}

// offered reports whether a node gives a device to jobs: slurm.conf may name fewer than exist.
func offered(n *state.Node, have *pb.Device) bool {
	return state.Withheld(have) == "" && slices.ContainsFunc(n.Inv.Kinds, func(k state.Kind) bool {
		return slices.ContainsFunc(k.Devices, func(d *pb.Device) bool { return d.Name == have.Name && d.Index == have.Index })
	})
}

// counts reports whether a node has as many of a resource as a job was given.
func counts(n *state.Node, d *pb.GresDevice) bool {
	return slices.ContainsFunc(n.Inv.Kinds, func(k state.Kind) bool {
		return k.Name == d.Name && (d.Type == "" || k.Type == d.Type) && k.Count >= uint64(d.Count)
	})
}

// otherDevice returns a free device that can replace one that the node does not have, preferably the one with its index; nil when there is
// none.
func otherDevice(n *state.Node, held map[string]*holding, d *pb.GresDevice) *pb.GresDevice {
	if d.Parent != "" || d.Count > 0 {
		return nil
	}
	var best *pb.GresDevice
	for i := range n.Inv.Kinds {
		k := &n.Inv.Kinds[i]
		if k.Shared || d.Type != "" && k.Type != d.Type {
			continue
		}
		for _, have := range k.Devices {
			name := k.Name
			if d.Share > 0 {
				name = have.SharedAs
			}
			one := &pb.GresDevice{Name: d.Name, Type: k.Type, Index: have.Index, Id: have.Id, Share: d.Share}
			if name != d.Name || state.Withheld(have) != "" || !room(n, held, one) {
				continue
			}
			if best == nil || one.Index == d.Index {
				best = one
			}
		}
	}
	if best != nil {
		hold(n, held, best)
	}
	return best
}

// takeDevices gives a job other devices of a node than it had.
func takeDevices(tx *state.Tx, j *pb.JobRecord, node string, list []*pb.GresDevice) {
	if slices.Equal(list, state.AllocOn(j, node).Devices) {
		return
	}
	c := state.CloneJob(j)
	c.Alloc = slices.Clone(j.Alloc)
	for i, a := range c.Alloc {
		if a.Node == node {
			c.Alloc[i] = state.CloneAlloc(a)
			c.Alloc[i].Devices, c.Alloc[i].Gres = list, state.GresText(list)
		}
	}
	tx.Emit(state.JobChanged{Job: c, What: "devices of a node that is up"})
}
