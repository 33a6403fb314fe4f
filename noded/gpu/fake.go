package gpu

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Fake is a Source that simulates GPUs, with real device files in a directory. Tests (Set, XID) or the file "script" in the
// directory (ParseScript) control the GPUs. Their division into instances is stored in the directory, as a real GPU keeps it over
// a restart of the node daemon.
type Fake struct {
	dir   string
	now   func() time.Time
	files *fakeFiles
	start time.Time

	mu     sync.Mutex
	gpus   []*fakeGPU
	events chan Event
	script scriptFile
	closed chan struct{}
	silent bool
	hang   func(index int) // called where a driver may hang; for tests, set before first use
}

// FakeOptions set the directory and the machine.
type FakeOptions struct {
	Dir      string      // for the device files; created if missing
	Topology hw.Topology // the GPUs are spread over its cores; nil: no affinity
	Now      func() time.Time
}

// FakeState is the state of a simulated GPU. The zero value is idle and healthy.
type FakeState struct {
	Util    int64
	MemMiB  int64
	TempC   int64 // 0: by its load
	PowerMW int64 // 0: by its load
	ECC     int64
	Remap   string // "pending", "failed"
	Lost    bool
	PIDs    []int
	NA      []string // figures that are not available: util, mem, temp, power, energy, clocks, ecc
	Busy    bool     // an instance is in use: it cannot be destroyed
}

// fakeGPU is a simulated GPU. Its fields are guarded by Fake's lock.
type fakeGPU struct {
	f         *Fake
	m         model
	index     int
	minor     int
	info      Info // without mode and instances
	state     FakeState
	mig       string
	instances []fakeInstance
	energyMJ  float64
	energyAt  time.Time
}

type fakeInstance struct {
	Profile string `json:"profile"`
	Start   uint32 `json:"start"`
}

// fakeCuts is the content of the file "mig.json", by UUID.
type fakeCuts map[string]struct {
	Mode      string         `json:"mode"`
	Instances []fakeInstance `json:"instances"`
}

// NewFake creates the GPUs of a specification and their files.
func NewFake(spec []SpecItem, o FakeOptions) (*Fake, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot simulate GPUs: %w", err)
	}
	f := &Fake{dir: dir, now: o.Now, start: o.Now(), events: make(chan Event, 64), closed: make(chan struct{})}
	if f.files, err = newFakeFiles(dir); err != nil {
		return nil, err
	}
	total := 0
	for _, it := range spec {
		total += it.Count
	}
	for _, it := range spec {
		for range it.Count {
			g, err := f.newGPU(it, len(f.gpus), total, o.Topology)
			if err != nil {
				return nil, err
			}
			f.gpus = append(f.gpus, g)
		}
	}
	return f, f.recall()
}

func (f *Fake) newGPU(it SpecItem, index, total int, top hw.Topology) (*fakeGPU, error) {
	m := models[it.Model]
	g := &fakeGPU{f: f, m: m, index: index, minor: minorOf(index, total), energyAt: f.start}
	path, err := f.files.gpu(g.minor)
	if err != nil {
		return nil, err
	}
	g.info = Info{UUID: fakeUUID("GPU-", f.dir, index), Model: m.name, PCI: fakePCI(index, total), Minor: g.minor, Files: []string{path},
		MemoryMiB: m.memoryMiB, NUMA: NA, ECC: m.ecc, NoReset: m.noReset, Profiles: m.profiles(), Links: map[string]int{},
		Near: map[string]int{}}
	switch {
	case m.switched:
		g.info.Links[SwitchLinks] = m.links
	case m.links > 0: // a bridge between neighbours
		if peer := index ^ 1; peer < total {
			g.info.Links[fakePCI(peer, total)] = m.links
		}
	}
	for other := range total {
		if other != index {
			g.info.Near[fakeUUID("GPU-", f.dir, other)] = fakeNear(index, other, total)
		}
	}
	g.info.NUMA, g.info.CPUs = spread(top, index, total)
	if m.slices != nil {
		g.mig = "off"
		if it.MIG {
			g.mig = "on"
		}
	}
	return g, nil
}

// fakeNear: neighbours share a switch, halves of the machine a NUMA node.
func fakeNear(a, b, total int) int {
	switch {
	case a/2 == b/2:
		return 4
	case a*2/total == b*2/total:
		return 1
	}
	return 0
}

// spread assigns the first half of the GPUs to the first half of the machine's cores, and the others to the rest.
func spread(top hw.Topology, index, total int) (numa int, cpus []int) {
	if len(top) == 0 {
		return NA, nil
	}
	half := index * 2 / total
	lo, hi := 0, (len(top)+1)/2
	if half == 1 {
		lo, hi = hi, len(top)
	}
	for half == 0 && hi < len(top) && top[hi].Core == top[hi-1].Core {
		hi++ // whole cores
	}
	for half == 1 && lo < len(top) && top[lo].Core == top[lo-1].Core {
		lo++
	}
	if total == 1 || lo == hi {
		half, lo, hi = 0, 0, len(top)
	}
	for _, c := range top[lo:hi] {
		cpus = append(cpus, c.ID)
	}
	slices.Sort(cpus)
	return half, cpus
}

func fakePCI(index, total int) string { return fmt.Sprintf("00000000:%02X:00.0", busOf(index, total)) }

// fakeUUID is always the same for the same directory.
func fakeUUID(kind, dir string, n int) string {
	s := sha256.Sum256(fmt.Append(nil, dir, "/", n))
	return fmt.Sprintf("%s%x-%x-%x-%x-%x", kind, s[0:4], s[4:6], s[6:8], s[8:10], s[10:16])
}

// Driver implements Source.
func (f *Fake) Driver() string { return "pretended" }

// Control implements Source.
func (f *Fake) Control() []string { return f.files.common() }

// Plain returns why the files of these GPUs are not devices; nil: they are.
func (f *Fake) Plain() error { return f.files.plain }

// Close implements Source. The files stay: jobs may have them open.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed:
	default:
		close(f.closed)
	}
	return nil
}

// Devices implements Source.
func (f *Fake) Devices() ([]Device, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readScript()
	if f.silent {
		return nil, errors.New("cannot count the GPUs: the driver is not loaded")
	}
	var out []Device
	var errs []error
	for _, g := range slices.Backward(f.gpus) { // in no useful order
		if g.state.Lost {
			errs = append(errs, fmt.Errorf("cannot reach GPU %s: %w", g.info.PCI, ErrLost))
			continue
		}
		out = append(out, g)
	}
	return out, errors.Join(errs...)
}

// Wait implements Source.
func (f *Fake) Wait(timeout time.Duration) (Event, bool, error) {
	f.mu.Lock()
	f.readScript()
	f.mu.Unlock()
	select {
	case e := <-f.events:
		return e, true, nil
	default:
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case e := <-f.events:
		return e, true, nil
	case <-t.C:
	case <-f.closed:
	}
	return Event{}, false, nil
}

// Set changes the state of the GPU with an index.
func (f *Fake) Set(index int, change func(*FakeState)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gpus[index].account()
	change(&f.gpus[index].state)
}

// Silence makes the whole driver hang, or answer again.
func (f *Fake) Silence(silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = silent
}

// XID makes the GPU with an index report an error.
func (f *Fake) XID(index int, xid uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.xid(index, xid)
}

func (f *Fake) xid(index int, xid uint64) {
	select {
	case f.events <- Event{UUID: f.gpus[index].info.UUID, XID: xid}:
	default: // nobody listens
	}
}

// ID returns the UUID of the GPU with an index.
func (f *Fake) ID(index int) string { return f.gpus[index].info.UUID }

func (f *Fake) cutsFile() string { return filepath.Join(f.dir, "mig.json") }

// recall restores the instances of an earlier run.
func (f *Fake) recall() error {
	b, err := os.ReadFile(f.cutsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	cuts := fakeCuts{}
	if err == nil {
		err = json.Unmarshal(b, &cuts)
	}
	if err != nil {
		return fmt.Errorf("cannot read how the simulated GPUs are divided: %w; remove %s", err, f.cutsFile())
	}
	for _, g := range f.gpus {
		c, ok := cuts[g.info.UUID]
		if !ok || g.mig == "" {
			continue
		}
		g.mig, g.instances = c.Mode, c.Instances
		for _, i := range g.instances {
			if _, err := g.capFiles(i.Start, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep stores how the GPUs are divided.
func (f *Fake) keep() error {
	cuts := fakeCuts{}
	for _, g := range f.gpus {
		c := cuts[g.info.UUID]
		c.Mode, c.Instances = g.mig, g.instances
		cuts[g.info.UUID] = c
	}
	b, err := json.MarshalIndent(cuts, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot store how the simulated GPUs are divided: %w", err)
	}
	tmp := f.cutsFile() + ".new"
	if err = os.WriteFile(tmp, b, 0o644); err == nil {
		err = os.Rename(tmp, f.cutsFile())
	}
	if err != nil {
		return fmt.Errorf("cannot store how the simulated GPUs are divided: %w", err)
	}
	return nil
}

// account adds the energy used since its last call, at the power of that time.
func (g *fakeGPU) account() {
	now := g.f.now()
	g.energyMJ += float64(g.power()) * now.Sub(g.energyAt).Seconds()
	g.energyAt = now
}

func (g *fakeGPU) power() int64 {
	if g.state.PowerMW != 0 {
		return g.state.PowerMW
	}
	return g.m.idleMW + (g.m.maxMW-g.m.idleMW)*g.state.Util/100
}

// says returns a figure, or NA.
func (g *fakeGPU) says(name string, v int64) int64 {
	if slices.Contains(g.state.NA, name) {
		return NA
	}
	return v
}

// profile finds one by its name.
func (g *fakeGPU) profile(name string) *pb.MigProfile {
	for _, p := range g.info.Profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}
