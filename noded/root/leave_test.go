package root

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/noded/policy"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// lateSteps has taken a step long before it says so in a report, which never comes here.
type lateSteps struct {
	*noSteps
	taking chan bool // a value: a launch, or a failure, is under way
	taken  chan bool // closed: the step has been taken
	fails  []*pb.Bundle
}

func (s *lateSteps) Launch(ctx context.Context, b *pb.Bundle, script []byte) error {
	s.taking <- true
	<-s.taken
	return s.noSteps.Launch(ctx, b, script)
}

func (s *lateSteps) Fail(b *pb.Bundle, _ *pb.ExitRecord) error {
	s.taking <- true
	<-s.taken
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = append(s.fails, b)
	return nil
}

// TestLinkEndsDuringALaunch: the next noded-link is told of a step that was taken when the last one had gone.
func TestLinkEndsDuringALaunch(t *testing.T) {
	for _, c := range []struct {
		what    string
		request *nodepb.Request
		want    pb.StepPhase
	}{
		{"launch", but(func(*pb.Bundle) {}), pb.StepPhase_STEP_PREPARING},
		{"fail", failRequest("", key()), pb.StepPhase_STEP_ENDED},
	} {
		t.Run(c.what, func(t *testing.T) {
			steps := &lateSteps{noSteps: newNoSteps(), taking: make(chan bool), taken: make(chan bool)}
			r := newRoot(t, steps, policy.Policy{})
			conn, ended := serve(t, r)
			c.request.Id = 1
			give(t, conn, c.request)
			<-steps.taking
			conn.Close()
			close(steps.taken)
			<-ended
			if got := phases(t, r); !slices.Equal(got, []pb.StepPhase{c.want}) {
				t.Errorf("the next noded-link hears of %v, want %v", got, c.want)
			}
		})
	}
}

// phases are what a noded-link that comes now is told of the steps.
func phases(t *testing.T, r *Root) (all []pb.StepPhase) {
	t.Helper()
	conn, _ := serve(t, r)
	defer conn.Close()
	for _, k := range welcome(t, conn).Steps {
		all = append(all, k.Report.Phase)
	}
	return all
}

func welcome(t *testing.T, conn net.Conn) *nodepb.Welcome {
	t.Helper()
	return hear(t, bufio.NewReader(conn), func(w *nodepb.Word) bool { return w.GetWelcome() != nil }).GetWelcome()
}

// TestRequestsForALaunchedStep: no other request has a step forgotten whose launch is under way.
func TestRequestsForALaunchedStep(t *testing.T) {
	steps := &lateSteps{noSteps: newNoSteps(), taking: make(chan bool), taken: make(chan bool)}
	r := newRoot(t, steps, policy.Policy{})
	conn, ended := serve(t, r)
	o := but(func(*pb.Bundle) {})
	o.Id = 1
	give(t, conn, o)
	<-steps.taking
	o = prepareRequest(&pb.GresDevice{Name: "gpu", Id: "GPU-x"})
	o.Id = 2
	give(t, conn, o)
	if a := hear(t, bufio.NewReader(conn), isAnswer).GetAnswer(); a.Id != 2 || a.Error == "" {
		t.Fatalf("a device that is not here: %v", a)
	}
	conn.Close()
	close(steps.taken)
	<-ended
	if got := phases(t, r); !slices.Equal(got, []pb.StepPhase{pb.StepPhase_STEP_PREPARING}) {
		t.Errorf("the next noded-link hears of %v", got)
	}
}

// TestFailedStepIsBrief: a request to record a failure cannot have folders deleted, or anything kept that recording it does not need.
func TestFailedStepIsBrief(t *testing.T) {
	steps := &lateSteps{noSteps: newNoSteps(), taking: make(chan bool, 1), taken: make(chan bool)}
	close(steps.taken)
	r := newRoot(t, steps, policy.Policy{Strict: true, MinUID: 1000})
	conn, _ := serve(t, r)
	o := failRequest("", key())
	o.Id = 1
	o.GetFail().Bundle.Privacy = &pb.Privacy{Base: "/var"}
	o.GetFail().Bundle.Env = []string{"A=1"}
	give(t, conn, o)
	if a := hear(t, bufio.NewReader(conn), isAnswer).GetAnswer(); a.Error != "" {
		t.Fatal(a)
	}
	if b := steps.fails[0]; b.Privacy != nil || b.Env != nil {
		t.Errorf("it is recorded with %v", b)
	}
}

// TestUnkillableProgramRunsOnce: the second noded-link knows of the step only that it cannot be killed.
func TestUnkillableProgramRunsOnce(t *testing.T) {
	steps := newNoSteps()
	r := newRoot(t, steps, policy.Policy{})
	dir := t.TempDir()
	ran, program := filepath.Join(dir, "ran"), filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho x >>"+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn, ended := serve(t, r)
		in := bufio.NewReader(conn)
		give(t, conn, &nodepb.Request{What: &nodepb.Request_Settings{Settings: &pb.NodeSettings{UnkillableProgram: program}}})
		for _, o := range []*nodepb.Request{but(func(*pb.Bundle) {}),
			hookRequest(&nodepb.Hook{Kind: nodepb.HookKind_HOOK_UNKILLABLE, Key: key()})} {
			o.Id = 1
			give(t, conn, o)
			if a := hear(t, in, isAnswer).GetAnswer(); a.Error != "" {
				t.Fatal(a)
			}
		}
		conn.Close()
		<-ended
	}
	if b, err := os.ReadFile(ran); string(b) != "x\n" {
		t.Errorf("it left %q, %v; it is to run once", b, err)
	}
}
