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

// How often a Monitor looks.
const (
	defaultSample = 10 * time.Second
	refreshAfter  = time.Minute            // what GPUs are is asked again: somebody may have reconfigured one
	earlyAfter    = time.Second            // from the begin of a step to its second sample, where no look comes before
	endWait       = 2 * time.Second        // bounds how long the end of a step waits for its last sample
	hangAfter     = time.Minute            // a driver that has not answered for so long does not
	eventWait     = 500 * time.Millisecond // bounds how long the end of the daemon waits for a driver
)

// Options of a Monitor.
type Options struct {
	Source Source // nil: no driver
	// NoDriver is why there is no Source, in words; empty: nobody looked for one.
	NoDriver string
	Topology hw.Topology
	// Gres and Policy are the settings until Configure.
	Gres   []*pb.GresConf
	Policy *pb.GpuPolicy
	// Unsettled: nobody has said yet what gres.conf says. Until Configure what is found is reported as not to be given out.
	Unsettled bool
	// Processes tell foreign ones from those of jobs; nil: none is foreign.
	Processes Processes
	// State is a file that keeps what was found wrong, and which GPUs there were, over a restart of the daemon; empty: none.
	// BootID is that of this boot: what an earlier one kept is forgotten.
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
	wake     chan struct{} // look now, everything anew
	poked    chan struct{} // a step begins
	ending   chan ending
	recorder *Recorder
	said     map[string]bool // what has been logged; of work

	work       sync.Mutex // one at a time talks to the driver; it guards what follows
	open       map[string]Device
	known      map[string]Info // all GPUs that were there since the boot
	silent     bool            // the driver itself does not answer
	readAt     time.Time       // when known was read anew
	conditions map[string]Condition
	foreigners map[string]string // by UUID of a GPU or an instance
	remarks    map[string]string // what is no fault, by UUID
	idleSince  map[string]time.Time

	mu      sync.Mutex // of what follows; taken after work, never before
	gres    []*pb.GresConf
	policy  *pb.GpuPolicy
	settled bool
	report  *pb.DeviceReport
	spare   []*pb.Device
	samples []*pb.DeviceSample
	held    map[string][]string // by step: the UUIDs of what it was given
	asked   string              // the GPU that the driver is being asked of; empty: none
	askedAt time.Time
}

// NewMonitor looks once. What it finds is Report's; Run goes on looking.
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

// NoDriver is why nobody looks for GPUs here, in words; empty: there is a driver to look with.
func (m *Monitor) NoDriver() string {
	if m.o.Source != nil {
		return ""
	}
	return cmp.Or(m.o.NoDriver, "its daemon was told not to look for any (--gpus none)")
}

// Driver is the driver's version; empty: there is none.
func (m *Monitor) Driver() string {
	if m.o.Source == nil {
		return ""
	}
	return m.o.Source.Driver()
}

// Control are the files that every job with a GPU opens beside those of its devices.
func (m *Monitor) Control() []string {
	if m.o.Source == nil {
		return nil
	}
	return m.o.Source.Control()
}

// Recorder knows what steps use of the devices that are sampled here.
func (m *Monitor) Recorder() *Recorder { return m.recorder }

// Configure takes over what the controller says of gres.conf and how GPUs are to be watched.
func (m *Monitor) Configure(gres []*pb.GresConf, policy *pb.GpuPolicy) {
	m.mu.Lock()
	m.gres, m.policy, m.settled = gres, policy, true
	m.mu.Unlock()
	signal(m.wake)
}

// Report is the complete list of the node's devices; the caller must not change it.
func (m *Monitor) Report() *pb.DeviceReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report
}

// Spare are the GPUs that the driver sees and gres.conf does not offer: no job may open them.
func (m *Monitor) Spare() []*pb.Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spare
}

// Changed is sent to when Report has changed.
func (m *Monitor) Changed() <-chan struct{} { return m.changed }

// Sampled is sent to when Samples has changed.
func (m *Monitor) Sampled() <-chan struct{} { return m.sampled }

// Samples are what the devices did when they were last looked at; the caller must not change them.
func (m *Monitor) Samples() []*pb.DeviceSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.samples
}

// Poke asks for samples out of turn: a step has begun to be recorded, and what it uses is counted from the first sample of its life.
func (m *Monitor) Poke() { signal(m.poked) }

// ending asks for the last sample of a step.
type ending struct {
	key  string
	done chan struct{}
}

// Last takes the sample with which a step ends, which the recorder knows by key. It returns without one when ctx ends or the driver does
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

// Look reads the driver and the files anew, at once.
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

// events takes in what the driver reports unasked.
func (m *Monitor) events(ctx context.Context) {
	for ctx.Err() == nil {
		e, ok, err := m.o.Source.Wait(eventWait)
		switch {
		case errors.Is(err, ErrNotSupported):
			m.o.Log.Info("this driver does not report GPU errors as events; ECC errors and lost GPUs are still noticed", "err", err)
			return
		case err != nil:
			m.o.Log.Warn("cannot wait for errors of GPUs: trying again", "err", err)
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

// Happened takes in an event.
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
	m.o.Log.Error("a GPU has a fault and is taken out of the pool", "gpu", uuid, "fault", now.Fault)
}

// once logs a text that has not been logged yet.
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

// build makes the report of what is known, and publishes it.
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
	// AutoDetect=off without any GPU leaves the machine's GPUs to whoever finds them.
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

// overlay puts a GPU's health and its foreign users on a device that is it, or an instance of it.
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
