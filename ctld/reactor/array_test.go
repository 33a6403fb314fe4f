package reactor

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sluice-hpc/sluice/conf/jobid"
	"github.com/sluice-hpc/sluice/ctld/reactor/resv"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// outcomesOf writes outcomes as "id: phrase".
func outcomesOf(r any) string {
	var list []string
	for _, o := range r.(Outcomes).List {
		list = append(list, strings.TrimSuffix(o.Id+": "+o.Problem.GetPhrase(), ": "))
	}
	return strings.Join(list, "; ")
}

func (b *bench) control(verb string, ids ...string) string {
	return outcomesOf(b.do(Control{Caller: root, Verb: verb, IDs: ids}))
}

func (b *bench) update(id, set string) string {
	return outcomesOf(b.do(UpdateJob{Caller: root, IDs: []string{id}, Set: pairsOf(set, b.now)}))
}

func TestArrayIsOneRecord(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxArraySize = 10001 })
	one := b.submit(&pb.JobSpec{Name: "one"})
	arr := b.submit(&pb.JobSpec{Name: "one", Array: "0-9999%7"})
	if n := b.view.Jobs.Len(); n != 2 {
		t.Fatalf("%d records", n)
	}
	if a, o := proto.Size(b.job(arr)), proto.Size(b.job(one)); a > o+100 {
		t.Errorf("10,000 tasks take %d bytes, one job %d", a, o)
	}
	for _, task := range []uint32{0, 9999, 5000} {
		id := b.startTask(arr, task, "n1")
		if j := b.job(id); state.JobName(j) != fmt.Sprintf("2_%d", task) || j.ArrayJobId != arr || state.ScriptID(j) != arr ||
			j.RequestId != "" {
			t.Errorf("task %d: record %s of array %d, script %d", task, state.JobName(j), j.ArrayJobId, state.ScriptID(j))
		}
	}
	if got := state.JobName(b.job(arr)); got != "2_[1-4999,5001-9998%7]" || b.view.Jobs.Len() != 5 {
		t.Errorf("%s is left, %d records", got, b.view.Jobs.Len())
	}
}

// Each part of an array that is treated apart is a record more, and counts as one.
func TestArrayPartsAreBounded(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser = 5 })
	arr := b.submit(&pb.JobSpec{Array: "0-99"})
	refused := 0
	for i := range 50 {
		if strings.Contains(outcomesOf(b.do(Control{Caller: alice, Verb: "hold", IDs: []string{fmt.Sprintf("%d_%d", arr, 2*i)}})), ":") {
			refused++
		}
	}
	if n := b.view.Jobs.Len(); n != 5 || refused != 46 {
		t.Errorf("%d records, %d refused", n, refused)
	}
	if got := b.control("hold", fmt.Sprint(arr)); got != fmt.Sprint(arr)+": " && got != fmt.Sprint(arr) {
		t.Errorf("the whole array: %s", got)
	}
}

func TestArrayRefused(t *testing.T) {
	b := newBench(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, spec := range []string{"x", "3-1", "1-3:0", "0-4000000000", "0-4294967293:2", "1001", "4294967296", "0-1000,0-1000",
		strings.Repeat("1,", 70000)} {
		b.refused(pb.CodeInvalidArray, &pb.JobSpec{Array: spec})
	}
	runtime.ReadMemStats(&after)
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 20 {
		t.Errorf("refusing them took %d MiB", mib)
	}
}

// TestArrayTasksApart follows an array through what a real Slurm was asked (22.05). Where this differs, it is on purpose: a verb for the
// whole array passes over the tasks that have ended.
func TestArrayTasksApart(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "a", Array: "0-9%3", Hold: true})
	for _, c := range []struct{ got, want string }{
		{outcomesOf(b.do(Cancel{Caller: root, IDs: []string{"1_3", "1_[4-5]", "1_3", "1_77"}})),
			"1_3; 1_[4-5]; 1_3: Invalid job id specified; 1_77: Invalid job id specified"},
		{outcomesOf(b.do(Cancel{Caller: root, IDs: []string{"1", "1_2", "1_3", "1_77"}, Signal: 10})),
			"1_[0-2,6-9%3]: Job can not be altered now, try again later; 1_[0-2,6-9%3]: Job can not be altered now, try again later; " +
				"1_3: Invalid job id specified; 1_77: Invalid job id specified"},
		{b.control("hold", "1_0"), "1_0"},
		{b.control("release", "1_1"), "1_1"},
		{b.control("hold", "1_77", "1_3"), "1_77: Invalid job id specified; 1_3: Invalid job id specified"},
		{b.control("requeue", "1_9"), "1_2,6-9: Job is pending execution"},
		{b.control("requeuehold", "1_9"), "1_2,6-9: Job is pending execution"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
	b.expectQueue("after cancel, hold and release",
		"1_[2,6-9%3] a PENDING JobHeldUser", "1_0 a PENDING JobHeldAdmin", "1_1 a PENDING None")
	b.runTask(1, 1, 0)
	for _, c := range []struct{ got, want string }{
		{b.control("release", "1_[1-2]"), "1_1: Job has already finished; 1_2"},
		{b.update("1_9", "TimeLimit=5"), "1_9"},
		{b.update("1_[7-8]", "TimeLimit=5"), "1_[7-8]"},
		{b.update("1_8", "ArrayTaskThrottle=1"), "1_8"},
		{b.update("1", "Comment=all"), "1"},
		{b.update("1", "ArrayTaskThrottle=x"), "1_0,2,6-9: Invalid job specification"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
	for j := range b.view.Jobs.All() {
		if j.ArrayThrottle != 1 || state.Active(j) && j.Spec.Comment != "all" { // what has ended may be requeued
			t.Errorf("%s: throttle %d, comment %q", state.JobName(j), j.ArrayThrottle, j.Spec.Comment)
		}
	}
	b.expectQueue("after updates",
		"1_6 a PENDING JobHeldUser", "1_0 a PENDING JobHeldAdmin",
		"1_1 a COMPLETED None",
		"1_2 a PENDING None", "1_9 a PENDING JobHeldUser", "1_7 a PENDING JobHeldUser", "1_8 a PENDING JobHeldUser")
	if got := b.control("requeue", "1_1"); got != "1_1" {
		t.Error(got)
	}
	b.runTask(1, 2, 0)
	want := "1_0-1,6-9: Job is pending execution; 1_2"
	if got := b.control("requeue", "1"); got != want {
		t.Errorf("requeue of all:\n%s\nwant\n%s", got, want)
	}
	b.do(Cancel{Caller: alice, IDs: []string{"1"}})
	for j := range b.view.Jobs.All() {
		if j.State != pb.JobState_JOB_CANCELLED {
			t.Errorf("%s is %s", state.JobName(j), b.state(j.Id))
		}
	}
}

// TestArrayIsForgottenWhole: the records of an array go when none of its tasks is active, all of them.
func TestArrayIsForgottenWhole(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "a", Array: "0-2"})
	b.runTask(1, 0, 0)
	b.runTask(1, 1, 0)
	last := b.startTask(1, 2, "n1") // which keeps the id of the array
	if last != 1 {
		t.Errorf("the last task has record %d", last)
	}
	b.ended(last, "n1", "exited", 0)
	id := b.submit(&pb.JobSpec{Name: "b", Array: "0-1"})
	b.runTask(id, 0, 0)
	b.now += 10000e9
	b.do(Tick{Purge: true})
	b.expectQueue("long after", "4_1 b PENDING None", "4_0 b COMPLETED None")
	b.do(Cancel{Caller: root, IDs: []string{"4"}})
	b.now += 10000e9
	b.do(Tick{Purge: true})
	if b.view.Jobs.Len() != 0 {
		t.Errorf("left: %s", b.queue())
	}
}

// account checks that every task of an array is in exactly one record, as long as the array is active; afterwards they are forgotten one
// by one, which it notes: those that are left may be requeued, and the others stay forgotten.
func account(v *state.View, forgotten map[uint32]jobid.Set) error {
	tasks, whole := map[uint32]jobid.Set{}, map[uint32]jobid.Set{}
	tx := state.Begin(v, v.NowNS)
	for j := range v.Jobs.All() {
		if j.ArrayJobId == 0 {
			continue
		}
		a, err := jobid.ParseArray(j.ArraySpec)
		if err != nil {
			return err
		}
		if whole[j.ArrayJobId], err = a.Set(1 << 20); err != nil {
			return err
		}
		mine := tasksOf(j)
		if mine.Count() == 0 {
			return fmt.Errorf("record %d stands for no task", j.Id)
		}
		mine = jobid.Union(mine, state.Dropped(j))
		if tasks[j.ArrayJobId].Common(mine).Count() > 0 {
			return fmt.Errorf("tasks %s of array %d have two records", tasks[j.ArrayJobId].Common(mine), j.ArrayJobId)
		}
		tasks[j.ArrayJobId] = tasks[j.ArrayJobId].With(mine)
	}
	for id, all := range whole {
		lost := all.Without(tasks[id]).Without(forgotten[id])
		if !tx.ArrayActive(id) {
			forgotten[id] = forgotten[id].With(lost)
		} else if lost.Count() > 0 {
			return fmt.Errorf("tasks %s of array %d are lost", lost, id)
		}
	}
	return nil
}

// TestAnySequence: after any sequence of commands the state is consistent, no task is lost or in two places, every start is an attempt of
// its own, no held or dependent job starts, and the writer's index equals one made from scratch.
func TestAnySequence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, func(s *state.Settings) {
			s.KillInvalidDepend = rapid.Bool().Draw(rt, "kill")
			s.RequeueDelayS = 0
			s.Licenses = []state.License{{Name: "lic", Count: 4}}
		})
		w := &walker{bench: b, rt: rt, attempts: map[uint32]uint32{}}
		forgotten := map[uint32]jobid.Set{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.step()
			if err := account(b.view, forgotten); err != nil {
				rt.Fatal(err)
			}
			w.starts()
		}
		before := indexOf(b.view)
		b.view.Reindex()
		if after := indexOf(b.view); after != before {
			rt.Fatalf("the index is\n%s\nmade anew\n%s", before, after)
		}
	})
}

type walker struct {
	*bench
	rt       *rapid.T
	attempts map[uint32]uint32
}

// some draws the name of a job, of a task, or of tasks.
func (w *walker) some() string {
	id := rapid.Uint32Range(1, w.view.NextJobID).Draw(w.rt, "id")
	return fmt.Sprintf(rapid.SampledFrom([]string{"%d", "%d", "%d_1", "%d_[0-2]", "%d_[1,3]"}).Draw(w.rt, "form"), id)
}

func (w *walker) dependency() string {
	kind := rapid.SampledFrom([]string{"", "", "singleton", "after", "afterany", "afterok", "afternotok", "aftercorr"}).Draw(w.rt, "kind")
	switch {
	case kind == "singleton":
		return kind
	case kind == "" || w.view.NextJobID == 1:
		return ""
	}
	sep := rapid.SampledFrom([]string{":", ",afterany:", "?afterok:"}).Draw(w.rt, "and")
	one, two := w.some(), w.some()
	return kind + ":" + one + sep + two
}

func (w *walker) step() {
	rt := w.rt
	caller := rapid.SampledFrom([]Caller{root, alice, alice, bob}).Draw(rt, "caller")
	switch rapid.SampledFrom([]string{"submit", "submit", "start", "start", "start", "end", "end", "cancel", "control", "update",
		"preempt", "time", "resv"}).Draw(rt, "step") {
	case "submit":
		spec := &pb.JobSpec{Name: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name"),
			Uid:        rapid.SampledFrom([]uint32{alice.UID, bob.UID}).Draw(rt, "uid"),
			Array:      rapid.SampledFrom([]string{"", "0-4", "0-9:3%2", "1"}).Draw(rt, "array"),
			Hold:       rapid.IntRange(0, 4).Draw(rt, "hold") == 0,
			Dependency: w.dependency(), KillOnInvalidDep: rapid.SampledFrom([]uint32{0, pb.Yes, pb.No}).Draw(rt, "kod"), User: "u",
			Partition: "debug"}
		w.do(Submit{Job: &pb.JobRecord{Spec: spec, Partition: "debug", Reason: "None", TimeLimitS: 600, NumNodes: 1, NumCpus: 1,
			NumTasks: 1}})
	case "start":
		w.startSome()
	case "end":
		w.endSome()
	case "cancel":
		w.do(Cancel{Caller: caller, IDs: []string{w.some()}})
	case "control":
		w.do(Control{Caller: caller, Verb: rapid.SampledFrom([]string{"hold", "uhold", "release", "requeue", "requeuehold", "suspend",
			"resume"}).Draw(rt, "verb"), IDs: []string{w.some()}})
	case "update":
		w.do(UpdateJob{Caller: caller, IDs: []string{w.some()},
			Set: []*pb.KeyValue{{Key: rapid.SampledFrom([]string{"Dependency", "Dependency", "JobName", "ArrayTaskThrottle",
				"Comment"}).Draw(rt, "key"),
				Value: rapid.SampledFrom([]string{w.dependency(), "1", "a", ""}).Draw(rt, "value")}}})
	case "preempt":
		w.preemptSome()
	case "time":
		w.now += rapid.SampledFrom([]int64{1, 50, 700}).Draw(rt, "s") * 1e9
		w.do(Tick{Purge: true})
	case "resv":
		w.do(resv.Update{Operator: true, Name: "r", Create: true,
			Set: pairsOf("StartTime=now Duration=10 Users=u Nodes=n2 Flags=IGNORE_JOBS", w.now)})
	}
}

func (w *walker) records(match func(*pb.JobRecord) bool) []*pb.JobRecord {
	var list []*pb.JobRecord
	for j := range w.view.Jobs.All() {
		if match(j) {
			list = append(list, j)
		}
	}
	return list
}

// startSome starts what may or may not be startable: the reactor has to tell.
func (w *walker) startSome() {
	list := w.records(state.Pending)
	if len(list) == 0 {
		return
	}
	j := rapid.SampledFrom(list).Draw(w.rt, "job")
	s := PlannedStart{ID: j.Id, Task: -1, Spec: j.Spec, Partition: "debug", NodeList: "n1", LimitS: 600,
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1, MemMib: 10}}}
	if j.ArrayTasks != "" {
		s.Task = int32(rapid.IntRange(0, 9).Draw(w.rt, "task"))
	}
	free := j.Priority != 0 && j.Dependency == "" && w.view.Node("n1").AllocCpus < 4 &&
		(s.Task < 0 || state.ArraySet(j).Has(uint32(s.Task))) &&
		(j.ArrayThrottle == 0 || state.Begin(w.view, w.now).ArrayCounts(j.ArrayJobId).Live < int(j.ArrayThrottle))
	if a := w.do(ApplyPlan{Starts: []PlannedStart{s}, Reservations: w.view.Reservations()}).(Applied); (a.Started == 1) != free {
		w.rt.Fatalf("start of %s (priority %d, dependency %q): %+v, want %t", state.JobName(j), j.Priority, j.Dependency, a, free)
	}
}

func (w *walker) endSome() {
	list := w.records(state.Live)
	if len(list) == 0 {
		return
	}
	j := rapid.SampledFrom(list).Draw(w.rt, "job")
	w.ended(j.Id, "n1", rapid.SampledFrom([]string{"exited", "lost", "timeout", "cancelled"}).Draw(w.rt, "verdict"),
		rapid.SampledFrom([]uint32{0, 0, 256}).Draw(w.rt, "status"))
}

func (w *walker) preemptSome() {
	running, waiting := w.records(func(j *pb.JobRecord) bool { return j.State == pb.JobState_JOB_RUNNING }), w.records(state.Pending)
	if len(running) == 0 || len(waiting) == 0 {
		return
	}
	w.do(ApplyPlan{Preempt: []PlannedPreempt{{ID: rapid.SampledFrom(running).Draw(w.rt, "victim").Id,
		For:    rapid.SampledFrom(waiting).Draw(w.rt, "for").Id,
		Mode:   rapid.SampledFrom([]string{"REQUEUE", "CANCEL", "SUSPEND"}).Draw(w.rt, "mode"),
		GraceS: rapid.Int64Range(0, 30).Draw(w.rt, "grace")}}})
}

// starts checks that a record's attempts only grow, and that what runs is of the last.
func (w *walker) starts() {
	for j := range w.view.Jobs.All() {
		if j.Attempt < w.attempts[j.Id] {
			w.rt.Fatalf("%s: attempt %d after %d", state.JobName(j), j.Attempt, w.attempts[j.Id])
		}
		if j.Attempt > w.attempts[j.Id]+1 {
			w.rt.Fatalf("%s: attempt %d after %d", state.JobName(j), j.Attempt, w.attempts[j.Id])
		}
		w.attempts[j.Id] = j.Attempt
		if state.Live(j) && (j.ArrayTasks != "" || j.Attempt == 0) {
			w.rt.Fatalf("%s runs, attempt %d", state.JobName(j), j.Attempt)
		}
	}
}

// indexOf writes what the writer's index answers.
func indexOf(v *state.View) string {
	tx := state.Begin(v, v.NowNS)
	var b strings.Builder
	for j := range v.Jobs.All() {
		fmt.Fprintf(&b, "%d: waiting %v, alone %t, next %v, user %d", j.Id, tx.Waiting(j.Id), tx.Alone(j),
			tx.NextAlone(j.Spec.Uid, j.Spec.Name), tx.UserJobs(j.Spec.Uid))
		if j.ArrayJobId != 0 {
			fmt.Fprintf(&b, ", array %v %+v %v", tx.ArrayRecords(j.ArrayJobId), tx.ArrayCounts(j.ArrayJobId),
				tx.SharedRecords(j.ArrayJobId))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "preempted %v", tx.Preempted())
	return b.String()
}

func TestPreemption(t *testing.T) {
	for _, c := range []struct {
		mode  string
		grace int64
		spec  *pb.JobSpec
		want  []string // the victim after the plan, after the grace, after its end, after the other's end
	}{
		{"REQUEUE", 0, &pb.JobSpec{}, []string{"RUNNING+COMPLETING None", "", "PENDING BeginTime", "PENDING BeginTime"}},
		{"REQUEUE", 30, &pb.JobSpec{}, []string{"RUNNING None", "RUNNING+COMPLETING None", "PENDING BeginTime", "PENDING BeginTime"}},
		{"REQUEUE", 0, &pb.JobSpec{Requeue: pb.No}, []string{"PREEMPTED+COMPLETING None", "", "PREEMPTED None", "PREEMPTED None"}},
		{"CANCEL", 0, &pb.JobSpec{}, []string{"PREEMPTED+COMPLETING None", "", "PREEMPTED None", "PREEMPTED None"}},
		{"CANCEL", 30, &pb.JobSpec{}, []string{"RUNNING None", "PREEMPTED+COMPLETING None", "PREEMPTED None", "PREEMPTED None"}},
		{"SUSPEND", 0, &pb.JobSpec{}, []string{"SUSPENDED None", "", "", "RUNNING None"}},
	} {
		name := fmt.Sprint(c.mode, " ", c.grace, " requeue ", c.spec.Requeue)
		b := newBench(t, nil)
		victim, other := b.submit(c.spec), b.submit(&pb.JobSpec{Name: "urgent"})
		b.start(victim, "n1")
		plan := ApplyPlan{Preempt: []PlannedPreempt{{ID: victim, For: other, Mode: c.mode, GraceS: c.grace, Why: "tier 10 over 1"}}}
		check := func(when int, what string) {
			t.Helper()
			if got := b.state(victim); c.want[when] != "" && got != c.want[when] {
				t.Errorf("%s, %s: %s, want %s", name, what, got, c.want[when])
			}
		}
		b.do(plan)
		check(0, "told to go")
		if j := b.job(victim); j.PreemptedBy != "2" || !strings.Contains(j.ReasonDetail, "tier 10 over 1") ||
			!strings.Contains(j.ReasonDetail, "job 2 of u1000") {
			t.Errorf("%s: by %q, %q", name, j.PreemptedBy, j.ReasonDetail)
		}
		if c.grace > 0 {
			sigs := b.job(victim).Signals
			if n := len(sigs); n != 2 || sigs[0].Signal != 18 || sigs[1].Signal != 15 || sigs[0].Target != pb.SignalSteps ||
				sigs[1].Target != pb.SignalSteps {
				t.Errorf("%s: signals %v", name, sigs)
			}
			b.now += 29e9
			b.do(Tick{})
			check(0, "in its grace")
			b.now += 2e9
			b.do(Tick{})
			check(1, "after its grace")
		}
		b.trace = nil
		if b.do(plan); len(b.trace) != 0 && c.mode != "SUSPEND" {
			t.Errorf("%s: told twice: %v", name, b.trace)
		}
		if c.mode != "SUSPEND" {
			b.ended(victim, "n1", "cancelled", 15)
		}
		check(2, "gone")
		if j := b.job(victim); j.State == pb.JobState_JOB_PENDING && !strings.Contains(j.ReasonDetail, "preempted by job 2") {
			t.Errorf("%s: the requeued job says %q", name, j.ReasonDetail)
		}
		b.start(other, "n2")
		b.now += 60e9
		b.ended(other, "n2", "exited", 0)
		check(3, "when the other has ended")
		if j := b.job(victim); c.mode == "SUSPEND" && (j.PreemptedBy != "" || j.EndNs != j.StartNs+1860e9) {
			t.Errorf("%s: preempted by %q, its limit ends %d s after its start", name, j.PreemptedBy, (j.EndNs-j.StartNs)/1e9)
		}
	}
}

// TestSuspendedForOneThatIsRequeued: a job suspended for another resumes when that one leaves, whether requeued or cancelled.
func TestSuspendedForOneThatIsRequeued(t *testing.T) {
	for _, leave := range []string{"requeue", "cancel pending"} {
		b := newBench(t, nil)
		victim, other := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{})
		b.start(victim, "n1")
		b.do(ApplyPlan{Preempt: []PlannedPreempt{{ID: victim, For: other, Mode: "SUSPEND"}}})
		if leave == "requeue" {
			b.start(other, "n2")
			b.control("requeue", "2")
			b.ended(other, "n2", "cancelled", 15)
		} else {
			b.do(Cancel{Caller: root, IDs: []string{"2"}})
		}
		if got := b.state(victim); got != "RUNNING None" {
			t.Errorf("%s: %s", leave, got)
		}
	}
}

// TestAdminHoldStays: nothing that the owner does turns an administrator's hold into one that the owner may release.
func TestAdminHoldStays(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Name: "a"})
	b.do(Control{Caller: root, Verb: "hold", IDs: []string{fmt.Sprint(id)}})
	for _, try := range []Command{
		Control{Caller: alice, Verb: "hold", IDs: []string{fmt.Sprint(id)}},
		Control{Caller: alice, Verb: "uhold", IDs: []string{fmt.Sprint(id)}},
		UpdateJob{Caller: alice, IDs: []string{fmt.Sprint(id)}, Set: []*pb.KeyValue{{Key: "Priority", Value: "0"}}},
	} {
		b.do(try)
		b.do(Control{Caller: alice, Verb: "release", IDs: []string{fmt.Sprint(id)}})
		if j := b.job(id); j.Priority != 0 || !j.HoldAdmin || j.Reason != "JobHeldAdmin" {
			t.Errorf("after %T: priority %d, reason %s", try, j.Priority, j.Reason)
		}
	}
}

// TestRequeueIncomplete: the word leaves jobs alone that wait or have ended.
func TestRequeueIncomplete(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "a", Array: "0-2"})
	b.runTask(1, 0, 0)
	running := b.startTask(1, 1, "n1")
	b.do(Control{Caller: root, Verb: "requeue", IDs: []string{"1"}, Incomplete: true})
	if j := b.job(running); j.StopReason != "requeue" {
		t.Errorf("the running task: %q", j.StopReason)
	}
	b.expectQueue("of the others", "1_2 a PENDING None", "1_0 a COMPLETED None", "1_1 a RUNNING+COMPLETING None")
}
