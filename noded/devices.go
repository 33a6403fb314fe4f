package noded

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"

	"github.com/sluice-hpc/sluice/noded/gpu"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// watchDevices makes the monitor of this node's devices, with the settings that the controller gave last.
func (n *node) watchDevices() {
	n.gpus = gpu.NewMonitor(gpu.Options{Source: n.o.GPUs, NoDriver: n.o.NoGPUs, Topology: n.inv.Topology, Log: n.log,
		Gres: n.settings.GetGres(), Policy: n.settings.GetGpu(), Unsettled: n.settings == nil, State: filepath.Join(n.sp.dir, "devices.json"), BootID: n.inv.BootID,
		Processes: gpu.Proc{Cgroup: path.Join("sluice", n.o.Cluster, n.o.NodeName), Spool: n.sp.dir}})
}

// holdDevices keeps what a step was given from being cut differently while it runs.
func (n *node) holdDevices(name string, b *pb.Bundle) {
	var ids []string
	for _, d := range b.GetDevices() {
		ids = append(ids, d.Id)
	}
	n.gpus.Hold(name, ids)
	if len(ids) > 0 {
		n.gpus.Poke()
	}
}

// mustCut says whether a launch needs a GPU cut, or merged back, before it begins.
func (n *node) mustCut(l *pb.LaunchSpec) bool {
	modes := map[string]string{}
	for _, d := range n.gpus.Report().Devices {
		modes[d.Id] = d.MigMode
	}
	return slices.ContainsFunc(devicesOf(l), func(d *pb.GresDevice) bool {
		return d.Parent != "" || modes[d.Id] == "on" || modes[d.Id] == "pending off"
	})
}

// cut makes the instances that a launch names, and gives the launch with the devices that there are then.
func (n *node) cut(ctx context.Context, j *job, l *pb.LaunchSpec, then func(*pb.LaunchSpec, error)) {
	n.work(ctx, func() func() {
		got, err := n.ensure(j.name, l)
		return func() { then(got, err) }
	})
}

// ensure does the cutting; on an error it gives the launch as it was.
func (n *node) ensure(name string, l *pb.LaunchSpec) (*pb.LaunchSpec, error) {
	out := proto.Clone(l).(*pb.LaunchSpec)
	modes := map[string]string{}
	for _, d := range n.gpus.Report().Devices {
		modes[d.Id] = d.MigMode
	}
	for _, d := range devicesOf(out) {
		var got *pb.Device
		var err error
		switch {
		case d.Parent != "":
			got, err = n.gpus.EnsureInstance(name, d.Parent, d.Type, d.MigStart)
		case modes[d.Id] == "on" || modes[d.Id] == "pending off":
			got, err = n.gpus.EnsureWhole(name, d.Id)
		default:
			continue
		}
		if err != nil {
			return l, err
		}
		d.Id = got.Id
	}
	return out, nil
}

// runDevices watches until ctx ends.
func (n *node) runDevices(ctx context.Context) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		n.gpus.Run(ctx)
	}()
}

// addDevices puts everything about the devices into what the node says first.
func (n *node) addDevices(h *pb.Hardware) {
	r := n.deviceReport()
	h.Devices, h.Mismatches, h.Driver = r.Devices, r.Mismatches, n.gpus.Driver()
	n.devices = false
}

// deviceReport is everything about the devices, with whether jobs are kept from those of others.
func (n *node) deviceReport() *pb.DeviceReport {
	r := n.gpus.Report()
	open := n.openToAll(r.Devices)
	if open == "" {
		return r
	}
	n.bundler.sayOnce("devices are open to every job", errors.New(open))
	return &pb.DeviceReport{Devices: r.Devices, Mismatches: append(slices.Clone(r.Mismatches), open)}
}

// addDeviceChanges puts what has changed into a message, and says whether there was anything.
func (n *node) addDeviceChanges(m *pb.NodeReport) bool {
	if n.devices {
		n.devices = false
		m.Devices = n.deviceReport()
	}
	if n.sampled {
		n.sampled = false
		m.Samples = n.gpus.Samples()
	}
	return m.Devices != nil || len(m.Samples) > 0
}
