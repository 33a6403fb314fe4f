package gpu

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// look reads everything from the driver once. The caller holds work.
func (m *Monitor) look() {
	_, policy := m.settings()
	var samples, said []*pb.DeviceSample
	if m.o.Source != nil {
		m.enumerate()
		for _, uuid := range m.ids() {
			m.asking(uuid)
			from := m.o.Now()
			now := m.lookAt(uuid, policy)
			if m.o.Now().Sub(from) >= hangAfter {
				m.see(uuid, Observation{Other: hangWords, Health: Health{Uncorrectable: NA}}, policy)
			}
			said = append(said, now...)
			if now == nil {
				now = []*pb.DeviceSample{nothing(uuid, m.o.Now())}
			}
			samples = append(samples, now...)
		}
		m.asking("")
		m.merge(policy)
	}
	m.build()
	if m.o.Source == nil {
		return
	}
	m.recorder.Add(said)
	m.mu.Lock()
	m.samples = samples
	m.mu.Unlock()
	signal(m.sampled)
}

// sample takes samples of some GPUs, or of those of instances.
func (m *Monitor) sample(ids []string, take func([]*pb.DeviceSample)) {
	if m.o.Source == nil || len(ids) == 0 {
		return
	}
	m.work.Lock()
	defer m.work.Unlock()
	defer m.asking("")
	for _, uuid := range m.ids() {
		d := m.open[uuid]
		if d == nil || !slices.Contains(ids, uuid) && !slices.ContainsFunc(m.known[uuid].Instances,
			func(i Instance) bool { return slices.Contains(ids, i.UUID) }) {
			continue
		}
		m.asking(uuid)
		said, err := d.Samples()
		if err != nil && !errors.Is(err, ErrLost) { // which the next look finds
			m.once("cannot query everything about a GPU", "gpu", uuid, "err", err)
		}
		take(said)
	}
}

// nothing returns the sample of a GPU that does not answer: all figures are unknown, not the last ones.
func nothing(uuid string, now time.Time) *pb.DeviceSample {
	return &pb.DeviceSample{Id: uuid, AtNs: now.UnixNano(), UtilPercent: NA, MemoryUsedMib: NA, TemperatureC: NA, PowerMw: NA,
		EnergyMj: NA, SmClockMhz: NA, MemoryClockMhz: NA,
		EccUncorrected: NA, Throttle: "n/a"}
}

// enumerate finds the GPUs that answer, and reads their Info if that is due.
func (m *Monitor) enumerate() {
	devices, err := m.o.Source.Devices()
	m.silent = err != nil && len(devices) == 0 && !errors.Is(err, ErrLost)
	if err != nil && !errors.Is(err, ErrLost) {
		m.once("cannot list the GPUs", "err", err)
	}
	now := m.o.Now()
	all := now.Sub(m.readAt) >= refreshAfter
	if all {
		m.readAt = now
	}
	m.open = map[string]Device{}
	for _, d := range devices {
		id := d.UUID()
		m.open[id] = d
		if _, have := m.known[id]; !have || all {
			m.read(d)
		}
	}
}

// read reads a GPU's Info.
func (m *Monitor) read(d Device) {
	in, err := d.Info()
	switch {
	case err == nil:
		m.known[d.UUID()] = in
	case errors.Is(err, ErrLost):
		delete(m.open, d.UUID())
	default:
		m.once("cannot tell what a GPU is", "gpu", d.UUID(), "err", err)
	}
}

// ids returns the known GPUs, by PCI address.
func (m *Monitor) ids() (out []string) {
	for id := range m.known {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(m.known[a].PCI, m.known[b].PCI), cmp.Compare(a, b)) })
	return out
}

// lookAt reads the health, samples and processes of one GPU.
func (m *Monitor) lookAt(uuid string, policy *pb.GpuPolicy) []*pb.DeviceSample {
	d := m.open[uuid]
	if d == nil && m.silent {
		m.see(uuid, Observation{Other: "the driver does not answer", Health: Health{Uncorrectable: NA}}, policy)
		return nil
	}
	if d == nil {
		m.see(uuid, Observation{Lost: true}, policy)
		return nil
	}
	h, err := d.Health()
	if err != nil {
		h = Health{Uncorrectable: NA}
	}
	samples, serr := d.Samples()
	procs, perr := d.Processes()
	err = errors.Join(err, serr, perr)
	lost := errors.Is(err, ErrLost)
	if err != nil && !lost {
		m.once("cannot query everything about a GPU", "gpu", uuid, "err", err)
	}
	m.see(uuid, Observation{Lost: lost, Health: h}, policy)
	if m.remarks[uuid] = h.Pending; h.Pending == "" {
		delete(m.remarks, uuid)
	}
	if perr == nil {
		m.seeProcesses(uuid, procs, policy)
	}
	return samples
}

// seeProcesses notes who uses a GPU, or one of its instances, without a job.
func (m *Monitor) seeProcesses(uuid string, procs []Process, policy *pb.GpuPolicy) {
	ids := []string{uuid}
	for _, i := range m.known[uuid].Instances {
		ids = append(ids, i.UUID)
	}
	for _, id := range ids {
		delete(m.foreigners, id)
		if m.o.Processes == nil || policy.GetIgnoreForeign() {
			continue
		}
		var own []Process
		for _, p := range procs {
			if p.Instance == id || p.Instance == "" && id == uuid {
				own = append(own, p)
			}
		}
		if who := foreign(own, m.o.Processes); who != "" {
			m.foreigners[id] = who
		}
	}
}

// kept is the content of the state file.
type kept struct {
	BootID     string               `json:"boot_id"`
	Known      map[string]Info      `json:"known"`
	Conditions map[string]Condition `json:"conditions"`
}

// load reads the state that an earlier daemon kept in this boot. An unreadable file must not keep GPUs from being offered.
func (m *Monitor) load() {
	if m.o.State == "" {
		return
	}
	b, err := os.ReadFile(m.o.State)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var k kept
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		m.o.Log.Error("cannot read what was known about the GPUs: their recorded faults are lost", "file", m.o.State, "err", err)
		return
	}
	if k.BootID != m.o.BootID || m.o.Source == nil {
		return
	}
	for id, in := range k.Known {
		m.known[id] = in
	}
	for id, c := range k.Conditions {
		m.conditions[id] = c
	}
}

// save stores the state for the next daemon if it has changed.
func (m *Monitor) save() {
	if m.o.State == "" || m.o.Source == nil {
		return
	}
	b, err := json.Marshal(kept{m.o.BootID, m.known, m.conditions})
	if err != nil {
		m.once("cannot store what is known about the GPUs", "err", err)
		return
	}
	if old, err := os.ReadFile(m.o.State); err == nil && string(old) == string(b) {
		return
	}
	tmp := m.o.State + ".new"
	if err = os.WriteFile(tmp, b, 0o600); err == nil {
		err = os.Rename(tmp, m.o.State)
	}
	if err != nil {
		m.once("cannot store what is known about the GPUs", "err", err)
	}
}

// idleAtLeast reports whether an instance has been idle for so long.
func (m *Monitor) idleAtLeast(uuid string, d time.Duration) bool {
	since, ok := m.idleSince[uuid]
	if !ok {
		m.idleSince[uuid] = m.o.Now()
		return false
	}
	return m.o.Now().Sub(since) >= d
}
