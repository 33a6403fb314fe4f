package noded

import (
	"fmt"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// addDevices adds the full device report to the hello.
func (n *node) addDevices(h *pb.Hardware) {
	r := n.deviceReport()
	h.Devices, h.Mismatches, h.Unread = r.Devices, r.Mismatches, r.Unread
	h.Driver, h.NoGpus = n.about.Driver, n.about.NoGpus
	n.devices = false
}

// deviceReport returns the full device report. A mismatch is added if jobs are not kept off each other's devices.
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

// openToAll returns why jobs can open each other's devices, for people; empty: they cannot, or there are no devices.
func (n *node) openToAll(devices []*pb.Device) string {
	switch {
	case len(devices) == 0 || n.bundler.Closes(n.settings):
		return ""
	case n.bundler.Open != nil:
		return fmt.Sprintf("every job can open every device of this node: %v", n.bundler.Open)
	case n.settings == nil:
		return "" // not known yet
	}
	return "every job can open every device of this node: ConstrainDevices=no in cgroup.conf"
}

// addDeviceChanges adds what has changed to a message, and reports whether anything has.
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
