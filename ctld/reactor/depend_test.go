package reactor

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// queue writes every record as "name jobname state reason dependency".
func (b *bench) queue() string {
	var lines []string
	for j := range b.view.Jobs.All() {
		line := fmt.Sprintf("%s %s %s", state.JobName(j), j.Spec.Name, b.state(j.Id))
		if j.DependencyShown != "" {
			line += " " + j.DependencyShown
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (b *bench) expectQueue(when string, want ...string) {
	b.t.Helper()
	if got := b.queue(); got != strings.Join(want, "\n") {
		b.t.Errorf("%s:\n%s\nwant:\n%s", when, got, strings.Join(want, "\n"))
	}
}

// startTask starts one task of an array.
func (b *bench) startTask(array uint32, task uint32, node string) uint32 {
	b.t.Helper()
	tx := state.Begin(b.view, b.now)
	id := tx.TaskRecord(array, task)
	j := tx.Job(id)
	s := PlannedStart{ID: id, Task: -1, Spec: j.Spec, Partition: "debug", NodeList: node, LimitS: j.TimeLimitS,
		Alloc: []*pb.NodeAlloc{{Node: node, Cpus: 1, MemMib: 100}}}
	if j.ArrayTasks != "" {
		s.Task = int32(task)
	}
	if a := b.do(ApplyPlan{Starts: []PlannedStart{s}}).(Applied); a.Started != 1 {
		b.t.Fatalf("task %d_%d was not started", array, task)
	}
	return state.Begin(b.view, b.now).TaskRecord(array, task)
}

// runTask starts one task and ends it with an exit code.
func (b *bench) runTask(array, task uint32, exit uint32) {
	b.t.Helper()
	id := b.startTask(array, task, "n1")
	b.ended(id, "n1", "exited", exit<<8)
}

func (b *bench) refused(want pb.Code, spec *pb.JobSpec) *pb.Problem {
	b.t.Helper()
	spec.Uid, spec.User = alice.UID, "alice"
	p, ok := b.do(Submit{Job: &pb.JobRecord{Spec: spec}}).(*pb.Problem)
	if !ok || p.Code != uint32(want) {
		b.t.Errorf("array %q, dependency %q: %v, want a refusal with code %d", spec.Array, spec.Dependency, p, want)
	}
	return p
}

// TestDependencyKinds holds what becomes of a dependent against what a real Slurm does (22.05).
func TestDependencyKinds(t *testing.T) {
	const waitsFor = "PENDING Dependency"
	for _, c := range []struct {
		kind                                   string
		held, running, good, failed, cancelled string // the dependent's state while the other is so; "" free to start
	}{
		{"after:1", waitsFor, "", "", "", ""},
		{"afterany:1", waitsFor, waitsFor, "", "", ""},
		{"1", waitsFor, waitsFor, "", "", ""},
		{"afterok:1", waitsFor, waitsFor, "", "PENDING DependencyNeverSatisfied", "PENDING DependencyNeverSatisfied"},
		{"afternotok:1", waitsFor, waitsFor, "PENDING DependencyNeverSatisfied", "", ""},
		{"aftercorr:1", waitsFor, waitsFor, "", "PENDING DependencyNeverSatisfied", "PENDING DependencyNeverSatisfied"},
		{"afterok:1,afterany:1", waitsFor, waitsFor, "", "PENDING DependencyNeverSatisfied", "PENDING DependencyNeverSatisfied"},
		{"afterok:1?afternotok:1", waitsFor, waitsFor, "", "", ""},
		{"singleton", waitsFor, waitsFor, "", "", ""},
	} {
		b := newBench(t, nil)
		one, two := b.submit(&pb.JobSpec{Name: "x", Hold: true}), b.submit(&pb.JobSpec{Name: "x", Dependency: c.kind})
		check := func(when, want string) {
			t.Helper()
			if want == "" {
				want = "PENDING None"
			}
			if got := b.state(two); got != want {
				t.Errorf("%s, the other %s: %s, want %s", c.kind, when, got, want)
			}
			j := b.job(two)
			if free := want == "PENDING None"; free != (j.Dependency == "") || free != (j.EligibleNs != 0) {
				t.Errorf("%s, the other %s: dependency %q, eligible %d", c.kind, when, j.Dependency, j.EligibleNs)
			}
		}
		check("held", c.held)
		if b.start(two, "n2").Started != 0 {
			t.Errorf("%s: started while it waits", c.kind)
		}
		before := b.view
		b.do(Control{Caller: root, Verb: "release", IDs: []string{"1"}})
		b.start(one, "n1")
		check("running", c.running)
		running := b.view
		b.ended(one, "n1", "exited", 0)
		check("completed", c.good)
		b.view = rebuilt(running)
		b.ended(one, "n1", "exited", 2<<8)
		check("failed", c.failed)
		b.view = rebuilt(before)
		b.do(Cancel{Caller: root, IDs: []string{"1"}})
		check("cancelled", c.cancelled)
	}
}

// rebuilt is an older view with the writer's index made anew, which later views have changed in place.
func rebuilt(v *state.View) *state.View {
	v.Reindex()
	return v
}

func TestDependencyShown(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "one"})
	b.submit(&pb.JobSpec{Name: "arr", Array: "0-3"})
	for _, d := range []string{"after:1+5", "afterok:1:2", "afterok:2_1,afterany:1", "afterok:1?afterok:2", "singleton,afterok:1",
		"aftercorr:2"} {
		b.submit(&pb.JobSpec{Name: "d", Dependency: d, Hold: strings.HasPrefix(d, "after:")})
	}
	b.start(1, "n1")
	b.ended(1, "n1", "exited", 1<<8)
	b.expectQueue("after job 1 failed",
		"1 one FAILED NonZeroExitCode",
		"2_[0-3] arr PENDING None",
		"3 d PENDING JobHeldUser",
		"4 d PENDING DependencyNeverSatisfied afterok:1(failed),afterok:2_*(unfulfilled)",
		"5 d PENDING Dependency afterok:2_1(unfulfilled)",
		"6 d PENDING Dependency afterok:1(failed)?afterok:2_*(unfulfilled)",
		"7 d PENDING DependencyNeverSatisfied singleton(unfulfilled),afterok:1(failed)",
		"8 d PENDING Dependency aftercorr:2_*(unfulfilled)")
	if begin := b.job(3).Spec.BeginNs; begin != b.now+5*60e9 {
		t.Errorf("after:1+5 begins %d s after the start", (begin-b.now)/1e9)
	}
}

// TestManyDependencies: a job that gathers the results of others.
func TestManyDependencies(t *testing.T) {
	b := newBench(t, nil)
	depend := "afterany"
	for range 300 {
		depend += fmt.Sprint(":", b.submit(&pb.JobSpec{Name: "one"}))
	}
	id := b.submit(&pb.JobSpec{Name: "gather", Dependency: depend})
	for other := range id - 1 {
		if b.state(id) != "PENDING Dependency" {
			t.Fatalf("after %d jobs: %s", other, b.state(id))
		}
		b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(other + 1)}})
	}
	if b.state(id) != "PENDING None" {
		t.Errorf("after all: %s", b.state(id))
	}
}

func TestDependencyRefused(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MinJobAgeS = 1 })
	b.submit(&pb.JobSpec{Name: "one"})
	b.submit(&pb.JobSpec{Name: "arr", Array: "0-3"})
	for d, want := range map[string]string{
		"foo": "unknown kind", "afterok": "cannot read", "afterok:": "cannot read", "afterok:1+5": "delay", "after:1+x": "delay",
		"singleton:1":                  "none",
		"afterok:1?afterany:1,after:1": "both", "afterok:99": "never been a job 99", "afterok:1:99": "never been a job 99",
		"afterok:99?afterok:1": "never been",
		"afterok:1_3":          "not an array", "afterok:2_4": "no task 4", "afterany:2_[2-5]": "no task 4",
		"afterok:3":                "never been a job 3",
		"afterany:2_[0-100000000]": "more than 32768 tasks",
	} {
		if p := b.refused(pb.CodeDependency, &pb.JobSpec{Dependency: d}); !strings.Contains(p.GetDetail(), want) {
			t.Errorf("%s: %s, want %q in it", d, p.GetDetail(), want)
		}
	}
	b.do(Cancel{Caller: root, IDs: []string{"1"}})
	b.now += 1000e9
	b.do(Tick{Purge: true})
	if p := b.refused(pb.CodeDependency, &pb.JobSpec{Dependency: "afterok:1"}); !strings.Contains(p.GetDetail(), "MinJobAge") {
		t.Errorf("after a forgotten job of which nobody knows: %v", p)
	}
	b = newBench(t, func(s *state.Settings) { s.FirstJobID = 1000 })
	b.view.NextJobID = 1100 // as a controller that has given a hundred ids
	if p := b.refused(pb.CodeDependency, &pb.JobSpec{Dependency: "afterok:5"}); !strings.Contains(p.GetDetail(), "there is no job 5") {
		t.Errorf("after a job below FirstJobId: %v", p)
	}
}

// TestDependencyOnForgottenJobs: how a job ended that has been forgotten, accounting says. A real Slurm takes each of these conditions as
// met.
func TestDependencyOnForgottenJobs(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MinJobAgeS = 1 })
	b.submit(&pb.JobSpec{})
	b.submit(&pb.JobSpec{})
	b.submit(&pb.JobSpec{Array: "0-1"})
	b.do(Cancel{Caller: root, IDs: []string{"1", "2", "3"}})
	b.now += 1000e9
	b.do(Tick{Purge: true})
	ends := Ends{{Job: 1}: true, {Job: 2}: false, {Job: 3}: false, {Job: 3, Task: 0, HasTask: true}: true}
	for dependency, want := range map[string]string{
		"afterok:1": "PENDING None", "afternotok:1": "PENDING DependencyNeverSatisfied", "aftercorr:1": "PENDING None",
		"afterok:2": "PENDING DependencyNeverSatisfied", "afternotok:2": "PENDING None", "afterany:2": "PENDING None",
		"afterok:1?afterok:2": "PENDING None", "afterok:2?afterok:1": "PENDING None", "afterok:1:2": "PENDING DependencyNeverSatisfied",
		"afterok:3": "PENDING DependencyNeverSatisfied", "afterok:3_0": "PENDING None", "after:2": "PENDING None",
	} {
		if id := b.submitKnowing(&pb.JobSpec{Dependency: dependency}, ends); b.state(id) != want {
			t.Errorf("%s: %s, want %s", dependency, b.state(id), want)
		}
	}
	id := fmt.Sprint(b.submit(&pb.JobSpec{Hold: true}))
	set := []*pb.KeyValue{{Key: "Dependency", Value: "afterok:2"}}
	if r := b.do(UpdateJob{Caller: root, IDs: []string{id}, Set: set}).(Outcomes); r.List[0].Problem == nil {
		t.Error("an update that nobody can judge is taken")
	}
	r := b.do(UpdateJob{Caller: root, IDs: []string{id}, Set: set, Ends: ends}).(Outcomes)
	if p := r.List[0].Problem; p != nil {
		t.Errorf("an update: %v", p)
	}
}

// TestArraysAreForgottenAsAWhole: a dependency on an array asks about all its tasks, so the first to end are kept for the last.
func TestArraysAreForgottenAsAWhole(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MinJobAgeS = 300 })
	b.submit(&pb.JobSpec{Array: "0-1"})
	b.runTask(1, 0, 0)
	b.now += 200e9
	b.do(Cancel{Caller: root, IDs: []string{"1"}})
	b.now += 200e9
	b.do(Tick{Purge: true})
	if n := len(b.view.ArrayRecords(1)); n != 2 {
		t.Errorf("%d records 400 s and 200 s after their ends, want both", n)
	}
	b.now += 200e9
	b.do(Tick{Purge: true})
	if n := len(b.view.ArrayRecords(1)); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

func TestKillOnInvalidDependency(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.KillInvalidDepend = true })
	b.submit(&pb.JobSpec{Name: "one"})
	b.submit(&pb.JobSpec{Name: "stays", Dependency: "afterok:1", KillOnInvalidDep: pb.No})
	b.submit(&pb.JobSpec{Name: "goes", Dependency: "afterok:1"})
	b.submit(&pb.JobSpec{Name: "then", Dependency: "afterok:3", KillOnInvalidDep: pb.Yes})
	b.do(Cancel{Caller: root, IDs: []string{"1"}})
	b.submit(&pb.JobSpec{Name: "late", Dependency: "afterok:1"})
	b.expectQueue("after a cancellation", "1 one CANCELLED None", "2 stays PENDING DependencyNeverSatisfied afterok:1(failed)",
		"3 goes CANCELLED DependencyNeverSatisfied afterok:1(failed)", "4 then CANCELLED DependencyNeverSatisfied afterok:3(failed)",
		"5 late CANCELLED DependencyNeverSatisfied afterok:1(failed)")
}

func TestSingletonIsOneAtATime(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "s", Array: "0-1"})
	b.submit(&pb.JobSpec{Name: "s", Dependency: "singleton"})
	b.submit(&pb.JobSpec{Name: "s"})
	b.submit(&pb.JobSpec{Name: "s", Dependency: "singleton", Uid: bob.UID})
	b.submit(&pb.JobSpec{Name: "s", Dependency: "singleton"})
	b.start(3, "n2")
	b.runTask(1, 0, 0) // its record is younger than job 2, its array is not
	if got := b.state(2); got != "PENDING Dependency" {
		t.Errorf("with a task of an earlier array to come: %s", got)
	}
	b.runTask(1, 1, 0)
	if got := b.state(2); got != "PENDING Dependency" {
		t.Errorf("while a later job of that name runs: %s", got)
	}
	b.ended(3, "n2", "exited", 0)
	if got := b.state(2); got != "PENDING None" {
		t.Errorf("alone: %s", got)
	}
	if got := b.state(5); got != "PENDING Dependency" {
		t.Errorf("the second singleton: %s", got)
	}
	if got := b.state(4); got != "PENDING None" {
		t.Errorf("of another user: %s", got)
	}
	b.do(UpdateJob{Caller: root, IDs: []string{"2"}, Set: []*pb.KeyValue{{Key: "JobName", Value: "renamed"}}})
	if got := b.state(5); got != "PENDING None" {
		t.Errorf("after the other was renamed: %s", got)
	}
}

func TestDependencyOnArray(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "up", Array: "0-3"})
	for _, d := range []string{"afterok:1_1", "afterok:1_[1-2]", "afterok:1", "afterany:1", "afternotok:1", "after:1"} {
		b.submit(&pb.JobSpec{Name: "d", Dependency: d})
	}
	b.runTask(1, 1, 0)
	b.runTask(1, 2, 1)
	b.expectQueue("two of four have ended",
		"1_[0,3] up PENDING None", "2 d PENDING None", "3 d PENDING DependencyNeverSatisfied afterok:1_2(failed)",
		"4 d PENDING Dependency afterok:1_*(unfulfilled)", "5 d PENDING Dependency afterany:1_*(unfulfilled)",
		"6 d PENDING Dependency afternotok:1_*(unfulfilled)", "7 d PENDING Dependency after:1_*(unfulfilled)",
		"1_1 up COMPLETED None", "1_2 up FAILED NonZeroExitCode")
	b.runTask(1, 0, 0)
	b.do(Cancel{Caller: root, IDs: []string{"1_3"}})
	b.expectQueue("all have ended",
		"1_3 up CANCELLED None", "2 d PENDING None", "3 d PENDING DependencyNeverSatisfied afterok:1_2(failed)",
		"4 d PENDING DependencyNeverSatisfied afterok:1_*(failed)", "5 d PENDING None", "6 d PENDING None", "7 d PENDING None",
		"1_1 up COMPLETED None", "1_2 up FAILED NonZeroExitCode", "1_0 up COMPLETED None")
}

// TestDroppedTasks: of tasks that are cancelled while others of their array wait nothing is left but what dependencies have to know: they
// have ended, and not well. A real Slurm judges arrays by them as well, but takes afterok of such a task alone for met.
func TestDroppedTasks(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "up", Array: "0-9"})
	b.submit(&pb.JobSpec{Name: "corr", Array: "2-6", Dependency: "aftercorr:1"})
	kinds := []string{"afterok", "afterany", "afternotok", "after"}
	for _, k := range kinds {
		b.submit(&pb.JobSpec{Name: "early", Dependency: k + ":1_3"})
	}
	b.do(Cancel{Caller: alice, IDs: []string{"1_[2-5]", "1_7"}})
	for _, k := range kinds {
		b.submit(&pb.JobSpec{Name: "late", Dependency: k + ":1_7"})
	}
	for _, k := range kinds {
		b.submit(&pb.JobSpec{Name: "all", Dependency: k + ":1"})
	}
	b.expectQueue("some are cancelled", "1_[0-1,6,8-9] up PENDING None", "2_6 corr PENDING Dependency aftercorr:1_*(unfulfilled)",
		"3 early PENDING DependencyNeverSatisfied afterok:1_3(failed)", "4 early PENDING None", "5 early PENDING None",
		"6 early PENDING None",
		"2_[2-5] corr PENDING DependencyNeverSatisfied aftercorr:1_*(failed)",
		"8 late PENDING DependencyNeverSatisfied afterok:1_7(failed)", "9 late PENDING None", "10 late PENDING None",
		"11 late PENDING None",
		"12 all PENDING Dependency afterok:1_*(unfulfilled)", "13 all PENDING Dependency afterany:1_*(unfulfilled)",
		"14 all PENDING Dependency afternotok:1_*(unfulfilled)", "15 all PENDING Dependency after:1_*(unfulfilled)")
	if got := b.job(1).Dropped; got != "2-5,7" {
		t.Errorf("the array remembers %q", got)
	}
	for _, task := range []uint32{0, 1, 6, 8, 9} {
		b.runTask(1, task, 0)
	}
	for id, want := range map[uint32]string{2: "PENDING None", 12: "PENDING DependencyNeverSatisfied", 13: "PENDING None",
		14: "PENDING None", 15: "PENDING None"} {
		if got := b.state(id); got != want {
			t.Errorf("job %d when all have ended: %s, want %s", id, got, want)
		}
	}
	b.refused(pb.CodeDependency, &pb.JobSpec{Dependency: "afterany:1_10"}) // which there never was
}

// TestAfterCorr: each task waits for the one with its index; one that has none for all of them, as in Slurm.
func TestAfterCorr(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "up", Array: "0-4"})
	b.submit(&pb.JobSpec{Name: "early", Array: "0-6", Dependency: "aftercorr:1"})
	b.runTask(1, 1, 0)
	b.runTask(1, 2, 1)
	b.do(Cancel{Caller: root, IDs: []string{"1_[3-4]"}})
	b.submit(&pb.JobSpec{Name: "late", Array: "0-6", Dependency: "aftercorr:1"})
	b.expectQueue("one task is left",
		"1_0 up PENDING None", "2_[0,5-6] early PENDING Dependency aftercorr:1_*(unfulfilled)",
		"1_1 up COMPLETED None", "2_1 early PENDING None", "1_2 up FAILED NonZeroExitCode",
		"2_2 early PENDING DependencyNeverSatisfied aftercorr:1_*(failed)",
		"2_[3-4] early PENDING DependencyNeverSatisfied aftercorr:1_*(failed)",
		"8_[0,5-6] late PENDING Dependency aftercorr:1_*(unfulfilled)", "8_1 late PENDING None",
		"8_[2-4] late PENDING DependencyNeverSatisfied aftercorr:1_*(failed)")
	b.runTask(1, 0, 0)
	for _, id := range []uint32{2, 8} {
		if got := b.state(id); got != "PENDING DependencyNeverSatisfied" || state.JobName(b.job(id)) != fmt.Sprint(id, "_[5-6]") {
			t.Errorf("%s, which have no counterpart: %s", state.JobName(b.job(id)), got)
		}
	}
	b.runTask(2, 0, 0)
	b.runTask(8, 0, 0)
}

// TestAfterCorrOfEnded: so it is also when all of the other array had ended before the submission, as in Slurm.
func TestAfterCorrOfEnded(t *testing.T) {
	b := newBench(t, nil)
	b.submit(&pb.JobSpec{Name: "up", Array: "0-3"})
	for task, code := range []uint32{0, 0, 1, 0} {
		b.runTask(1, uint32(task), code)
	}
	b.submit(&pb.JobSpec{Name: "late", Array: "0-5", Dependency: "aftercorr:1"})
	b.expectQueue("all have ended",
		"1_3 up COMPLETED None", "1_0 up COMPLETED None", "1_1 up COMPLETED None", "1_2 up FAILED NonZeroExitCode",
		"5_[4-5] late PENDING DependencyNeverSatisfied aftercorr:1_*(failed)", "5_[0-1,3] late PENDING None",
		"5_2 late PENDING DependencyNeverSatisfied aftercorr:1_*(failed)")
}

func TestUpdateDependency(t *testing.T) {
	b := newBench(t, nil)
	for _, d := range []string{"", "afterok:1", "afterok:2", ""} {
		b.submit(&pb.JobSpec{Name: "x", Dependency: d})
	}
	b.submit(&pb.JobSpec{Name: "arr", Array: "0-3", Dependency: "afterok:3"})
	set := func(id, value string) string {
		out := b.do(UpdateJob{Caller: alice, IDs: []string{id}, Set: []*pb.KeyValue{{Key: "Dependency", Value: value}}}).(Outcomes)
		return out.List[0].Problem.GetPhrase()
	}
	for _, c := range [][3]string{
		{"1", "afterok:1", "Job dependency problem"}, {"1", "afterok:3", "Circular job dependency"},
		{"1", "afterok:5", "Circular job dependency"},
		{"1", "afterok:5_2", "Circular job dependency"}, {"5_2", "afterok:5_1", "Job dependency problem"},
		{"1", "bad", "Job dependency problem"},
		{"1", "afterok:99", "Job dependency problem"}, {"1", "afterok:4", ""}, {"4", "afterok:2", "Circular job dependency"},
		{"1", "", ""}, {"3", "afterany:1,singleton", ""},
	} {
		if got := set(c[0], c[1]); got != c[2] {
			t.Errorf("job %s, %s: %q, want %q", c[0], c[1], got, c[2])
		}
	}
	if j := b.job(1); j.Reason != "None" || j.EligibleNs == 0 {
		t.Errorf("job 1 without dependency: %s, eligible %d", j.Reason, j.EligibleNs)
	}
	b.do(Control{Caller: alice, Verb: "hold", IDs: []string{"2"}})
	b.do(Control{Caller: alice, Verb: "release", IDs: []string{"2"}})
	if j := b.job(2); j.Reason != "Dependency" || j.EligibleNs != 0 {
		t.Errorf("released job 2: %s, eligible %d", j.Reason, j.EligibleNs)
	}
}

// chain submits n jobs, each depending on the one before, in one transaction.
func chain(t *testing.T, b *bench, n int, spec func(before uint32) *pb.JobSpec) {
	t.Helper()
	tx := state.Begin(b.view, b.now)
	for i := range n {
		s := spec(uint32(i))
		s.Uid, s.User = alice.UID, "alice"
		if p, ok := (Submit{Job: &pb.JobRecord{Spec: s, Partition: "debug", Reason: "None"}}).Handle(tx).(*pb.Problem); ok {
			t.Fatal(p)
		}
	}
	Follow(tx, 0)
	b.view, _ = tx.Freeze()
}

// patience is far more than these tests take. They must only catch quadratic cost, which would take hours.
const patience = 10 * time.Minute

// busy is how long the calling thread has been running, which must be locked; other programs do not count.
func busy(t *testing.T) time.Duration {
	t.Helper()
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &ru); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func TestLongChains(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const n = 100000
	for name, spec := range map[string]func(before uint32) *pb.JobSpec{
		"afterok": func(before uint32) *pb.JobSpec {
			s := &pb.JobSpec{Name: "link", KillOnInvalidDep: pb.Yes}
			if before > 0 {
				s.Dependency = fmt.Sprintf("afterok:%d", before)
			}
			return s
		},
		"singleton": func(uint32) *pb.JobSpec { return &pb.JobSpec{Name: "link", Dependency: "singleton"} },
	} {
		b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser = 0 })
		begin := busy(t)
		chain(t, b, n, spec)
		if name == "afterok" {
			tx := state.Begin(b.view, b.now)
			Cancel{Caller: root, IDs: []string{"1"}}.Handle(tx)
			Follow(tx, 0)
			b.view, _ = tx.Freeze()
			for b.view.Owing() {
				tx := state.Begin(b.view, b.now)
				FollowUp{}.Handle(tx)
				Follow(tx, 0)
				b.view, _ = tx.Freeze()
			}
			if got := b.state(n); got != "CANCELLED DependencyNeverSatisfied" {
				t.Errorf("%s: the last is %s", name, got)
			}
		} else {
			for id := uint32(1); id <= 2000; id++ {
				tx := state.Begin(b.view, b.now)
				Cancel{Caller: root, IDs: []string{fmt.Sprint(id)}}.Handle(tx)
				Follow(tx, 0)
				b.view, _ = tx.Freeze()
				if got := b.state(id + 1); got != "PENDING None" {
					t.Fatalf("%s: job %d is %s", name, id+1, got)
				}
			}
			if got := b.state(n); got != "PENDING Dependency" {
				t.Errorf("%s: the last is %s", name, got)
			}
		}
		if took := busy(t) - begin; took > patience {
			t.Errorf("%s: %d jobs took %v", name, n, took)
		}
	}
}

// TestBigArrayUnderDependencies: 5,000 tasks that end one by one under dependents of each kind.
func TestBigArrayUnderDependencies(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const n = 5000
	b := newBench(t, func(s *state.Settings) { s.MaxArraySize = 10001 })
	b.submit(&pb.JobSpec{Name: "up", Array: fmt.Sprintf("0-%d", n-1)})
	for range 20 {
		b.submit(&pb.JobSpec{Name: "d", Dependency: "afterok:1,afterany:1"})
	}
	corr := b.submit(&pb.JobSpec{Name: "corr", Array: fmt.Sprintf("0-%d", n-1), Dependency: "aftercorr:1"})
	begin := busy(t)
	for task := range uint32(n) {
		tx := state.Begin(b.view, b.now)
		j := ownTask(tx, tx.Job(tx.TaskRecord(1, task)), task)
		done := state.CloneJob(j)
		done.State = pb.JobState_JOB_COMPLETED
		tx.Emit(state.JobEnded{Job: done})
		Follow(tx, 0)
		b.view, _ = tx.Freeze()
	}
	if took := busy(t) - begin; took > patience {
		t.Errorf("it took %v", took)
	}
	tx := state.Begin(b.view, b.now)
	if got := tx.ArrayCounts(corr); got.Records != n || b.state(tx.TaskRecord(corr, n/2)) != "PENDING None" ||
		b.state(2) != "PENDING None" {
		t.Errorf("records %+v, task %s, dependent %s", got, b.state(tx.TaskRecord(corr, n/2)), b.state(2))
	}
	if err := b.view.Check(); err != nil {
		t.Error(err)
	}
}

// TestRequeuedWaiter: a job that was cancelled while it waited, and is requeued when what it waited for has been forgotten, does not
// wait for ever.
func TestRequeuedWaiter(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MinJobAgeS = 1 })
	first := b.submit(&pb.JobSpec{})
	ids := map[string]uint32{"cancelled": 0, "again": 0}
	for name := range ids {
		ids[name] = b.submit(&pb.JobSpec{Dependency: fmt.Sprintf("afterok:%d", first)})
		b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(ids[name])}})
	}
	ends := Ends{{Job: first}: true}
	requeue := func(name string) {
		b.do(Control{Caller: root, Verb: "requeue", IDs: []string{fmt.Sprint(ids[name])}, Ends: ends})
	}
	requeue("again") // while the other is still waited for
	if j := b.job(ids["again"]); j.Reason != "Dependency" || j.Dependency == "" {
		t.Errorf("requeued while what it waits for runs: %s, %q", b.state(ids["again"]), j.Dependency)
	}
	b.start(first, "n1")
	b.ended(first, "n1", "exited", 0)
	if j := b.job(ids["again"]); j.Dependency != "" {
		t.Errorf("after that has ended: %s, %q", b.state(ids["again"]), j.Dependency)
	}
	b.now += requestMemoryNS + 2e9
	keep := b.job(ids["cancelled"])
	if keep == nil {
		t.Fatal("the cancelled job is forgotten too early for this test")
	}
	requeue("cancelled")
	b.do(Tick{Purge: true})
	if j := b.job(ids["cancelled"]); j.Dependency != "" || j.Reason == "Dependency" {
		t.Errorf("requeued afterwards: %s, %q", b.state(ids["cancelled"]), j.Dependency)
	}
}

// A command that changes the dependencies of many jobs, each at the end of a long chain, does not hold up the writer.
func TestWalksOfOneCommandAreBounded(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxJobsPerUser = 0 })
	last := b.submit(&pb.JobSpec{Hold: true})
	for range 1000 {
		last = b.submit(&pb.JobSpec{Dependency: fmt.Sprintf("afterok:%d", last)})
	}
	var ids []string
	for range 300 {
		ids = append(ids, fmt.Sprint(b.submit(&pb.JobSpec{})))
	}
	r := b.do(UpdateJob{Caller: alice, IDs: ids,
		Set: []*pb.KeyValue{{Key: "Dependency", Value: fmt.Sprintf("afterok:%d", last)}}}).(Outcomes)
	if p := r.List[0].Problem; p != nil {
		t.Errorf("the first: %v", p)
	}
	if p := r.List[len(ids)-1].Problem; p.GetCode() != uint32(pb.CodeDependency) {
		t.Errorf("the last of %d walks over 1000 jobs: %v", len(ids), p)
	}
}

// A delay of more minutes than there can be is a long one, not none.
func TestEndlessDelay(t *testing.T) {
	b := newBench(t, nil)
	first := b.submit(&pb.JobSpec{})
	b.start(first, "n1")
	id := b.submit(&pb.JobSpec{Dependency: fmt.Sprintf("after:%d+4294967290", first)})
	if j := b.job(id); j.Spec.BeginNs < b.now+50*365*86400e9 {
		t.Errorf("it may begin at %d", j.Spec.BeginNs)
	}
}
