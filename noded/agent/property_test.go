package agent

import (
	"fmt"
	"slices"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"pgregory.net/rapid"
)

// world is one controller, one node and the wire between them, which loses, doubles and delays.
type world struct {
	t *rapid.T
	// controller
	attempts map[uint32]uint32    // newest attempt per job
	wants    map[Key]pb.StepWant  // run or stop, of attempts not recorded as ended
	record   map[Key]string       // how attempts ended, as committed
	reported map[Key]pb.StepPhase // what the node has said
	wire     []*pb.NodeOrders     // sent, not delivered
	old      []*pb.NodeOrders     // delivered in this life of the daemon
	// node
	told   map[uint32]uint64 // newest epoch ordered in this life of the daemon
	d      *Desired
	actual map[Key]State
	ran    map[Key]int // times an attempt was really started, over all lives
	ends   map[Key]string
	made   map[Key]uint32 // steps, by attempt
}

func (w *world) newest(job uint32) Key { return at(job, w.attempts[job]) }

// stepsOf are the steps of an attempt among those that are wanted.
func (w *world) stepsOf(h Key) (steps []Key) {
	for _, k := range sorted(w.wants) {
		if !k.Holder() && k.Job == h.Job && k.Attempt == h.Attempt {
			steps = append(steps, k)
		}
	}
	return steps
}

// left: the node does not tell the end of an allocation before those of its steps.
func (w *world) left(h Key) bool {
	for k, s := range w.actual {
		if !k.Holder() && k.Job == h.Job && k.Attempt == h.Attempt && !s.ended() {
			return true
		}
	}
	return w.d.StepsLeft(h, func(k Key) (pb.StepPhase, bool) {
		s, here := w.actual[k]
		return s.Phase, here
	})
}

func (w *world) fullList() *pb.NodeOrders {
	m := full()
	for k, want := range w.wants {
		o := order(k, want)
		if _, has := w.reported[k]; !has && want == run {
			o = launch(k)
		}
		m.Steps = append(m.Steps, o)
	}
	return w.withForgets(m)
}

func (w *world) withForgets(m *pb.NodeOrders) *pb.NodeOrders {
	for k, p := range w.reported {
		if _, wanted := w.wants[k]; wanted {
			continue
		}
		if p == ended {
			m.Steps = append(m.Steps, order(k, forget))
			delete(w.reported, k)
		} else {
			m.Steps = append(m.Steps, order(k, kill))
		}
	}
	return m
}

// hello: the node says everything, the controller forgets what it heard before and answers in full.
func (w *world) hello() {
	w.wire, w.reported = nil, map[Key]pb.StepPhase{}
	for k, s := range w.actual {
		w.hear(k, s.Phase)
	}
	w.wire = append(w.wire, w.fullList())
}

// hear is a report reaching the controller: an end is recorded once, and only of a wanted attempt.
func (w *world) hear(k Key, p pb.StepPhase) {
	w.reported[k] = p
	if _, wanted := w.wants[k]; wanted && p == ended {
		if k.Holder() {
			for _, s := range w.stepsOf(k) {
				if !w.actual[s].ended() && w.d.orders[s] != nil && w.d.orders[s].Want == run {
					w.t.Fatalf("the end of %v is told before that of %v", k, s)
				}
				delete(w.wants, s) // it ends with its job
			}
		}
		delete(w.wants, k)
		w.record[k] = w.ends[k]
	}
}

func (w *world) deliver(m *pb.NodeOrders) {
	for _, o := range m.Steps {
		w.told[o.Key.JobId] = max(w.told[o.Key.JobId], o.Key.Epoch)
	}
	w.d.Apply(m)
	w.old = append(w.old, m)
	w.reconcile()
}

// reconcile carries everything out and checks what must hold at any time.
func (w *world) reconcile() int {
	acts := Reconcile(w.d, w.actual)
	for _, a := range acts {
		s := w.actual[a.Key]
		switch a.Kind {
		case Start:
			for k, s := range w.actual {
				if k.Job == a.Key.Job && k.Attempt != a.Key.Attempt && !s.ended() {
					w.t.Fatalf("%v starts while %v is %v", a.Key, k, s.Phase)
				}
			}
			if a.Key.Epoch < w.told[a.Key.Job] {
				w.t.Fatalf("%v starts after epoch %d was ordered", a.Key, w.told[a.Key.Job])
			}
			if a.Order.Launch == nil {
				w.t.Fatalf("%v starts without a description", a.Key)
			}
			if h, s, here := holder(a.Key, w.actual); !a.Key.Holder() && (!here || s.Phase != running || s.Applied.Want != nothing) {
				w.t.Fatalf("%v starts while %v is %v", a.Key, h, s)
			}
			w.ran[a.Key]++
			w.actual[a.Key] = State{Phase: preparing, Applied: Launched(a.Order)}
			w.d.Present(a.Key)
		case Refuse:
			w.actual[a.Key] = State{Phase: ended}
			w.ends[a.Key] = "refused"
			w.d.Present(a.Key)
		case Control:
			s.Applied = s.Applied.After(a.Order)
			w.actual[a.Key] = s
		case Forget:
			if !s.ended() {
				w.t.Fatalf("%v is forgotten while %v", a.Key, s.Phase)
			}
			delete(w.actual, a.Key)
		}
	}
	w.d.Tidy(w.actual)
	return len(acts)
}

// step lets an attempt move on by itself: a phase further, or to its end.
func (w *world) step(k Key) {
	s := w.actual[k]
	switch {
	case s.ended():
		return
	case k.Holder() && s.Phase != preparing && w.left(k):
		s.Phase = pb.StepPhase_STEP_COMPLETING
	case s.Applied.Want != nothing:
		s.Phase, w.ends[k] = ended, "stopped"
	case s.Phase == preparing:
		s.Phase = running
	default:
		s.Phase, w.ends[k] = ended, "exited"
	}
	w.actual[k] = s
}

func anyKey[V any](t *rapid.T, m map[Key]V) (Key, bool) {
	if len(m) == 0 {
		return Key{}, false
	}
	return rapid.SampledFrom(sorted(m)).Draw(t, "key"), true
}

func TestAnyHistoryConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, attempts: map[uint32]uint32{}, wants: map[Key]pb.StepWant{}, record: map[Key]string{},
			reported: map[Key]pb.StepPhase{},
			told:     map[uint32]uint64{}, d: NewDesired(), actual: map[Key]State{}, ran: map[Key]int{}, ends: map[Key]string{},
			made: map[Key]uint32{}}
		job := func() uint32 { return rapid.Uint32Range(1, 4).Draw(t, "job") }
		t.Repeat(map[string]func(*rapid.T){
			"submit or requeue": func(t *rapid.T) {
				j := job()
				if _, live := w.wants[w.newest(j)]; live {
					return
				}
				w.attempts[j]++
				k := w.newest(j)
				w.wants[k] = run
				w.wire = append(w.wire, delta(launch(k)))
			},
			"srun": func(t *rapid.T) {
				h := w.newest(job())
				if w.wants[h] != run || w.made[h] >= 3 {
					return
				}
				k := h
				k.Step = w.made[h]
				w.made[h]++
				w.wants[k] = run
				w.wire = append(w.wire, delta(launch(k)))
			},
			"cancel": func(t *rapid.T) {
				if k := w.newest(job()); w.wants[k] == run {
					w.wants[k] = stop
					m := delta(order(k, stop))
					for _, s := range w.stepsOf(k) {
						w.wants[s] = stop
						m.Steps = append(m.Steps, order(s, stop))
					}
					w.wire = append(w.wire, m)
				}
			},
			"give up": func(t *rapid.T) { // SlurmdTimeout: the controller lets the attempt go without having heard of it
				h := w.newest(job())
				for _, s := range w.stepsOf(h) {
					delete(w.wants, s)
				}
				delete(w.wants, h)
			},
			"deliver": func(t *rapid.T) {
				if len(w.wire) > 0 {
					m := w.wire[0]
					w.wire = w.wire[1:]
					w.deliver(m)
				}
			},
			"lose":   func(t *rapid.T) { w.hello() },
			"resend": func(t *rapid.T) { w.wire = append(w.wire, w.fullList()) },
			"an old message comes again": func(t *rapid.T) {
				if len(w.old) > 0 {
					w.deliver(rapid.SampledFrom(w.old).Draw(t, "old"))
				}
			},
			"restart": func(t *rapid.T) {
				w.d, w.old, w.told = NewDesired(), nil, map[uint32]uint64{}
				for k, s := range w.actual {
					s.Applied = Applied{}
					if s.Phase == preparing { // its prolog died with the daemon: nothing of it has run
						delete(w.actual, k)
						w.ran[k]--
						continue
					}
					w.actual[k] = s
					w.d.Present(k)
				}
				w.hello()
			},
			"go on": func(t *rapid.T) {
				if k, ok := anyKey(t, w.actual); ok {
					w.step(k)
				}
			},
			"report": func(t *rapid.T) {
				if k, ok := anyKey(t, w.actual); ok {
					w.hear(k, w.actual[k].Phase)
					w.wire = append(w.wire, w.withForgets(delta()))
				}
			},
			"": func(t *rapid.T) { w.check() },
		})
		w.settle()
	})
}

func (w *world) check() {
	alive := map[uint32]Key{}
	for k, s := range w.actual {
		if s.ended() || !k.Holder() {
			continue
		}
		if other, two := alive[k.Job]; two {
			w.t.Fatalf("%v and %v are alive at the same time", k, other)
		}
		alive[k.Job] = k
	}
	for k, n := range w.ran {
		if n > 1 {
			w.t.Fatalf("%v was started %d times", k, n)
		}
	}
}

// settle: from now on the wire is kind and jobs end. Then everything wanted has run or was refused, and nothing is left here.
func (w *world) settle() {
	w.hello()
	for round := 0; ; round++ {
		if round > 100 {
			w.t.Fatalf("no end after %d rounds: wants %v, here %v", round, w.wants, w.actual)
		}
		for _, m := range w.wire {
			w.deliver(m)
			w.check()
		}
		w.wire = nil
		for w.reconcile() > 0 {
			w.check()
		}
		for _, k := range sorted(w.actual) {
			w.step(k)
			w.hear(k, w.actual[k].Phase)
		}
		w.wire = append(w.wire, w.fullList())
		if len(w.wants) == 0 && len(w.actual) == 0 {
			break
		}
	}
	for k, how := range w.record {
		if how == "" {
			w.t.Fatalf("%v was recorded as ended and never was: %s", k, fmt.Sprint(w.record))
		}
	}
}

func sorted[V any](m map[Key]V) []Key {
	keys := make([]Key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}
