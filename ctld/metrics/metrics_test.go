package metrics

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/metrics"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is a cluster without a daemon: two nodes with GPUs and one without, in two partitions.
type world struct {
	t   testing.TB
	v   *state.View
	now int64
	src *Source
	gpu map[string]*pb.DeviceSample
	// idle is when a device was last busy
	idle map[string]int64
}

func (w *world) Get(_, id string, _ int64) (*pb.DeviceSample, int64) { return w.gpu[id], w.idle[id] }

func (w *world) do(c reactor.Command) any {
	w.t.Helper()
	tx := state.Begin(w.v, w.now)
	r := c.Handle(tx)
	v, change := tx.Freeze()
	w.v = v
	w.src.Watch().Changed(change)
	if p, bad := r.(*pb.Problem); bad {
		w.t.Fatal(p)
	}
	return r
}

func newWorld(t testing.TB, nodes int) *world {
	w := &world{t: t, now: 1000e9, gpu: map[string]*pb.DeviceSample{}, idle: map[string]int64{}}
	cfg := &state.Config{Settings: &state.Settings{MaxJobsPerUser: 1 << 20, MaxJobCount: 1 << 21}, Default: "p",
		PartitionNodes: map[string][]string{"p": nil, "empty": {}}}
	for i := range nodes {
		n := fmt.Sprint("n", i)
		cfg.PartitionNodes["p"] = append(cfg.PartitionNodes["p"], n)
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 16, Sockets: 2, Cores: 8, Threads: 1, RealMemoryMib: 1000,
			Partitions: []string{"p"}, Gres: "gpu:a100:4", CfgTres: "cpu=16,mem=1000M,billing=16"})
	}
	for _, p := range []string{"p", "empty"} {
		cfg.Partitions = append(cfg.Partitions, &pb.PartitionRecord{Name: p, State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited})
	}
	w.v = state.New(cfg, "c", 1)
	w.src = &Source{View: func() *state.View { return w.v }, Samples: w, Top: func() int { return 3 }, Version: "1.2.3",
		Figures: func() map[string]float64 {
			return map[string]float64{"passes": 10, "pass_total_ns": 5e6, "tried": 30, "pass_last_ns": 2e6, "links": 3, "since_s": 940}
		},
		Now: func() time.Time { return time.Unix(0, w.now) }, Boot: func() int64 { return w.now },
		Backup: func() time.Time { return time.Unix(900, 0) }, Accounting: func() (int, uint64, error) { return 2, 7, errors.New("x") },
		Certificates: func() (*x509.Certificate, []*x509.Certificate, error) {
			return &x509.Certificate{NotAfter: time.Unix(5000, 0)}, []*x509.Certificate{{NotAfter: time.Unix(9000, 0)}}, nil
		}}
	for i := range nodes {
		var devices []*pb.Device
		for g := range 4 {
			devices = append(devices, &pb.Device{Name: "gpu", Type: "a100", Index: uint32(g), Id: fmt.Sprintf("G%d.%d", i, g),
				MemoryMib: 40960})
		}
		if i == 1 {
			devices[3].Fault = "XID 79"
		}
		w.do(reactor.NodeHello{Stream: uint64(i + 1), Hello: &pb.NodeHello{Node: fmt.Sprint("n", i), BootId: "b",
			Hardware: &pb.Hardware{Cpus: 16, Sockets: 2, Cores: 8, Threads: 1, RealMemoryMib: 1000, Devices: devices}}})
	}
	return w
}

// submit adds a job of a user. If node is not "", the job starts there with that many GPUs.
func (w *world) submit(user, account, node string, gpus ...uint32) uint32 {
	w.t.Helper()
	spec := &pb.JobSpec{Name: "secret-name", Uid: 1000, User: user, Account: account}
	if len(gpus) > 0 {
		spec.TresPerNode = fmt.Sprint("gres/gpu:", len(gpus))
	}
	j, problem := admit.Job(w.v, spec, "")
	if problem != nil {
		w.t.Fatal(problem)
	}
	id := w.do(reactor.Submit{Job: j}).(reactor.Submitted).ID
	if node == "" {
		return id
	}
	a := &pb.NodeAlloc{Node: node, Cpus: 2, MemMib: 100}
	for _, g := range gpus {
		a.Devices = append(a.Devices, &pb.GresDevice{Name: "gpu", Type: "a100", Index: g, Id: fmt.Sprintf("G%s.%d", node[1:], g)})
	}
	w.now += 30e9
	if r := w.do(reactor.ApplyPlan{Starts: []reactor.PlannedStart{{ID: id, Task: -1, Spec: w.v.Jobs.Get(id).Spec, Partition: "p",
		LimitS: 3600, NodeList: node, Alloc: []*pb.NodeAlloc{a}}}}); r.(reactor.Applied).Started != 1 {
		w.t.Fatalf("%+v", r)
	}
	return id
}

// read makes a page and reads it back: Prometheus would.
func (w *world) read(path string, names bool) map[string]*dto.MetricFamily {
	w.t.Helper()
	w.now += int64(metrics.Fresh)
	p := &metrics.Page{}
	if err := w.src.Pages()[path](p, names); err != nil {
		w.t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(p.Bytes())))
	if err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	if strings.Contains(string(p.Bytes()), "secret-name") {
		w.t.Errorf("%s says what a job is called", path)
	}
	for name, f := range families {
		seen := map[string]bool{}
		for _, m := range f.Metric {
			if key := fmt.Sprint(m.Label); seen[key] {
				w.t.Errorf("%s: %s%v is there twice", path, name, m.Label)
			} else {
				seen[key] = true
			}
		}
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && !strings.HasSuffix(f.GetHelp(), ".") &&
			!strings.HasSuffix(f.GetHelp(), "none") && !strings.HasSuffix(f.GetHelp(), "1") && !strings.HasSuffix(f.GetHelp(), "all") {
			w.t.Errorf("%s: the help of %s is no sentence: %q", path, name, f.GetHelp())
		}
	}
	return families
}

// value is a series, by its labels' values in the order of the page.
func value(t testing.TB, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.Label {
			have = append(have, l.GetValue())
		}
		if slices.Equal(have, labels) {
			switch {
			case m.Gauge != nil:
				return m.Gauge.GetValue()
			case m.Counter != nil:
				return m.Counter.GetValue()
			}
			return float64(m.Histogram.GetSampleCount())
		}
	}
	t.Errorf("there is no %s%q", name, labels)
	return -1
}

func TestJobsAndNodes(t *testing.T) {
	w := newWorld(t, 3)
	w.submit("alice", "physics", "n0", 0, 1)
	w.submit("bob", "physics", "n1", 2)
	w.submit("bob", "", "")
	held := w.submit("carol", "chem", "")
	w.do(reactor.Control{IDs: []string{fmt.Sprint(held)}, Verb: "hold", Caller: reactor.Caller{Operator: true}})
	for _, c := range []struct {
		page, name string
		labels     []string
		want       float64
	}{
		{"jobs", "slurm_jobs", nil, 4},
		{"jobs", "slurm_jobs_running", nil, 2},
		{"jobs", "slurm_jobs_pending", nil, 2},
		{"jobs", "slurm_jobs_hold", nil, 1},
		{"jobs", "slurm_jobs_cpus_alloc", nil, 4},
		{"jobs", "slurm_jobs_gpus_alloc", nil, 3},
		{"jobs", "slurm_jobs_memory_alloc", nil, 200 * mib},
		{"nodes", "slurm_nodes", nil, 3},
		{"nodes", "slurm_nodes_mixed", nil, 2},
		{"nodes", "slurm_nodes_idle", nil, 1},
		{"nodes", "slurm_node_gpus", []string{"n0"}, 4},
		{"nodes", "slurm_node_gpus_alloc", []string{"n0"}, 2},
		{"nodes", "slurm_node_cpus_idle", []string{"n0"}, 14},
		{"partitions", "slurm_partition_jobs_running", []string{"p"}, 2},
		{"partitions", "slurm_partition_jobs_running", []string{"empty"}, 0},
		{"partitions", "slurm_partition_gpus", []string{"p"}, 12},
		{"partitions", "slurm_partition_nodes_mixed", []string{"p"}, 2},
		{"jobs-users-accts", "slurm_user_jobs_pending", []string{"bob"}, 1},
		{"jobs-users-accts", "slurm_user_jobs_gpus_alloc", []string{"alice"}, 2},
		{"jobs-users-accts", "slurm_account_jobs_running", []string{"physics"}, 2},
		{"scheduler", "slurm_sched_mean_cycle", nil, 500},
		{"scheduler", "slurm_bf_depth_mean", nil, 3},
		{"", "slurm_queue_running", nil, 2},
		{"", "slurm_queue_pending", nil, 2},
		{"", "slurm_gpus_alloc", nil, 3},
		{"", "slurm_gpus_idle", nil, 8},
		{"", "slurm_gpus_total", nil, 12},
		{"", "slurm_cpus_total", nil, 48},
		{"", "slurm_user_cpus_running", []string{"alice"}, 2},
		{"", "slurm_account_jobs_pending", []string{"chem"}, 1},
		{"", "slurm_partition_cpus_allocated", []string{"p"}, 4},
		{"", "slurm_node_cpu_alloc", []string{"n0", "mix"}, 2},
		{"", "slurm_scheduler_mean_cycle", nil, 500},
		{"", "sluice_gpus", []string{"faulty"}, 1},
		{"", "sluice_node_gpus_faulty", []string{"n1"}, 1},
		{"", "sluice_gpu_free_blocks", []string{"4"}, 1},
		{"", "sluice_gpu_free_blocks", []string{"2"}, 4},
		{"", "sluice_gpu_fragmentation_ratio", nil, 0.5},
		{"", "sluice_jobs_submitted_total", nil, 4},
		{"", "sluice_job_wait_seconds", []string{"p"}, 2},
		{"", "sluice_accounting_up", nil, 0},
		{"", "sluice_certificate_expiry_timestamp_seconds", []string{"controller"}, 5000},
		{"", "sluice_backup_timestamp_seconds", nil, 900},
		{"", "sluice_build_info", []string{"1.2.3"}, 1},
		{"", "sluice_node_up", []string{"n2"}, 1},
	} {
		families := w.read(strings.TrimSuffix("/metrics/"+c.page, "/"), true)
		if got := value(t, families, c.name, c.labels...); got != c.want {
			t.Errorf("%s%q is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// TestNobodyIsNamed: without the right to know users, no page names one.
func TestNobodyIsNamed(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("alice", "physics", "n0", 0)
	w.gpu["G0.0"] = &pb.DeviceSample{}
	w.idle["G0.0"] = 1
	w.now += 2 * int64(idleAfter)
	w.src.LookAtGPUs()
	for path := range w.src.Pages() {
		for _, names := range []bool{true, false} {
			p := &metrics.Page{}
			if err := w.src.Pages()[path](p, names); err != nil {
				t.Fatal(err)
			}
			text := string(p.Bytes())
			if said := strings.Contains(text, "alice") || strings.Contains(text, "physics"); said && !names {
				t.Errorf("%s names users to everybody", path)
			}
			if path == "/metrics" && names && !strings.Contains(text, `sluice_user_gpus_idle{user="alice"} 1`) {
				t.Error("the idle GPU of alice is not there")
			}
		}
	}
}

// TestSeriesAreBounded: of many users a few have series, and nothing is lost of the others.
func TestSeriesAreBounded(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 50 {
		for range i%5 + 1 {
			w.submit(fmt.Sprintf("user%02d", i), fmt.Sprintf("acct%02d", i), "")
		}
	}
	w.submit(other, other, "")
	for _, c := range []struct{ path, name string }{{"/metrics", "slurm_user_jobs_pending"}, {"/metrics", "slurm_account_jobs_pending"},
		{"/metrics/jobs-users-accts", "slurm_user_jobs_pending"}, {"/metrics/jobs-users-accts", "slurm_account_jobs"}} {
		f := w.read(c.path, true)[c.name]
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue()
		}
		if len(f.GetMetric()) != 4 || sum != 151 {
			t.Errorf("%s: %d series with %v jobs, want 4 with 151", c.name, len(f.GetMetric()), sum)
		}
	}
}

// TestIdleTimeOnlyGrows: it is a counter, so no user's time may shrink when other users take the first places.
func TestIdleTimeOnlyGrows(t *testing.T) {
	g := &idleGPUs{}
	users := []string{"a", "b", "c", "d", "e"}
	last := map[string]float64{}
	for i := range 40 {
		now := map[string]float64{users[i%5]: float64(i), users[(i+2)%5]: 1}
		g.put(now, 9, int64(i)*15e9, 2)
		if len(g.seconds) > 3 {
			t.Fatalf("%d series", len(g.seconds))
		}
		for u, s := range last {
			if g.seconds[u] < s {
				t.Fatalf("%s shrank from %v to %v", u, s, g.seconds[u])
			}
		}
		for u, s := range g.seconds {
			last[u] = s
		}
	}
	g = &idleGPUs{}
	g.put(map[string]float64{"a": 2}, 2, 1000e9, 2)
	g.put(map[string]float64{"a": 2}, 2, 1010e9, 2)
	g.put(map[string]float64{"a": 2}, 2, 99010e9, 2) // the machine was asleep
	if got := g.seconds["a"]; got != 2*(10+maxStep.Seconds()) {
		t.Errorf("%v seconds", got)
	}
}

// TestNamesOfSlurm: each page has the families that Slurm's page has, and no others.
func TestNamesOfSlurm(t *testing.T) {
	text, err := os.ReadFile("testdata/slurm-25.11.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] != "#" {
			want[words[0]] = append(want[words[0]], words[1:]...)
		}
	}
	w := newWorld(t, 2)
	w.submit("alice", "physics", "n0", 0)
	for page, names := range want {
		if page == "{}" {
			continue
		}
		var all []string
		for _, name := range names {
			prefix, of, several := strings.Cut(name, "{}")
			if !several {
				all = append(all, name)
				continue
			}
			for _, word := range want["{}"] {
				all = append(all, prefix+word+of)
			}
		}
		slices.Sort(all)
		if have := slices.Sorted(maps.Keys(w.read("/metrics/"+page, true))); !slices.Equal(have, all) {
			t.Errorf("%s: %s", page, cmp.Diff(all, have))
		}
	}
}

// TestNamesOfExporter: dashboard 4323 finds its metrics, with the labels that it picks series by. More labels than these would part what it
// adds up, and show one line for several.
func TestNamesOfExporter(t *testing.T) {
	text, err := os.ReadFile("testdata/dashboard-4323.txt")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 2)
	w.submit("alice", "physics", "n0", 0)
	families := w.read("/metrics", true)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if words[0] == "#" {
			continue
		}
		series := families[words[0]].GetMetric()
		if len(series) == 0 {
			t.Errorf("there is no %s", words[0])
		}
		for _, m := range series {
			labels := words[:1]
			for _, l := range m.Label {
				labels = append(labels, l.GetName())
			}
			if !slices.Equal(labels, words) {
				t.Errorf("%s has the labels %q, and not %q", words[0], labels[1:], words[1:])
			}
		}
	}
}

// BenchmarkPages makes the pages of a cluster with 10,000 nodes, 100,000 jobs and 1,000 users; ns/op is one scrape of all of them, which a
// scrape a second costs at most.
func BenchmarkPages(b *testing.B) {
	w := newWorld(b, 10000)
	tx := state.Begin(w.v, w.now)
	for i := range 100000 {
		u := fmt.Sprint("user", i%1000)
		j, p := admit.Job(w.v, &pb.JobSpec{Name: "j", Uid: uint32(i % 1000), User: u, Account: "a" + u, TresPerNode: "gres/gpu:1"}, "")
		if p != nil {
			b.Fatal(p)
		}
		id := reactor.Submit{Job: j}.Handle(tx).(reactor.Submitted).ID
		if n := i / 2; i%2 == 0 && n < 30000 {
			node, g := n%10000, n/10000
			device := &pb.GresDevice{Name: "gpu", Type: "a100", Index: uint32(g), Id: fmt.Sprintf("G%d.%d", node, g)}
			reactor.ApplyPlan{Starts: []reactor.PlannedStart{{ID: id, Task: -1, Spec: j.Spec, Partition: "p", LimitS: 60,
				NodeList: fmt.Sprint("n", node),
				Alloc: []*pb.NodeAlloc{{Node: fmt.Sprint("n", node), Cpus: 2, MemMib: 10,
					Devices: []*pb.GresDevice{device}}}}}}.Handle(tx)
		}
	}
	w.v, _ = tx.Freeze()
	for _, path := range slices.Sorted(maps.Keys(w.src.Pages())) {
		b.Run(strings.ReplaceAll(path, "/", "_"), func(b *testing.B) {
			size := 0
			for b.Loop() {
				w.now += int64(metrics.Fresh)
				p := &metrics.Page{}
				if err := w.src.Pages()[path](p, true); err != nil {
					b.Fatal(err)
				}
				size = len(p.Bytes())
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

// BenchmarkWatch measures the writer's cost for a job that starts and ends.
func BenchmarkWatch(b *testing.B) {
	w := newWorld(b, 1)
	id := w.submit("alice", "physics", "n0", 0)
	j := w.v.Jobs.Get(id)
	c := state.Change{View: w.v, Events: []state.Event{state.JobSubmitted{Job: j}, state.JobStarted{Job: j}, state.JobEnded{Job: j}}}
	b.ReportAllocs()
	for b.Loop() {
		w.src.Watch().Changed(c)
	}
}

// TestTallyIsDropped: a scrape does not keep its View, with everything deleted since, until the next scrape.
func TestTallyIsDropped(t *testing.T) {
	w := newWorld(t, 1)
	w.read("/metrics/jobs", true)
	kept := func() bool {
		w.src.mu.Lock()
		defer w.src.mu.Unlock()
		return w.src.last != nil
	}
	for end := time.Now().Add(2 * time.Minute); kept(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the tally of a scrape is still kept")
		}
	}
	w.read("/metrics/jobs", true)
}
