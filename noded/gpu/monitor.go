package gpu

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Timing of a Monitor.
const (
	defaultSample = 10 * time.Second
	refreshAfter  = time.Minute            // Info is read again: somebody may have reconfigured a GPU
	earlyAfter    = time.Second            // from the start of a step to its second sample, if no look comes before
	endWait       = 2 * time.Second        // limit of the wait for a step's last sample
	hangAfter     = time.Minute            // a driver that is silent for so long hangs
	eventWait     = 500 * time.Millisecond // limit of the wait for a driver when the daemon stops
)

// Options of a Monitor.
type Options struct {
	Source Source // nil: no driver
	// NoDriver is why there is no Source; empty: nobody looked for one.
	NoDriver string
	Topology hw.Topology
	// Gres and Policy are the settings until Configure.
	Gres   []*pb.GresConf
	Policy *pb.GpuPolicy
	// Unsettled means that gres.conf is unknown. Until Configure, devices are reported as not available.
	Unsettled bool
	// Processes distinguish foreign processes from those of jobs; nil: none is foreign.
	Processes Processes
	// State is a file that keeps faults and the known GPUs over a restart of the daemon; empty: none. BootID is that of this
	// boot: state of an earlier boot is discarded.
	State, BootID string
	Log           *slog.Logger
	Now           func() time.Time
	Stat          func(path string) (File, error)
}

// Monitor watches the devices of a node. Its methods may be called from any goroutine.
type Monitor struct {
	o        Options
	changed  chan struct{}
	sampled  chan struct{}
	wake     chan struct{} // look now, at everything
	poked    chan struct{} // a step starts
	ending   chan ending
	recorder *Recorder
	said     map[string]bool // what was logged; guarded by work

	work       sync.Mutex // serialises access to the driver; guards the following fields
	open       map[string]Device
	known      map[string]Info // all GPUs seen since the boot
	silent     bool            // the driver itself does not answer
	readAt     time.Time       // when Info was last read
	conditions map[string]Condition
	foreigners map[string]string // by UUID of a GPU or an instance
	remarks    map[string]string // notes that are not faults, by UUID
	idleSince  map[string]time.Time

	mu      sync.Mutex // guards the following fields; taken after work, never before
	gres    []*pb.GresConf
	policy  *pb.GpuPolicy
	settled bool
	report  *pb.DeviceReport
	spare   []*pb.Device
	samples []*pb.DeviceSample
	held    map[string][]string // by step: the UUIDs of its devices
	asked   string              // the GPU that the driver is being asked about; empty: none
	askedAt time.Time
}

// NewMonitor looks once and fills Report; Run continues to look.
func NewMonitor(o Options) *Monitor {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Stat == nil {
		o.Stat = StatFile
	}
	m := &Monitor{o: o, changed: make(chan struct{}, 1), sampled: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		poked: make(chan struct{}, 1), ending: make(chan ending), recorder: NewRecorder(), said: map[string]bool{},
		open: map[string]Device{}, known: map[string]Info{}, conditions: map[string]Condition{}, foreigners: map[string]string{},
		remarks:   map[string]string{},
		idleSince: map[string]time.Time{}, report: &pb.DeviceReport{}, gres: o.Gres, policy: o.Policy, settled: !o.Unsettled,
		held: map[string][]string{}}
	m.load()
	if o.Source == nil && o.NoDriver != "" {
		o.Log.Info("no GPU driver on this machine", "why", o.NoDriver)
	}
	m.firstLook()
	return m
}

// NoDriver returns why nobody looks for GPUs here; empty: there is a driver.
func (m *Monitor) NoDriver() string {
	if m.o.Source != nil {
		return ""
	}
	return cmp.Or(m.o.NoDriver, "its daemon was told not to look for any (--gpus none)")
}

// Driver returns the driver's version; empty: none.
func (m *Monitor) Driver() string {
	if m.o.Source == nil {
		return ""
	}
	return m.o.Source.Driver()
}

// Control returns the files that every job with a GPU opens beside those of its devices.
func (m *Monitor) Control() []string {
	if m.o.Source == nil {
		return nil
	}
	return m.o.Source.Control()
}

// Recorder returns the recorder of the steps' device use.
func (m *Monitor) Recorder() *Recorder { return m.recorder }

// Configure applies the controller's settings: gres.conf and the policy for GPUs.
func (m *Monitor) Configure(gres []*pb.GresConf, policy *pb.GpuPolicy) {
	m.mu.Lock()
	m.gres, m.policy, m.settled = gres, policy, true
	m.mu.Unlock()
	signal(m.wake)
}

// Report returns the complete list of the node's devices; the caller must not change it.
func (m *Monitor) Report() *pb.DeviceReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report
}

// Spare returns the GPUs that the driver sees and gres.conf does not offer: no job may open them.
func (m *Monitor) Spare() []*pb.Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spare
}

// Changed signals that Report has changed.
func (m *Monitor) Changed() <-chan struct{} { return m.changed }

// Sampled signals that Samples has changed.
func (m *Monitor) Sampled() <-chan struct{} { return m.sampled }

// Samples returns the last samples of the devices; the caller must not change them.
func (m *Monitor) Samples() []*pb.DeviceSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.samples
}

// Poke requests a sample out of turn: a step has started, and its use counts from its first sample.
func (m *Monitor) Poke() { signal(m.poked) }

// ending requests the last sample of a step.
type ending struct {
	key  string
	done chan struct{}
}

// Last takes the last sample of a step, which the recorder knows by key. It returns without one when ctx ends or the driver does
// not answer.
func (m *Monitor) Last(ctx context.Context, key string) {
	if m.o.Source == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	e := ending{key, make(chan struct{})}
	select {
	case m.ending <- e:
	case <-ctx.Done():
		return
	}
	select {
	case <-e.done:
	case <-ctx.Done():
	}
}

func (m *Monitor) settings() ([]*pb.GresConf, *pb.GpuPolicy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gres, m.policy
}

// Look reads the driver and the files again, at once.
func (m *Monitor) Look() {
	m.work.Lock()
	defer m.work.Unlock()
	m.readAt = time.Time{}
	m.look()
}

// Run watches until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if m.o.Source != nil {
		wg.Go(func() { m.events(ctx) })
		wg.Go(func() { m.watch(ctx) })
	}
	wg.Go(func() { m.looks(ctx) })
	<-ctx.Done()
	m.end(&wg)
}

// looks looks periodically.
func (m *Monitor) looks(ctx context.Context) {
	every := m.every()
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	var early <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
			m.Look()
			if e := m.every(); e != every {
				every = e
				ticks.Reset(every)
			}
		case <-m.poked:
			m.sample(m.recorder.Fewer(1), m.recorder.First)
			if early == nil {
				early = time.After(earlyAfter)
			}
		case <-early:
			early = nil
			m.sample(m.recorder.Fewer(2), m.recorder.Add)
		case e := <-m.ending:
			m.sample(m.recorder.Devices(e.key), func(s []*pb.DeviceSample) { m.recorder.Last(e.key, s) })
			close(e.done)
		case <-ticks.C:
			m.work.Lock()
			m.look()
			m.work.Unlock()
		}
	}
}

func (m *Monitor) every() time.Duration {
	gres, p := m.settings()
	switch {
	case m.o.Source == nil && len(gres) == 0:
		return time.Hour // there is nothing to look at
	case m.o.Source == nil:
		return refreshAfter
	case p.GetSampleS() > 0:
		return time.Duration(p.GetSampleS()) * time.Second
	}
	return defaultSample
}

// events handles the driver's events.
func (m *Monitor) events(ctx context.Context) {
	for ctx.Err() == nil {
		e, ok, err := m.o.Source.Wait(eventWait)
		switch {
		case errors.Is(err, ErrNotSupported):
			m.o.Log.Info("this driver does not report GPU errors as events; ECC errors and lost GPUs are still noticed", "err", err)
			return
		case err != nil:
			m.o.Log.Warn("cannot wait for errors of GPUs: will keep trying", "err", err)
			t := time.NewTimer(refreshAfter)
			select {
			case <-ctx.Done():
			case <-t.C:
			}
			t.Stop()
		case ok:
			m.Happened(e)
		}
	}
}

// Happened handles an event.
func (m *Monitor) Happened(e Event) {
	_, policy := m.settings()
	if e.XID != 0 && ignoresXID(policy, e.XID) {
		m.o.Log.Info("a GPU reported an error caused by a program", "gpu", e.UUID, "xid", e.XID)
		return
	}
	m.work.Lock()
	defer m.work.Unlock()
	m.o.Log.Warn("a GPU reports an error", "gpu", e.UUID, "xid", e.XID, "text", e.Text)
	m.see(e.UUID, Observation{XID: e.XID, Other: e.Text, Health: Health{Uncorrectable: NA}}, policy)
	m.build()
}

func (m *Monitor) see(uuid string, o Observation, policy *pb.GpuPolicy) {
	was := m.conditions[uuid]
	now := was.See(o, m.o.Now(), recoverAfter(policy))
	m.conditions[uuid] = now
	if now.Fault == was.Fault {
		return
	}
	if now.Fault == "" {
		m.o.Log.Info("a GPU is healthy again", "gpu", uuid, "was", was.Fault)
		return
	}
	m.o.Log.Error("a GPU has a fault: taking it out of the pool", "gpu", uuid, "fault", now.Fault)
}

// once logs a text that was not logged before.
func (m *Monitor) once(text string, args ...any) {
	var key strings.Builder
	key.WriteString(text)
	for _, a := range args {
		if s, ok := a.(error); ok {
			key.WriteString(s.Error())
		} else if s, ok := a.(string); ok {
			key.WriteString(s)
		}
	}
	if !m.said[key.String()] && len(m.said) < 1000 {
		m.said[key.String()] = true
		m.o.Log.Error(text, args...)
	}
}

// build makes the report from the known state, and publishes it.
func (m *Monitor) build() {
	m.mu.Lock()
	gres, settled := m.gres, m.settled
	m.mu.Unlock()
	infos := make([]Info, 0, len(m.known))
	for _, in := range m.known {
		infos = append(infos, in)
	}
	r := Merge(gres, Found{GPUs: infos, Driver: m.o.Source != nil, NoDriver: m.o.NoDriver, Topology: m.o.Topology, Stat: m.o.Stat})
	r.Unread = !settled
	offered := map[string]bool{}
	for _, d := range r.Devices {
		m.overlay(d, r)
		if !settled && d.Fault == "" {
			d.Fault = pb.GresUnread
		}
		offered[d.Id] = true
	}
	// AutoDetect=off without any GPU leaves the machine's GPUs to anybody.
	managed := detects(gres) || slices.ContainsFunc(r.Devices, func(d *pb.Device) bool { return d.Name == "gpu" })
	var spare []*pb.Device
	for _, d := range Inventory(infos, m.o.Topology) {
		if !offered[d.Id] && managed {
			spare = append(spare, d)
		}
	}
	m.save()
	m.mu.Lock()
	same := proto.Equal(m.report, r)
	m.report, m.spare = r, spare
	m.mu.Unlock()
	if !same {
		signal(m.changed)
	}
}

// overlay adds a GPU's health and foreign users to a device that is this GPU, or an instance of it.
func (m *Monitor) overlay(d *pb.Device, r *pb.DeviceReport) {
	gpu := d.Id
	if d.Parent != "" {
		gpu = d.Parent
	}
	if c := m.conditions[gpu]; c.Fault != "" {
		d.Fault = addWords(d.Fault, strings.Split(c.Fault, "; "))
		d.FaultNs = c.Since.UnixNano()
	}
	d.Foreign = m.foreigners[d.Id]
	if d.Parent != "" && d.Foreign == "" {
		d.Foreign = m.foreigners[gpu]
	}
	if text := m.remarks[d.Id]; text != "" {
		r.Mismatches = append(r.Mismatches, "GPU "+d.Id+": "+text)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
