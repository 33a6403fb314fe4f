package reactor

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// restored has the state so far come from a backup.
func (b *bench) restored() {
	v := *b.view
	v.Lose(v.Seq, v.Seq+1000)
	v.Seq = v.Restored
	b.view = &v
}

// TestStrangers: attempts that a restored state does not know are killed before anything new starts on their node, and recorded as lost;
// ids of jobs go on above those that the node has had.
func TestStrangers(t *testing.T) {
	b := newBench(t, nil)
	known, waits := b.submit(&pb.JobSpec{}), b.submit(&pb.JobSpec{})
	b.start(known, "n1")
	b.restored()
	at := func(job, attempt uint32, epoch uint64, phase pb.StepPhase) *pb.StepReport {
		return &pb.StepReport{Key: &pb.StepKey{JobId: job, Attempt: attempt, Epoch: epoch, Step: pb.BatchStep}, Phase: phase}
	}
	const running = pb.StepPhase_STEP_RUNNING
	h := hello("n1", "boot1", at(known, 1, b.job(known).Epoch, running), at(waits, 1, 500, running), at(7, 1, 501, running))
	h.Hello.HighestJob = 40
	b.trace = nil
	b.do(h)
	b.do(h)
	b.expect("NodeChanged n1 registered", "JobChanged lost an attempt", "NodeChanged n1 "+state.WhatLost, "NodeChanged n1 registered")
	n := b.view.Node("n1")
	if len(n.Strays) != 2 || n.Strays[0].JobId != waits || n.Strays[1].JobId != 7 || n.Up() {
		t.Errorf("strays: %v", n.Strays)
	}
	if j := b.job(waits); j.State != pb.JobState_JOB_PENDING ||
		!strings.Contains(j.SystemComment, "attempt 1, on n1, was lost") {
		t.Error(j)
	}
	if id := b.submit(&pb.JobSpec{}); id != 41 {
		t.Errorf("the next job is %d", id)
	}
	gone := at(waits, 1, 500, pb.StepPhase_STEP_ENDED)
	gone.Exit = &pb.ExitRecord{Verdict: "cancelled"}
	other := at(7, 1, 501, pb.StepPhase_STEP_ENDED)
	other.Exit = gone.Exit
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{gone, other}})
	if n := b.view.Node("n1"); len(n.Strays) != 0 || !n.Up() {
		t.Errorf("strays: %v", n.Strays)
	}
	h.Hello.HighestJob = 4_000_000_000
	b.do(h)
	if b.view.NextJobID > 100 {
		t.Error("a node may use up all ids")
	}
}

// TestRestored: an attempt that a restored state shows as started waits until its node has said what became of it, also when that was
// rebooted since; one that is unknown there is requeued if it may be.
func TestRestored(t *testing.T) {
	for _, c := range []struct {
		requeue uint32
		verdict string
		want    string
	}{
		{pb.Yes, "exited", "COMPLETED"},
		{pb.Yes, "unknown", "PENDING"},
		{pb.No, "unknown", "NODE_FAIL"},
		{pb.Yes, "forgotten", "NODE_FAIL"},
	} {
		b := newBench(t, nil)
		id := b.submit(&pb.JobSpec{Requeue: c.requeue})
		b.start(id, "n1")
		b.restored()
		b.do(hello("n1", "boot2"))
		if s := b.state(id); !strings.HasPrefix(s, "RUNNING") {
			t.Errorf("before its node has said anything: %s", s)
		}
		b.ended(id, "n1", c.verdict, 0)
		if s := b.state(id); !strings.HasPrefix(s, c.want) {
			t.Errorf("%s, requeue=%d: %s", c.verdict, c.requeue, s)
		}
	}
}

// TestLostAttempts: a job that waits in a restored state and has run since is not started before all nodes have said what they ran, or an
// administrator that they are DOWN for good. Then it has the end of its last attempt, is requeued, or is NODE_FAIL.
func TestLostAttempts(t *testing.T) {
	lost := func(job uint32, verdict, why string, status uint32) *pb.StepReport {
		k := &pb.StepKey{JobId: job, Attempt: 1, Epoch: 500, Step: pb.BatchStep}
		return &pb.StepReport{Key: k, Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: verdict, WaitStatus: status,
			StopReason: why, StoppedOnOrder: why != "", StartNs: 5e9, EndNs: 9e9}}
	}
	for _, c := range []struct {
		verdict, why string
		status       uint32
		requeue      uint32
		want         string
	}{
		{"exited", "", 0, pb.Yes, "COMPLETED"},
		{"exited", "", 3 << 8, pb.No, "FAILED"},
		{"timeout", "", 15, pb.Yes, "TIMEOUT"},
		{"cancelled", "cancel", 15, pb.Yes, "CANCELLED"},
		{"cancelled", "requeue", 15, pb.Yes, "PENDING"},
		{"cancelled", "preempt", 15, pb.No, "PREEMPTED"},
		{"cancelled", "unknown", 9, pb.Yes, "PENDING"},
		{"cancelled", "unknown", 9, pb.No, "NODE_FAIL"},
	} {
		b := newBench(t, nil)
		id := b.submit(&pb.JobSpec{Requeue: c.requeue})
		b.restored()
		b.do(hello("n1", "boot1"))
		b.do(NodeHistory{"n1", &pb.NodeHistory{Restored: b.view.Restored - 1}})
		if got := b.view.Awaited(); len(got) != 2 {
			t.Errorf("%v are waited for: an answer to another restore counts", got)
		}
		b.do(NodeHistory{"n1", &pb.NodeHistory{Restored: b.view.Restored, Ended: []*pb.StepReport{lost(id, c.verdict, c.why, c.status)}}})
		b.do(Tick{})
		if r := b.start(id, "n1"); r.Started != 0 || !strings.HasPrefix(b.state(id), "PENDING") {
			t.Fatalf("%v: before n2 has told: %v, %s", c, r, b.state(id))
		}
		b.do(UpdateNode{Caller: Caller{Operator: true}, Nodes: []string{"n2"}, Set: []*pb.KeyValue{{Key: "State", Value: "DOWN"},
			{Key: "Reason", Value: "lost"}}})
		b.do(Tick{})
		j := b.job(id)
		if s := b.state(id); !strings.HasPrefix(s, c.want) || j.Attempt != 1 || j.Lost != nil {
			t.Errorf("%v: %s, %v", c, s, j)
		}
		if c.want == "FAILED" && (j.ExitStatus != c.status || j.StartNs != 5e9 || j.EndNs != 9e9 || j.NodeList != "n1") {
			t.Error(j)
		}
		if next := b.submit(&pb.JobSpec{}); b.start(next, "n1").Started != 1 {
			t.Error("a job of after the restore does not start")
		}
	}
}

// TestForgetfulNode: a node that does not remember all of the time that was taken back keeps jobs waiting until an administrator says that
// they may start, by a command that gives a reason.
func TestForgetfulNode(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.restored()
	after, _ := b.view.Untold(b.view.Node("n2"))
	b.do(hello("n1", "boot1"))
	b.do(hello("n2", "boot1"))
	resume := func(set ...*pb.KeyValue) any {
		return b.do(UpdateNode{Caller: Caller{Operator: true}, Nodes: []string{"n1"},
			Set: append(set, &pb.KeyValue{Key: "State", Value: "RESUME"})})
	}
	waits := func(when string, want ...string) {
		t.Helper()
		b.do(Tick{})
		if got := b.view.Awaited(); !slices.Equal(got, want) {
			t.Errorf("%s %v are waited for, want %v", when, got, want)
		}
		if r := b.start(id, "n1"); (r.Started == 1) != (len(want) == 0) {
			t.Errorf("%s: %v", when, r)
		}
	}
	history := func(node string, more bool, lost uint64) {
		b.do(NodeHistory{node, &pb.NodeHistory{Restored: b.view.Restored, More: more, LostUpTo: lost, LostUntilNs: 5}})
	}
	history("n2", true, 0)
	waits("after a part", "n1", "n2")
	history("n2", false, after)
	waits("after one that lost what the backup has", "n1")
	history("n1", false, after+1)
	waits("after one that is not whole", "n1")
	if ns := b.view.Node("n1").UntoldNs; ns != 5 {
		t.Errorf("what was before %d is not known", ns)
	}
	if _, refused := resume().(*pb.Problem); !refused {
		t.Error("a node at work was resumed without a reason")
	}
	waits("without a reason", "n1")
	if p, refused := resume(&pb.KeyValue{Key: "Reason", Value: "looked at"}).(*pb.Problem); refused {
		t.Error(p)
	}
	waits("after an administrator's word")
}

// TestLostOnSeveralNodes: a job has all nodes that tell of its lost attempt, the one with its script as BatchHost.
func TestLostOnSeveralNodes(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Requeue: pb.No})
	b.restored()
	for i, node := range []string{"n1", "n2", "n1"} {
		k := &pb.StepKey{JobId: id, Attempt: 1, Epoch: 500, Step: []uint32{pb.ExternStep, pb.BatchStep, pb.ExternStep}[i]}
		r := &pb.StepReport{Key: k, Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Verdict: "exited", EndNs: 9e9}}
		b.do(NodeHistory{node, &pb.NodeHistory{Restored: b.view.Restored, More: i == 0, Ended: []*pb.StepReport{r}}})
	}
	b.do(Tick{})
	j := b.job(id)
	if !strings.HasPrefix(b.state(id), "COMPLETED") || j.NodeList != "n[1-2]" || j.NumNodes != 2 || j.BatchHost != "n2" ||
		strings.Count(j.SystemComment, "was lost") != 1 || !strings.Contains(j.SystemComment, "attempt 1, on n[1-2], was lost") {
		t.Errorf("%s: %v", b.state(id), j)
	}
}

// TestLostTasks: a task of an array is known by array and index; others of the array start.
func TestLostTasks(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Array: "3,4"})
	b.restored()
	r := &pb.StepReport{Key: &pb.StepKey{JobId: 77, Attempt: 1, Epoch: 500, Step: pb.BatchStep}, Phase: pb.StepPhase_STEP_ENDED,
		Exit: &pb.ExitRecord{Verdict: "exited"}, Job: &pb.StepJob{ArrayJobId: id, ArrayTaskId: 3}}
	b.do(NodeHistory{"n1", &pb.NodeHistory{Restored: b.view.Restored, Ended: []*pb.StepReport{r}}})
	b.do(NodeHistory{"n2", &pb.NodeHistory{Restored: b.view.Restored}})
	b.do(Tick{})
	tx := state.Begin(b.view, b.now)
	if s := b.state(tx.OwnRecord(id, 3)); !strings.HasPrefix(s, "COMPLETED") {
		t.Error(s)
	}
	b.startTask(id, 4, "n1")
}

// TestLostJobs: of a job that the restored state does not know, accounting is told what each node knows.
func TestLostJobs(t *testing.T) {
	key := func(epoch uint64, step uint32) *pb.StepKey {
		return &pb.StepKey{JobId: 77, Attempt: 2, Epoch: epoch, Step: step}
	}
	exit := func(verdict, why string, status uint32) *pb.ExitRecord {
		return &pb.ExitRecord{Verdict: verdict, WaitStatus: status, StopReason: why, StoppedOnOrder: why != "", StartNs: 5e9, EndNs: 9e9}
	}
	for _, c := range []struct {
		key    *pb.StepKey
		exit   *pb.ExitRecord
		state  pb.JobState
		flags  uint32
		status uint32
		end    int64
	}{
		{key(500, pb.BatchStep), exit("exited", "", 0), pb.JobState_JOB_COMPLETED, 0, 0, 9e9},
		{key(500, pb.BatchStep), exit("exited", "", 3<<8), pb.JobState_JOB_FAILED, 0, 3 << 8, 9e9},
		{key(500, pb.BatchStep), exit("timeout", "", 15), pb.JobState_JOB_TIMEOUT, 0, 0, 9e9},
		{key(500, pb.BatchStep), exit("cancelled", "cancel", 15), pb.JobState_JOB_CANCELLED, 0, 15, 9e9},
		{key(500, pb.BatchStep), exit("cancelled", "requeue", 15), pb.JobState_JOB_RUNNING, pb.JobRequeued, 0, 9e9},
		{key(500, pb.BatchStep), exit("cancelled", "unknown", 9), pb.JobState_JOB_NODE_FAIL, 0, 0, 9e9},
		{key(500, pb.ExternStep), exit("cancelled", "done", 9), pb.JobState_JOB_NODE_FAIL, 0, 0, 9e9},
		{key(500, pb.BatchStep), nil, pb.JobState_JOB_NODE_FAIL, 0, 0, 0}, // it runs, and is killed now
	} {
		b := newBench(t, nil)
		b.restored()
		r := &pb.StepReport{Key: c.key, Phase: pb.StepPhase_STEP_RUNNING, StartNs: 5e9, Exit: c.exit, Job: &pb.StepJob{Uid: 1000,
			User: "ann", Name: "solve\n", Account: "chem", Partition: "long", NodeList: "n[1-2]", NumCpus: 8, Restarts: 1}}
		if c.exit != nil {
			r.Phase = pb.StepPhase_STEP_ENDED
		}
		tx := state.Begin(b.view, b.now)
		NodeHistory{"n1", &pb.NodeHistory{Restored: b.view.Restored, Ended: []*pb.StepReport{r}}}.Handle(tx)
		told, ok := tx.Events()[0].(state.AttemptLost)
		if !ok || told.Node != "n1" {
			t.Fatalf("%v: %v", c, tx.Events())
		}
		j, end := told.Job, c.end
		if end == 0 {
			end = b.now
		}
		if j.State != c.state || j.StateFlags != c.flags || j.ExitStatus != c.status || j.StartNs != 5e9 || j.EndNs != end ||
			j.EligibleNs != 5e9 || j.Id != 77 || j.Restarts != 1 || j.NodeList != "n[1-2]" || j.NumNodes != 2 || j.NumCpus != 8 ||
			j.Spec.User != "ann" || j.Spec.Account != "chem" || j.Partition != "long" || strings.Contains(j.Spec.Name, "\n") {
			t.Errorf("%v: %v", c, j)
		}
	}
}
