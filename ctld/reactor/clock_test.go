package reactor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// clockBench is a bench whose controller looks at the clock: up is the time since the machine's boot, b.now what the clock shows.
type clockBench struct {
	*bench
	up   int64
	boot string
}

func newClockBench(t *testing.T) *clockBench {
	b := &clockBench{newBench(t, nil), 500e9, "boot 1"}
	b.look()
	return b
}

// look is an empty batch.
func (b *clockBench) look() {
	b.t.Helper()
	tx := state.Begin(b.view, b.now)
	KeepTime(tx, b.boot, b.up)
	b.view, _ = tx.Freeze()
	if err := b.view.Check(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *clockBench) pass(s int64) { b.up, b.now = b.up+s*1e9, b.now+s*1e9 }

func (b *clockBench) set(s int64) {
	b.now += s * 1e9
	b.look()
}

func (b *clockBench) submitted(set func(*pb.JobSpec)) uint32 {
	b.t.Helper()
	s := &pb.JobSpec{Name: "j", Uid: 1000, User: "u", NumTasks: 1}
	if set != nil {
		set(s)
	}
	return b.do(Submit{Job: &pb.JobRecord{Spec: s, Partition: "debug"}}).(Submitted).ID
}

func (b *clockBench) started(id, limitS uint32) *pb.JobRecord {
	b.t.Helper()
	j := b.view.Jobs.Get(id)
	if r := b.do(ApplyPlan{Clock: b.view.Clock(),
		Starts: []PlannedStart{{ID: id, Task: -1, Spec: j.Spec, Partition: "debug", LimitS: limitS,
			NodeList: "n1", Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}}}}}).(Applied); r.Started != 1 {
		b.t.Fatal("the job does not start")
	}
	return b.view.Jobs.Get(id)
}

// TestRunningJobWhenTheClockIsSet: a new clock does not change how much of its time limit a job has used.
func TestRunningJobWhenTheClockIsSet(t *testing.T) {
	b := newClockBench(t)
	id := b.started(b.submitted(nil), 3600).Id
	check := func(what string, used int64) {
		t.Helper()
		j := b.view.Jobs.Get(id)
		if got := b.now - j.StartNs; got != used*1e9 || j.EndNs-j.StartNs != 3600e9 {
			t.Errorf("%s: it has run for %v, want %d s, and may for %v", what, time.Duration(got), used, time.Duration(j.EndNs-j.StartNs))
		}
	}
	b.pass(60)
	b.set(7200)
	check("two hours ahead", 60)
	b.pass(60)
	b.set(-7200)
	check("and back", 120)
	b.set(-1e6)
	check("a million seconds back", 120)
	end := b.now - 30e9
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: id, Attempt: 1, Epoch: b.view.Jobs.Get(id).Epoch,
		Step: pb.BatchStep}, Phase: pb.StepPhase_STEP_ENDED, EndedAgoNs: 30e9,
		Exit: &pb.ExitRecord{Verdict: "exited", StartNs: 77, EndNs: 99, RanNs: 80e9}}}}) // the node's clock begins with 1970
	j := b.view.Jobs.Get(id)
	if j.State != pb.JobState_JOB_COMPLETED || j.EndNs != end || j.BatchEndNs != end || j.BatchStartNs != end-80e9 {
		t.Errorf("%v, it ended %v ago, its script %v and ran for %v", j.State, time.Duration(b.now-j.EndNs),
			time.Duration(b.now-j.BatchEndNs),
			time.Duration(j.BatchEndNs-j.BatchStartNs))
	}
	// MinJobAge, 300 s here, goes on evenly, and what has ended keeps its times.
	for _, by := range []int64{86400, -2 * 86400, 86400} {
		b.set(by)
		b.do(Tick{Purge: true})
		if got := b.view.Jobs.Get(id); got == nil || got.EndNs != end {
			t.Fatalf("set by %d s: %v", by, got)
		}
	}
	b.pass(301)
	b.do(Tick{Purge: true})
	if b.view.Jobs.Get(id) != nil {
		t.Error("it is remembered for longer than MinJobAge")
	}
}

// TestStepOfANodeWhoseClockIsWrong: a node that cannot say how long ago, for it has been rebooted, is known to be ahead.
func TestStepOfANodeWhoseClockIsWrong(t *testing.T) {
	b := newClockBench(t)
	id := b.started(b.submitted(nil), 3600).Id
	b.pass(100)
	h := hello("n1", "boot1")
	h.OffNS = 7200e9
	b.do(h)
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: id, Attempt: 1, Epoch: b.view.Jobs.Get(id).Epoch,
		Step: pb.BatchStep}, Phase: pb.StepPhase_STEP_ENDED,
		Exit: &pb.ExitRecord{Verdict: "exited", StartNs: b.now + 7200e9 - 90e9, EndNs: b.now + 7200e9 - 10e9}}}})
	if j := b.view.Jobs.Get(id); b.now-j.EndNs != 10e9 || j.BatchEndNs-j.BatchStartNs != 80e9 {
		t.Errorf("it ended %v ago, its script ran for %v", time.Duration(b.now-j.EndNs), time.Duration(j.BatchEndNs-j.BatchStartNs))
	}
}

// TestNodesWhenTheClockIsSet: setting the clock does not make a node DOWN that has just lost its link. A node that stays away is DOWN after
// SlurmdTimeout, whatever the clock shows.
func TestNodesWhenTheClockIsSet(t *testing.T) {
	b := newClockBench(t)
	b.do(NodeGone{Node: "n1"})
	for _, by := range []int64{7200, -86400} {
		b.set(by)
		b.do(Tick{})
		if n := b.view.Node("n1"); n.State == pb.NodeState_NODE_DOWN {
			t.Fatalf("set by %d s: the node is down: %s", by, n.Reason)
		}
	}
	b.pass(101)
	b.do(Tick{})
	if b.view.Node("n1").State != pb.NodeState_NODE_DOWN {
		t.Error("a node that is silent for longer than SlurmdTimeout is not down")
	}
}

// TestWhatWasAskedFor: begin times, deadlines and reservations stay what somebody said.
func TestWhatWasAskedFor(t *testing.T) {
	b := newClockBench(t)
	begin := b.now + 3600e9
	id := b.submitted(func(s *pb.JobSpec) { s.BeginNs, s.DeadlineNs = begin, begin+3600e9 })
	for _, by := range []int64{1800, -7200, 86400} {
		b.set(by)
		if j := b.view.Jobs.Get(id); j.Spec.BeginNs != begin || j.EligibleNs != begin || j.Spec.DeadlineNs != begin+3600e9 {
			t.Errorf("set by %d s: it begins %v later, its deadline is %v later", by, time.Duration(j.Spec.BeginNs-begin),
				time.Duration(j.Spec.DeadlineNs-begin-3600e9))
		}
	}
}

// TestRequeueDelayWhenTheClockIsSet: the two minutes for which a requeued job waits are two minutes.
func TestRequeueDelayWhenTheClockIsSet(t *testing.T) {
	b := newClockBench(t)
	b.set(7200)
	id := b.started(b.submitted(nil), 3600).Id
	b.do(Control{Caller: root, Verb: "requeue", IDs: []string{"1"}})
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: id, Attempt: 1, Epoch: b.view.Jobs.Get(id).Epoch,
		Step: pb.BatchStep}, Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: "cancelled"}}}})
	wait := func() time.Duration {
		j := b.view.Jobs.Get(id)
		return time.Duration(max(j.Spec.BeginNs, j.EligibleNs) - b.now)
	}
	if !state.Pending(b.view.Jobs.Get(id)) || wait() != 120*time.Second {
		t.Fatalf("%v, it waits for %v", b.view.Jobs.Get(id).State, wait())
	}
	b.pass(20)
	b.set(-7200)
	if wait() != 100*time.Second {
		t.Errorf("put right: it waits for %v, want 1m40s", wait())
	}
	// The machine is rebooted, and its clock shows yesterday. The time that has passed is unknown, but it is not a day.
	b.boot, b.up, b.now = "boot 2", 10e9, b.now-86400e9
	b.look()
	if wait() != 120*time.Second {
		t.Errorf("yesterday: it waits for %v, want 2m", wait())
	}
	if j := b.view.Jobs.Get(id); j.SubmitNs > b.now || j.AccrueNs != j.EligibleNs {
		t.Errorf("it was submitted %v from now, and gets older in %v", time.Duration(j.SubmitNs-b.now), time.Duration(j.AccrueNs-b.now))
	}
}

// TestCrontabWhenTheClockIsSet: as cron(8) has it, a line of fixed hour is not run twice because the clock was put back a little, one of
// every hour goes by the new time at once, and a clock that is put back by more than three hours was wrong.
func TestCrontabWhenTheClockIsSet(t *testing.T) {
	at := func(text string) int64 {
		m, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return m.UnixNano()
	}
	for _, c := range []struct{ spec, next, set, want string }{
		{"*/5 * * * *", "2026-11-20 14:05", "2026-11-20 12:02", "2026-11-20 12:05"},
		{"0 13 * * *", "2026-11-21 13:00", "2026-11-20 12:02", "2026-11-21 13:00"}, // it has run today
		{"0 13 * * *", "2026-11-21 13:00", "2026-11-20 09:02", "2026-11-20 13:00"},
		{"0 13 * * *", "2026-11-21 13:00", "2026-11-21 14:00", "2026-11-21 13:00"}, // forward: it is due now
	} {
		b := newClockBench(t)
		b.now = at("2026-11-20 14:02")
		b.look()
		id := b.submitted(func(s *pb.JobSpec) { s.Cron, s.BeginNs = c.spec, at(c.next) })
		b.now = at(c.set)
		b.look()
		if j := b.view.Jobs.Get(id); j.Spec.BeginNs != at(c.want) || j.EligibleNs != at(c.want) || j.AccrueNs != at(c.want) {
			t.Errorf("%s, put to %s: next at %v, want %s", c.spec, c.set, time.Unix(0, j.Spec.BeginNs), c.want)
		}
	}
}

// TestPlanOfAnotherClock: a plan from before the clock was set would overlap reservations that it kept clear of.
func TestPlanOfAnotherClock(t *testing.T) {
	b := newClockBench(t)
	id := b.submitted(nil)
	plan := ApplyPlan{Clock: b.view.Clock(), Starts: []PlannedStart{{ID: id, Task: -1, Spec: b.view.Jobs.Get(id).Spec, Partition: "debug",
		LimitS: 60, NodeList: "n1", Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}}}}}
	b.set(7200)
	if r := b.do(plan).(Applied); r.Started != 0 || r.Dropped != 1 {
		t.Errorf("%+v", r)
	}
	b.started(id, 60)
}

// TestLimitOfAJobThatIsBeingStopped: the job's end is the start of stopping it, and a new limit does not move it.
func TestLimitOfAJobThatIsBeingStopped(t *testing.T) {
	b := newClockBench(t)
	id := b.started(b.submitted(nil), 3600).Id
	b.pass(10)
	b.do(Cancel{Caller: root, IDs: []string{"1"}})
	end := b.view.Jobs.Get(id).EndNs
	b.do(UpdateJob{Caller: root, IDs: []string{"1"}, Set: []*pb.KeyValue{{Key: "TimeLimit", Value: "30"}}})
	if got := b.view.Jobs.Get(id); got.EndNs != end || got.TimeLimitS != 1800 {
		t.Errorf("limit %d, it ends %v later", got.TimeLimitS, time.Duration(got.EndNs-end))
	}
	out := b.do(UpdateJob{Caller: root, IDs: []string{"1"}, Set: pairsOf("EndTime=now+3600", b.now)}).(Outcomes)
	if p := out.List[0].Problem; p == nil || !strings.Contains(p.Detail, "cancelled") {
		t.Errorf("EndTime: %v", p)
	}
}

// TestAgeOfTheEndedAfterARefusal: after a refused commit the clock of another boot is read again, and ended jobs keep their age.
func TestAgeOfTheEndedAfterARefusal(t *testing.T) {
	b := newClockBench(t)
	id := b.submitted(nil)
	b.do(Cancel{Caller: Caller{Operator: true}, IDs: []string{fmt.Sprint(id)}})
	if state.Active(b.view.Jobs.Get(id)) {
		t.Fatal("the job was not cancelled")
	}
	b.pass(100)
	b.boot, b.up = "boot 2", 10e9
	for range 3 {
		tx := state.Begin(b.view, b.now)
		KeepTime(tx, b.boot, b.up)
		b.view.Reindex()
	}
	b.look()
	if ago := state.Begin(b.view, b.now).EndedAgo(b.view.Jobs.Get(id)); ago != 100e9 {
		t.Errorf("the job ended %v ago, want 100s", time.Duration(ago))
	}
}
