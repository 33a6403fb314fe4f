package dispatch

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// bench is a state, a dispatcher on it, and scripts.
type bench struct {
	t       rapid.TB
	view    *state.View
	d       *Dispatcher
	scripts map[uint32][]byte
}

var nodes = []string{"n1", "n2"}

func newBench(t rapid.TB) *bench {
	cfg := &state.Config{Settings: &state.Settings{Cluster: "test", JobRequeue: true, RequeueDelayS: 10}, Default: "debug",
		PartitionNodes: map[string][]string{"debug": nodes}}
	for _, n := range nodes {
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 1000, Sockets: 1, Cores: 1000, Threads: 1, RealMemoryMib: 4000})
	}
	cfg.Partitions = []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}}
	b := &bench{t: t, view: state.New(cfg, "c", 1), scripts: map[uint32][]byte{}}
	b.d = New(func() *state.View { return b.view }, b.script, func(*state.View,
		*state.Node) *pb.NodeSettings {
		return &pb.NodeSettings{ClusterId: "c"}
	}, slog.New(slog.DiscardHandler))
	for _, n := range nodes {
		b.do(reactor.NodeHello{Hello: &pb.NodeHello{Node: n, BootId: "b"}})
	}
	return b
}

func (b *bench) script(j *pb.JobRecord) ([]byte, []string, error) {
	if s := b.scripts[state.ScriptID(j)]; s != nil {
		return s, []string{"A=b"}, nil
	}
	return nil, nil, errors.New("damaged")
}

func (b *bench) do(cmd reactor.Command) any {
	tx := state.Begin(b.view, b.view.NowNS+1e9)
	from := len(tx.Events())
	reply := cmd.Handle(tx)
	reactor.Follow(tx, from)
	v, change := tx.Freeze()
	b.view = v
	b.d.Changed(change)
	return reply
}

// run submits and starts a job.
func (b *bench) run(script []byte, on ...string) *pb.JobRecord {
	id := b.do(reactor.Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Name: "job", Uid: 1000, User: "u"},
		Partition: "debug"}}).(reactor.Submitted).ID
	b.scripts[id] = script
	s := reactor.PlannedStart{ID: id, Task: -1, Spec: b.view.Jobs.Get(id).Spec, Partition: "debug", LimitS: 3600,
		NodeList: strings.Join(on, ",")}
	j := b.view.Jobs.Get(id)
	if j.Priority == 0 {
		b.t.Fatalf("job %d is held", id)
	}
	for _, n := range on {
		s.Alloc = append(s.Alloc, &pb.NodeAlloc{Node: n, Cpus: 1})
	}
	b.do(reactor.ApplyPlan{Starts: []reactor.PlannedStart{s}})
	if j = b.view.Jobs.Get(id); j.State != pb.JobState_JOB_RUNNING {
		b.t.Fatalf("job %d does not run: %v", id, j)
	}
	return j
}

func report(key *pb.StepKey, phase pb.StepPhase) *pb.StepReport {
	r := &pb.StepReport{Key: key, Phase: phase}
	if phase == pb.StepPhase_STEP_ENDED {
		r.Exit = &pb.ExitRecord{Key: key, Verdict: "exited"}
	}
	return r
}

// all takes everything that a link has to say.
func all(t rapid.TB, l *Link) []*pb.NodeOrders {
	var out []*pb.NodeOrders
	for range 1000 {
		m, more := l.Next()
		if m != nil {
			out = append(out, m)
		}
		if !more {
			return out
		}
	}
	t.Fatal("the link does not come to an end")
	return nil
}

func woken(l *Link) bool {
	select {
	case <-l.Woken():
		return true
	default:
		return false
	}
}

// Launches that do not fit into one message follow in the next ones, each once; no message comes near the limit of 8 MiB.
func TestLargeScripts(t *testing.T) {
	const mib = 1 << 20
	for _, full := range []bool{true, false} {
		t.Run(fmt.Sprintf("full=%v", full), func(t *testing.T) {
			b := newBench(t)
			l := b.d.Open("n1", nil)
			if !full {
				all(t, l)
			}
			sizes := []int{4 * mib, 4 * mib, 2 * mib, 1 * mib, 3*mib + 900000, 4 * mib, 10, 10}
			launched := map[uint32]int{}
			for i, n := range sizes {
				j := b.run(bytes.Repeat([]byte{byte('a' + i)}, n), "n1")
				launched[j.Id] = 0
			}
			messages := all(t, l)
			named := map[uint32]bool{}
			for i, m := range messages {
				if n := proto.Size(m); n > 6*mib {
					t.Errorf("message %d has %d bytes", i, n)
				}
				if m.Full != (full && i == 0) {
					t.Errorf("message %d: full=%v", i, m.Full)
				}
				for _, o := range m.Steps {
					if i == 0 {
						named[o.Key.JobId] = true
					}
					if o.Launch != nil {
						launched[o.Key.JobId]++
						if want := byte('a' + o.Key.JobId - 1); len(o.Launch.Script) != sizes[o.Key.JobId-1] || o.Launch.Script[0] != want {
							t.Errorf("job %d is launched with another's script", o.Key.JobId)
						}
					}
				}
			}
			if full && len(named) != len(sizes) {
				t.Errorf("the full message names %d of %d steps", len(named), len(sizes))
			}
			for id, n := range launched {
				if n != 1 {
					t.Errorf("job %d is launched %d times", id, n)
				}
			}
			if m, more := l.Next(); m != nil || more {
				t.Errorf("and then says %v", m)
			}
		})
	}
}

// A step that is stopped before its launch was sent is not launched: the node is told to stop it, answers that it has ended, and is
// told to forget that.
func TestStopOfNeverLaunched(t *testing.T) {
	b := newBench(t)
	l := b.d.Open("n1", nil)
	all(t, l)
	j := b.run([]byte("x"), "n1")
	b.do(reactor.Cancel{Caller: reactor.Caller{Operator: true}, IDs: []string{fmt.Sprint(j.Id)}})
	m := all(t, l)
	if len(m) != 1 || len(m[0].Steps) != 1 || m[0].Steps[0].Want != pb.StepWant_WANT_STOP || m[0].Steps[0].Launch != nil {
		t.Fatalf("told: %v", m)
	}
	reports := []*pb.StepReport{report(m[0].Steps[0].Key, pb.StepPhase_STEP_ENDED)}
	l.Saw(reports)
	if m := all(t, l); m != nil {
		t.Fatalf("told before the end is committed: %v", m)
	}
	b.do(reactor.StepReports{Node: "n1", Steps: reports})
	if m := all(t, l); len(m) != 1 || m[0].Steps[0].Want != pb.StepWant_WANT_FORGET {
		t.Fatalf("after the end: %v", m)
	}
	if got := b.view.Jobs.Get(j.Id).State; got != pb.JobState_JOB_CANCELLED {
		t.Errorf("the job is %v", got)
	}
}

// A job whose script cannot be read ends; it must not hold its share for ever.
func TestUnreadableScript(t *testing.T) {
	b := newBench(t)
	l := b.d.Open("n1", nil)
	j := b.run(nil, "n1")
	for _, m := range all(t, l) {
		if len(m.Steps) > 0 {
			t.Errorf("told: %v", m)
		}
	}
	failed := l.Failed()
	if len(failed) != 1 || len(l.Failed()) != 0 {
		t.Fatalf("failed: %v", failed)
	}
	b.do(reactor.StepReports{Node: "n1", Steps: failed})
	if got := b.view.Jobs.Get(j.Id); got.State != pb.JobState_JOB_FAILED || got.Reason != "JobLaunchFailure" ||
		!strings.Contains(got.ReasonDetail, "damaged") {
		t.Errorf("the job is %v: %s (%s)", got.State, got.Reason, got.ReasonDetail)
	}
	if m := all(t, l); m != nil {
		t.Errorf("then told: %v", m)
	}
}

func TestWhoIsWoken(t *testing.T) {
	b := newBench(t)
	one, two := b.d.Open("n1", nil), b.d.Open("n2", nil)
	for _, l := range []*Link{one, two} {
		if !woken(l) {
			t.Error("a new link is not woken")
		}
		all(t, l)
	}
	b.run([]byte("x"), "n1")
	if !woken(one) || woken(two) {
		t.Error("a start on n1 wakes n1 alone")
	}
	all(t, one)
	b.do(reactor.Reconfigure{Force: true, Config: &state.Config{Settings: b.view.Settings,
		Nodes: []*pb.NodeRecord{{Name: "n1", Cpus: 4}, {Name: "n2", Cpus: 4}}}})
	for _, l := range []*Link{one, two} {
		if !woken(l) {
			t.Error("a reconfiguration wakes everybody")
		}
		if m := all(t, l); len(m) != 1 || m[0].Settings == nil || !m[0].Full {
			t.Errorf("after a reconfiguration: %v", m)
		}
	}
}

func TestNewerLink(t *testing.T) {
	b := newBench(t)
	old := b.d.Open("n1", nil)
	now := b.d.Open("n1", nil)
	select {
	case <-old.Closed():
	default:
		t.Error("the old link is not closed")
	}
	if b.d.Close(old) {
		t.Error("the old link was still the node's")
	}
	if b.d.Links() != 1 || !b.d.Close(now) || b.d.Links() != 0 {
		t.Error("the new link was not the node's")
	}
}

// Whatever messages are lost and whenever a stream breaks, in the end a node has exactly the attempts that the state wants. Each attempt is
// launched at most once per node, and none is forgotten before its end is committed.
func TestConvergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{bench: newBench(t), t: t, has: map[stepID]*pb.StepReport{}, launches: map[stepID]int{},
			told: map[stepID]*pb.StepOrder{}}
		w.reconnect()
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				on := rapid.SampledFrom([][]string{{"n1"}, {"n1", "n2"}, {"n2", "n1"}}).Draw(t, "nodes")
				if !w.view.Node("n1").Up() {
					w.settle() // what was given up with the node is gone first
				}
				w.run([]byte("x"), on...)
			},
			"cancel": func(t *rapid.T) { w.control(t, "cancel") },
			"signal": func(t *rapid.T) { w.control(t, "signal") },
			"requeue": func(t *rapid.T) {
				w.control(t, "requeue")
			},
			"suspend":   func(t *rapid.T) { w.control(t, "suspend") },
			"next":      func(*rapid.T) { w.deliver() },
			"end":       func(t *rapid.T) { w.end(t) },
			"report":    func(*rapid.T) { w.report() },
			"reconnect": func(*rapid.T) { w.reconnect() },
			"node down": func(*rapid.T) {
				w.do(reactor.UpdateNode{Caller: reactor.Caller{Operator: true}, Nodes: []string{"n1"},
					Set: []*pb.KeyValue{{Key: "State", Value: "DOWN"}, {Key: "Reason", Value: "r"}}})
				w.do(reactor.UpdateNode{Caller: reactor.Caller{Operator: true}, Nodes: []string{"n1"},
					Set: []*pb.KeyValue{{Key: "State", Value: "RESUME"}}})
			},
			"settle": func(*rapid.T) { w.settle() },
			"":       func(t *rapid.T) { w.check() },
		})
		w.settle()
	})
}

// world is node n1 as the link's other end: it does what it is told, and its reports wait until they are delivered.
type world struct {
	*bench
	t        *rapid.T
	link     *Link
	has      map[stepID]*pb.StepReport
	order    []stepID
	dirty    []*pb.StepReport
	launches map[stepID]int
	told     map[stepID]*pb.StepOrder // the newest order
}

func (w *world) jobs() []*pb.JobRecord {
	var out []*pb.JobRecord
	for j := range w.view.Jobs.All() {
		if state.Live(j) {
			out = append(out, j)
		}
	}
	return out
}

func (w *world) control(t *rapid.T, verb string) {
	live := w.jobs()
	if len(live) == 0 {
		return
	}
	op := reactor.Caller{Operator: true}
	id := fmt.Sprint(rapid.SampledFrom(live).Draw(t, "job").Id)
	switch verb {
	case "cancel":
		w.do(reactor.Cancel{Caller: op, IDs: []string{id}})
	case "signal":
		w.do(reactor.Cancel{Caller: op, IDs: []string{id}, Signal: 10})
	default:
		w.do(reactor.Control{Caller: op, Verb: verb, IDs: []string{id}})
	}
}

func (w *world) set(k stepID, phase pb.StepPhase) {
	w.has[k] = report(k.key(), phase)
	w.dirty = append(w.dirty, w.has[k])
}

// reconnect opens a new stream, on which the node reports everything again, including reports that were waiting.
func (w *world) reconnect() {
	var have []*pb.StepReport
	for _, k := range w.order {
		if r := w.has[k]; r != nil {
			have = append(have, r)
		}
	}
	w.dirty = nil
	w.do(reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}, Steps: have})
	w.link = w.d.Open("n1", have)
}

// deliver brings one message to the node.
func (w *world) deliver() bool {
	m, more := w.link.Next()
	if m == nil {
		return more
	}
	named := map[stepID]bool{}
	for _, o := range m.Steps {
		k := idOf(o.Key)
		named[k] = true
		w.told[k] = o
		r := w.has[k]
		if o.Launch != nil && r != nil {
			w.t.Fatalf("%v is sent a second time on one stream, or to a node that has it", k)
		}
		switch {
		case o.Want == pb.StepWant_WANT_FORGET:
			if r == nil || r.Phase != pb.StepPhase_STEP_ENDED {
				w.t.Fatalf("told to forget %v, which is %v", k, r)
			}
			if j := w.view.Jobs.Get(k.job); j != nil && stepOf(j, "n1") == k && slicesContains(w.view.Node("n1").Jobs, k.job) {
				w.t.Fatalf("told to forget %v before its end is recorded", k)
			}
			delete(w.has, k)
		case o.Want == pb.StepWant_WANT_RUN && r == nil && o.Launch != nil:
			w.launches[k]++
			w.order = append(w.order, k)
			w.set(k, pb.StepPhase_STEP_RUNNING)
		case o.Want == pb.StepWant_WANT_STOP || o.Want == pb.StepWant_WANT_KILL:
			if r == nil {
				w.order = append(w.order, k)
			}
			if r == nil || r.Phase != pb.StepPhase_STEP_ENDED {
				w.set(k, pb.StepPhase_STEP_ENDED)
			}
		}
	}
	if m.Full {
		for k, r := range w.has {
			if !named[k] && r.Phase != pb.StepPhase_STEP_ENDED {
				w.t.Fatalf("a full list does not name %v, which runs", k)
			}
		}
	}
	return more || len(m.Steps) > 0
}

func slicesContains(ids []uint32, id uint32) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// end lets a step end by itself.
func (w *world) end(t *rapid.T) {
	var running []stepID
	for _, k := range w.order {
		if r := w.has[k]; r != nil && r.Phase == pb.StepPhase_STEP_RUNNING {
			running = append(running, k)
		}
	}
	if len(running) > 0 {
		w.set(rapid.SampledFrom(running).Draw(t, "step"), pb.StepPhase_STEP_ENDED)
	}
}

// report brings what waits to the controller.
func (w *world) report() {
	steps := w.dirty
	w.dirty = nil
	if len(steps) == 0 {
		return
	}
	w.link.Saw(steps)
	w.do(reactor.StepReports{Node: "n1", Steps: steps})
}

func (w *world) check() {
	for k, n := range w.launches {
		if n > 1 {
			w.t.Fatalf("%v was launched %d times", k, n)
		}
	}
	if err := w.view.Check(); err != nil {
		w.t.Fatal(err)
	}
}

// settle delivers everything, and compares.
func (w *world) settle() {
	for range 1000 {
		more := w.deliver()
		if !more && len(w.dirty) == 0 {
			break
		}
		w.report()
	}
	w.check()
	want := map[stepID]bool{}
	for _, id := range w.view.Node("n1").Jobs {
		want[stepOf(w.view.Jobs.Get(id), "n1")] = true
	}
	for k, r := range w.has {
		if !want[k] || r.Phase != pb.StepPhase_STEP_RUNNING {
			w.t.Fatalf("at rest the node has %v (%v), wanted is %v", k, r.Phase, want)
		}
	}
	if left := w.view.Node("n1").Strays; len(left) > 0 {
		w.t.Fatalf("at rest the node still has strays: %v", left)
	}
	for k := range want {
		if w.has[k] == nil {
			w.t.Fatalf("at rest the node lacks %v", k)
		}
		j, o := w.view.Jobs.Get(k.job), w.told[k]
		if len(o.Signals) != len(j.Signals) || o.Suspended != (j.State == pb.JobState_JOB_SUSPENDED) || o.LimitS != j.TimeLimitS {
			w.t.Fatalf("at rest the node was told %v of %v", o, j)
		}
	}
}

// A node that says it has more steps than there can be does not take the controller's memory.
func TestKnownStepsAreBounded(t *testing.T) {
	b := newBench(t)
	l := b.d.Open("n1", nil)
	for i := range uint32(3 * maxKnown) {
		l.Saw([]*pb.StepReport{report(&pb.StepKey{JobId: i + 1, Attempt: 1, Epoch: 1}, pb.StepPhase_STEP_RUNNING)})
	}
	if n := len(l.known); n != maxKnown {
		t.Errorf("%d steps are kept", n)
	}
}

// TestStanding: a node is told when it is DOWN or drained, for HealthCheckNodeState, and nothing when it is not.
func TestStanding(t *testing.T) {
	b := newBench(t)
	l := b.d.Open("n1", nil)
	told := func() (out []string) {
		for _, m := range all(t, l) {
			if s := m.Standing; s != nil {
				out = append(out, fmt.Sprintf("down=%v drained=%v", s.Down, s.Drained))
			}
		}
		return out
	}
	set := func(state string) {
		b.do(reactor.UpdateNode{Caller: reactor.Caller{Operator: true}, Nodes: []string{"n1"},
			Set: []*pb.KeyValue{{Key: "State", Value: state}, {Key: "Reason", Value: "x"}}})
	}
	if got := told(); len(got) != 1 || got[0] != "down=false drained=false" {
		t.Errorf("at first: %q", got)
	}
	for _, c := range []struct{ state, want string }{{"DRAIN", "down=false drained=true"}, {"DRAIN", ""},
		{"DOWN", "down=true drained=true"}, {"RESUME", "down=false drained=false"}} {
		woken(l)
		set(c.state)
		if c.want != "" && !woken(l) {
			t.Errorf("%s: nobody looks what to say", c.state)
		}
		if got := strings.Join(told(), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.state, got, c.want)
		}
	}
}

// step makes a step of a job.
func (b *bench) step(job uint32, spec *pb.StepSpec) *pb.StepRecord {
	r, ok := b.do(reactor.CreateStep{Caller: reactor.Caller{Operator: true}, Job: job, Spec: spec,
		Certificate: []byte("certificate")}).(reactor.CreatedStep)
	if !ok || r.Step == nil {
		b.t.Fatal(r)
	}
	return r.Step
}

// orders are those of a link in words: "0 RUN launch".
func orders(t rapid.TB, l *Link) string {
	var out []string
	for _, m := range all(t, l) {
		for _, o := range m.Steps {
			s := fmt.Sprint(o.Key.Step, " ", strings.TrimPrefix(o.Want.String(), "WANT_"))
			switch o.Key.Step {
			case pb.BatchStep:
				s = "batch" + strings.TrimLeft(s, "0123456789")
			case pb.ExternStep:
				s = "extern" + strings.TrimLeft(s, "0123456789")
			}
			if o.Launch != nil {
				s += " launch"
			}
			if k := len(o.Signals); k > 0 {
				s += fmt.Sprint(" signal ", o.Signals[k-1].Signal)
			}
			out = append(out, s)
		}
	}
	return strings.Join(out, "; ")
}

// TestStepOrders: a step is launched after its allocation, on its own nodes, and ends with it.
func TestStepOrders(t *testing.T) {
	b := newBench(t)
	one, two := b.d.Open("n1", nil), b.d.Open("n2", nil)
	j := b.run([]byte("x"), "n1", "n2")
	s := b.step(j.Id, &pb.StepSpec{MinNodes: 1, ReqNodes: "n2", Overlap: true, TimeLimitS: 60})
	if got := orders(t, one); got != "batch RUN launch" {
		t.Error(got)
	}
	for _, m := range all(t, two) {
		for _, o := range m.Steps {
			if o.Key.Step == 0 && (o.LimitS != 60 || o.Launch.LimitS != 60 || string(o.Launch.Step.Certificate) != "certificate" ||
				len(o.Launch.Script)+len(o.Launch.Env) > 0 || o.Launch.Node != "n2" || o.Launch.Batch || o.Launch.Key.Step != 0) {
				t.Error(o)
			}
		}
	}
	b.do(reactor.Cancel{Caller: reactor.Caller{Operator: true}, IDs: []string{fmt.Sprint(j.Id, ".0")}, Signal: 10})
	if got := orders(t, two) + "|" + orders(t, one); got != "0 RUN signal 10|" {
		t.Error(got)
	}
	b.do(reactor.Cancel{Caller: reactor.Caller{Operator: true}, IDs: []string{fmt.Sprint(j.Id)}})
	if got := orders(t, two); got != "extern STOP; 0 STOP signal 10" {
		t.Error(got)
	}
	end := report(&pb.StepKey{JobId: s.JobId, Attempt: s.Attempt, Epoch: s.Epoch, Step: s.StepId}, pb.StepPhase_STEP_ENDED)
	two.Saw([]*pb.StepReport{end})
	b.do(reactor.StepReports{Node: "n2", Steps: []*pb.StepReport{end}})
	if !woken(two) || orders(t, two) != "0 FORGET" {
		t.Error("the node is not told to forget a step that has ended")
	}
	again := b.d.Open("n2", nil)
	if got := orders(t, again); got != "extern STOP" {
		t.Error(got)
	}
}

// TestRestored: nodes are asked about attempts that a restored state shows as started, and are sent no launch of them, also after a broken
// stream. Jobs that start after the restore are launched.
func TestRestored(t *testing.T) {
	b := newBench(t)
	j := b.run([]byte("x"), "n1", "n2")
	s := b.step(j.Id, &pb.StepSpec{MinNodes: 1, ReqNodes: "n1", Overlap: true})
	v := *b.view
	v.Lose(v.Seq, 32<<20)
	v.Seq = v.Restored
	b.view = &v
	for range 2 {
		if got := orders(t, b.d.Open("n1", nil)) + "|" + orders(t, b.d.Open("n2", nil)); got != "batch TELL; 0 TELL|extern TELL" {
			t.Error(got)
		}
	}
	here := report(&pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep}, pb.StepPhase_STEP_RUNNING)
	one := b.d.Open("n1", []*pb.StepReport{here})
	if got := orders(t, one); got != "batch RUN; 0 TELL" {
		t.Error(got)
	}
	b.run([]byte("y"), "n1")
	if n := b.step(j.Id, &pb.StepSpec{MinNodes: 1, ReqNodes: "n1", Overlap: true}); n.StepId <= s.StepId+1 {
		t.Errorf("step %d may have been before", n.StepId)
	}
	if got := orders(t, one); !strings.Contains(got, "batch RUN launch") || !strings.Contains(got, "1001 RUN launch") {
		t.Error(got)
	}
}

// TestCancelOfAStep: it is killed at once, and its job runs on.
func TestCancelOfAStep(t *testing.T) {
	b := newBench(t)
	link := b.d.Open("n1", nil)
	j := b.run([]byte("x"), "n1")
	b.step(j.Id, &pb.StepSpec{MinNodes: 1, Overlap: true})
	all(t, link)
	b.do(reactor.Cancel{Caller: reactor.Caller{Operator: true}, IDs: []string{fmt.Sprint(j.Id, ".0")}})
	if got := orders(t, link); got != "0 KILL" {
		t.Error(got)
	}
}

// TestInteractiveJobs: an allocation without a batch script holds all of its nodes alike.
func TestInteractiveJobs(t *testing.T) {
	b := newBench(t)
	l := b.d.Open("n1", nil)
	id := b.do(reactor.Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Name: "i", Uid: 1000, User: "u", Interactive: true},
		Partition: "debug"}}).(reactor.Submitted).ID
	b.do(reactor.ApplyPlan{Starts: []reactor.PlannedStart{{ID: id, Task: -1, Spec: b.view.Jobs.Get(id).Spec, Partition: "debug",
		LimitS: 60, NodeList: "n1", Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}}}}})
	if got := orders(t, l); got != "extern RUN launch" {
		t.Error(got)
	}
}
