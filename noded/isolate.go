package noded

import (
	"fmt"

	"github.com/sluice-hpc/sluice/noded/isolate"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// closeDevices gives the rules by which a job can open no devices of this node but its own.
func (b *bundler) closeDevices(l *pb.LaunchSpec, s *pb.NodeSettings) []*pb.DeviceRule {
	if b.devices == nil || !b.closes(s) {
		return nil
	}
	rules, faults := isolate.Rules(b.devices(), devicesOf(l), b.kernel)
	for _, f := range faults {
		b.sayOnce("a device cannot be closed to jobs, nor used by any", f)
	}
	return rules
}

// closes: jobs are kept from each other's devices.
func (b *bundler) closes(s *pb.NodeSettings) bool { return s.GetConstrainDevices() && b.open == nil }

// sayOnce logs what would come again with each job.
func (b *bundler) sayOnce(what string, err error) {
	if b.told == nil {
		b.told = map[string]bool{}
	}
	if !b.told[err.Error()] && len(b.told) < 1000 {
		b.told[err.Error()] = true
		b.log.Warn(what, "err", err)
	}
}

// daemonFor is what environments take from this node, its devices among it.
func (b *bundler) daemonFor(s *pb.NodeSettings) taskenv.Daemon {
	d := b.daemon
	if b.devices != nil {
		d.Gres = taskenv.Gres{Devices: b.devices().Devices, Conf: s.GetGres(), Closed: b.closes(s), UUIDs: s.GetGpu().GetUuids()}
	}
	return d
}

// devicesOf are the devices of this node that were given to a job.
func devicesOf(l *pb.LaunchSpec) (all []*pb.GresDevice) {
	for _, a := range l.GetAlloc() {
		if a.GetNode() == l.GetNode() {
			all = append(all, a.GetDevices()...)
		}
	}
	return all
}

// gone tells of a device that a launch names and that is not here any more: the job must not run without it.
func (n *node) gone(l *pb.LaunchSpec) error {
	have := n.gpus.Report().GetDevices()
	for _, d := range devicesOf(l) {
		if d.GetCount() == 0 && d.GetId() != "" && len(isolate.Held(have, []*pb.GresDevice{d})) == 0 {
			return fmt.Errorf("cannot give the job %s %d (%s): this node does not have it any more", d.GetName(), d.GetIndex(), d.GetId())
		}
	}
	return nil
}

// ownDevices is what the bundler knows of the devices.
func (n *node) ownDevices() isolate.Node {
	return isolate.Node{Devices: n.gpus.Report().GetDevices(), Spare: n.gpus.Spare(), Control: n.gpus.Control()}
}

// openToAll says, for people, that jobs of this node are not kept from each other's devices; empty: they are, or there are none.
func (n *node) openToAll(devices []*pb.Device) string {
	switch {
	case len(devices) == 0 || n.bundler.closes(n.settings):
		return ""
	case n.bundler.open != nil:
		return fmt.Sprintf("every job can open every device of this node: %v", n.bundler.open)
	case n.settings == nil:
		return "" // not said yet
	}
	return "every job can open every device of this node: ConstrainDevices=no in cgroup.conf"
}
