package loop

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func config() *state.Config {
	return &state.Config{Settings: &state.Settings{Cluster: "test", NodeTimeoutS: 100, PriorityBasic: true, MinJobAgeS: 300},
		Default: "debug", PartitionNodes: map[string][]string{"debug": {"n1"}},
		Nodes:      []*pb.NodeRecord{{Name: "n1", Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}},
		Partitions: []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}}}
}

func newLoop(store journal.Store, observers ...func(state.Change)) *Loop {
	return New(store, state.New(config(), "c", 1), time.Now, slog.New(slog.DiscardHandler), observers...)
}

func submission(request string) reactor.Submit {
	texts, err := state.PackTexts(1000, []byte("script of "+request), nil)
	if err != nil {
		panic(err)
	}
	return reactor.Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Name: "job", Uid: 1000, User: "u", NumTasks: 1}, RequestId: request,
		Partition: "debug"}, Texts: texts}
}

func turn(t *testing.T, l *Loop, cmds ...reactor.Command) []any {
	t.Helper()
	replies, err := l.Turn(cmds...)
	if err != nil {
		t.Fatal(err)
	}
	return replies
}

// runningJob submits a job and starts it on n1.
func runningJob(t *testing.T, l *Loop) *pb.JobRecord {
	t.Helper()
	turn(t, l, reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}})
	id := turn(t, l, submission(""))[0].(reactor.Submitted).ID
	start := reactor.PlannedStart{ID: id, Task: -1, Spec: l.View().Jobs.Get(id).Spec, Partition: "debug", LimitS: 60, NodeList: "n1",
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}}}
	turn(t, l, reactor.ApplyPlan{Starts: []reactor.PlannedStart{start}})
	j := l.View().Jobs.Get(id)
	if j.State != pb.JobState_JOB_RUNNING {
		t.Fatalf("the job does not run: %v", j)
	}
	return j
}

func end(j *pb.JobRecord) reactor.StepReports {
	return reactor.StepReports{Node: "n1",
		Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep},
			Phase: pb.StepPhase_STEP_ENDED,
			Exit:  &pb.ExitRecord{Verdict: "exited"}}}}
}

// gated is a store whose commits wait to be let through.
type gated struct {
	journal.Store
	entered chan journal.Batch
	let     chan struct{}
}

func (g *gated) Commit(b journal.Batch) error {
	g.entered <- b
	<-g.let
	return g.Store.Commit(b)
}

// Commands gather while a commit is being written, and each is answered only after the commit that contains its change.
func TestGroupCommit(t *testing.T) { synctest.Test(t, groupCommit) }

func groupCommit(t *testing.T) {
	store := &gated{journal.NewMemory(), make(chan journal.Batch), make(chan struct{})}
	l := newLoop(store)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	replies := make(chan error, 200)
	do := func() {
		_, err := l.Do(ctx, submission(""))
		replies <- err
	}
	go do()
	first := <-store.entered
	for range 100 {
		go do()
	}
	synctest.Wait() // all have put their command into the mailbox
	if len(replies) > 0 || l.View().Jobs.Len() > 0 {
		t.Error("a command was answered or is to be seen before its commit")
	}
	store.let <- struct{}{}
	if err := <-replies; err != nil {
		t.Fatal(err)
	}
	second := <-store.entered
	if got, want := len(second.Rows), 100*(len(first.Rows)-1); got != want { // the one script of all is in the first commit
		t.Errorf("the second commit has %d rows, want %d", got, want)
	}
	if n := l.View().Jobs.Len(); n != 1 || len(replies) > 0 {
		t.Errorf("%d jobs are to be seen and %d answers out while the second commit is being written", n, len(replies))
	}
	store.let <- struct{}{}
	for range 100 {
		if err := <-replies; err != nil {
			t.Fatal(err)
		}
	}
	if n := l.Stats().Commits.Load(); n != 2 {
		t.Errorf("101 submissions took %d commits, want 2", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// On a full disk submissions are refused and ends of jobs recorded, also when they come in one batch.
func TestFullDisk(t *testing.T) {
	full := false
	var musts []journal.Batch
	disk := journal.NewMemory()
	store := journal.NewFailing(disk, func(_ int, b journal.Batch) journal.Fault {
		switch {
		case full && !b.Must:
			return journal.Fault{Err: journal.ErrNoSpace}
		case b.Must:
			musts = append(musts, b)
		}
		return journal.Fault{}
	})
	l := newLoop(store)
	j := runningJob(t, l)
	full, musts = true, nil
	replies := turn(t, l, submission("a"), end(j), submission("b"), reactor.Tick{})
	for _, i := range []int{0, 2} {
		if p, ok := replies[i].(*pb.Problem); !ok || pb.Code(p.Code) != pb.CodeNoSpace {
			t.Errorf("a submission on a full disk was answered with %v", replies[i])
		}
	}
	if got := l.View().Jobs.Get(j.Id); got.State != pb.JobState_JOB_COMPLETED || l.View().Jobs.Len() != 1 {
		t.Errorf("the job is %v, %d jobs", got.State, l.View().Jobs.Len())
	}
	if len(musts) != 1 {
		t.Errorf("%d commits used the reserve, want 1", len(musts))
	}
	for _, b := range musts {
		if slices.ContainsFunc(b.Rows, func(r journal.Row) bool { return r.Bucket == journal.Texts }) {
			t.Error("a submission was written to the reserve with the end of a job")
		}
	}
	if p, ok := turn(t, l, submission("a"))[0].(*pb.Problem); !ok {
		t.Errorf("a lone submission on a full disk was answered with %v", p)
	}
	full = false
	again := turn(t, l, submission("a"), submission("a"), submission("b"))
	if a, b := again[0].(reactor.Submitted).ID, again[1].(reactor.Submitted).ID; a != b {
		t.Errorf("one request became jobs %d and %d", a, b)
	}
	if n := l.View().Jobs.Len(); n != 3 {
		t.Errorf("%d jobs, want 3: a refused request must not be remembered as done", n)
	}
	if err := l.View().Check(); err != nil {
		t.Error(err)
	}
	loaded, err := state.Load(config(), disk, "c", 1)
	if err != nil || loaded.Jobs.Len() != 3 || loaded.Jobs.Get(j.Id).State != pb.JobState_JOB_COMPLETED {
		t.Errorf("on disk: %v jobs, error %v", loaded.Jobs.Len(), err)
	}
}

// A command that is too large for the journal is refused alone: the controller goes on, and so do the commands beside it.
func TestTooLargeForTheJournal(t *testing.T) {
	l := newLoop(journal.NewMemory())
	huge := submission("huge")
	huge.Job.Spec.Comment = strings.Repeat("x", journal.MaxValue+1)
	replies := turn(t, l, submission("a"), huge, submission("b"))
	if p, ok := replies[1].(*pb.Problem); !ok || pb.Code(p.Code) != pb.CodeInvalidSpec {
		t.Errorf("answered with %v", replies[1])
	}
	for _, i := range []int{0, 2} {
		if _, ok := replies[i].(reactor.Submitted); !ok {
			t.Errorf("a submission beside it was answered with %v", replies[i])
		}
	}
	if n := l.View().Jobs.Len(); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
	if err := l.View().Check(); err != nil {
		t.Error(err)
	}
}

// A node can register on a full disk: it could not report the ends of its jobs otherwise.
func TestFullDiskHello(t *testing.T) {
	l := newLoop(journal.NewFailing(journal.NewMemory(), journal.DiskFull(1)))
	if r := turn(t, l, reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}}); r[0] != nil {
		t.Errorf("refused: %v", r[0])
	}
	if n := l.View().Node("n1"); !n.LinkUp {
		t.Error("the node is not linked")
	}
}

// A failed commit ends the writer. No command is answered, and no reader sees the batch.
func TestFailedCommitEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observed := 0
		l := newLoop(journal.NewFailing(journal.NewMemory(), journal.CrashAfter(1)), func(state.Change) { observed++ })
		ended := make(chan error, 1)
		go func() { ended <- l.Run(context.Background()) }()
		if r, err := l.Do(context.Background(), submission("")); err == nil {
			t.Errorf("answered with %v", r)
		}
		if err := <-ended; !errors.Is(err, journal.ErrCrashed) {
			t.Errorf("Run ended with %v", err)
		}
		if l.View().Jobs.Len() != 0 || observed != 0 {
			t.Error("a batch whose commit failed is to be seen")
		}
		if _, err := l.Do(context.Background(), submission("")); err == nil {
			t.Error("a writer that has ended answers")
		}
	})
}

func TestFullMailbox(t *testing.T) {
	l := newLoop(journal.NewMemory()) // not running
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range mailboxSize {
		if _, err := l.Do(ctx, reactor.Tick{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if _, err := l.Do(ctx, reactor.Tick{}); !errors.Is(err, ErrBusy) {
		t.Errorf("a full mailbox answers %v, want ErrBusy", err)
	}
}

// Observers see the published view, in order, each commit once; a refusal comes back as an error.
func TestObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *Loop
		var calls []string
		var seqs []uint64
		see := func(name string) func(state.Change) {
			return func(c state.Change) {
				calls, seqs = append(calls, name), append(seqs, c.View.Seq)
				if l.View() != c.View {
					t.Error("an observer is called before the view is published")
				}
				if name == "first" && len(c.Jobs) == 1 && c.View.Jobs.Get(c.Jobs[0]) == nil {
					t.Error("a changed job is not in the view")
				}
			}
		}
		l = newLoop(journal.NewMemory(), see("first"))
		l.Observe(see("second"))
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Run(ctx) })
		if _, err := l.Do(ctx, submission("")); err != nil {
			t.Fatal(err)
		}
		_, err := l.Do(ctx, reactor.NodeHello{Hello: &pb.NodeHello{Node: "stranger"}})
		var p *pb.Problem
		if !errors.As(err, &p) || pb.Code(p.Code) != pb.CodeInvalidNodeName {
			t.Errorf("a refusal came back as %v", err)
		}
		cancel()
		wg.Wait()
		if !slices.Equal(calls, []string{"first", "second", "first", "second"}) || !slices.IsSorted(seqs) {
			t.Errorf("observers were called as %v with %v", calls, seqs)
		}
	})
}

// machine is one whose clock can be set: the time since its boot, and how far the clock is ahead of that.
type machine struct{ up, ahead int64 }

func (m *machine) wall() time.Time          { return time.Unix(0, m.up+m.ahead) }
func (m *machine) both() (time.Time, int64) { return m.wall(), m.up }

// TestClockIsSet: commits are stamped with the time it is, also when that is before the last one's, and what the controller has noted of a
// job moves along: two hours ahead and back, the job has waited for as long as it has, and can start.
func TestClockIsSet(t *testing.T) {
	m := &machine{up: 5000e9, ahead: 1e18}
	store := journal.NewMemory()
	l := New(store, state.New(config(), "c", 1), m.wall, slog.New(slog.DiscardHandler))
	l.KeepTime("boot 1", m.both)
	id := turn(t, l, submission(""))[0].(reactor.Submitted).ID
	check := func(what string, ago int64) {
		t.Helper()
		turn(t, l, reactor.Tick{})
		v := l.View()
		if v.NowNS != m.wall().UnixNano() {
			t.Errorf("%s: the state's time is %d, the clock says %d", what, v.NowNS, m.wall().UnixNano())
		}
		if j := v.Jobs.Get(id); v.NowNS-j.SubmitNs != ago || j.EligibleNs != j.SubmitNs || j.AccrueNs != j.SubmitNs {
			t.Errorf("%s: submitted %d ns ago, want %d; eligible and accruing %d and %d after", what, v.NowNS-j.SubmitNs, ago,
				j.EligibleNs-j.SubmitNs, j.AccrueNs-j.SubmitNs)
		}
	}
	check("at once", 0)
	m.up += 60e9
	check("a minute later", 60e9)
	m.ahead += 7200e9
	m.up += 1e9
	check("two hours ahead", 61e9)
	late := turn(t, l, submission(""))[0].(reactor.Submitted).ID
	restart := func(boot string) {
		t.Helper()
		v, err := state.Load(config(), store, "c", 1)
		if err != nil {
			t.Fatal(err)
		}
		l = New(store, v, m.wall, slog.New(slog.DiscardHandler))
		l.KeepTime(boot, m.both)
	}
	restart("boot 1")
	check("the controller is started again", 61e9)
	m.ahead -= 7200e9
	restart("boot 1")
	check("put right while none ran", 61e9)
	m.up += 2e9
	check("and time goes on", 63e9)
	if j := l.View().Jobs.Get(late); l.View().NowNS-j.SubmitNs != 2e9 || j.SubmitNs <= l.View().Jobs.Get(id).SubmitNs {
		t.Errorf("what was submitted by the wrong clock was so %d ns ago", l.View().NowNS-j.SubmitNs)
	}
	// The machine is off for an hour, and when it is booted its clock is two hours ahead, until that is put right a minute later.
	m.ahead, m.up = m.ahead+m.up+3600e9+7200e9-10e9, 10e9
	restart("boot 2")
	check("the machine was rebooted", 63e9+3600e9+7200e9)
	m.ahead, m.up = m.ahead-7200e9, 70e9
	check("put right after the boot", 63e9+3600e9+60e9)
	// The same with a clock that is behind: nothing was ever in the future.
	m.ahead, m.up = m.ahead+m.up-7200e9-10e9, 10e9
	restart("boot 3")
	check("booted with a clock that is behind", 0)
	m.up = 20e9
	check("ten seconds later", 10e9)
}

// Run's own ticks take a silent node out of service after SlurmdTimeout.
func TestTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(journal.NewMemory())
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Run(ctx) })
		for _, cmd := range []reactor.Command{reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}, Stream: 1},
			reactor.NodeGone{Node: "n1", Stream: 1}} {
			if _, err := l.Do(ctx, cmd); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(98 * time.Second)
		if n := l.View().Node("n1"); n.State != pb.NodeState_NODE_IDLE || n.StateFlags&pb.NodeNoRespond == 0 {
			t.Errorf("after 98 s the node is %v, flags %d", n.State, n.StateFlags)
		}
		time.Sleep(4 * time.Second)
		if n := l.View().Node("n1"); n.State != pb.NodeState_NODE_DOWN {
			t.Errorf("after 102 s the node is %v", n.State)
		}
		cancel()
		wg.Wait()
	})
}

// The end of an old stream says nothing about a node that has opened a newer one.
func TestOldStreamEnds(t *testing.T) {
	l := newLoop(journal.NewMemory())
	hello := func(n uint64) reactor.Command {
		return reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}, Stream: n}
	}
	turn(t, l, hello(1))
	turn(t, l, hello(2))
	turn(t, l, reactor.NodeGone{Node: "n1", Stream: 1})
	if !l.View().Node("n1").LinkUp {
		t.Error("the end of stream 1 unlinked a node that speaks on stream 2")
	}
	turn(t, l, reactor.NodeGone{Node: "n1", Stream: 2})
	if l.View().Node("n1").LinkUp {
		t.Error("the node is linked without a stream")
	}
}
