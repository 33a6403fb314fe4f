package gpu

import (
	"fmt"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// lock takes the lock, reads the script, and fails if the GPU is lost.
func (g *fakeGPU) lock() error {
	g.f.mu.Lock()
	g.f.readScript()
	if g.state.Lost {
		return fmt.Errorf("cannot reach GPU %s: %w", g.info.PCI, ErrLost)
	}
	return nil
}

func (g *fakeGPU) leave() { g.f.mu.Unlock() }

// UUID implements Device.
func (g *fakeGPU) UUID() string { return g.info.UUID }

// Info implements Device.
func (g *fakeGPU) Info() (Info, error) {
	err := g.lock()
	defer g.leave()
	if err != nil {
		return Info{}, err
	}
	out := g.info
	out.MIG = g.mig
	for _, i := range g.instances {
		p := g.profile(i.Profile)
		files, err := g.capFiles(i.Start, false)
		if err != nil {
			return Info{}, err
		}
		out.Instances = append(out.Instances, Instance{UUID: g.instanceUUID(i), Profile: i.Profile, Start: i.Start, Size: p.GetSize(),
			MemoryMiB: p.GetMemoryMib(), Files: append(slices.Clone(g.info.Files), files...)})
	}
	return out, nil
}

func (g *fakeGPU) instanceUUID(i fakeInstance) string {
	return fakeUUID("MIG-", g.info.UUID+i.Profile, int(i.Start))
}

// capFiles returns the capability files of an instance, and creates them if asked.
func (g *fakeGPU) capFiles(start uint32, make bool) (out []string, err error) {
	for which := range 2 {
		name, place := capability(g.minor, start, which)
		if make {
			if err := g.f.files.make(name, place); err != nil {
				return nil, err
			}
		}
		out = append(out, g.f.files.path(name))
	}
	return out, nil
}

// Samples implements Device. As with NVML, the load of an instance is available from Hopper on.
func (g *fakeGPU) Samples() ([]*pb.DeviceSample, error) {
	err := g.lock()
	defer g.leave()
	if err != nil {
		return nil, err
	}
	g.account()
	s := g.state
	temp := s.TempC
	if temp == 0 {
		temp = 33 + s.Util/2
	}
	at := g.f.now().UnixNano()
	one := &pb.DeviceSample{Id: g.info.UUID, AtNs: at, UtilPercent: g.says("util", s.Util), MemoryUsedMib: g.says("mem", s.MemMiB),
		TemperatureC: g.says("temp", temp),
		PowerMw:      g.says("power", g.power()), EnergyMj: g.says("energy", int64(g.energyMJ)),
		SmClockMhz:     g.says("clocks", 210+s.Util*12),
		MemoryClockMhz: g.says("clocks", 1215),
		EccUncorrected: g.says("ecc", s.ECC)}
	if g.m.noEnergy {
		one.EnergyMj = NA
	}
	if g.m.ecc == "n/a" {
		one.EccUncorrected = NA
	}
	if len(g.instances) > 0 {
		one.UtilPercent = NA
	}
	out := []*pb.DeviceSample{one}
	load := int64(NA)
	if g.m.noReset {
		load = g.says("util", s.Util)
	}
	for _, i := range g.instances {
		out = append(out, &pb.DeviceSample{Id: g.instanceUUID(i), AtNs: at, UtilPercent: load, MemoryUsedMib: 0,
			TemperatureC: one.TemperatureC,
			PowerMw:      NA, EnergyMj: NA, SmClockMhz: one.SmClockMhz, MemoryClockMhz: one.MemoryClockMhz,
			EccUncorrected: one.EccUncorrected})
	}
	return out, nil
}

// Processes implements Device.
func (g *fakeGPU) Processes() (out []Process, err error) {
	if g.f.hang != nil {
		g.f.hang(g.index)
	}
	err = g.lock()
	defer g.leave()
	if err != nil {
		return nil, err
	}
	for _, pid := range g.state.PIDs {
		out = append(out, Process{PID: pid})
	}
	return out, nil
}

// Health implements Device.
func (g *fakeGPU) Health() (Health, error) {
	err := g.lock()
	defer g.leave()
	if err != nil {
		return Health{}, err
	}
	h := Health{Uncorrectable: g.state.ECC}
	if g.m.ecc == "n/a" {
		h.Uncorrectable = NA
	}
	switch g.state.Remap {
	case "failed":
		h.Broken = RemapFailed
	case "pending":
		h.Pending = RemapPending
	}
	return h, nil
}

// SetMIG implements Device. Before Hopper a change waits for a reset, which never comes here.
func (g *fakeGPU) SetMIG(on bool) error {
	err := g.lock()
	defer g.leave()
	if err != nil {
		return err
	}
	want, pending := "off", "pending off"
	if on {
		want, pending = "on", "pending on"
	}
	switch {
	case g.mig == "":
		return fmt.Errorf("cannot cut GPU %s into instances: %w", g.info.PCI, ErrNotSupported)
	case g.mig == want || g.mig == pending:
		return nil
	case !on && len(g.instances) > 0:
		return fmt.Errorf("cannot switch MIG off on GPU %s: it has %d instances", g.info.PCI, len(g.instances))
	case g.mig == "pending on" || g.mig == "pending off": // back to the mode in force
		g.mig = want
	case g.m.noReset:
		g.mig = want
	default:
		g.mig = pending
	}
	return g.f.keep()
}

// CreateInstance implements Device.
func (g *fakeGPU) CreateInstance(p *pb.MigProfile, start uint32) error {
	err := g.lock()
	defer g.leave()
	if err != nil {
		return err
	}
	own := g.profile(p.GetName())
	if g.mig != "on" && g.mig != "pending off" {
		return fmt.Errorf("cannot create an instance of GPU %s: its MIG mode is %s", g.info.PCI, g.mig)
	}
	if own == nil || !slices.Contains(own.Starts, start) {
		return fmt.Errorf("cannot create an instance %s at slice %d of GPU %s: there is no such placement", p.GetName(), start, g.info.PCI)
	}
	compute := own.Slices
	for _, i := range g.instances {
		q := g.profile(i.Profile)
		compute += q.GetSlices()
		if start < i.Start+q.GetSize() && i.Start < start+own.Size {
			return fmt.Errorf("cannot create an instance %s at slice %d of GPU %s: an instance %s at slice %d is in the way", p.GetName(),
				start, g.info.PCI, i.Profile, i.Start)
		}
	}
	if compute > 7 {
		return fmt.Errorf("cannot create an instance %s of GPU %s: no compute slices are left", p.GetName(), g.info.PCI)
	}
	if _, err := g.capFiles(start, true); err != nil {
		return err
	}
	g.instances = append(g.instances, fakeInstance{own.Name, start})
	return g.f.keep()
}

// DestroyInstance implements Device.
func (g *fakeGPU) DestroyInstance(uuid string) error {
	err := g.lock()
	defer g.leave()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(g.instances, func(i fakeInstance) bool { return g.instanceUUID(i) == uuid })
	if at < 0 {
		return fmt.Errorf("cannot destroy instance %s of GPU %s: there is none", uuid, g.info.PCI)
	}
	if g.state.Busy {
		return fmt.Errorf("cannot destroy instance %s of GPU %s: it is in use", uuid, g.info.PCI)
	}
	for which := range 2 {
		name, _ := capability(g.minor, g.instances[at].Start, which)
		g.f.files.remove(name)
	}
	g.instances = slices.Delete(g.instances, at, at+1)
	return g.f.keep()
}
