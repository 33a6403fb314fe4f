package reactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestCauseOfLaunchFailure: why a job could not be launched stays with it, in accounting and in the controller's log.
func TestCauseOfLaunchFailure(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	j := b.job(id)
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: id, Attempt: j.Attempt, Epoch: j.Epoch,
		Step: pb.BatchStep},
		Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: "output_failed",
			Detail: "cannot open /nope/x: no such file or directory"}}}})
	j = b.job(id)
	const cause = "cannot open /nope/x: no such file or directory"
	if j.Reason != "JobLaunchFailure" || j.ReasonDetail != cause || j.SystemComment != cause {
		t.Errorf("reason %q, detail %q, system comment %q", j.Reason, j.ReasonDetail, j.SystemComment)
	}
	attrs := state.JobEnded{Job: j}.Attrs()
	if attrs[len(attrs)-1] != cause {
		t.Errorf("the log says %v", attrs)
	}
}

// unstarted reports that a node could not start a job; fault is the fault that the node found in itself.
func (b *bench) unstarted(id uint32, node, why, fault string) {
	b.t.Helper()
	j := b.job(id)
	b.do(StepReports{Node: node, Steps: []*pb.StepReport{{
		Key:   &pb.StepKey{JobId: id, Attempt: j.Attempt, Epoch: j.Epoch, Step: pb.BatchStep},
		Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: "node_failed", Detail: why, NodeFault: fault}}}})
}

func (b *bench) drained(node string) bool { return b.view.Node(node).StateFlags&pb.NodeDrain != 0 }

// TestNodeFaultIsNotTheJobs: a job that a node cannot start goes back into the queue, and a node that says what is wrong with it is
// drained, in words as Slurm's.
func TestNodeFaultIsNotTheJobs(t *testing.T) {
	b := newBench(t, nil)
	id, never := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{Requeue: pb.No})
	b.start(id, "n1")
	b.start(never, "n1")
	b.trace = nil
	b.unstarted(id, "n1", "cannot write: no space left on device", "SlurmdSpoolDir is full")
	b.expect("NodeChanged n1 drained", "JobLeftNode n1", "JobRequeued launch")
	j, n := b.job(id), b.view.Node("n1")
	if j.State != pb.JobState_JOB_PENDING || j.Reason != "BeginTime" || j.Priority == 0 || j.Restarts != 1 ||
		!strings.Contains(j.ReasonDetail, "n1") || !strings.Contains(j.ReasonDetail, "no space left") {
		t.Errorf("the job is %v", j)
	}
	if !b.drained("n1") || n.Reason != "SlurmdSpoolDir is full" || n.ReasonUser != "slurm" {
		t.Errorf("the node is %v", n.NodeRecord)
	}
	b.trace = nil
	b.unstarted(never, "n1", "cannot write: no space left on device", "SlurmdSpoolDir is full")
	b.expect("JobLeftNode n1", "JobEnded NODE_FAIL JobLaunchFailure")
	if j := b.job(never); j.FailedNode != "n1" || !strings.Contains(j.SystemComment, "no space left") {
		t.Errorf("a job that may not be requeued: %v", j)
	}
}

// TestUnstartableJobIsHeld: a job that no node can start is held after the third failure with Slurm's reason, drains no node, and can be
// released by its user.
func TestUnstartableJobIsHeld(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	for round := range 2 {
		for i, node := range []string{"n1", "n2", "n1"} {
			j := b.job(id)
			if j.Priority == 0 {
				t.Fatalf("held after %d times: %s", i, j.Reason)
			}
			b.now += 200e9
			b.start(id, node)
			b.unstarted(id, node, "it cannot", "")
		}
		j := b.job(id)
		if j.Priority != 0 || j.HoldAdmin || j.Reason != "launch_failed_requeued_held" ||
			!strings.Contains(j.ReasonDetail, "n1: it cannot") {
			t.Fatalf("round %d: after the third time: %v", round, j)
		}
		b.do(Control{Caller: alice, Verb: "release", IDs: []string{fmt.Sprint(id)}})
	}
	if b.drained("n1") || b.drained("n2") {
		t.Error("one job drained a node")
	}
}

// TestNodeThatStartsNothing: after three different jobs in a row a node is drained, with the cause; a job that it starts clears it, and so
// does scontrol update state=resume.
func TestNodeThatStartsNothing(t *testing.T) {
	b := newBench(t, nil)
	fail := func(times int) {
		t.Helper()
		for range times {
			if b.drained("n1") {
				t.Fatal("drained too early")
			}
			id := b.submit(&pb.JobSpec{})
			b.start(id, "n1")
			b.unstarted(id, "n1", "the device does not answer", "")
		}
	}
	fail(2)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.ended(id, "n1", "exited", 0)
	if len(b.view.Node("n1").LaunchFailures) != 0 {
		t.Errorf("a job was started: %v", b.view.Node("n1").LaunchFailures)
	}
	old := b.submit(&pb.JobSpec{})
	b.start(old, "n1")
	fail(2)
	b.ended(old, "n1", "exited", 0) // it has been there all the time, and says nothing of what the node can start now
	fail(1)
	want := "batch job complete failure (3 jobs in a row: the device does not answer)"
	if n := b.view.Node("n1"); !b.drained("n1") || n.Reason != want {
		t.Fatalf("drained %v, reason %q", b.drained("n1"), n.Reason)
	}
	b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "RESUME"}}})
	fail(3)
}

// TestHeartbeatOfAFaultyNode: a node that says that it cannot start jobs is drained before it is given one; resumed too early, it is
// drained again; a drain of the administrator's keeps its reason.
func TestHeartbeatOfAFaultyNode(t *testing.T) {
	b := newBench(t, nil)
	beat := func(fault string) { b.do(NodeBeats{Beats: map[string]*pb.Heartbeat{"n1": {Fault: fault}}}) }
	beat("")
	if b.drained("n1") {
		t.Fatal("drained without a fault")
	}
	for range 2 {
		beat("SlurmdSpoolDir is full")
		if !b.drained("n1") || b.view.Node("n1").Reason != "SlurmdSpoolDir is full" {
			t.Fatalf("the node is %v", b.view.Node("n1").NodeRecord)
		}
		b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "RESUME"}}})
	}
	b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "DRAIN"},
		{Key: "Reason", Value: "mine"}}})
	beat("SlurmdSpoolDir is full")
	if r := b.view.Node("n1").Reason; r != "mine" {
		t.Errorf("the administrator's reason has become %q", r)
	}
}
