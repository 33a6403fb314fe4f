package reactor

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// step makes a step.
func (b *bench) step(job uint32, spec *pb.StepSpec) *pb.StepRecord {
	b.t.Helper()
	r := b.do(CreateStep{Caller: alice, Job: job, Spec: spec, Key: []byte("key"), Certificate: []byte("cert")})
	c, ok := r.(CreatedStep)
	if !ok || c.Step == nil {
		b.t.Fatal(r)
	}
	return c.Step
}

// stepEnds is the report of a node.
func (b *bench) stepEnds(s *pb.StepRecord, node string, x *pb.ExitRecord) {
	b.t.Helper()
	key := &pb.StepKey{JobId: s.JobId, Attempt: s.Attempt, Epoch: s.Epoch, Step: s.StepId}
	if x.EndNs == 0 {
		x.EndNs = b.now
	}
	b.do(StepReports{Node: node, Steps: []*pb.StepReport{{Key: key, Phase: pb.StepPhase_STEP_ENDED, Exit: x}}})
}

func (b *bench) stepState(s *pb.StepRecord) string {
	n := b.view.Steps(s.JobId).Get(s.StepId)
	if n == nil {
		return "none"
	}
	return n.State.String()[4:]
}

// both starts a job on both nodes, with four CPUs on each.
func (b *bench) both(spec *pb.JobSpec) uint32 {
	b.t.Helper()
	spec.MinNodes, spec.NumTasks = 2, 8
	id := b.submit(spec)
	j := b.view.Jobs.Get(id)
	p := PlannedStart{ID: id, Task: -1, Spec: j.Spec, Partition: "debug", LimitS: 1800, NodeList: "n[1-2]"}
	for _, n := range []string{"n1", "n2"} {
		p.Alloc = append(p.Alloc, &pb.NodeAlloc{Node: n, Cpus: 4, CpuIds: "0-3", MemMib: 400, Tasks: 4})
	}
	if a := b.do(ApplyPlan{Starts: []PlannedStart{p}}).(Applied); a.Started != 1 {
		b.t.Fatal(a)
	}
	b.trace = nil
	return id
}

func TestStepsOfAJob(t *testing.T) {
	b := newBench(t, nil)
	id := b.both(&pb.JobSpec{})
	one := b.step(id, &pb.StepSpec{NumTasks: 1, Exact: true})
	two := b.step(id, &pb.StepSpec{NumTasks: 2, Exact: true, ReqNodes: "n1"})
	if one.StepId != 0 || two.StepId != 1 || two.Nodes[0].CpuIds != "1-2" {
		t.Error(one, two)
	}
	if r := b.do(CreateStep{Caller: alice, Job: id, Spec: &pb.StepSpec{NumTasks: 8}}).(CreatedStep); r.Busy == nil {
		t.Error(r)
	}
	if p, ok := b.do(CreateStep{Caller: bob, Job: id, Spec: &pb.StepSpec{}}).(*pb.Problem); !ok || p.Code != uint32(pb.CodeAccessDenied) {
		t.Error(p)
	}
	b.stepEnds(one, "n2", &pb.ExitRecord{Verdict: "exited"}) // it is not there
	if b.stepState(one) != "RUNNING" {
		t.Error("a node ended a step that it has not")
	}
	b.stepEnds(one, "n1", &pb.ExitRecord{Verdict: "exited", WaitStatus: 3 << 8, Usage: &pb.StepUsage{MaxRssKib: 7}})
	got := b.view.Steps(id).Get(0)
	if got.State != pb.JobState_JOB_FAILED || got.ExitStatus != 3<<8 || got.Nodes[0].Usage.MaxRssKib != 7 || got.Key != nil {
		t.Error(got)
	}
	if j := b.job(id); j.DerivedStatus != 3<<8 || j.State != pb.JobState_JOB_RUNNING || state.AllocOn(j, "n1") == nil {
		t.Error(j)
	}
	b.do(Cancel{Caller: alice, IDs: []string{"1.1"}})
	if s := b.view.Steps(id).Get(1); s.StopReason != "cancel" || s.CancelledBy != alice.UID {
		t.Error(s)
	}
	b.stepEnds(two, "n1", &pb.ExitRecord{Verdict: "signaled", WaitStatus: 15, StoppedOnOrder: true})
	if b.stepState(two) != "CANCELLED" {
		t.Error(b.stepState(two))
	}
	all := b.step(id, &pb.StepSpec{NumTasks: 8})
	if len(all.Nodes) != 2 || all.NodeList != "n[1-2]" || all.AllocTres != "cpu=8,mem=800M,node=2" {
		t.Error(all)
	}
	b.stepEnds(all, "n1", &pb.ExitRecord{Verdict: "exited"})
	if b.stepState(all) != "RUNNING" {
		t.Error(b.stepState(all))
	}
	b.stepEnds(all, "n2", &pb.ExitRecord{Verdict: "oom"})
	if b.stepState(all) != "OUT_OF_MEMORY" {
		t.Error(b.stepState(all))
	}
}

func TestSameRequestIsTheSameStep(t *testing.T) {
	b := newBench(t, nil)
	id := b.both(&pb.JobSpec{})
	c := CreateStep{Caller: alice, Job: id, Spec: &pb.StepSpec{}, RequestID: "1000:x"}
	first, again := b.do(c).(CreatedStep), b.do(c).(CreatedStep)
	if first.Step.StepId != again.Step.StepId || b.view.Steps(id).Running != 1 {
		t.Error(first, again)
	}
}

// TestFirstStepGoesWithItsJob: a job that ends without having started keeps nothing of the request, which has srun's addresses.
func TestFirstStepGoesWithItsJob(t *testing.T) {
	b := newBench(t, nil)
	j, p := admit.Job(b.view, &pb.JobSpec{Uid: alice.UID, NumTasks: 1, Interactive: true}, "")
	if p != nil {
		t.Fatal(p)
	}
	j.FirstStep = &pb.FirstStep{RequestId: "1000:x", Spec: &pb.StepSpec{}}
	id := b.do(Submit{Job: j}).(Submitted).ID
	b.do(Cancel{Caller: alice, IDs: []string{"1"}})
	if got := b.job(id); got.State != pb.JobState_JOB_CANCELLED || got.FirstStep != nil {
		t.Errorf("%v with %v", got.State, got.FirstStep)
	}
}

// TestFirstStep: the start of a job makes the step for which it was submitted. Where that cannot be, or not yet, the job starts, and srun
// is told why when it asks for the step.
func TestFirstStep(t *testing.T) {
	for what, c := range map[string]struct {
		spec   *pb.StepSpec
		prolog bool
		want   pb.Code // of the answer to srun; 0: the step
	}{
		"it fits":         {&pb.StepSpec{NumTasks: 1}, false, 0},
		"PrologSlurmctld": {&pb.StepSpec{NumTasks: 1}, true, pb.CodePrologRunning},
		"it never fits":   {&pb.StepSpec{NumTasks: 1, ReqNodes: "n2"}, false, pb.CodeNodeConfig},
	} {
		b := newBench(t, func(s *state.Settings) { s.PrologSlurmctld = c.prolog })
		j, p := admit.Job(b.view, &pb.JobSpec{Uid: alice.UID, NumTasks: 1, Interactive: true}, "")
		if p != nil {
			t.Fatal(p)
		}
		j.FirstStep = &pb.FirstStep{RequestId: "1000:x", Spec: c.spec}
		id := b.do(Submit{Job: j}).(Submitted).ID
		b.start(id, "n1")
		made := b.view.Steps(id).Get(0)
		if j := b.job(id); j.State != pb.JobState_JOB_RUNNING || j.FirstStep != nil || (made != nil) != (c.want == 0) {
			t.Errorf("%s: after the start %v, %v", what, j, made)
		}
		var got *pb.Problem
		switch r := b.do(CreateStep{Caller: alice, Job: id, Spec: c.spec, RequestID: "1000:x"}).(type) {
		case *pb.Problem:
			got = r
		case CreatedStep:
			if got = r.Busy; r.Step != made {
				t.Errorf("%s: srun is answered with another step: %v", what, r.Step)
			}
		}
		if got.GetCode() != uint32(c.want) {
			t.Errorf("%s: srun is told %v", what, got)
		}
	}
}

// TestStepsEndWithTheirNode: a node that is declared DOWN takes its steps along, and what may be alive on it are strays.
func TestStepsEndWithTheirNode(t *testing.T) {
	b := newBench(t, nil)
	id := b.both(&pb.JobSpec{})
	s := b.step(id, &pb.StepSpec{NumTasks: 8})
	b.do(UpdateNode{Caller: root, Nodes: []string{"n2"}, Set: []*pb.KeyValue{{Key: "State", Value: "DOWN"}, {Key: "Reason", Value: "x"}}})
	got := b.view.Steps(id).Get(s.StepId)
	if got.Nodes[0].Ended || !got.Nodes[1].Ended || len(b.view.Node("n2").Strays) != 2 {
		t.Error(got, b.view.Node("n2").Strays)
	}
	b.stepEnds(s, "n1", &pb.ExitRecord{Verdict: "signaled", WaitStatus: 9, StoppedOnOrder: true})
	if b.stepState(s) != "NODE_FAIL" {
		t.Error(b.stepState(s))
	}
}

// TestRequeuedJobCountsStepsAnew: the steps of an attempt stay until the next begins, and are the outbox's then.
func TestRequeuedJobCountsStepsAnew(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	s := b.step(id, &pb.StepSpec{})
	b.do(Control{Caller: alice, Verb: "requeue", IDs: []string{"1"}})
	b.stepEnds(s, "n1", &pb.ExitRecord{Verdict: "signaled", WaitStatus: 15, StoppedOnOrder: true})
	b.ended(id, "n1", "cancelled", 15)
	if got := b.stepState(s); got != "CANCELLED" {
		t.Error(got)
	}
	b.now += 200e9
	b.start(id, "n1")
	if all := b.view.Steps(id); all != nil {
		t.Error(all)
	}
	if s := b.step(id, &pb.StepSpec{}); s.StepId != 0 || s.Attempt != 2 {
		t.Error(s)
	}
}

// TestHoldersTimeLimit: the extern step of an allocation has no process that could time out, and ends by itself at the limit.
func TestHoldersTimeLimit(t *testing.T) {
	b := newBench(t, nil)
	id := b.submit(&pb.JobSpec{Interactive: true})
	b.start(id, "n1")
	s := b.step(id, &pb.StepSpec{})
	b.stepEnds(s, "n1", &pb.ExitRecord{Verdict: "cancelled", WaitStatus: 15, StoppedOnOrder: true})
	b.ended(id, "n1", "exited", 0)
	if got := b.state(id); got != "TIMEOUT TimeLimit" {
		t.Error(got)
	}
}

func TestEndAllocation(t *testing.T) {
	b := newBench(t, nil)
	for _, c := range []struct {
		status uint32
		want   string
	}{{0, "COMPLETED None"}, {3 << 8, "FAILED NonZeroExitCode"}} {
		id := b.submit(&pb.JobSpec{Interactive: true})
		b.start(id, "n1")
		if p, ok := b.do(EndAllocation{Caller: bob, Job: id}).(*pb.Problem); !ok {
			t.Error(p)
		}
		b.do(EndAllocation{Caller: alice, Job: id, Status: c.status})
		b.ended(id, "n1", "cancelled", 0)
		if got := b.state(id); got != c.want || b.job(id).ExitStatus != c.status {
			t.Error(got, b.job(id).ExitStatus)
		}
	}
	late := b.submit(&pb.JobSpec{Interactive: true})
	b.start(late, "n1")
	b.now = b.job(late).EndNs
	b.do(EndAllocation{Caller: alice, Job: late, Status: 143 << 8})
	b.ended(late, "n1", "exited", 0)
	if got := b.state(late); got != "TIMEOUT TimeLimit" || b.job(late).ExitStatus != 0 {
		t.Error(got, b.job(late).ExitStatus)
	}
	batch := b.submit(&pb.JobSpec{})
	b.start(batch, "n1")
	if _, ok := b.do(EndAllocation{Caller: alice, Job: batch}).(*pb.Problem); !ok {
		t.Error("the allocation of a batch job was ended")
	}
}

// TestStepThatCopies: it runs beside all others, has no number of theirs, and how it ends does not count.
func TestStepThatCopies(t *testing.T) {
	b := newBench(t, nil)
	id := b.both(&pb.JobSpec{})
	all := b.step(id, &pb.StepSpec{NumTasks: 8})
	spec := &pb.StepSpec{NumTasks: 2, MinNodes: 2, MaxNodes: 2, NtasksPerNode: 1, Copy: true, NoGres: true, ReqNodes: "n[1-2]"}
	one, two := b.step(id, spec), b.step(id, spec)
	if one.StepId != pb.CopyStep || two.StepId != pb.CopyStep+1 || len(one.Nodes) != 2 || len(one.Nodes[0].Tasks) != 1 {
		t.Error(one, two)
	}
	b.do(Cancel{Caller: alice, IDs: []string{"1"}, Signal: 10})
	if s := b.view.Steps(id); len(s.Get(0).Signals) != 1 || len(s.Get(pb.CopyStep).Signals) != 0 {
		t.Error(s)
	}
	for _, n := range []string{"n1", "n2"} {
		b.stepEnds(one, n, &pb.ExitRecord{Verdict: "exited", WaitStatus: 17 << 8})
	}
	if j := b.job(id); b.stepState(one) != "FAILED" || j.DerivedStatus != 0 {
		t.Error(b.stepState(one), j.DerivedStatus)
	}
	for _, n := range []string{"n1", "n2"} {
		b.stepEnds(all, n, &pb.ExitRecord{Verdict: "exited"})
	}
	if next := b.step(id, &pb.StepSpec{NumTasks: 1}); next.StepId != 1 {
		t.Error(next)
	}
}

// TestCancelOfSteps: a refusal about a step of an existing job differs from one about a job that does not exist.
func TestCancelOfSteps(t *testing.T) {
	b := newBench(t, nil)
	id := b.both(&pb.JobSpec{Interactive: true})
	one := b.step(id, &pb.StepSpec{NumTasks: 1, Exact: true})
	for _, c := range []struct {
		cancel Cancel
		code   pb.Code // 0: it is done
		ofStep bool
	}{
		{Cancel{Caller: alice, IDs: []string{"1.7"}}, pb.CodeInvalidJobID, true},
		{Cancel{Caller: alice, IDs: []string{"9.0"}}, pb.CodeInvalidJobID, false},
		{Cancel{Caller: alice, IDs: []string{"1.7"}, Signal: 10}, 0, false},
		{Cancel{Caller: bob, IDs: []string{"1.0"}}, pb.CodeUserID, true},
		{Cancel{Caller: bob, IDs: []string{"1"}}, pb.CodeAccessDenied, false},
		{Cancel{Caller: alice, IDs: []string{"1"}, Signal: 9, Batch: true}, pb.CodeScriptMissing, false},
		{Cancel{Caller: alice, IDs: []string{"1.0"}, Signal: 9}, 0, false},
	} {
		o := b.do(c.cancel).(Outcomes).List[0]
		if o.GetProblem().GetCode() != uint32(c.code) || o.OfStep != c.ofStep {
			t.Errorf("%v by %d: %v", c.cancel.IDs, c.cancel.Caller.UID, o)
		}
	}
	s := b.view.Steps(id).Get(one.StepId)
	if s.StopReason != "" || len(s.Signals) != 1 || s.Signals[0].Signal != 9 {
		t.Errorf("-s KILL is a signal: %v", s)
	}
}
