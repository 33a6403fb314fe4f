package noded

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/noded/gpu"
	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// pretend gives a daemon GPUs, in a folder that outlives it.
func (d *daemon) pretend(spec string) *gpu.Fake {
	d.t.Helper()
	items, err := gpu.ParseSpec(spec)
	must(d.t, err)
	f, err := gpu.NewFake(items, gpu.FakeOptions{Dir: filepath.Join(d.o.Spool, "gpus"), Topology: hw.Build(2, 2, 2)})
	must(d.t, err)
	d.o.GPUs = f
	return f
}

// withDevices is a job that was given devices.
func withDevices(id uint32, devices ...*pb.GresDevice) *pb.LaunchSpec {
	l := jobSpec(id, 1)
	l.Alloc[0].Devices = devices
	return l
}

func TestDevicesAreTold(t *testing.T) {
	c := newController(t)
	c.settings.Gpu = &pb.GpuPolicy{SampleS: 1, RecoverS: 3600}
	d := newDaemon(t, c, newFakeSteps(t))
	f := d.pretend("a100:2")
	d.start()
	h := c.hello(0).Hello.Hardware
	if len(h.Devices) != 2 || h.Devices[0].Type != "a100" || h.Devices[1].Id != f.ID(1) || h.Driver == "" || h.Devices[0].Cores != "0-1" {
		t.Errorf("%v", h)
	}
	if h.Devices[0].Fault == "" || h.Devices[1].Fault == "" {
		t.Errorf("offered before the controller has told of gres.conf: %v", h.Devices)
	}
	c.await("devices that can be given out", func() bool {
		return c.devices != nil &&
			c.devices.Devices[0].Fault+c.devices.Devices[1].Fault == ""
	})
	c.await("samples", func() bool { return len(c.samples) == 2 && c.samples[0].Id == f.ID(0) && c.samples[0].PowerMw > 0 })
	f.XID(1, 79)
	c.await("a fault", func() bool {
		return c.devices != nil && strings.HasPrefix(c.devices.Devices[1].Fault, "XID 79") && c.devices.Devices[0].Fault == ""
	})
	d.stop()
	// The next daemon has not forgotten; lines of gres.conf that came meanwhile cost the difference.
	c.update(func() {
		c.settings.Gres = []*pb.GresConf{{Name: "gpu", Type: "a100", Count: 3, Place: "gres.conf:1"},
			{Name: "tape", Files: []string{"/dev/null", "/dev/nothing"}, Count: 2, Place: "gres.conf:2"}}
	})
	d.pretend("a100:2")
	was := c.heard()
	d.start()
	if h := c.hello(was).Hello.Hardware; !strings.HasPrefix(h.Devices[1].Fault, "XID 79") {
		t.Errorf("%v", h)
	}
	c.await("the devices of gres.conf", func() bool { return len(c.devices.Devices) == 4 })
	c.mu.Lock()
	m := c.devices.Mismatches
	c.mu.Unlock()
	if len(m) < 2 || m[0] != "NVML sees 2 a100, gres.conf:1 says 3 of type a100" ||
		!strings.Contains(m[1], "/dev/nothing") {
		t.Errorf("%q", m)
	}
	d.stop()
	was = c.heard()
	d.start() // the settings are kept with the spool: this hello is complete at once
	if h := c.hello(was).Hello.Hardware; len(h.Devices) != 4 {
		t.Errorf("%v", h)
	}
	d.stop()
}

// A GPU is cut before the job begins, is not cut again under it, by this daemon or the next, and is whole again for the next job.
func TestInstancesAreMadeAtLaunch(t *testing.T) {
	c, steps := newController(t), newFakeSteps(t)
	c.settings.Gpu = &pb.GpuPolicy{DynamicMig: true}
	d := newDaemon(t, c, steps)
	f := d.pretend("h100:1")
	d.start()
	part := func(start uint32) *pb.GresDevice {
		return &pb.GresDevice{Name: "gpu", Type: "h100_3g.40gb", Parent: f.ID(0), MigStart: start}
	}
	one := c.submit(withDevices(1, part(4)))
	c.phase(one, pb.StepPhase_STEP_RUNNING)
	b, err := steps.Bundle(one.Proto())
	must(t, err)
	if len(b.Devices) != 1 || !strings.HasPrefix(b.Devices[0].Id, "MIG-") {
		t.Errorf("%v", b.Devices)
	}
	c.await("the instance", func() bool {
		return c.devices != nil && len(c.devices.Devices) == 2 && c.devices.Devices[1].Id == b.Devices[0].Id
	})

	refused := c.submit(withDevices(2, part(4)))
	if x := c.end(refused); x.Verdict != "node_failed" || !strings.Contains(x.Detail, "has it") {
		t.Errorf("%v", x)
	}
	d.stop()
	f = d.pretend("h100:1")
	d.start()
	whole := withDevices(3, &pb.GresDevice{Name: "gpu", Type: "h100", Id: f.ID(0)})
	early := c.submit(whole)
	if x := c.end(early); x.Verdict != "node_failed" || !strings.Contains(x.Detail, "has it") {
		t.Errorf("%v", x)
	}
	steps.exit(one, 0)
	c.end(one)
	late := c.submit(withDevices(4, &pb.GresDevice{Name: "gpu", Type: "h100", Id: f.ID(0)}))
	c.phase(late, pb.StepPhase_STEP_RUNNING)
	if b, err := steps.Bundle(late.Proto()); err != nil || b.Devices[0].Id != f.ID(0) {
		t.Errorf("%v, %v", b, err)
	}
	steps.exit(late, 0)
	c.end(late)
	d.stop()
}
