package acct

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// step makes a step of a job; end ends it.
func (w *world) step(job uint32) *pb.StepRecord {
	w.t.Helper()
	r, ok := w.turn(reactor.CreateStep{Caller: reactor.Caller{Operator: true}, Job: job, Key: []byte("k"),
		Spec: &pb.StepSpec{Overlap: true, Addresses: []string{"h:1"}}})[0].(reactor.CreatedStep)
	if !ok || r.Step == nil {
		w.t.Fatal(r)
	}
	return r.Step
}

// copies makes a step that copies a file: it is not accounted.
func (w *world) copies(job uint32) {
	w.t.Helper()
	r, ok := w.turn(reactor.CreateStep{Caller: reactor.Caller{Operator: true}, Job: job, Key: []byte("k"),
		Spec: &pb.StepSpec{Copy: true, Addresses: []string{"h:1"}}})[0].(reactor.CreatedStep)
	if !ok || r.Step == nil {
		w.t.Fatal(r)
	}
	w.endStep(r.Step, 0)
}

func (w *world) endStep(s *pb.StepRecord, status uint32) {
	w.turn(reactor.StepReports{Node: "n1", Steps: []*pb.StepReport{{Key: &pb.StepKey{JobId: s.JobId, Attempt: s.Attempt, Epoch: s.Epoch,
		Step: s.StepId}, Phase: pb.StepPhase_STEP_ENDED,
		Exit: &pb.ExitRecord{Verdict: "exited", WaitStatus: status, EndNs: w.now.UnixNano()}}}})
}

// steps shows the steps that accounting returns for some attempts: "0 COMPLETED; 1 RUNNING".
func (w *world) steps(of ...JobAttempt) string {
	w.t.Helper()
	var out []string
	err := w.a.Steps(context.Background(), of, w.loop.View, func(b []byte) error {
		s := &pb.StepRecord{}
		if err := proto.Unmarshal(b, s); err != nil {
			return err
		}
		if len(s.Key) > 0 || len(s.Spec.Addresses) > 0 {
			w.t.Errorf("step %d has its key: %v", s.StepId, s)
		}
		out = append(out, fmt.Sprintf("%d.%d.%d %s", s.JobId, s.Attempt, s.StepId, strings.TrimPrefix(s.State.String(), "JOB_")))
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
	return strings.Join(out, "; ")
}

// TestStepsAreKept: steps are answered while they run, when they have ended, when their job has been requeued and forgotten, across
// crashes, stored or not.
func TestStepsAreKept(t *testing.T) {
	w := newWorld(t, t.TempDir())
	defer func() { w.a.shut() }()
	id := w.submit(1)
	w.begin(id)
	a := w.step(id)
	w.step(id)
	w.copies(id)
	w.endStep(a, 0)
	want := "1.1.0 COMPLETED; 1.1.1 RUNNING"
	if got := w.steps(JobAttempt{1, 1}); got != want {
		t.Error(got)
	}
	w.crash()
	if got := w.steps(JobAttempt{1, 1}); got != want {
		t.Error(got)
	}
	w.stored()
	w.turn(reactor.Control{Caller: reactor.Caller{Operator: true}, Verb: "requeue", IDs: []string{"1"}})
	w.end(id, 0)
	if got := w.steps(JobAttempt{1, 1}); got != "1.1.0 COMPLETED; 1.1.1 CANCELLED" {
		t.Error(got)
	}
	w.begin(id)
	w.step(id)
	if got := w.steps(JobAttempt{1, 1}, JobAttempt{1, 2}); got != "1.1.0 COMPLETED; 1.1.1 CANCELLED; 1.2.0 RUNNING" {
		t.Error(got)
	}
	w.crash()
	if got := w.steps(JobAttempt{1, 1}, JobAttempt{1, 2}); got != "1.1.0 COMPLETED; 1.1.1 CANCELLED; 1.2.0 RUNNING" {
		t.Error("after a crash: ", got)
	}
	w.stored()
	w.stored()
	if got := w.steps(JobAttempt{1, 1}, JobAttempt{1, 2}); got != "1.1.0 COMPLETED; 1.1.1 CANCELLED; 1.2.0 RUNNING" {
		t.Error("stored: ", got)
	}
	v, err := state.Load(config(), w.mem, "c", 1)
	if err != nil || len(v.StepOutbox) != 0 {
		t.Errorf("the outbox still has %v, %v", v.StepOutbox, err)
	}
}

// stored has all that waits stored.
func (w *world) stored() {
	w.t.Helper()
	for range 3 { // what is stored leaves the outbox, which is a change
		if err := w.a.store(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
}
