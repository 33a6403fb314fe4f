package gpuhours

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// bench is a controller with nodes of four CPUs and four GPUs each.
type bench struct {
	t    testing.TB
	loop *loop.Loop
	util map[string]int64 // by identity; missing: nobody says
}

func newBench(t testing.TB, nodes int) *bench {
	b := &bench{t: t, util: map[string]int64{}}
	cfg := &state.Config{Settings: &state.Settings{MaxJobsPerUser: 1 << 20, MaxJobCount: 1 << 20, MaxArraySize: 1 << 20, KillWaitS: 30},
		Default:        "p",
		PartitionNodes: map[string][]string{},
		Partitions:     []*pb.PartitionRecord{{Name: "p", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}}}
	for i := range nodes {
		name := fmt.Sprintf("g%d", i)
		cfg.PartitionNodes["p"] = append(cfg.PartitionNodes["p"], name)
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: name, Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 100})
	}
	b.loop = loop.New(journal.NewMemory(), state.New(cfg, "c", 1), func() time.Time { return time.Unix(1800000000, 0) },
		slog.New(slog.DiscardHandler))
	for i := range nodes {
		b.hello(i)
	}
	return b
}

func (b *bench) hello(node int, faulty ...uint32) {
	var list []*pb.Device
	for d := range uint32(4) {
		list = append(list, &pb.Device{Name: "gpu", Type: "a100", Id: gpu(node, d), Index: d})
	}
	for _, d := range faulty {
		list[d].Fault = "XID 79"
	}
	name := fmt.Sprintf("g%d", node)
	b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: name, BootId: "b",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 100, Devices: list}}})
}

func gpu(node int, d uint32) string { return fmt.Sprintf("G%d-%d", node, d) }

func (b *bench) turn(c reactor.Command) any {
	b.t.Helper()
	out, err := b.loop.Turn(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

func (b *bench) submit(uid uint32, spec *pb.JobSpec) uint32 {
	b.t.Helper()
	spec.Name, spec.Uid, spec.User = "j", uid, "u"
	j, p := admit.Job(b.loop.View(), spec, "")
	if p != nil {
		b.t.Fatal(p)
	}
	return b.turn(reactor.Submit{Job: j}).(reactor.Submitted).ID
}

// hold starts a job on some GPUs of a node.
func (b *bench) hold(node int, cpus uint32, gpus ...uint32) {
	b.t.Helper()
	id := b.submit(1, &pb.JobSpec{TresPerNode: fmt.Sprintf("gres/gpu:%d", len(gpus))})
	name := fmt.Sprintf("g%d", node)
	a := &pb.NodeAlloc{Node: name, Cpus: cpus}
	for _, d := range gpus {
		a.Devices = append(a.Devices, &pb.GresDevice{Name: "gpu", Type: "a100", Index: d, Id: gpu(node, d)})
	}
	start := reactor.PlannedStart{ID: id, Task: -1, Spec: b.loop.View().Jobs.Get(id).Spec, Partition: "p", LimitS: pb.Unlimited,
		NodeList: name, Alloc: []*pb.NodeAlloc{a}}
	if r := b.turn(reactor.ApplyPlan{Starts: []reactor.PlannedStart{start}}); r.(reactor.Applied).Started != 1 {
		b.t.Fatal("the job does not start")
	}
}

// wait is a job that waits for a reason.
func (b *bench) wait(uid uint32, reason string, spec *pb.JobSpec) {
	b.t.Helper()
	b.turn(reactor.ApplyPlan{Shown: []reactor.PlannedShow{{ID: b.submit(uid, spec), Reason: reason}}})
}

func (b *bench) sample(_, id string) (int64, bool) {
	v, known := b.util[id]
	return v, known
}

func (b *bench) look() *Moment { return Look(b.loop.View(), b.sample) }

func same(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestLook: a GPU held by a job is used and idle in proportion to its utilization, and unknown without a figure. A GPU without a job is
// free or down.
func TestLook(t *testing.T) {
	b := newBench(t, 2)
	b.hello(1, 3)
	b.hold(0, 1, 0, 1, 2)
	b.util[gpu(0, 0)], b.util[gpu(0, 1)] = 90, 0
	m := b.look()
	want := Sums{Total: 8, Down: 1, Used: 0.9, Idle: 1.1, Unknown: 1, Free: 4}
	for i, f := range m.All.Fields() {
		if !same(*f, *want.Fields()[i]) {
			t.Fatalf("got %+v, want %+v", m.All, want)
		}
	}
	if p := m.Partitions["p"]; p == nil || *p != m.All {
		t.Errorf("of the partition: %+v", p)
	}
	if m := newBench(t, 0).look(); m != nil {
		t.Errorf("without GPUs: %+v", m)
	}
}

// TestFragmentation: GPUs are lost when as many are free as a job asks for and it cannot have them where they are, each once, by the
// first in the order; not when it asks for more than there are, can be placed, or waits for something else.
func TestFragmentation(t *testing.T) {
	node := func(n int, cpus uint32) *pb.JobSpec {
		return &pb.JobSpec{TresPerNode: fmt.Sprintf("gres/gpu:%d", n), NumTasks: 1, CpusPerTask: cpus}
	}
	for name, tt := range map[string]struct {
		fill               func(b *bench)
		waiting            func(b *bench)
		lost, beside, wait float64
	}{
		"on too many nodes": {func(b *bench) { b.hold(0, 1, 0, 1); b.hold(1, 1, 0, 1) },
			func(b *bench) { b.wait(7, "Resources", node(3, 1)) }, 3, 0, 3},
		"no CPUs beside them": {func(b *bench) { b.hold(0, 4, 0); b.hold(1, 4, 0) },
			func(b *bench) { b.wait(7, "Resources", node(2, 1)) }, 2, 2, 2},
		"more than there are": {func(b *bench) { b.hold(0, 1, 0, 1, 2, 3); b.hold(1, 1, 0, 1, 2) },
			func(b *bench) { b.wait(7, "Resources", node(2, 1)) }, 0, 0, 2},
		"can be placed": {func(b *bench) { b.hold(0, 1, 0) },
			func(b *bench) { b.wait(7, "Priority", node(4, 1)) }, 0, 0, 4},
		"each once": {func(b *bench) { b.hold(0, 4, 0); b.hold(1, 4, 0) },
			func(b *bench) {
				for range 5 {
					b.wait(7, "Resources", node(2, 1))
				}
			}, 6, 6, 10},
		"another reason": {func(b *bench) { b.hold(0, 4, 0); b.hold(1, 4, 0) },
			func(b *bench) { b.wait(7, "Dependency", node(2, 1)) }, 0, 0, 0},
		"the nodes of its list": {func(b *bench) { b.hold(0, 4, 0) },
			func(b *bench) {
				s := node(1, 1)
				s.ReqNodes = "g0"
				b.wait(7, "Resources", s)
			}, 1, 1, 1},
		"not on those it excludes": {func(b *bench) { b.hold(0, 1, 0); b.hold(1, 1, 0, 1, 2) },
			func(b *bench) {
				s := node(2, 1)
				s.ExcNodes = "g0"
				b.wait(7, "Resources", s)
			}, 0, 0, 2},
		"on any nodes": {func(b *bench) { b.hold(0, 1, 0, 1, 2); b.hold(1, 1, 0, 1, 2) },
			func(b *bench) { b.wait(7, "Resources", &pb.JobSpec{TresPerJob: "gres/gpu:2"}) }, 0, 0, 2},
	} {
		b := newBench(t, 2)
		tt.fill(b)
		tt.waiting(b)
		m := b.look()
		if !same(m.All.Lost, tt.lost) || !same(m.All.Waiting, tt.wait) || m.All.Lost > m.All.Free {
			t.Errorf("%s: lost %g, waited for %g, free %g, want %g and %g", name, m.All.Lost, m.All.Waiting, m.All.Free, tt.lost, tt.wait)
		}
		got := m.Lost[Loss{7, admit.DefaultAccount, "p"}]
		if !same(got.GPUs, tt.lost) || !same(got.Beside, tt.beside) {
			t.Errorf("%s: the user lost %+v", name, got)
		}
		if asked := m.All.Asked; asked != 0 && tt.wait == 0 || tt.wait > 0 && asked != m.All.Free {
			t.Errorf("%s: %g of %g free while jobs waited", name, asked, m.All.Free)
		}
	}
}

// TestPart: instances count as their part of the slices, shards as their part of the GPU's.
func TestPart(t *testing.T) {
	n := &state.Node{NodeRecord: &pb.NodeRecord{Name: "n", Reported: &pb.Hardware{Devices: []*pb.Device{
		{Name: "gpu", Type: "a100", Id: "A", Shares: 8, SharedAs: "shard"}}}}}
	n.Recount()
	for _, tt := range []struct {
		d    *pb.GresDevice
		want float64
	}{
		{&pb.GresDevice{Name: "gpu", Type: "a100", Id: "A"}, 1},
		{&pb.GresDevice{Name: "gpu", Type: "a100_3g.20gb", Id: "M", Parent: "P"}, 3.0 / 7},
		{&pb.GresDevice{Name: "gpu", Type: "a30_2g.12gb", Id: "M", Parent: "P"}, 0.5},
		{&pb.GresDevice{Name: "gpu", Type: "2g.10gb", Id: "M"}, 2.0 / 7},
		{&pb.GresDevice{Name: "gpu", Count: 3}, 3},
		{&pb.GresDevice{Name: "gpu", Type: "rtx_3090", Id: "B"}, 1},
		{&pb.GresDevice{Name: "fpga", Id: "F"}, 0},
		{&pb.GresDevice{Name: "shard", Id: "gone", Share: 4}, 0},
	} {
		if got := Part(n.Inv, tt.d); !same(got, tt.want) {
			t.Errorf("%v: %g, want %g", tt.d, got, tt.want)
		}
	}
}

// TestRecorder: a look counts for the time since the last one, at most a minute, in its hour of the clock. Figures that cannot be written
// are kept, shown, and written once.
func TestRecorder(t *testing.T) {
	b := newBench(t, 1)
	b.hold(0, 1, 0)
	b.util[gpu(0, 0)] = 50
	now, boot := time.Unix(1800003600-15, 0), int64(1e9)
	full := errors.New("disk full")
	var fail error
	kept := map[int64]Hour{}
	r := &Recorder{View: b.loop.View, Sample: b.sample, Now: func() time.Time { return now }, Boot: func() int64 { return boot },
		Log: slog.New(slog.DiscardHandler), Keep: func(_ context.Context, hours []Hour, _ []LostHour) error {
			if fail != nil {
				return fail
			}
			for _, h := range hours {
				if h.Partition == "" {
					old := kept[h.Start]
					old.Covered += h.Covered
					old.Add(&h.Sums, 1)
					kept[h.Start] = old
				}
			}
			return nil
		}}
	step := func(d time.Duration) {
		now, boot = now.Add(d), boot+int64(d)
		r.Look()
	}
	r.Look() // the first has nothing before it
	step(10 * time.Second)
	step(10 * time.Second)
	fail = full
	r.Flush(t.Context())
	hours, _, err := r.Read(t.Context(), 0, 1<<40, "", func() error { return nil })
	if err != nil || len(hours) != 2 || len(kept) != 0 {
		t.Fatalf("kept %v, to be written %v, %v", kept, hours, err)
	}
	fail = nil
	r.Flush(t.Context())
	step(time.Hour) // stopped meanwhile
	r.Flush(t.Context())
	r.Flush(t.Context())
	want := map[int64]float64{1800000000: 10, 1800003600: 10 + 60}
	for start, covered := range want {
		h := kept[start]
		if h.Covered != covered && start != 1800003600 || !same(h.Used, 0.5*h.Covered) || !same(h.Total, 4*h.Covered) {
			t.Errorf("hour %d: %+v", start, h)
		}
	}
	if got := kept[1800003600].Covered + kept[1800007200].Covered; got != 70 {
		t.Errorf("%g seconds of the later hours, want 70", got)
	}
}

// TestReadersDoNotWaitForEachOther: a report whose query stands still holds up neither a look nor what is handed on, and is of one moment
// nevertheless; one that finds something being written waits for it, as long as its caller does.
func TestReadersDoNotWaitForEachOther(t *testing.T) {
	b := newBench(t, 1)
	boot, disk := int64(1e9), 0.0
	writing, written := make(chan struct{}), make(chan struct{})
	r := &Recorder{View: b.loop.View, Sample: b.sample, Now: func() time.Time { return time.Unix(1800003600, 0) },
		Boot: func() int64 { return boot }, Log: slog.New(slog.DiscardHandler),
		Keep: func(_ context.Context, hours []Hour, _ []LostHour) error { disk += hours[0].Covered; return nil }}
	step := func() { boot += 10e9; r.Look() }
	r.Look()
	step()
	tries, onDisk := 0, 0.0
	hours, _, err := r.Read(t.Context(), 0, 1<<40, "", func() error {
		onDisk = disk
		if tries++; tries == 1 { // this query takes long
			r.Flush(t.Context())
			step()
		}
		return nil
	})
	if err != nil || len(hours) != 1 || tries != 2 || onDisk != 10 || hours[0].Covered != 10 {
		t.Errorf("%v, %v, %g on disk after %d tries", hours, err, onDisk, tries)
	}
	if _, _, err := r.Read(t.Context(), 0, 1<<40, "", func() error { step(); r.Flush(t.Context()); return nil }); err == nil {
		t.Error("what changes all the time was read")
	}
	r.Keep = func(context.Context, []Hour, []LostHour) error { close(writing); <-written; return nil }
	step()
	go r.Flush(t.Context())
	<-writing
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Read(ctx, 0, 1<<40, "", func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("while something is written: %v", err)
	}
	close(written)
	if hours, _, err := r.Read(t.Context(), 0, 1<<40, "", func() error { return nil }); err != nil || len(hours) != 0 {
		t.Errorf("after it was written: %v, %v", hours, err)
	}
}

// TestLists: each list of nodes is read once in a look, and none that would cost more than is left.
func TestLists(t *testing.T) {
	var pool []*place
	for _, name := range []string{"g1", "g2"} {
		pool = append(pool, &place{Node: &state.Node{NodeRecord: &pb.NodeRecord{Name: name}}})
	}
	l := newLists(pool)
	for range 3 {
		if got := l.read("g[2-4]"); len(got.names) != 3 || got.places.has(0) || !got.places.has(1) || l.visits != 3*nameVisits {
			t.Errorf("%+v, %d visits", got, l.visits)
		}
	}
	if got := l.read("none"); got.places == nil || got.places.has(0) {
		t.Errorf("of other nodes: %+v", got)
	}
	l.visits = maxVisits - 1
	if got := l.read("g[1-2]"); got.names != nil || l.visits <= maxVisits {
		t.Errorf("beyond what a look may cost: %+v, %d visits", got, l.visits)
	}
}

// BenchmarkLook is one look at 1,000 nodes with 4,000 GPUs, most of them held, and 10,000 waiting jobs: it is done every ten seconds.
func BenchmarkLook(b *testing.B) {
	w := newBench(b, 1000)
	for i := range 1000 {
		w.hold(i, 4, 0, 1, 2)
	}
	var shown []reactor.PlannedShow
	for range 10000 {
		shown = append(shown, reactor.PlannedShow{ID: w.submit(7, &pb.JobSpec{TresPerNode: "gres/gpu:2"}), Reason: "Priority"})
	}
	w.turn(reactor.ApplyPlan{Shown: shown})
	v := w.loop.View()
	b.ResetTimer()
	for b.Loop() {
		if m := Look(v, w.sample); m.All.Total != 4000 || m.All.Waiting != 20000 {
			b.Fatalf("%+v", m.All)
		}
	}
}

// BenchmarkLookExclude is one look at 10,000 nodes and 1,000 waiting jobs that exclude most of them, with one list or each with its own,
// and at an array of a million tasks.
func BenchmarkLookExclude(b *testing.B) {
	const nodes = 10000
	for name, exclude := range map[string]func(job int) string{
		"same":  func(int) string { return "g[0-8999]" },
		"each":  func(job int) string { return fmt.Sprintf("g[0-%d]", 8000+job) },
		"array": nil,
	} {
		b.Run(name, func(b *testing.B) {
			w := newBench(b, nodes)
			var shown []reactor.PlannedShow
			show := func(spec *pb.JobSpec) {
				shown = append(shown, reactor.PlannedShow{ID: w.submit(7, spec), Reason: "Resources"})
			}
			if exclude == nil {
				show(&pb.JobSpec{TresPerNode: "gres/gpu:1", Array: "0-99999"})
			} else {
				for i := range 1000 {
					show(&pb.JobSpec{TresPerNode: "gres/gpu:1", ExcNodes: exclude(i)})
				}
			}
			w.turn(reactor.ApplyPlan{Shown: shown})
			v := w.loop.View()
			b.ResetTimer()
			for b.Loop() {
				if m := Look(v, w.sample); m.All.Total != 4*nodes || m.All.Waiting < 1000 {
					b.Fatalf("%+v", m.All)
				}
			}
		})
	}
}
