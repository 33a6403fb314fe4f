package noded

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// fakeSteps stands for shims that outlive the daemon: tests end their steps, daemons come and go.
type fakeSteps struct {
	t      testing.TB
	mu     sync.Mutex
	forgot *sync.Cond // of mu
	// these are what lies in the spool and in the shims
	steps    map[agent.Key]*fakeStep
	launches map[agent.Key]int
	orders   []*pb.StepOrder
	out      chan *pb.StepReport
	closed   bool
	// faults
	failLaunch, failControl int
	fault                   string        // what is found when a launch has failed
	hang                    chan struct{} // while it is not nil and open, nothing is found
}

type fakeStep struct {
	bundle *pb.Bundle
	script []byte
	rep    *pb.StepReport
}

func newFakeSteps(t testing.TB) *fakeSteps {
	f := &fakeSteps{t: t, steps: map[agent.Key]*fakeStep{}, launches: map[agent.Key]int{}}
	f.forgot = sync.NewCond(&f.mu)
	return f
}

// Ready and Fault: nothing is wrong with a node that has no spool.
func (f *fakeSteps) Ready() string { return "" }

func (f *fakeSteps) Fault(context.Context, bool) string {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

// Adopt: there are no processes.
func (f *fakeSteps) Adopt(context.Context, *pb.StepKey, int) error { return errFake }

var errFake = errors.New("no shim to be had")

// Recover begins a life of the daemon.
func (f *fakeSteps) Recover(context.Context) (out []*pb.StepReport, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out, f.closed = make(chan *pb.StepReport, 1000), false
	for _, s := range f.steps {
		out = append(out, s.rep)
	}
	return out, nil
}

func (f *fakeSteps) Launch(_ context.Context, b *pb.Bundle, script []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failLaunch > 0 {
		f.failLaunch--
		return errFake
	}
	k := agent.KeyOf(b.Key)
	f.launches[k]++
	f.steps[k] = &fakeStep{bundle: b, script: script}
	f.report(k, &pb.StepReport{Key: b.Key, Phase: pb.StepPhase_STEP_RUNNING, Pid: 7})
	return nil
}

func (f *fakeSteps) report(k agent.Key, rep *pb.StepReport) {
	f.steps[k].rep = rep
	if !f.closed {
		f.out <- rep
	}
}

func (f *fakeSteps) Fail(b *pb.Bundle, x *pb.ExitRecord) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := agent.KeyOf(b.Key)
	if f.steps[k] != nil {
		return errors.New("known already")
	}
	f.steps[k] = &fakeStep{bundle: b}
	f.report(k, &pb.StepReport{Key: b.Key, Phase: pb.StepPhase_STEP_ENDED, Exit: x})
	return nil
}

func (f *fakeSteps) Control(_ context.Context, o *pb.StepOrder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failControl > 0 {
		f.failControl--
		return errFake
	}
	f.orders = append(f.orders, o)
	k := agent.KeyOf(o.Key)
	s := f.steps[k]
	if s == nil || s.rep.Phase == pb.StepPhase_STEP_ENDED {
		return nil
	}
	if o.Want == pb.StepWant_WANT_STOP || o.Want == pb.StepWant_WANT_KILL {
		f.report(k, &pb.StepReport{Key: o.Key, Phase: pb.StepPhase_STEP_ENDED,
			Exit: &pb.ExitRecord{Key: o.Key, Verdict: "cancelled", WaitStatus: 15, StoppedOnOrder: true}})
		return nil
	}
	rep := &pb.StepReport{Key: o.Key, Phase: s.rep.Phase, SignalsSeen: s.rep.SignalsSeen}
	for _, sig := range o.Signals {
		rep.SignalsSeen = max(rep.SignalsSeen, sig.Seq)
	}
	f.report(k, rep)
	return nil
}

// exit ends a step as its script would.
func (f *fakeSteps) exit(k agent.Key, status uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report(k, &pb.StepReport{Key: k.Proto(), Phase: pb.StepPhase_STEP_ENDED,
		Exit: &pb.ExitRecord{Key: k.Proto(), Verdict: "exited", WaitStatus: status}})
}

func (f *fakeSteps) Forget(key *pb.StepKey) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := agent.KeyOf(key)
	if s := f.steps[k]; s != nil && s.rep.Phase != pb.StepPhase_STEP_ENDED {
		return errors.New("it has not ended")
	}
	delete(f.steps, k)
	f.forgot.Broadcast()
	return nil
}

func (f *fakeSteps) Bundle(key *pb.StepKey) (*pb.Bundle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.steps[agent.KeyOf(key)]; s != nil {
		return s.bundle, nil
	}
	return nil, errors.New("not here")
}

func (f *fakeSteps) Reports() <-chan *pb.StepReport { return f.out }

func (f *fakeSteps) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// count is how many steps the spool holds, and how often one was launched.
func (f *fakeSteps) count(k agent.Key) (left, launches int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.steps), f.launches[k]
}
