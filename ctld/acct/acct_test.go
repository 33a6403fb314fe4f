package acct

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// world is a controller's writer, its journal and its accounting, on a clock of its own.
type world struct {
	t    rapid.TB
	dir  string
	now  time.Time
	mem  *journal.Memory
	loop *loop.Loop
	a    *Accounting
	pol  Policy
	// deaf: attempts that are stored cannot be taken out of the outbox.
	deaf bool
	// seen is every attempt as it was last, in the state or by the event that ended it.
	seen map[state.Attempt]*pb.JobRecord
}

func config() *state.Config {
	return &state.Config{Settings: &state.Settings{Cluster: "test", NodeTimeoutS: 100, PriorityBasic: true, MinJobAgeS: 300,
		JobRequeue: true, MaxArraySize: 1000}, Default: "debug",
		PartitionNodes: map[string][]string{"debug": {"n1"}},
		Nodes:          []*pb.NodeRecord{{Name: "n1", Cpus: 1000, Sockets: 1, Cores: 1000, Threads: 1, RealMemoryMib: 4000}},
		Partitions:     []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}}}
}

func newWorld(t rapid.TB, dir string) *world {
	w := &world{t: t, dir: dir, now: time.Unix(1800000000, 0), mem: journal.NewMemory(), seen: map[state.Attempt]*pb.JobRecord{}}
	w.start(state.New(config(), "c", 1))
	return w
}

func (w *world) start(v *state.View) {
	clock := func() time.Time { return w.now }
	w.loop = loop.New(w.mem, v, clock, slog.New(slog.DiscardHandler))
	w.a = New(Options{Dir: w.dir, Cluster: "c", Log: slog.New(slog.DiscardHandler), Policy: func() Policy { return w.pol }, Now: clock,
		Outbox:     func(at state.Attempt) ([]byte, error) { return w.mem.Get(journal.Finished, at.Key()) },
		StepOutbox: func(k state.StepKey) ([]byte, error) { return w.mem.Get(journal.Steps, k.Bytes()) },
		Script: func(j *pb.JobRecord) ([]byte, []byte, error) {
			return fmt.Appendf(nil, "#!/bin/sh\n# %d\n", state.ScriptID(j)/2), []byte("A=1\nB=2"), nil
		},
		Stored: func(_ context.Context, cmd reactor.Stored) error {
			if w.deaf {
				return errors.New("the writer has no time")
			}
			_, err := w.loop.Turn(cmd)
			return err
		}}, v)
	w.a.Open()
	w.loop.Observe(w.a.Changed)
	w.loop.Unstored(w.a.Unstored)
	w.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}})
}

// crash is kill -9 and the next start.
func (w *world) crash() {
	w.t.Helper()
	w.a.shut()
	w.mem = w.mem.Reopen()
	v, err := state.Load(config(), w.mem, "c", w.mem.IDFloor()+1)
	if err != nil {
		w.t.Fatal(err)
	}
	w.start(v)
}

func (w *world) turn(cmds ...reactor.Command) []any {
	w.t.Helper()
	before := w.loop.View()
	replies, err := w.loop.Turn(cmds...)
	if err != nil {
		w.t.Fatal(err)
	}
	for j := range before.Jobs.All() {
		// An attempt that was requeued in this turn ended as what it was.
		if now := w.loop.View().Jobs.Get(j.Id); now != nil && now.Restarts != j.Restarts && !j.State.Terminal() {
			c := state.CloneJob(j)
			c.StateFlags = pb.JobRequeued
			w.seen[attemptOf(j)] = c
		}
	}
	for j := range w.loop.View().Jobs.All() {
		w.seen[attemptOf(j)] = j
	}
	return replies
}

func (w *world) submit(uid uint32) uint32 { return w.submitArray(uid, "") }

func (w *world) submitArray(uid uint32, array string) uint32 {
	w.t.Helper()
	spec := &pb.JobSpec{Name: fmt.Sprintf("job%d", uid), Uid: uid, User: "u", Partition: "debug", NumTasks: 1, Requeue: pb.Yes,
		Account: fmt.Sprintf("a%d", uid%2), SubmitLine: "sbatch x", Array: array}
	reply := w.turn(reactor.Submit{Job: &pb.JobRecord{Spec: spec, Partition: "debug"}})[0]
	return reply.(reactor.Submitted).ID
}

func (w *world) begin(id uint32) {
	w.t.Helper()
	j, task := w.loop.View().Jobs.Get(id), int32(-1)
	if first, ok := state.ArraySet(j).Min(); ok {
		task = int32(first)
	}
	w.turn(reactor.ApplyPlan{Starts: []reactor.PlannedStart{{ID: id, Task: task, Spec: j.Spec, Partition: "debug", LimitS: 60,
		NodeList:  "n1",
		AllocTRES: "cpu=1,mem=100M,node=1,billing=1", Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}}}}})
}

func (w *world) end(id uint32, status uint32) { w.endAs(id, status, w.now.UnixNano()) }

// endAgo has the node report an end that is so long ago: it was cut off.
func (w *world) endAgo(id uint32, ns int64) { w.endAs(id, 0, w.now.UnixNano()-ns) }

func (w *world) endAs(id uint32, status uint32, endNS int64) {
	w.t.Helper()
	j := w.loop.View().Jobs.Get(id)
	w.turn(reactor.StepReports{Node: "n1",
		Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep},
			Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: "exited", WaitStatus: status << 8, CpuUsecUser: 7,
				StartNs: endNS, EndNs: endNS}}}})
}

func (w *world) ask(r *pb.AccountingRequest) []*pb.JobRecord {
	w.t.Helper()
	var list []*pb.JobRecord
	err := w.a.Select(context.Background(), r, w.loop.View, func(b []byte) error {
		j, err := decoded(b)
		list = append(list, j)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// all asks for everything there ever was.
func (w *world) all() []*pb.JobRecord {
	w.t.Helper()
	return w.ask(&pb.AccountingRequest{SinceNs: 1, UntilNs: math.MaxInt64, Duplicates: true})
}

// memory is a folder without a disk behind it, where there is one: a test is about crashes of the process, and makes thousands.
func memory() string {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// check compares what sacct would show with what was seen: every attempt, once, in order, as it was.
func (w *world) check() {
	w.t.Helper()
	list := w.all()
	if len(list) != len(w.seen) {
		w.t.Fatalf("%d attempts, want %d", len(list), len(w.seen))
	}
	var last place
	for _, j := range list {
		at := attemptOf(j)
		want := w.seen[at]
		switch {
		case placeOf(j).compare(last) <= 0:
			w.t.Fatalf("job %d attempt %d comes after a later one, or twice", at.Job, at.Restarts)
		case want == nil:
			w.t.Fatalf("job %d attempt %d was never there", at.Job, at.Restarts)
		case want.StateFlags&pb.JobRequeued != 0:
			if j.StateFlags&pb.JobRequeued == 0 && !j.State.Terminal() || j.EndNs == 0 || j.NodeList == "" {
				w.t.Fatalf("the requeued attempt %d of job %d is %v from %d to %d on %q", at.Restarts, at.Job, j.State, j.StartNs, j.EndNs,
					j.NodeList)
			}
		case j.State != want.State || j.ExitStatus != want.ExitStatus || j.StartNs != want.StartNs || j.EndNs != want.EndNs:
			w.t.Fatalf("job %d attempt %d: %v, want %v", at.Job, at.Restarts, j, want)
		}
		last = placeOf(j)
	}
}

// pick chooses a job of the state for which ok holds.
func (w *world) pick(t *rapid.T, ok func(*pb.JobRecord) bool) *pb.JobRecord {
	var ids []*pb.JobRecord
	for j := range w.loop.View().Jobs.All() {
		if ok(j) {
			ids = append(ids, j)
		}
	}
	if len(ids) == 0 {
		t.Skip("no such job")
	}
	return rapid.SampledFrom(ids).Draw(t, "job")
}

// TestNothingLostNothingDoubled: in any order of events, with crashes before, during and after storing, accounting holds every attempt of
// every job exactly once, with its end, even long after the state has forgotten it.
func TestNothingLostNothingDoubled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(memory(), "acct")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		w := newWorld(t, dir)
		defer func() { w.a.shut() }()
		root := reactor.Caller{Operator: true}
		store := func(t *rapid.T) {
			w.deaf = rapid.Bool().Draw(t, "deaf")
			if err := w.a.store(context.Background()); err != nil {
				t.Fatal(err)
			}
			w.deaf = false
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) { w.submit(uint32(rapid.IntRange(1, 3).Draw(t, "uid"))) },
			"array":  func(*rapid.T) { w.submitArray(4, "1-3") },
			"begin":  func(t *rapid.T) { w.begin(w.pick(t, state.Pending).Id) },
			"end":    func(t *rapid.T) { w.end(w.pick(t, state.Live).Id, uint32(rapid.IntRange(0, 3).Draw(t, "status"))) },
			"requeue": func(t *rapid.T) {
				j := w.pick(t, func(j *pb.JobRecord) bool { return j.Attempt > 0 && j.StopReason == "" && !state.Pending(j) })
				w.turn(reactor.Control{Caller: root, Verb: "requeue", IDs: []string{fmt.Sprint(j.Id)}})
			},
			"cancel": func(t *rapid.T) {
				j := w.pick(t, state.Active)
				w.turn(reactor.Cancel{Caller: root, IDs: []string{fmt.Sprint(j.Id)}})
			},
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
				w.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1", BootId: "b"}},
					reactor.Tick{Purge: true, Unstored: w.a.Unstored()})
			},
			"store": store,
			"storing fails": func(t *rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if err := w.a.store(ctx); err == nil && w.a.waiting() > 0 {
					t.Fatal("stored on a dead context")
				}
			},
			"crash": func(*rapid.T) { w.crash() },
			"damage": func(t *rapid.T) {
				if w.a.waiting() > 0 || w.loop.View().Jobs.Len() < len(w.seen) {
					t.Skip("what was stored alone would be lost")
				}
				w.a.shut()
				if err := os.WriteFile(w.a.path, []byte("this is no database, but it was one once upon a time, on a better disk"),
					0o600); err != nil {
					t.Fatal(err)
				}
				w.a.Open()
			},
			"": func(*rapid.T) { w.check() },
		})
		if err := w.a.store(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Hour)
		for j := range w.loop.View().Jobs.All() {
			w.turn(reactor.Cancel{Caller: root, IDs: []string{fmt.Sprint(j.Id)}})
		}
		w.check()
	})
}

// A selection shows acknowledged changes even if they are not stored yet. It returns one line per job unless all attempts are requested.
func TestSelectNeverLags(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	id := w.submit(7)
	if got := w.ask(&pb.AccountingRequest{}); len(got) != 1 || got[0].Id != id || got[0].State != pb.JobState_JOB_PENDING {
		t.Fatalf("right after the submission: %v", got)
	}
	w.begin(id)
	w.turn(reactor.Control{Caller: reactor.Caller{Operator: true}, Verb: "requeue", IDs: []string{"1"}})
	w.end(id, 0)
	if got := w.ask(&pb.AccountingRequest{Ids: []string{"1"}}); len(got) != 1 || got[0].Restarts != 1 {
		t.Fatalf("after a requeue: %v", got)
	}
	got := w.ask(&pb.AccountingRequest{Ids: []string{"1"}, Duplicates: true})
	if len(got) != 2 || got[0].Restarts != 0 || got[0].StateFlags&pb.JobRequeued == 0 {
		t.Fatalf("with -D: %v", got)
	}
}

// TestWhoAndWhen: the tests of a selection decide alike for jobs of the state and of the database.
func TestWhoAndWhen(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	sec := func(n int) int64 { return time.Unix(1800000000+int64(n), 0).UnixNano() }
	at := func(n int) { w.now = time.Unix(1800000000+int64(n), 0) }
	run := func(uid uint32, submit, begin, end int, status uint32) uint32 {
		at(submit)
		id := w.submit(uid)
		at(begin)
		w.begin(id)
		if end > 0 {
			at(end)
			w.end(id, status)
		}
		return id
	}
	run(1, 0, 10, 20, 0)  // 1
	run(2, 30, 40, 50, 3) // 2
	run(1, 60, 70, 0, 0)  // 3 runs
	at(80)
	w.submit(3) // 4 waits
	w.turn(reactor.Control{Caller: reactor.Caller{UID: 3}, Verb: "hold", IDs: []string{"4"}})
	held := w.turn(reactor.Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Name: "held", Uid: 3, User: "u", Hold: true, NumTasks: 1},
		Partition: "debug"}})[0].(reactor.Submitted).ID
	at(90)
	R, PD, CD, F := pb.JobState_JOB_RUNNING, pb.JobState_JOB_PENDING, pb.JobState_JOB_COMPLETED, pb.JobState_JOB_FAILED
	tests := []struct {
		name string
		r    *pb.AccountingRequest
		want []uint32
	}{
		{"everything", &pb.AccountingRequest{}, []uint32{1, 2, 3, 4}},
		{"one user", &pb.AccountingRequest{Uids: []uint32{1}}, []uint32{1, 3}},
		{"from a time", &pb.AccountingRequest{SinceNs: sec(21)}, []uint32{2, 3, 4}},
		{"a window", &pb.AccountingRequest{SinceNs: sec(21), UntilNs: sec(60)}, []uint32{2, 3}},
		{"the second of the end", &pb.AccountingRequest{SinceNs: sec(20), UntilNs: sec(20)}, []uint32{1}},
		{"a user's window", &pb.AccountingRequest{Uids: []uint32{2, 3}, SinceNs: sec(51), UntilNs: sec(100)}, []uint32{4}},
		{"running now", &pb.AccountingRequest{States: []pb.JobState{R}, SinceNs: sec(90)}, []uint32{3}},
		{"running then", &pb.AccountingRequest{States: []pb.JobState{R}, SinceNs: sec(15), UntilNs: sec(45)}, []uint32{1, 2}},
		{"pending then", &pb.AccountingRequest{States: []pb.JobState{PD}, SinceNs: sec(5), UntilNs: sec(35)}, []uint32{1, 2}},
		{"failed ever", &pb.AccountingRequest{States: []pb.JobState{F}, SinceNs: 1}, []uint32{2}},
		{"completed or failed then", &pb.AccountingRequest{States: []pb.JobState{CD, F}, SinceNs: sec(19), UntilNs: sec(49)}, []uint32{1}},
		{"failed, until just before", &pb.AccountingRequest{States: []pb.JobState{F}, SinceNs: sec(30), UntilNs: sec(49)}, nil},
		{"failed or requeued then", &pb.AccountingRequest{States: []pb.JobState{F}, StateFlags: pb.JobRequeued, SinceNs: sec(50),
			UntilNs: sec(50)}, []uint32{2}},
		{"failed or running then", &pb.AccountingRequest{States: []pb.JobState{F, R}, SinceNs: sec(50), UntilNs: sec(75)}, []uint32{2, 3}},
		{"completed now", &pb.AccountingRequest{States: []pb.JobState{CD}, SinceNs: sec(90)}, nil},
		{"by id, never eligible", &pb.AccountingRequest{Ids: []string{fmt.Sprint(held), "2", "99", "x"}}, []uint32{2, held}},
		{"an account", &pb.AccountingRequest{Accounts: []string{"A0"}}, []uint32{2}},
		{"a name", &pb.AccountingRequest{Names: []string{"job2", "nothing"}}, []uint32{2}},
		{"a node", &pb.AccountingRequest{Nodes: []string{"n1"}}, []uint32{1, 2, 3}},
		{"no node", &pb.AccountingRequest{Nodes: []string{"n2"}}, nil},
		{"cpus", &pb.AccountingRequest{MinCpus: 1, MaxCpus: 4, Partitions: []string{"debug"}, States: []pb.JobState{CD}, SinceNs: 1},
			[]uint32{1}},
		{"nodes", &pb.AccountingRequest{MinNodes: 2}, nil},
		{"qos", &pb.AccountingRequest{Qos: []string{"normal"}, Uids: []uint32{2}}, []uint32{2}},
		{"runaway", &pb.AccountingRequest{Runaway: true}, nil},
	}
	check := func(t *testing.T) {
		for _, tt := range tests {
			var got []uint32
			for _, j := range w.ask(tt.r) {
				got = append(got, j.Id)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	}
	t.Run("state", check)
	if err := w.a.store(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Run("both", check)
	w.loop = loop.New(journal.NewMemory(), state.New(config(), "c", 1), func() time.Time { return w.now }, slog.New(slog.DiscardHandler))
	tests[len(tests)-1].want = []uint32{3, 4, held}
	t.Run("database", check)
}

// TestWideIsTheSame: a scan of all jobs in order finds the same jobs as the index.
func TestWideIsTheSame(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	for range 3 {
		w.submitArray(4, "1-3")
		id := w.submit(1)
		w.now = w.now.Add(time.Minute)
		w.begin(id)
		w.now = w.now.Add(time.Minute)
		w.end(id, 0)
	}
	if err := w.a.store(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*pb.AccountingRequest{{SinceNs: 1}, {SinceNs: time.Unix(1800000130, 0).UnixNano()},
		{SinceNs: 1, Names: []string{"job1"}},
		{SinceNs: 1, States: []pb.JobState{pb.JobState_JOB_COMPLETED}}} {
		q, _ := newSelection(r, w.now.UnixNano())
		byIndex := w.keys(q)
		q.wide = true
		inOrder := w.keys(q)
		slices.Sort(byIndex)
		slices.Sort(inOrder)
		if !slices.Equal(byIndex, inOrder) || len(inOrder) == 0 {
			t.Errorf("%v: %v by the index, %v in order", r, byIndex, inOrder)
		}
	}
}

// keys returns the rows of a selection that the database has.
func (w *world) keys(q *selection) (keys []int64) {
	w.t.Helper()
	for _, p := range q.parts() {
		text, args, err := q.query(p)
		if err != nil {
			w.t.Fatal(err)
		}
		rows, err := w.a.db.Load().read.Query("SELECT key FROM ("+text+")", args...)
		if err != nil {
			w.t.Fatal(err)
		}
		for rows.Next() {
			var k int64
			if err := rows.Scan(&k); err != nil {
				w.t.Fatal(err)
			}
			keys = append(keys, k)
		}
		_ = rows.Close()
	}
	return keys
}
