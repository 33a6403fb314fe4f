package noded

import (
	"fmt"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// addDevices puts everything about the devices into what the node says first.
func (n *node) addDevices(h *pb.Hardware) {
	r := n.deviceReport()
	h.Devices, h.Mismatches, h.Unread = r.Devices, r.Mismatches, r.Unread
	h.Driver, h.NoGpus = n.about.Driver, n.about.NoGpus
	n.devices = false
}

// deviceReport is everything about the devices, with whether jobs are kept from those of others.
func (n *node) deviceReport() *pb.DeviceReport {
	r := n.have
	if r == nil {
		r = &pb.DeviceReport{}
	}
	open := n.openToAll(r.Devices)
	if open == "" {
		return r
	}
	if open != n.saidOpen { // once, not with every report
		n.saidOpen = open
		n.log.Warn("devices are open to every job", "err", open)
	}
	return &pb.DeviceReport{Devices: r.Devices, Mismatches: append(slices.Clone(r.Mismatches), open), Unread: r.Unread}
}

// openToAll says, for people, that jobs of this node are not kept from each other's devices; empty: they are, or there are none.
func (n *node) openToAll(devices []*pb.Device) string {
	switch {
	case len(devices) == 0 || n.bundler.Closes(n.settings):
		return ""
	case n.bundler.Open != nil:
		return fmt.Sprintf("every job can open every device of this node: %v", n.bundler.Open)
	case n.settings == nil:
		return "" // not said yet
	}
	return "every job can open every device of this node: ConstrainDevices=no in cgroup.conf"
}

// addDeviceChanges puts what has changed into a message, and says whether there was anything.
func (n *node) addDeviceChanges(m *pb.NodeReport) bool {
	if n.devices {
		n.devices = false
		m.Devices = n.deviceReport()
	}
	if n.sampled {
		n.sampled = false
		m.Samples = n.samples
	}
	return m.Devices != nil || len(m.Samples) > 0
}
