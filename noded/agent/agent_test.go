package agent

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Short names for tables.
const (
	run     = pb.StepWant_WANT_RUN
	stop    = pb.StepWant_WANT_STOP
	kill    = pb.StepWant_WANT_KILL
	forget  = pb.StepWant_WANT_FORGET
	nothing = pb.StepWant_WANT_NOTHING

	running    = pb.StepPhase_STEP_RUNNING
	preparing  = pb.StepPhase_STEP_PREPARING
	completing = pb.StepPhase_STEP_COMPLETING
	ended      = pb.StepPhase_STEP_ENDED
)

// at names attempt a of a job; its epoch is ten times the attempt.
func at(job, a uint32) Key {
	return Key{Job: job, Attempt: a, Epoch: uint64(a) * 10, Step: pb.BatchStep}
}

func order(k Key, w pb.StepWant) *pb.StepOrder { return &pb.StepOrder{Key: k.Proto(), Want: w} }

func launch(k Key) *pb.StepOrder {
	return &pb.StepOrder{Key: k.Proto(), Want: run, LimitS: 99, Launch: &pb.LaunchSpec{Key: k.Proto(), LimitS: 99}}
}

func full(o ...*pb.StepOrder) *pb.NodeOrders  { return &pb.NodeOrders{Full: true, Steps: o} }
func delta(o ...*pb.StepOrder) *pb.NodeOrders { return &pb.NodeOrders{Steps: o} }

type states map[Key]State

// in is a step in a phase that has been told to run for 99 s, as its launch says.
func in(p pb.StepPhase) State { return State{Phase: p, Applied: Applied{Told: true, LimitS: 99}} }

// told is a step in a phase that has been told to end.
func told(p pb.StepPhase, w pb.StepWant) State {
	return State{Phase: p, Applied: Applied{Told: true, Want: w}}
}

func text(acts []Action) string {
	var s []string
	for _, a := range acts {
		t := fmt.Sprint(a.Kind, " ", a.Key.Job, ".", a.Key.Attempt)
		if a.Kind == Control {
			t += " " + strings.TrimPrefix(a.Order.Want.String(), "WANT_")
		}
		if a.Kind == Refuse {
			t += " " + a.Verdict
		}
		s = append(s, t)
	}
	return strings.Join(s, "; ")
}

func TestReconcile(t *testing.T) {
	sig := func(k Key, seq uint32) *pb.StepOrder {
		o := order(k, run)
		o.LimitS, o.Signals = 99, []*pb.Signal{{Seq: seq, Signal: 10}}
		return o
	}
	limited := func(k Key, s uint32) *pb.StepOrder { return &pb.StepOrder{Key: k.Proto(), Want: run, LimitS: s} }
	for _, c := range []struct {
		name   string
		orders []*pb.NodeOrders
		here   states
		want   string
	}{
		{"nothing is done before the first full list", []*pb.NodeOrders{delta(launch(at(1, 1)))}, states{at(2, 1): in(running)}, ""},
		{"start", []*pb.NodeOrders{full(launch(at(1, 1)), launch(at(2, 1)))}, nil, "start 1.1; start 2.1"},
		{"started already", []*pb.NodeOrders{full(launch(at(1, 1)))}, states{at(1, 1): in(preparing)}, ""},
		{"the launch follows in a later message", []*pb.NodeOrders{full(order(at(1, 1), run))}, nil, ""},
		{"and then it starts", []*pb.NodeOrders{full(order(at(1, 1), run)), delta(launch(at(1, 1)))}, nil, "start 1.1"},
		{"a change without launch keeps the launch", []*pb.NodeOrders{full(launch(at(1, 1))), delta(limited(at(1, 1), 99))}, nil,
			"start 1.1"},
		{"stop", []*pb.NodeOrders{full(order(at(1, 1), stop))}, states{at(1, 1): in(running)}, "control 1.1 STOP"},
		{"stop while the prolog runs", []*pb.NodeOrders{full(order(at(1, 1), stop))}, states{at(1, 1): in(preparing)}, "control 1.1 STOP"},
		{"stop told", []*pb.NodeOrders{full(order(at(1, 1), stop))}, states{at(1, 1): told(running, stop)}, ""},
		{"kill after stop", []*pb.NodeOrders{full(order(at(1, 1), stop)), delta(order(at(1, 1), kill))},
			states{at(1, 1): told(running, stop)}, "control 1.1 KILL"},
		{"no stop after kill", []*pb.NodeOrders{full(order(at(1, 1), stop))}, states{at(1, 1): told(running, kill)},
			""},
		{"stop of what never started", []*pb.NodeOrders{full(order(at(1, 1), stop))}, nil, "refuse 1.1 cancelled"},
		{"kill of what never started", []*pb.NodeOrders{full(launch(at(1, 1))), delta(order(at(1, 1), kill))}, nil, "refuse 1.1 cancelled"},
		{"ended, not yet recorded", []*pb.NodeOrders{full(order(at(1, 1), run))}, states{at(1, 1): in(ended)}, ""},
		{"ended and recorded", []*pb.NodeOrders{full(order(at(1, 1), forget))}, states{at(1, 1): in(ended)}, "forget 1.1"},
		{"ended, and not named: it has yet to be heard of", []*pb.NodeOrders{full()}, states{at(1, 1): in(ended)}, ""},
		{"forget what is not here", []*pb.NodeOrders{full(order(at(1, 1), forget))}, nil, ""},
		{"running and recorded", []*pb.NodeOrders{full(order(at(1, 1), forget))}, states{at(1, 1): in(running)}, "control 1.1 KILL"},
		{"unknown is killed", []*pb.NodeOrders{full()}, states{at(1, 1): in(running)}, "control 1.1 KILL"},
		{"once", []*pb.NodeOrders{full()}, states{at(1, 1): told(completing, kill)}, ""},
		{"a change says nothing of the others", []*pb.NodeOrders{full(order(at(2, 1), nothing)), delta(launch(at(1, 1)))},
			states{at(2, 1): {Phase: running, Applied: Applied{Told: true}}}, "start 1.1"},
		{"a newer attempt waits for the older one", []*pb.NodeOrders{full(launch(at(1, 2)))}, states{at(1, 1): in(running)},
			"control 1.1 KILL"},
		{"until it has ended", []*pb.NodeOrders{full(launch(at(1, 2)), order(at(1, 1), run))}, states{at(1, 1): in(ended)}, "start 1.2"},
		{"an older attempt still wanted is killed too", []*pb.NodeOrders{full(order(at(1, 1), run), launch(at(1, 2)))},
			states{at(1, 1): in(running)}, "control 1.1 KILL"},
		{"the same attempt of another epoch waits for the name",
			[]*pb.NodeOrders{full(func() *pb.StepOrder { k := at(1, 1); k.Epoch = 11; return launch(k) }())},
			states{at(1, 1): in(ended)}, ""},
		{"until the old one is forgotten",
			[]*pb.NodeOrders{full(order(at(1, 1), forget), func() *pb.StepOrder { k := at(1, 1); k.Epoch = 11; return launch(k) }())},
			states{at(1, 1): in(ended)}, "forget 1.1"},
		{"an older epoch is refused", []*pb.NodeOrders{full(launch(at(1, 2))), full(launch(at(1, 1)))}, nil, "refuse 1.1 launch_failed"},
		{"even when the newer one is gone", []*pb.NodeOrders{full(launch(at(1, 2))), full(), full(launch(at(1, 1)))}, nil,
			"refuse 1.1 launch_failed"},
		{"signals", []*pb.NodeOrders{full(sig(at(1, 1), 3))}, states{at(1, 1): in(running)}, "control 1.1 RUN"},
		{"signals told", []*pb.NodeOrders{full(sig(at(1, 1), 3))},
			states{at(1, 1): {Phase: running, Applied: Applied{Told: true, LimitS: 99, Signal: 3}}}, ""},
		{"a new time limit", []*pb.NodeOrders{full(limited(at(1, 1), 100))}, states{at(1, 1): in(running)}, "control 1.1 RUN"},
		{"no time limit any more", []*pb.NodeOrders{full(limited(at(1, 1), 0))}, states{at(1, 1): in(running)}, "control 1.1 RUN"},
		{"found after a restart: told once", []*pb.NodeOrders{full(limited(at(1, 1), 0))}, states{at(1, 1): {Phase: running}},
			"control 1.1 RUN"},
		{"two steps of an attempt side by side",
			[]*pb.NodeOrders{full(order(at(1, 1), nothing), func() *pb.StepOrder { k := at(1, 1); k.Step = 0; return launch(k) }())},
			states{at(1, 1): {Phase: running, Applied: Applied{Told: true}}}, "start 1.1"},
	} {
		d := NewDesired()
		for k := range c.here {
			d.Present(k)
		}
		for _, m := range c.orders {
			d.Apply(m)
		}
		if got := text(Reconcile(d, c.here)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAnAttemptThatRanIsNotStartedAgain(t *testing.T) {
	d := NewDesired()
	d.Apply(full(launch(at(1, 1))))
	d.Present(at(1, 1))
	d.Apply(delta(order(at(1, 1), forget)))
	d.Tidy(nil)
	if d.orders[at(1, 1)] != nil {
		t.Error("an order about nothing was kept")
	}
	d.Apply(delta(launch(at(1, 1)))) // doubled on the way
	if got := text(Reconcile(d, nil)); got != "refuse 1.1 lost" {
		t.Error(got)
	}
}

// TestTell: what a restored controller believes to have been started is never started again, whether or not a launch comes with it; what
// runs goes on.
func TestTell(t *testing.T) {
	const tell = pb.StepWant_WANT_TELL
	d := NewDesired()
	d.Past(at(3, 1))
	withLaunch := launch(at(2, 1))
	withLaunch.Want = tell
	step := Key{4, 1, 7, 0}
	d.Apply(full(order(at(1, 1), tell), withLaunch, launch(at(3, 1)), order(step, tell)))
	here := states{at(1, 1): {Phase: running, Applied: Applied{Told: true}}}
	if got := text(Reconcile(d, here)); got != "refuse 2.1 unknown; refuse 3.1 lost; refuse 4.1 lost" {
		t.Error(got)
	}
}

func TestLaunchIsLetGoOnceUsed(t *testing.T) {
	d := NewDesired()
	d.Apply(full(launch(at(1, 1))))
	d.Present(at(1, 1))
	if o := d.orders[at(1, 1)]; o.Launch != nil || o.LimitS != 99 || o.Want != run {
		t.Errorf("%v", o)
	}
}

func TestMemoryOfGoneStepsIsBounded(t *testing.T) {
	d := NewDesired()
	keep := at(1, 1)
	d.Apply(full(launch(keep)))
	d.Present(keep)
	for i := range uint32(3 * remembered) {
		k := at(i+2, 1)
		d.Apply(delta(launch(k)))
		d.Present(k)
		d.Apply(delta(order(k, forget)))
		d.Tidy(map[Key]State{keep: in(running)})
	}
	if n := len(d.started); n > remembered || len(d.epochs) > remembered || len(d.ring) > remembered || len(d.seen) != len(d.ring) {
		t.Errorf("%d started, %d epochs, %d in the ring", n, len(d.epochs), len(d.ring))
	}
	if !d.started[keep] || len(d.orders) != 1 {
		t.Error("a step that is ordered was let go, or orders pile up")
	}
}

func TestApplied(t *testing.T) {
	k := at(1, 1)
	was := Launched(launch(k))
	if was != (Applied{Told: true, LimitS: 99}) {
		t.Errorf("%+v", was)
	}
	o := order(k, stop)
	o.Signals = []*pb.Signal{{Seq: 2}, {Seq: 1}}
	now := was.After(o)
	if now != (Applied{Told: true, Want: stop, LimitS: 99, Signal: 2}) {
		t.Errorf("%+v", now)
	}
}

// TestForgetIsFinal: an order from before, delivered a second time, does not bring back what is to be forgotten.
func TestForgetIsFinal(t *testing.T) {
	d, k := NewDesired(), at(1, 1)
	d.Apply(full(order(k, stop)))
	d.Apply(delta(order(k, forget)))
	d.Apply(delta(order(k, stop)))
	if got := Reconcile(d, states{k: in(ended)}); len(got) != 1 || got[0].Kind != Forget {
		t.Errorf("got %v, want it forgotten", got)
	}
}

// A full list that comes right behind an order to forget, before the node has acted on it, does not take the order back: the controller
// has crossed the step off its list and says nothing of it again, and its spool would stay for ever.
func TestForgetOutlivesAFullList(t *testing.T) {
	k := at(1, 1)
	d := NewDesired()
	d.Apply(full(launch(k)))
	d.Present(k)
	d.Apply(delta(order(k, forget)))
	d.Apply(full())
	actual := states{k: in(ended)}
	if got := text(Reconcile(d, actual)); got != "forget 1.1" {
		t.Errorf("%q", got)
	}
	d.Tidy(states{})
	if d.orders[k] != nil {
		t.Error("the order outlives the step")
	}
}
