package reactor

import (
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf/timespec"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func done(j *pb.JobRecord, failed string) PrologDone {
	return PrologDone{Job: j.Id, Attempt: j.Attempt, Epoch: j.Epoch, Failed: failed}
}

func TestPrologSlurmctld(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.PrologSlurmctld, s.EpilogSlurmctld = true, true })
	id := b.submit(&pb.JobSpec{TimeLimitS: 600})
	b.start(id, "n1")
	j := b.job(id)
	if !Configuring(j) {
		t.Fatalf("the job is not CONFIGURING: %v", j)
	}
	stale := done(j, "")
	stale.Epoch++
	b.do(stale)
	if !Configuring(b.job(id)) {
		t.Fatal("the program of another attempt counted")
	}
	b.now += 50e9
	b.do(done(j, ""))
	if j := b.job(id); Configuring(j) || j.EndNs != b.now+600e9 {
		t.Errorf("after the prolog: flags %x, its limit ends %d s after it", j.StateFlags, (j.EndNs-b.now)/1e9)
	}
	b.ended(id, "n1", "exited", 0)
	if j := b.job(id); !CleaningUp(j) || !state.Active(j) || b.view.Node("n1").AllocCpus != 0 {
		t.Fatalf("the job does not wait for its epilog, or still has its node: %v", j)
	}
	b.trace = nil
	b.do(EpilogDone{Job: id, Attempt: j.Attempt, Epoch: j.Epoch})
	b.expect("JobEnded COMPLETED None")
	b.do(EpilogDone{Job: id, Attempt: j.Attempt, Epoch: j.Epoch})
	b.expect()
}

// TestLimitCountsFromTheEndOfTheProlog: also when it is changed, and also what has been spent suspended does not count.
func TestLimitCountsFromTheEndOfTheProlog(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.PrologSlurmctld = true })
	id := b.submit(&pb.JobSpec{TimeLimitS: 600})
	b.start(id, "n1")
	b.now += 300e9
	b.do(done(b.job(id), ""))
	began := b.now
	set := func(key, value string) {
		b.do(UpdateJob{Caller: root, IDs: []string{"1"}, Set: []*pb.KeyValue{{Key: key, Value: value}}})
	}
	set("TimeLimit", "20")
	if j := b.job(id); j.EndNs != began+1200e9 || j.TimeLimitS != 1200 {
		t.Errorf("TimeLimit=20 ends %d s after the prolog", (j.EndNs-began)/1e9)
	}
	b.control("suspend", "1")
	b.now += 100e9
	b.control("resume", "1")
	set("TimeLimit", "10")
	if j := b.job(id); j.EndNs != began+700e9 {
		t.Errorf("TimeLimit=10 after 100 s of suspension ends %d s after the prolog", (j.EndNs-began)/1e9)
	}
	set("EndTime", timespec.FormatUnix(time.Unix(0, began+900e9)))
	if j := b.job(id); j.EndNs != began+900e9 || j.TimeLimitS != 800 {
		t.Errorf("EndTime: ends %d s after the prolog with a limit of %d s", (j.EndNs-began)/1e9, j.TimeLimitS)
	}
	set("TimeLimit", "UNLIMITED")
	set("TimeLimit", "30")
	if j := b.job(id); j.EndNs != j.StartNs+1900e9 {
		t.Errorf("once unlimited: ends %d s after its start", (j.EndNs-j.StartNs)/1e9)
	}
}

// TestSuspendedJobNeedNotWaitForEpilog: a job that gave way goes on when the CPUs are free, not when EpilogSlurmctld has run.
func TestSuspendedJobNeedNotWaitForEpilog(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.EpilogSlurmctld = true })
	victim, other := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{})
	b.start(victim, "n1")
	b.do(ApplyPlan{Preempt: []PlannedPreempt{{ID: victim, For: other, Mode: "SUSPEND"}}})
	b.start(other, "n1")
	b.ended(other, "n1", "exited", 0)
	if !CleaningUp(b.job(other)) {
		t.Fatal("the other job does not wait for its epilog")
	}
	if got := b.state(victim); got != "RUNNING None" {
		t.Errorf("while the epilog runs: %s", got)
	}
}

func TestPrologSlurmctldFails(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.PrologSlurmctld = true })
	id, never := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{Requeue: pb.No})
	for _, id := range []uint32{id, never} {
		b.start(id, "n1")
		b.do(done(b.job(id), "no license"))
		b.ended(id, "n1", "cancelled", 0) // what a node says of a step that it has not
	}
	if j := b.job(id); j.State != pb.JobState_JOB_PENDING || j.Reason != "BeginTime" || j.Priority == 0 {
		t.Errorf("the job is not queued again, free: %v", j)
	}
	if j := b.job(never); j.State != pb.JobState_JOB_CANCELLED {
		t.Errorf("a job that may not be requeued: %v", j)
	}
}

// TestConfiguringJobsAreStopped: the end of an attempt also ends its wait for the prolog, and the end of the prolog then has no effect.
func TestConfiguringJobsAreStopped(t *testing.T) {
	for _, how := range []Command{Cancel{Caller: root, IDs: []string{"1"}}, Control{Caller: root, Verb: "requeue", IDs: []string{"1"}}} {
		b := newBench(t, func(s *state.Settings) { s.PrologSlurmctld = true })
		id := b.submit(&pb.JobSpec{})
		b.start(id, "n1")
		j := b.job(id)
		b.do(how)
		if Configuring(b.job(id)) {
			t.Errorf("%+v: still CONFIGURING", how)
		}
		b.trace = nil
		b.do(done(j, ""))
		b.expect()
		b.ended(id, "n1", "cancelled", 0)
		if state.Live(b.job(id)) {
			t.Errorf("%+v: it is not over", how)
		}
	}
}

// TestUnkillable drains the node once; the job goes on completing.
func TestUnkillable(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.do(Cancel{Caller: root, IDs: []string{"1"}})
	r := endReport(b.job(id), "", 0)
	r.Phase = pb.StepPhase_STEP_COMPLETING
	b.trace = nil
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{r}})
	b.expect("NodeChanged n1 drained", "JobChanged cannot be killed")
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{r}})
	b.expect()
	if n := b.view.Node("n1"); n.Reason != "Kill task failed" || !state.Live(b.job(id)) {
		t.Errorf("reason %q, live %v", n.Reason, state.Live(b.job(id)))
	}
}
