package rpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// allocation is a job of alice's that has all four CPUs of a node.
func (s *server) allocation(first ...*pb.FirstStep) uint32 {
	s.t.Helper()
	r := &pb.SubmitRequest{Spec: &pb.JobSpec{Name: "i", NumTasks: 4, WorkDir: "/", Interactive: true}}
	for _, f := range first {
		r.FirstStep = f
	}
	id := submit(s.t, s.as(alice, alice), r)
	s.command(reactor.NodeHello{Stream: 1, Hello: &pb.NodeHello{Node: "n1", BootId: "b",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}}})
	s.command(reactor.ApplyPlan{Starts: []reactor.PlannedStart{{ID: id, Task: -1, Spec: s.loop.View().Jobs.Get(id).Spec, Partition: "debug",
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 4, CpuIds: "0-3"}}, NodeList: "n1", LimitS: 600, Key: []byte("key")}}})
	return id
}

func (s *server) command(cmd reactor.Command) any {
	s.t.Helper()
	out, err := s.loop.Do(ctx, cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *server) endStep(r *pb.StepRecord) {
	s.command(reactor.StepReports{Node: "n1", Steps: []*pb.StepReport{{Phase: pb.StepPhase_STEP_ENDED,
		Exit: &pb.ExitRecord{Verdict: "exited"},
		Key:  &pb.StepKey{JobId: r.JobId, Attempt: r.Attempt, Epoch: r.Epoch, Step: r.StepId}}}})
}

func stepRequest(job uint32) *pb.CreateStepRequest {
	return &pb.CreateStepRequest{JobId: job, Spec: &pb.StepSpec{Name: "a\nb", Addresses: []string{"127.0.0.1:1"}}, RequestId: "r"}
}

// list returns the answer of Steps as text: "1.0 RUNNING".
func list(t *testing.T, c pb.ControllerAPIClient, r *pb.StepsRequest) string {
	t.Helper()
	stream, err := c.Steps(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return strings.Join(out, "; ")
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Steps {
			if len(s.Key)+len(s.Certificate)+len(s.Watchers) > 0 {
				t.Errorf("the key of step %d is shown", s.StepId)
			}
			out = append(out, fmt.Sprintf("%d.%d %s", s.JobId, s.StepId, strings.TrimPrefix(s.State.String(), "JOB_")))
		}
	}
}

func TestSteps(t *testing.T) {
	s := serve(t)
	id := s.allocation()
	owner, other := s.as(alice, alice), s.as(nobody, nobody)
	first, err := owner.CreateStep(ctx, stepRequest(id))
	if err != nil {
		t.Fatal(err)
	}
	if first.Step.Spec.Name != "a?b" || first.Job.GetId() != id || first.Busy != nil {
		t.Error(first)
	}
	speaks(t, first.Step)
	if again, err := owner.CreateStep(ctx, stepRequest(id)); err != nil || again.Step.StepId != 0 ||
		string(again.Step.Key) != string(first.Step.Key) {
		t.Error("the same request makes another step: ", again, err)
	}
	if _, err := other.CreateStep(ctx, stepRequest(id)); err == nil {
		t.Error("somebody else's job")
	}
	next := stepRequest(id)
	next.RequestId = "s"
	if r, err := owner.CreateStep(ctx, next); err != nil || r.Busy == nil || r.Step != nil {
		t.Error(r, err)
	}
	done := make(chan *pb.CreateStepReply, 1)
	next.WaitMs = 600_000
	go func() {
		r, err := owner.CreateStep(ctx, next)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	waited := make(chan *pb.WaitStepReply, 1)
	go func() {
		r, err := owner.WaitStep(ctx, &pb.WaitStepRequest{JobId: id})
		if err != nil {
			t.Error(err)
		}
		waited <- r
	}()
	s.endStep(first.Step)
	second := <-done
	if second.Step.GetStepId() != 1 {
		t.Error(second)
	}
	copies := stepRequest(id)
	copies.RequestId, copies.Spec.Copy = "c", true
	if r, err := owner.CreateStep(ctx, copies); err != nil || r.Step.GetStepId() != pb.CopyStep { // which is not listed
		t.Error(r, err)
	}
	if w := <-waited; w.Step.GetState() != pb.JobState_JOB_COMPLETED {
		t.Error(w)
	}
	for _, c := range []struct {
		r    *pb.StepsRequest
		want string
	}{
		{&pb.StepsRequest{}, "1.1 RUNNING"}, {&pb.StepsRequest{Ended: true}, "1.0 COMPLETED; 1.1 RUNNING"},
		{&pb.StepsRequest{Ids: []string{"1.0"}, Ended: true}, "1.0 COMPLETED"}, {&pb.StepsRequest{Ids: []string{"2"}, Ended: true}, ""},
		{&pb.StepsRequest{Ids: []string{"1"}}, "1.1 RUNNING"}, {&pb.StepsRequest{Filter: &pb.JobsRequest{Uids: []uint32{5}}}, ""},
	} {
		if got := list(t, other, c.r); got != c.want {
			t.Errorf("%v: %q", c.r, got)
		}
	}
	s.hide(Privacy{Jobs: true})
	if got := list(t, other, &pb.StepsRequest{Ended: true}); got != "" {
		t.Error("PrivateData=jobs: ", got)
	}
	if _, err := other.WaitStep(ctx, &pb.WaitStepRequest{JobId: id}); err == nil {
		t.Error("PrivateData=jobs: somebody else waits for a step")
	}
}

// Those who wait for steps do not keep their user from asking for anything else.
func TestManyWaitForSteps(t *testing.T) {
	s := serve(t)
	id := s.allocation()
	first, err := s.as(alice, alice).CreateStep(ctx, stepRequest(id))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range maxUserAnswers + 8 {
		c := s.as(alice, alice)
		wg.Go(func() {
			r := stepRequest(id)
			r.RequestId, r.WaitMs = fmt.Sprint("w", i), 600_000
			if i%2 == 0 {
				if w, err := c.WaitStep(ctx, &pb.WaitStepRequest{JobId: id}); err != nil || w.Step.State != pb.JobState_JOB_COMPLETED {
					t.Error(w, err)
				}
				return
			}
			made, err := c.CreateStep(ctx, r)
			if err != nil || made.Step == nil {
				t.Error(made, err)
				return
			}
			s.endStep(made.Step)
		})
	}
	for s.local.service.ActiveCalls() < maxUserAnswers+8 {
		time.Sleep(time.Millisecond)
	}
	if _, err := s.as(alice, alice).Ping(ctx, &pb.PingRequest{}); err != nil {
		t.Error(err)
	}
	s.endStep(first.Step)
	wg.Wait()
}

// speaks has both ends talk that know the certificate of a step.
func speaks(t *testing.T, s *pb.StepRecord) {
	t.Helper()
	conf, err := stepwire.Config(s.Certificate, s.Key)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	go func() {
		_, _ = tls.Server(a, conf).Write([]byte("x"))
		_ = a.Close()
	}()
	defer b.Close()
	if n, err := tls.Client(b, conf).Read(make([]byte, 1)); n != 1 {
		t.Error(err)
	}
}

func TestStepBounds(t *testing.T) {
	s := serve(t)
	id := s.allocation()
	owner := s.as(alice, alice)
	for what, change := range map[string]func(*pb.CreateStepRequest){
		"no address":     func(r *pb.CreateStepRequest) { r.Spec.Addresses = nil },
		"nine addresses": func(r *pb.CreateStepRequest) { r.Spec.Addresses = make([]string, 9) },
		"a long address": func(r *pb.CreateStepRequest) { r.Spec.Addresses = []string{strings.Repeat("x", 400)} },
		"a long line":    func(r *pb.CreateStepRequest) { r.Spec.SubmitLine = strings.Repeat("x", maxStepBytes) },
		"a long id":      func(r *pb.CreateStepRequest) { r.RequestId = strings.Repeat("x", 65) },
		"nothing":        func(r *pb.CreateStepRequest) { r.Spec = nil },
	} {
		r := stepRequest(id)
		change(r)
		if _, err := owner.CreateStep(ctx, r); err == nil {
			t.Error(what, " is taken")
		}
	}
}

// TestFirstStep: only the submitter of a job with a first step gets that step when the job has started.
func TestFirstStep(t *testing.T) {
	s := serve(t)
	want := stepRequest(0)
	want.JobId = s.allocation(&pb.FirstStep{RequestId: want.RequestId, Spec: want.Spec})
	owner := s.as(alice, alice)
	ask := func(c pb.ControllerAPIClient, request string) *pb.StepRecord {
		t.Helper()
		r, err := c.WaitAllocation(ctx, &pb.WaitAllocationRequest{JobId: want.JobId, WaitMs: 600_000, FirstStep: request})
		if err != nil {
			t.Fatal(err)
		}
		return r.Step
	}
	made := ask(owner, want.RequestId)
	if made == nil || made.Spec.Name != "a?b" || string(made.Key) != "key" {
		t.Fatal(made)
	}
	for who, c := range map[string]pb.ControllerAPIClient{"somebody else": s.as(nobody, nobody), "root": s.as(0, 0)} {
		if got := ask(c, want.RequestId); got != nil {
			t.Errorf("%s gets %v", who, got)
		}
	}
	for _, request := range []string{"", "other", made.RequestId} {
		if got := ask(owner, request); got != nil {
			t.Errorf("asking for %q gets %v", request, got)
		}
	}
	if r, err := owner.CreateStep(ctx, want); err != nil || r.Step.StepId != made.StepId {
		t.Error(r, err)
	}
	s.endStep(made)
	if got := ask(owner, want.RequestId); got != nil {
		t.Error("a step that has ended is handed out", got)
	}
}

// TestFirstStepThatIsRefused: its job is made, and srun is refused when it asks for the step.
func TestFirstStepThatIsRefused(t *testing.T) {
	s := serve(t)
	want := stepRequest(0)
	want.Spec.Addresses = nil
	want.JobId = s.allocation(&pb.FirstStep{RequestId: want.RequestId, Spec: want.Spec})
	owner := s.as(alice, alice)
	r, err := owner.WaitAllocation(ctx, &pb.WaitAllocationRequest{JobId: want.JobId, WaitMs: 600_000, FirstStep: want.RequestId})
	if err != nil || r.Job.State != pb.JobState_JOB_RUNNING || r.Step != nil {
		t.Error(r, err)
	}
	if _, err := owner.CreateStep(ctx, want); err == nil {
		t.Error("a step without addresses is made")
	}
}

func TestAllocationEnds(t *testing.T) {
	s := serve(t)
	id := s.allocation()
	owner := s.as(alice, alice)
	if r, err := owner.WaitAllocation(ctx, &pb.WaitAllocationRequest{JobId: id, WaitMs: 600_000}); err != nil || r.Job.NodeList != "n1" {
		t.Error(r, err)
	}
	held := submit(t, owner, &pb.SubmitRequest{Spec: &pb.JobSpec{Name: "h", NumTasks: 1, WorkDir: "/", Interactive: true, Hold: true}})
	if r, err := owner.WaitAllocation(ctx, &pb.WaitAllocationRequest{JobId: held, WaitMs: 1}); err != nil ||
		r.Job.State != pb.JobState_JOB_PENDING {
		t.Error(r, err)
	}
	if _, err := s.as(nobody, nobody).EndAllocation(ctx, &pb.EndAllocationRequest{JobId: id}); err == nil {
		t.Error("somebody else ended the allocation")
	}
	if _, err := owner.EndAllocation(ctx, &pb.EndAllocationRequest{JobId: id, ExitStatus: 3 << 8}); err != nil {
		t.Error(err)
	}
	if j := s.loop.View().Jobs.Get(id); j.State != pb.JobState_JOB_FAILED || j.ExitStatus != 3<<8 {
		t.Error(j)
	}
	if _, err := owner.CreateStep(ctx, stepRequest(id)); err == nil {
		t.Error("a step was made in an allocation that has ended")
	}
}
