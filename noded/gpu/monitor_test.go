package gpu

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: epoch} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// people are Processes by table: pid → "name of user", or "ours".
type people map[int]string

func (p people) Ours(pid int) bool { return p[pid] == "ours" }

func (p people) Who(pid int) (name, user string, ok bool) {
	name, user, ok = strings.Cut(p[pid], " of ")
	return name, user, ok
}

// rig is a monitor of simulated GPUs in a folder that lives through several daemons.
type rig struct {
	t     *testing.T
	dir   string
	clock *clock
	fake  *Fake
	o     Options
	*Monitor
}

func newRig(t *testing.T, spec string, policy *pb.GpuPolicy) *rig {
	r := &rig{t: t, dir: t.TempDir(), clock: newClock()}
	r.o = Options{Policy: policy, Topology: hw.Build(2, 4, 1), State: filepath.Join(r.dir, "devices.json"), BootID: "b1",
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: r.clock.now, Processes: people{}}
	r.restart(spec)
	return r
}

// restart is a new daemon on the same machine.
func (r *rig) restart(spec string) {
	r.t.Helper()
	items, err := ParseSpec(spec)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.fake, err = NewFake(items, FakeOptions{Dir: filepath.Join(r.dir, "gpus"), Topology: r.o.Topology, Now: r.clock.now}); err != nil {
		r.t.Fatal(err)
	}
	r.o.Source = r.fake
	r.Monitor = NewMonitor(r.o)
}

// after lets time pass, and looks.
func (r *rig) after(d time.Duration) {
	r.clock.pass(d)
	r.work.Lock()
	r.look()
	r.work.Unlock()
}

func (r *rig) device(i int) *pb.Device {
	r.t.Helper()
	for _, d := range r.Report().Devices {
		if d.Index == uint32(i) {
			return d
		}
	}
	r.t.Fatalf("no device %d:\n%s", i, text(r.Report()))
	return nil
}

func (r *rig) fault(i int, want string) {
	r.t.Helper()
	if got := r.device(i).Fault; got != want {
		r.t.Errorf("fault of %d: %q, want %q", i, got, want)
	}
}

func TestInventoryOfADGX(t *testing.T) {
	r := newRig(t, "a100:8", nil)
	d := r.Report().Devices
	if len(d) != 8 || r.Driver() == "" || len(r.Control()) != 4 {
		t.Fatalf("%d devices, driver %q, %v", len(d), r.Driver(), r.Control())
	}
	for i, d := range d {
		if d.Type != "a100" || d.Index != uint32(i) || d.Minor != int32(minorsDGX[i]) ||
			filepath.Base(d.Files[0]) != "nvidia"+string(rune('0'+d.Minor)) || d.MemoryMib != 40960 || d.MigMode != "off" ||
			len(d.MigProfiles) != 5 {
			t.Errorf("%v", d)
		}
		if want := []string{"0-3", "4-7"}[i/4]; d.Cores != want {
			t.Errorf("cores of %d: %s", i, d.Cores)
		}
		for j, n := range d.Links {
			if want := uint32(12); i != j && n != want || i == j && n != 0 {
				t.Errorf("links of %d: %v", i, d.Links)
			}
		}
	}
}

func TestWorkstation(t *testing.T) {
	r := newRig(t, "titan_xp:1,titan_v:1", nil)
	if got := text(r.Report()); !strings.HasPrefix(got, "gpu:titan_xp 0 ") || !strings.Contains(got, "gpu:titan_v 1 ") ||
		r.device(0).Minor != 1 || r.device(0).MigMode != "" || r.device(0).Ecc != "n/a" {
		t.Errorf("%s", got)
	}
	s := r.Samples()
	if s[0].EnergyMj != NA || s[0].EccUncorrected != NA || s[1].EnergyMj < 0 || s[0].UtilPercent != 0 {
		t.Errorf("%v", s)
	}
}

func TestFaultsOfOneGPU(t *testing.T) {
	r := newRig(t, "a100:4", &pb.GpuPolicy{RecoverS: 60})
	r.fault(1, "")
	r.fake.Set(1, func(s *FakeState) { s.Lost = true })
	r.after(10 * time.Second)
	r.fault(1, "fallen off the bus")
	r.fault(0, "")
	if s := r.Samples(); len(s) != 4 || s[1].Id != r.fake.ID(1) || s[1].UtilPercent != NA || s[0].UtilPercent != 0 {
		t.Errorf("%v", s)
	}
	if r.device(1).FaultNs != r.clock.now().UnixNano() {
		t.Error("since when")
	}
	r.fake.Set(1, func(s *FakeState) { s.Lost = false })
	r.after(30 * time.Second)
	r.fault(1, "fallen off the bus")
	r.after(30 * time.Second)
	r.fault(1, "")

	r.Happened(Event{UUID: r.fake.ID(2), XID: 31})
	r.fault(2, "")
	r.Happened(Event{UUID: r.fake.ID(2), XID: 74})
	r.fault(2, "XID 74 (NVLink error)")
	r.restart("a100:4") // the next daemon knows
	r.fault(2, "XID 74 (NVLink error)")
	r.after(60 * time.Second)
	r.fault(2, "")

	r.fake.Silence(true)
	r.after(10 * time.Second)
	r.fault(0, "the driver does not answer")
	r.fake.Silence(false)
	r.after(60 * time.Second)
	r.fault(0, "")

	r.fake.Set(3, func(s *FakeState) { s.ECC, s.Remap = 1, "pending" })
	r.after(10 * time.Second)
	r.fault(3, "1 uncorrectable ECC error")
	if m := r.Report().Mismatches; len(m) != 1 || !strings.Contains(m[0], RemapPending) {
		t.Errorf("%v", m)
	}
	r.after(60 * time.Second)
	r.fault(3, "")
}

// A GPU that the daemon has never reached, but an earlier one of this boot, is a fault and keeps its index; a reboot forgets it.
func TestLostBeforeTheDaemonStarted(t *testing.T) {
	r := newRig(t, "h100:4", nil)
	_ = os.WriteFile(filepath.Join(r.dir, "gpus", "script"), []byte("1 lost=yes\n"), 0o644)
	r.restart("h100:4")
	r.fault(1, "fallen off the bus")
	r.fault(3, "")
	r.o.BootID = "b2"
	r.restart("h100:4")
	if n := len(r.Report().Devices); n != 3 {
		t.Errorf("%d devices after a boot", n)
	}
}

func TestForeignProcesses(t *testing.T) {
	r := newRig(t, "titan_xp:2", nil)
	r.o.Processes.(people)[10] = "python3 of alice"
	r.o.Processes.(people)[11] = "ours"
	r.o.Processes.(people)[12] = "nvidia-cuda-mps-server of root"
	r.o.Processes.(people)[13] = "x of bob"
	see := func(want string, pids ...int) {
		t.Helper()
		r.fake.Set(0, func(s *FakeState) { s.PIDs = pids })
		r.after(time.Second)
		if got := r.device(0).Foreign; got != want || r.device(1).Foreign != "" {
			t.Errorf("%v: %q, want %q", pids, got, want)
		}
	}
	see("", 11, 12, 99)
	see("python3 (pid 10) of alice", 11, 10, 10)
	see("python3 (pid 10) of alice and 1 more", 11, 10, 13)
	see("")
	see("python3 (pid 10) of alice", 10)
	r.Configure(nil, &pb.GpuPolicy{IgnoreForeign: true})
	see("", 10)
}

// The loop: what changes is told, what the driver reports unasked is taken in, and nothing is left when it ends.
func TestRun(t *testing.T) {
	defer leaktest.None(t)
	r := newRig(t, "t4:2", &pb.GpuPolicy{SampleS: 1})
	<-r.Changed()
	<-r.Sampled()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	r.fake.XID(1, 79)
	await(t, r.Changed())
	r.fault(1, "XID 79 (the GPU has fallen off the bus)")
	r.Recorder().Begin("1", []*pb.GresDevice{{Id: r.fake.ID(0)}}, nil)
	await(t, r.Sampled())
	r.Configure([]*pb.GresConf{{Name: "gpu", Type: "t4", Count: 1, Place: "gres.conf:1"}}, &pb.GpuPolicy{SampleS: 3600})
	for len(r.Report().Devices) != 1 {
		await(t, r.Changed())
	}
	if got := r.Report(); len(got.Devices) != 1 || len(r.Spare()) != 1 {
		t.Errorf("%s spare %v", text(got), r.Spare())
	}
	cancel()
	<-done
	if use := r.Recorder().End("1"); len(use) != 1 || use[0].Samples == 0 {
		t.Errorf("%v", use)
	}
}

// TestShortStep: one that is over before the next look has figures all the same, and not those of who had the GPU before.
func TestShortStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "a100:2", &pb.GpuPolicy{SampleS: 3600})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		r.clock.pass(time.Second)
		set := func(util, mem int64) {
			for i := range 2 {
				r.fake.Set(i, func(s *FakeState) { s.Util, s.MemMiB = util, mem })
			}
		}
		set(100, 30000)
		r.Recorder().Begin("short", []*pb.GresDevice{{Id: r.fake.ID(0)}}, nil)
		r.Recorder().Begin("longer", []*pb.GresDevice{{Id: r.fake.ID(1)}}, nil)
		r.Poke()
		synctest.Wait()
		if use := r.Recorder().Use("short")[0]; use.UtilPercent != NA || use.MemoryMib != NA || use.EnergyMj != 0 {
			t.Errorf("at its start: %v", use)
		}
		set(40, 410)
		r.clock.pass(500 * time.Millisecond)
		r.Last(ctx, "short")
		if use := r.Recorder().End("short")[0]; use.UtilPercent != 40 || use.MaxMemoryMib != 410 || use.EnergyMj <= 0 || use.Samples != 2 {
			t.Errorf("at its end: %v", use)
		}
		time.Sleep(earlyAfter)
		synctest.Wait()
		set(60, 0)
		r.clock.pass(time.Second)
		r.Last(ctx, "longer")
		if use := r.Recorder().End("longer")[0]; use.UtilPercent != 50 || use.MaxMemoryMib != 410 || use.Samples != 3 {
			t.Errorf("one of more than a second: %v", use)
		}
		cancel()
		<-done
		r.Last(ctx, "longer") // returns, although nobody looks any more
	})
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(5 * time.Minute):
		t.Fatal("nothing came")
	}
}

func TestNoDriver(t *testing.T) {
	m := NewMonitor(Options{NoDriver: "no library", Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if r := m.Report(); len(r.Devices) != 0 || len(r.Mismatches) != 0 || m.Driver() != "" || m.Control() != nil {
		t.Errorf("%v", r)
	}
	if _, err := m.EnsureInstance("1", "GPU-x", "3g.20gb", 0); err == nil {
		t.Error("an instance of nothing")
	}
	m.Configure([]*pb.GresConf{{Name: "gpu", Files: []string{"/dev/null"}, Place: "gres.conf:1"}}, nil)
	m.Look()
	if r := m.Report(); len(r.Devices) != 1 || r.Devices[0].Minor != 3 || r.Devices[0].Fault != "" {
		t.Errorf("%v", r)
	}
}

func TestSampleFigures(t *testing.T) {
	r := newRig(t, "a100:1", nil)
	r.fake.Set(0, func(s *FakeState) { s.Util, s.MemMiB, s.NA = 50, 1000, []string{"temp"} })
	r.after(10 * time.Second)
	s := r.Samples()[0]
	if s.UtilPercent != 50 || s.MemoryUsedMib != 1000 || s.TemperatureC != NA || s.PowerMw != 227_500 || s.EnergyMj != 2_275_000 {
		t.Errorf("%v", s)
	}
	r.after(10 * time.Second)
	if s := r.Samples()[0]; s.EnergyMj != 2*2_275_000 {
		t.Errorf("%v", s)
	}
	if !slices.Equal(r.Report().Devices[0].Files, r.fake.gpus[0].info.Files) {
		t.Error("files")
	}
}

// GPUs that gres.conf leaves out are nobody's, unless it leaves out all of them on purpose.
func TestSpareGPUs(t *testing.T) {
	r := newRig(t, "t4:2", nil)
	for _, c := range []struct {
		gres []*pb.GresConf
		want int
	}{
		{nil, 0}, {[]*pb.GresConf{{Autodetect: "off"}}, 0},
		{[]*pb.GresConf{{Autodetect: "off"}, {Name: "gpu", Files: r.fake.gpus[0].info.Files}}, 1},
		{[]*pb.GresConf{{Name: "gpu", Type: "v100", Count: 2}}, 2},
	} {
		r.Configure(c.gres, nil)
		r.Look()
		if n := len(r.Spare()); n != c.want {
			t.Errorf("%v: %d spare, want %d", c.gres, n, c.want)
		}
	}
}

// A driver that hangs at one GPU costs that one: it is told, the daemon ends when it is asked to, and the GPU is not back at once.
func TestADriverThatHangs(t *testing.T) {
	r := newRig(t, "t4:2", &pb.GpuPolicy{RecoverS: 60})
	hung, free := make(chan struct{}), make(chan struct{})
	r.fake.hang = func(index int) {
		if index == 1 {
			hung <- struct{}{}
			<-free
		}
	}
	looked := make(chan struct{})
	go func() { r.after(0); close(looked) }()
	<-hung
	r.checkHang()
	r.fault(1, "")
	r.clock.pass(hangAfter)
	r.checkHang()
	r.fault(1, hangWords)
	r.fault(0, "")
	close(free)
	<-looked
	r.fake.hang = nil
	r.fault(1, hangWords)
	r.after(30 * time.Second)
	r.fault(1, hangWords)
	r.after(30 * time.Second)
	r.fault(1, "")
}
