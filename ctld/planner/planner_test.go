package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched"
	"github.com/sluice-hpc/sluice/sched/record"
	"pgregory.net/rapid"
)

var operator = reactor.Caller{Operator: true}

func config(nodes int) *state.Config {
	cfg := &state.Config{Settings: &state.Settings{Cluster: "test", JobRequeue: true, RequeueDelayS: 10, PriorityBasic: true,
		NodeTimeoutS: 60, MinJobAgeS: 300, CountMemory: true,
		DefMemPerCPUMiB: 100, ReturnToService: 2, MaxArraySize: 1000, MaxJobCount: 10000, MaxJobsPerUser: 1000}, Default: "debug",
		PartitionNodes: map[string][]string{}}
	for i := range nodes {
		n := fmt.Sprintf("n%d", i+1)
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000})
		cfg.PartitionNodes["debug"] = append(cfg.PartitionNodes["debug"], n)
		cfg.PartitionNodes["other"] = append(cfg.PartitionNodes["other"], n)
	}
	for _, name := range []string{"debug", "other"} {
		cfg.Partitions = append(cfg.Partitions, &pb.PartitionRecord{Name: name, State: "UP", MaxTimeS: pb.Unlimited, DefaultTimeS: 600,
			MaxNodes: pb.Unlimited, PriorityTier: 1, PriorityJobFactor: 1})
	}
	return cfg
}

func hello(node string) reactor.NodeHello {
	return reactor.NodeHello{Hello: &pb.NodeHello{Node: node, BootId: "b",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}}}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// bench is a writer without goroutines, and a planner on it.
type bench struct {
	t     rapid.TB
	loop  *loop.Loop
	p     *Planner
	store *journal.Memory // of limitBench
	now   int64
	plan  *reactor.ApplyPlan // made and not yet applied
}

func newBench(t rapid.TB) *bench {
	b := &bench{t: t, now: 1000e9}
	clock := func() time.Time { return time.Unix(0, b.now) }
	b.loop = loop.New(journal.NewMemory(), state.New(config(3), "c", 1), clock, discard())
	b.p = New(b.loop, record.Params{Weights: record.Weights{Basic: true}}, clock, discard())
	b.loop.Observe(b.p.Changed)
	for i := range 3 {
		b.do(hello(fmt.Sprintf("n%d", i+1)))
	}
	return b
}

func (b *bench) do(cmd reactor.Command) any {
	out, err := b.loop.Turn(cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

func (b *bench) submit(spec *pb.JobSpec) {
	spec.Name, spec.Uid, spec.User = "job", 1000, "u"
	j, p := admit.Job(b.loop.View(), spec, "")
	if p != nil {
		b.t.Fatal(p)
	}
	b.do(reactor.Submit{Job: j})
}

func (b *bench) job(t *rapid.T, match func(*pb.JobRecord) bool) *pb.JobRecord {
	var all []*pb.JobRecord
	for j := range b.loop.View().Jobs.All() {
		if match(j) {
			all = append(all, j)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, "job")]
}

func (b *bench) specify(t *rapid.T) *pb.JobSpec {
	s := &pb.JobSpec{NumTasks: uint32(rapid.IntRange(1, 4).Draw(t, "tasks")), Hold: rapid.IntRange(0, 9).Draw(t, "hold") == 0,
		Partition: rapid.SampledFrom([]string{"", "other", "debug,other"}).Draw(t, "partition")}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		s.Array = rapid.SampledFrom([]string{"0-3", "1-9:2%2", "0-5%1"}).Draw(t, "array")
		s.NumTasks = 1
	case 1:
		if j := b.job(t, state.Active); j != nil {
			s.Dependency = fmt.Sprintf("%s:%d", rapid.SampledFrom([]string{"afterok", "afterany", "afternotok"}).Draw(t, "dependency"),
				j.Id)
		}
	case 2:
		s.BeginNs = b.now + 30e9
	case 3:
		s.MinNodes, s.MaxNodes = 2, 2
		s.NumTasks = 2
	}
	return s
}

func (b *bench) meddle(t *rapid.T) {
	j := b.job(t, func(*pb.JobRecord) bool { return true })
	if j == nil {
		return
	}
	id := []string{strconv.Itoa(int(j.Id))}
	switch verb := rapid.SampledFrom([]string{"cancel", "hold", "release", "requeue", "requeuehold", "suspend", "resume", "TimeLimit=5",
		"Priority=77", "Nice=3", "ArrayTaskThrottle=1", "Partition=other",
		"StartTime=" + timespec.FormatUnix(time.Unix(0, b.now+60e9)), "MinMemoryCPU=50"}).Draw(t, "verb"); {
	case verb == "cancel":
		b.do(reactor.Cancel{Caller: operator, IDs: id})
	case verb[0] >= 'A' && verb[0] <= 'Z':
		key, value, _ := cut(verb)
		b.do(reactor.UpdateJob{Caller: operator, IDs: id, Set: []*pb.KeyValue{{Key: key, Value: value}}})
	default:
		b.do(reactor.Control{Caller: operator, Verb: verb, IDs: id})
	}
}

func cut(s string) (key, value string, ok bool) {
	for i := range s {
		if s[i] == '=' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// end lets one node report the end of its part of a job.
func (b *bench) end(t *rapid.T) {
	j := b.job(t, state.Live)
	if j == nil {
		return
	}
	for _, a := range j.Alloc {
		if !a.Ended {
			b.do(reactor.StepReports{Node: a.Node,
				Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep},
					Phase: pb.StepPhase_STEP_ENDED,
					Exit:  &pb.ExitRecord{Verdict: "exited", WaitStatus: uint32(rapid.IntRange(0, 1).Draw(t, "status")) << 8}}}})
			return
		}
	}
}

func (b *bench) node(t *rapid.T) {
	n := fmt.Sprintf("n%d", rapid.IntRange(1, 3).Draw(t, "node"))
	switch what := rapid.SampledFrom([]string{"DRAIN", "RESUME", "DOWN", "hello", "gone", "weight"}).Draw(t, "what"); what {
	case "hello":
		b.do(hello(n))
	case "gone":
		b.do(reactor.NodeGone{Node: n})
	case "weight":
		b.do(reactor.UpdateNode{Caller: operator, Nodes: []string{n}, Set: []*pb.KeyValue{{Key: "Weight", Value: "7"}}})
	default:
		b.do(reactor.UpdateNode{Caller: operator, Nodes: []string{n}, Set: []*pb.KeyValue{{Key: "State", Value: what},
			{Key: "Reason", Value: "r"}}})
	}
}

// prepare makes a plan, and compares what it was made from with what is made from nothing.
func (b *bench) prepare() {
	plan, cmd := b.p.Prepare(record.Cursor{})
	b.plan = cmd
	fresh := mirror{shares: b.p.mirror.shares}
	v := b.loop.View()
	fresh.rebuild(v)
	for i, j := range fresh.pending { // a prediction is of the time of submission
		if i < len(b.p.mirror.pending) && b.p.mirror.pending[i].ID == j.ID {
			j.PredictedS = b.p.mirror.pending[i].PredictedS
			if slices.Equal(fresh.limitsNamed(j), b.p.mirror.limitsNamed(b.p.mirror.pending[i])) {
				// Places are given out in the order in which jobs come.
				j.Limits, j.PartLimits = b.p.mirror.pending[i].Limits, b.p.mirror.pending[i].PartLimits
			}
		}
	}
	same(b.t, "nodes", b.p.mirror.nodes, fresh.nodes)
	same(b.t, "partitions", b.p.mirror.parts, fresh.parts)
	same(b.t, "pending", b.p.mirror.pending, fresh.pending)
	same(b.t, "running", plain(b.p.mirror.running), plain(fresh.running))
	fresh.limits = b.p.mirror.limits
	again := sched.New(b.p.used).Plan(fresh.snapshot(v, b.now/1e9, record.Cursor{}))
	if !reflect.DeepEqual(starts(plan), starts(again)) {
		b.t.Fatalf("the plan starts %v, one made from nothing %v", starts(plan), starts(again))
	}
}

// plain leaves out what a run keeps of the job as it was when it waited.
func plain(runs []*record.Run) []*record.Run {
	var out []*record.Run
	for _, r := range runs {
		c := *r
		c.Job = nil
		out = append(out, &c)
	}
	return out
}

func starts(p *record.Plan) []string {
	var out []string
	for _, s := range p.Start {
		out = append(out, fmt.Sprint(s.Job.ID, s.Task, s.Partition, s.Allocs))
	}
	return out
}

func same[T any](t rapid.TB, what string, got, want []*T) {
	if len(got) != len(want) {
		t.Fatalf("%s: %d records, made from nothing %d", what, len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("%s: record %d is\n%+v\nmade from nothing\n%+v", what, i, *got[i], *want[i])
		}
	}
}

// After any changes, the records that the planner renews one by one equal those that it would make from scratch.
func TestMirror(t *testing.T) {
	for range 5 { // of 100 walks of about 30 steps
		rapid.Check(t, walk)
		if t.Failed() {
			return
		}
	}
}

func walk(t *rapid.T) {
	b := newBench(t)
	run := func(*rapid.T) {
		b.prepare()
		if b.plan != nil {
			b.do(*b.plan)
		}
		b.plan = nil
	}
	for range 8 {
		b.submit(b.specify(t))
	}
	run(t)
	t.Repeat(map[string]func(*rapid.T){
		"submit":  func(t *rapid.T) { b.submit(b.specify(t)) },
		"meddle":  b.meddle,
		"meddle ": b.meddle,
		"end":     b.end,
		"end ":    b.end,
		"node":    b.node,
		"prepare": func(*rapid.T) { b.prepare() },
		"apply": func(*rapid.T) {
			if b.plan != nil {
				b.do(*b.plan) // of a state that may be past
				b.plan = nil
			}
		},
		"run":  run,
		"run ": run,
		"partition": func(t *rapid.T) {
			b.do(reactor.UpdatePartition{Caller: operator, Name: "other",
				Set: []*pb.KeyValue{{Key: "State", Value: rapid.SampledFrom([]string{"UP", "DOWN"}).Draw(t, "state")}}})
		},
		"time": func(t *rapid.T) {
			b.now += int64(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, 10 * time.Minute}).Draw(t, "time"))
			b.do(reactor.Tick{Purge: true})
		},
		"": func(*rapid.T) {
			if err := b.loop.View().Check(); err != nil {
				b.t.Fatal(err)
			}
		},
	})
	b.prepare()
}

// A configuration may be in force before the planner has been told: its nodes are not looked for in the old one.
func TestReconfiguredBehindItsBack(t *testing.T) {
	v := state.New(config(3), "c", 1)
	w := &fixed{view: v}
	p := New(w, record.Params{}, time.Now, discard())
	p.Prepare(record.Cursor{})
	cfg := config(3)
	cfg.Nodes[1].Name = "m2"
	cfg.PartitionNodes["debug"][1], cfg.PartitionNodes["other"][1] = "m2", "m2"
	tx := state.Begin(v, 1)
	reactor.Reconfigure{Config: cfg}.Handle(tx)
	w.view, _ = tx.Freeze()
	p.Prepare(record.Cursor{})
	if got := p.mirror.nodes[0].Name; got != "m2" {
		t.Errorf("the first node is %s", got)
	}
}

type fixed struct{ view *state.View }

func (f *fixed) View() *state.View { return f.view }
func (f *fixed) Do(context.Context, reactor.Command) (any, error) {
	return nil, errors.New("not here")
}

// cluster runs a writer and a planner in a bubble of fake time.
func cluster(t *testing.T, store journal.Store) (*loop.Loop, *Planner, func(reactor.Command) (any, error)) {
	l := loop.New(store, state.New(config(1), "c", 1), time.Now, discard())
	p := New(l, record.Params{Weights: record.Weights{Basic: true}}, time.Now, discard())
	l.Observe(p.Changed)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Run(ctx) })
	wg.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return l, p, func(cmd reactor.Command) (any, error) { return l.Do(ctx, cmd) }
}

func submission(t *testing.T, l *loop.Loop, s *pb.JobSpec) reactor.Submit {
	t.Helper()
	s.Name, s.Uid, s.User = "job", 1000, "u"
	j, p := admit.Job(l.View(), s, "")
	if p != nil {
		t.Fatal(p)
	}
	return reactor.Submit{Job: j}
}

// A submission starts at once, in one or two passes, and a job that begins later at its time, without another event.
func TestStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, do := cluster(t, journal.NewMemory())
		if _, err := do(hello("n1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun, passes := time.Now(), p.Stats().Passes.Load()
		if _, err := do(submission(t, l, &pb.JobSpec{NumTasks: 1})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if j := l.View().Jobs.Get(1); j.State != pb.JobState_JOB_RUNNING || time.Since(begun) > 0 {
			t.Errorf("the job is %v after %v", j.State, time.Since(begun))
		}
		if n := p.Stats().Passes.Load() - passes; n > 2 {
			t.Errorf("that took %d passes", n)
		}
		if _, err := do(submission(t, l, &pb.JobSpec{NumTasks: 1, BeginNs: begun.Add(90 * time.Second).UnixNano()})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(89 * time.Second)
		if j := l.View().Jobs.Get(2); j.State != pb.JobState_JOB_PENDING {
			t.Errorf("a job that begins in 90 s is %v after 89 s", j.State)
		}
		time.Sleep(2 * time.Second)
		if j := l.View().Jobs.Get(2); j.State != pb.JobState_JOB_RUNNING {
			t.Errorf("a job that begins in 90 s is %v (%s) after 91 s", j.State, j.Reason)
		}
	})
}

// While the disk is full the planner tries now and then; when there is room again jobs start within seconds.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		store := journal.NewFailing(journal.NewMemory(), func(_ int, b journal.Batch) journal.Fault {
			if full.Load() && !b.Must {
				return journal.Fault{Err: journal.ErrNoSpace}
			}
			return journal.Fault{}
		})
		l, p, do := cluster(t, store)
		if _, err := do(submission(t, l, &pb.JobSpec{NumTasks: 1})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		full.Store(true)
		if _, err := do(hello("n1")); err != nil {
			t.Fatal(err)
		}
		passes := p.Stats().Passes.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := p.Stats().Passes.Load() - passes; n < 5 || n > 40 {
			t.Errorf("%d passes in a minute of full disk", n)
		}
		full.Store(false)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if j := l.View().Jobs.Get(1); j.State != pb.JobState_JOB_RUNNING {
			t.Errorf("the job is %v, 4 s after there was room again", j.State)
		}
	})
}

// Heartbeats are no reason for a pass.
func TestHeartbeatsDoNotWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, do := cluster(t, journal.NewMemory())
		if _, err := do(hello("n1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		passes := p.Stats().Passes.Load()
		for range 10 {
			if _, err := do(reactor.NodeBeats{Beats: map[string]*pb.Heartbeat{"n1": {CpuLoad: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if n := p.Stats().Passes.Load() - passes; n != 0 {
			t.Errorf("heartbeats led to %d passes", n)
		}
	})
}

// A waiting job gets an expected start within seconds, even if nothing else happens.
func TestExpectedStartsWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, do := cluster(t, journal.NewMemory())
		if _, err := do(hello("n1")); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err := do(submission(t, l, &pb.JobSpec{NumTasks: 4, TimeLimitS: 600})); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * forecastEveryS * time.Second)
		v := l.View()
		for id := uint32(2); id <= 4; id++ {
			j, before := v.Jobs.Get(id), v.Jobs.Get(id-1)
			if j.ExpectedStartNs < max(before.ExpectedStartNs, before.StartNs)+600e9 {
				t.Errorf("job %d is expected at %v, the one before it at %v", id, time.Unix(0, j.ExpectedStartNs),
					time.Unix(0, before.ExpectedStartNs))
			}
		}
		passes := p.Stats().Passes.Load()
		time.Sleep(time.Minute)
		if n := p.Stats().Passes.Load() - passes; n > 6 {
			t.Errorf("%d passes in a minute in which nothing happened", n)
		}
	})
}

// TestForecastOfBegin: a job that begins later is forecast for that time, or for when what runs then has ended.
func TestForecastOfBegin(t *testing.T) {
	b := newBench(t)
	advisor := NewAdvisor(record.Params{Weights: record.Weights{Basic: true}})
	forecast := func(after int64) int64 {
		t.Helper()
		j, p := admit.Job(b.loop.View(), &pb.JobSpec{Name: "late", User: "u", Uid: 1000, NumTasks: 12, BeginNs: b.now + after*1e9}, "")
		if p != nil {
			t.Fatal(p)
		}
		start, nodes, cpus, p := advisor.Forecast(b.loop.View(), j)
		if p != nil || len(nodes) != 3 || cpus != 12 {
			t.Fatalf("in %d s: on %v with %d CPUs, %v", after, nodes, cpus, p)
		}
		return (start - b.now) / 1e9
	}
	if got := forecast(100); got != 100 {
		t.Errorf("on idle nodes a job that begins in 100 s starts in %d s", got)
	}
	b.submit(&pb.JobSpec{NumTasks: 12, TimeLimitS: 600})
	b.prepare()
	b.do(*b.plan)
	for after, want := range map[int64]int64{100: 600, 700: 700} {
		if got := forecast(after); got != want {
			t.Errorf("behind a job of 600 s one that begins in %d s starts in %d s, want %d", after, got, want)
		}
	}
}

// A job that no partition of its list takes, by their rules on accounts and QOS, waits until they change.
func TestBarredJobsWait(t *testing.T) {
	b := newBench(t)
	rule := func(partition, key, value string) {
		t.Helper()
		if p, refused := b.do(reactor.UpdatePartition{Caller: reactor.Caller{Operator: true}, Name: partition,
			Set: []*pb.KeyValue{{Key: key, Value: value}}}).(*pb.Problem); refused {
			t.Fatal(p)
		}
	}
	rule("debug", "AllowAccounts", "physics")
	rule("other", "DenyQOS", "normal")
	b.submit(&pb.JobSpec{NumTasks: 1, Partition: "debug,other"})
	b.apply()
	if b.plan != nil {
		b.do(*b.plan) // what is shown
	}
	j := b.loop.View().Jobs.Get(1)
	if want := "Job's account not permitted to use this partition (debug allows physics not root)"; j.State != pb.JobState_JOB_PENDING ||
		j.Reason != want {
		t.Errorf("%v: %s", j.State, j.Reason)
	}
	rule("other", "DenyQOS", "")
	b.apply()
	if j := b.loop.View().Jobs.Get(1); j.State != pb.JobState_JOB_RUNNING || j.Partition != "other" {
		t.Errorf("%v in %s: %s", j.State, j.Partition, j.Reason)
	}
}
