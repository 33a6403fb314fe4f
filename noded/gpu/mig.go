package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// mergeAfter is how long an instance made on demand may be idle before it is destroyed.
const mergeAfter = time.Minute

// Hold notes the devices of a step, so that none of them is divided or destroyed. Holding again adds devices.
func (m *Monitor) Hold(step string, ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if id != "" && !slices.Contains(m.held[step], id) {
			m.held[step] = append(m.held[step], id)
		}
	}
}

// Release releases the devices of a step.
func (m *Monitor) Release(step string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, step)
}

// holder returns a step, other than the one named, that holds a GPU or an instance.
func (m *Monitor) holder(uuid, but string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for step, ids := range m.held {
		if step != but && slices.Contains(ids, uuid) {
			return step
		}
	}
	return ""
}

// EnsureInstance returns the instance of a profile ("3g.20gb", or a type that ends so) at a memory slice of a GPU, creates it if
// necessary, and holds it for a step. If the node's GPUs are divided on demand (GpuPolicy.dynamic_mig), idle instances in its way
// are destroyed first. It may be called again at any time: the driver knows which instances exist.
func (m *Monitor) EnsureInstance(step, parent, profile string, start uint32) (*pb.Device, error) {
	m.work.Lock()
	defer m.work.Unlock()
	d, err := m.fresh(parent)
	if err != nil {
		return nil, fmt.Errorf("cannot cut an instance %s: %w", profile, err)
	}
	in := m.known[parent]
	p := profileNamed(in.Profiles, profile)
	if p == nil {
		return nil, fmt.Errorf("cannot cut an instance %s out of GPU %s (%s): it can be cut into %s", profile, in.PCI, in.Model,
			profileNames(in.Profiles))
	}
	if !slices.Contains(p.Starts, start) {
		return nil, fmt.Errorf("cannot cut an instance %s at slice %d of GPU %s: there is no such placement; it may begin at %v", p.Name,
			start, in.PCI, p.Starts)
	}
	if i := instanceAt(in, p.Name, start); i != nil {
		return m.hold(step, i.UUID)
	}
	if err := m.mayCut(in, step); err != nil {
		return nil, err
	}
	if err := m.switchOn(d, in); err != nil {
		return nil, err
	}
	if err := m.clear(d, step, func(i Instance) bool { return i.Start < start+p.Size && start < i.Start+max(1, i.Size) }); err != nil {
		return nil, err
	}
	if err = d.CreateInstance(p, start); err != nil { // idle instances elsewhere may occupy compute slices
		if cerr := m.clear(d, step, func(Instance) bool { return true }); cerr == nil {
			err = d.CreateInstance(p, start)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot cut an instance %s at slice %d: %w", p.Name, start, err)
	}
	m.read(d)
	i := instanceAt(m.known[parent], p.Name, start)
	m.build()
	if i == nil {
		return nil, fmt.Errorf("cannot find the instance %s at slice %d of GPU %s, which was made: the driver does not list it", p.Name,
			start, in.PCI)
	}
	m.o.Log.Info("cut an instance out of a GPU", "gpu", parent, "instance", i.UUID, "profile", p.Name, "start", start)
	return m.hold(step, i.UUID)
}

// EnsureWhole returns an undivided GPU and holds it for a step. If its MIG mode is on, idle instances are destroyed and the mode
// is switched off; if that needs a reset, the instance that takes the whole GPU is returned instead.
func (m *Monitor) EnsureWhole(step, gpu string) (*pb.Device, error) {
	m.work.Lock()
	defer m.work.Unlock()
	d, err := m.fresh(gpu)
	if err != nil {
		return nil, fmt.Errorf("cannot give a whole GPU: %w", err)
	}
	in := m.known[gpu]
	if in.MIG != "on" && in.MIG != "pending off" {
		return m.hold(step, gpu)
	}
	whole := largest(in.Profiles)
	if whole == nil {
		return nil, fmt.Errorf("cannot give all of GPU %s: its MIG mode is %s and it tells no profile", in.PCI, in.MIG)
	}
	// A CUDA process uses either one instance or GPUs, so an instance is no substitute for a whole GPU if the mode can be
	// switched off.
	if i := instanceAt(in, whole.Name, 0); i != nil && (!in.NoReset || m.mayCut(in, step) != nil) {
		return m.hold(step, i.UUID)
	}
	if err := m.mayCut(in, step); err != nil {
		return nil, err
	}
	if err := m.clear(d, step, func(Instance) bool { return true }); err != nil {
		return nil, err
	}
	id := gpu
	if !in.NoReset || d.SetMIG(false) != nil {
		if err := d.CreateInstance(whole, 0); err != nil {
			return nil, fmt.Errorf("cannot give all of GPU %s: its MIG mode is on, and %w", in.PCI, err)
		}
		id = ""
	}
	m.read(d)
	m.build()
	if i := instanceAt(m.known[gpu], whole.Name, 0); id == "" && i != nil {
		id = i.UUID
	}
	return m.hold(step, id)
}

// hold returns a device of the report and holds it for a step.
func (m *Monitor) hold(step, uuid string) (*pb.Device, error) {
	if other := m.holder(uuid, step); other != "" && m.exclusive(uuid) {
		return nil, fmt.Errorf("cannot give %s: step %s has it", uuid, other)
	}
	for _, d := range m.Report().Devices {
		if d.Id == uuid {
			m.Hold(step, []string{uuid})
			return d, nil
		}
	}
	return nil, fmt.Errorf("cannot give %s: gres.conf does not offer it", uuid)
}

// exclusive reports whether a device has one owner at a time.
func (m *Monitor) exclusive(uuid string) bool {
	return !slices.ContainsFunc(m.Report().Devices, func(d *pb.Device) bool { return d.Id == uuid && d.Shares > 0 })
}

// fresh reads a GPU again and returns it.
func (m *Monitor) fresh(uuid string) (Device, error) {
	if m.o.Source == nil {
		return nil, errors.New("there is no GPU driver on this node")
	}
	d := m.open[uuid]
	if d == nil {
		return nil, fmt.Errorf("GPU %s is not on this node, or does not answer", uuid)
	}
	m.read(d)
	if m.open[uuid] == nil {
		return nil, fmt.Errorf("GPU %s: %w", uuid, ErrLost)
	}
	return d, nil
}

// mayCut returns why a GPU must not be divided differently.
func (m *Monitor) mayCut(in Info, step string) error {
	_, policy := m.settings()
	if !policy.GetDynamicMig() {
		return fmt.Errorf("cannot cut GPU %s differently: this node's GPUs are not cut on demand (SlurmdParameters=gpu_mig=dynamic)",
			in.PCI)
	}
	if other := m.holder(in.UUID, step); other != "" {
		return fmt.Errorf("cannot cut GPU %s: step %s has all of it", in.PCI, other)
	}
	return nil
}

func (m *Monitor) switchOn(d Device, in Info) error {
	switch in.MIG {
	case "on", "pending off":
		return nil
	case "":
		return fmt.Errorf("cannot cut GPU %s (%s) into instances: %w", in.PCI, in.Model, ErrNotSupported)
	case "off":
		if err := d.SetMIG(true); err != nil {
			return fmt.Errorf("cannot switch MIG on: %w", err)
		}
	}
	m.read(d)
	if mode := m.known[in.UUID].MIG; mode != "on" {
		m.build()
		return fmt.Errorf(
			"cannot cut GPU %s: its MIG mode is %s until the GPU is reset (nvidia-smi --gpu-reset -i %s, with nothing running on it)",
			in.PCI, mode, in.PCI)
	}
	return nil
}

// clear destroys the idle instances that which selects. One that is held is an error.
func (m *Monitor) clear(d Device, step string, which func(Instance) bool) error {
	for _, i := range m.known[d.UUID()].Instances {
		if !which(i) {
			continue
		}
		if other := m.holder(i.UUID, ""); other != "" {
			return fmt.Errorf("cannot merge instance %s (%s at slice %d) back: step %s has it", i.UUID, i.Profile, i.Start, other)
		}
		if err := d.DestroyInstance(i.UUID); err != nil {
			return fmt.Errorf("cannot merge an idle instance back: %w", err)
		}
		m.o.Log.Info("merged an idle instance back", "gpu", d.UUID(), "instance", i.UUID, "profile", i.Profile, "start", i.Start, "for",
			step)
	}
	m.read(d)
	return nil
}

// merge destroys instances that no step holds and that have been idle for a while. On nodes whose GPUs are not divided on demand,
// the administrator's instances stay.
func (m *Monitor) merge(policy *pb.GpuPolicy) {
	if !policy.GetDynamicMig() {
		return
	}
	for _, uuid := range m.ids() {
		d := m.open[uuid]
		if d == nil {
			continue
		}
		merged := false
		for _, i := range m.known[uuid].Instances {
			if m.holder(i.UUID, "") != "" || m.foreigners[i.UUID] != "" || m.foreigners[uuid] != "" {
				delete(m.idleSince, i.UUID)
				continue
			}
			if !m.idleAtLeast(i.UUID, mergeAfter) {
				continue
			}
			if err := d.DestroyInstance(i.UUID); err != nil {
				m.once("cannot merge an idle instance back", "gpu", uuid, "err", err)
				continue
			}
			merged = true
			delete(m.idleSince, i.UUID)
			m.o.Log.Info("merged an idle instance back", "gpu", uuid, "instance", i.UUID, "profile", i.Profile, "start", i.Start)
		}
		if merged {
			m.read(d)
		}
	}
}

// profileNamed finds a profile by its name, or by a type that ends in it ("a100_3g.20gb").
func profileNamed(list []*pb.MigProfile, name string) *pb.MigProfile {
	for _, p := range list {
		if name == p.Name || strings.HasSuffix(name, "_"+p.Name) {
			return p
		}
	}
	return nil
}

func profileNames(list []*pb.MigProfile) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// largest returns the profile that takes a whole GPU.
func largest(list []*pb.MigProfile) (best *pb.MigProfile) {
	for _, p := range list {
		if slices.Contains(p.Starts, 0) && (best == nil || p.Slices > best.Slices) {
			best = p
		}
	}
	return best
}

func instanceAt(in Info, profile string, start uint32) *Instance {
	for k := range in.Instances {
		if i := &in.Instances[k]; i.Profile == profile && i.Start == start {
			return i
		}
	}
	return nil
}
