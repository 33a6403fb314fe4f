// Package agent decides what a node daemon must do: Reconcile compares the controller's orders with the steps on this node.
//
// It is pure (no clock, no goroutine, no I/O) and level-triggered: whatever was lost, repeated or reordered before, the next call
// returns the actions that are still missing. Whatever the controller sends, it guarantees:
//
//   - an attempt is started at most once in the life of a Desired, never when it is one of those that had ended here
//     before (Past), and never when an attempt of a newer epoch was ordered;
//   - an attempt starts only when no other attempt of its job is alive here;
//   - a step that a full list of orders does not name is killed; no end is forgotten before the controller says so;
//   - an order that cannot be carried out is answered with an end (Refuse), so that the controller never waits for ever;
//   - an srun step starts while its allocation's holder, the batch script or a placeholder for it, runs
//     here and is not being ended, and is ended with it.
package agent

import (
	"cmp"
	"fmt"
	"slices"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Key is a comparable StepKey.
type Key struct {
	Job, Attempt uint32
	Epoch        uint64
	Step         uint32
}

// KeyOf converts from the message.
func KeyOf(k *pb.StepKey) Key { return Key{k.GetJobId(), k.GetAttempt(), k.GetEpoch(), k.GetStep()} }

// Proto converts to the message.
func (k Key) Proto() *pb.StepKey {
	return &pb.StepKey{JobId: k.Job, Attempt: k.Attempt, Epoch: k.Epoch, Step: k.Step}
}

func (k Key) String() string { return fmt.Sprintf("%d.%d.%d", k.Job, k.Attempt, k.Step) }

// Compare orders keys by job, epoch, attempt and step.
func (k Key) Compare(b Key) int {
	return cmp.Or(cmp.Compare(k.Job, b.Job), cmp.Compare(k.Epoch, b.Epoch), cmp.Compare(k.Attempt, b.Attempt), cmp.Compare(k.Step, b.Step))
}

// Holder reports whether this step holds the allocation on the node, and is not an srun step.
func (k Key) Holder() bool { return k.Step >= pb.BatchStep }

// holder returns the allocation's holder among the given steps or orders, if there is one.
func holder[V any](k Key, among map[Key]V) (Key, V, bool) {
	for _, step := range []uint32{pb.BatchStep, pb.ExternStep} {
		h := Key{k.Job, k.Attempt, k.Epoch, step}
		if v, ok := among[h]; ok {
			return h, v, true
		}
	}
	var none V
	return Key{}, none, false
}

// State is the state of a step on this node, and the orders that it was given.
type State struct {
	Phase   pb.StepPhase
	Applied Applied
	// Limit is the end of the allocation of a step of srun, in seconds since the step began; 0: none.
	Limit uint32
}

// Applied records the orders passed to a step. The zero value, as after a restart of the daemon, makes Reconcile pass the order
// on once more; a shim that has heard it ignores it.
type Applied struct {
	Told      bool
	Want      pb.StepWant // WANT_STOP or WANT_KILL once told
	LimitS    uint32
	Suspended bool
	Signal    uint32 // highest Signal.seq
	Watcher   uint32 // highest StepWatcher.seq
}

func (s State) ended() bool { return s.Phase == pb.StepPhase_STEP_ENDED }

// Kind is a kind of action.
type Kind uint8

// Kinds of action, in the order in which Reconcile returns them.
const (
	Forget  Kind = iota // delete the exit record and everything else of the step
	Control             // pass Order on: stop, kill, signals, time limit, suspension
	Refuse              // report the step as ended with Verdict and Detail, without running anything
	Start               // launch Order.Launch
)

func (k Kind) String() string { return [...]string{"forget", "control", "refuse", "start"}[k] }

// Action is one thing to do for one step.
type Action struct {
	Kind    Kind
	Key     Key
	Order   *pb.StepOrder // Start, Control; Refuse: an order to stop a step that is not here
	Verdict string        // Refuse
	Detail  string        // Refuse; Control: the reason, if the controller did not order it
}

// Reconcile returns the missing actions, at most one per step, in a fixed order. An action that was carried out must show in the
// next actual: Start and Refuse as a step, Forget as one less, Control in Applied.
func Reconcile(d *Desired, actual map[Key]State) []Action {
	if !d.synced {
		return nil // before the first full list everything here continues
	}
	r := round{d: d, actual: actual}
	for k, s := range actual {
		r.existing(k, s)
	}
	for k, o := range d.orders {
		if _, here := actual[k]; !here {
			r.missing(k, o)
		}
	}
	// Only the actions are sorted: usually few, for many steps.
	slices.SortFunc(r.out, func(a, b Action) int {
		if a.Kind != b.Kind {
			return cmp.Compare(a.Kind, b.Kind)
		}
		return a.Key.Compare(b.Key)
	})
	return r.out
}

type round struct {
	d       *Desired
	actual  map[Key]State
	present map[uint32]int // steps per job; computed on first use
	out     []Action
}

func (r *round) add(a Action) { r.out = append(r.out, a) }

// existing decides about a step on this node.
func (r *round) existing(k Key, s State) {
	order, wanted := r.d.orders[k]
	switch {
	case s.ended():
		if wanted && order.Want == pb.StepWant_WANT_FORGET { // the reported end is now the controller's to keep
			r.add(Action{Kind: Forget, Key: k})
		}
	case !wanted:
		r.kill(k, s, "the controller does not know this step")
	case r.d.newest(k.Job) > k.Epoch:
		r.kill(k, s, "a newer attempt of the job was ordered")
	case order.Want == pb.StepWant_WANT_FORGET:
		r.kill(k, s, "the controller has recorded its end")
	default:
		if order.Want == pb.StepWant_WANT_TELL { // it is here, and continues
			order = withLaunch(order, nil)
			order.Want = pb.StepWant_WANT_RUN
		}
		if why := r.orphaned(k); why != "" && order.Want == pb.StepWant_WANT_RUN {
			r.stop(k, s, why)
			return
		}
		now := s.Applied.After(order)
		if order.Want == pb.StepWant_WANT_RUN {
			now.LimitS = Shorter(now.LimitS, s.Limit)
		}
		if now == s.Applied {
			return
		}
		if order.Want == pb.StepWant_WANT_RUN && now.LimitS != order.LimitS {
			order = withLaunch(order, nil)
			order.LimitS = now.LimitS
		}
		r.add(Action{Kind: Control, Key: k, Order: order})
	}
}

// Shorter returns the shorter of two time limits, of which 0 is none.
func Shorter(a, b uint32) uint32 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// orphaned returns why an srun step must end: its allocation ends here. The controller will order that, too, once it knows.
func (r *round) orphaned(k Key) string {
	if k.Holder() {
		return ""
	}
	h, s, here := holder(k, r.actual)
	order := r.d.orders[h]
	switch {
	case !here:
		return "its allocation is not here"
	case s.Applied.Want != pb.StepWant_WANT_NOTHING, order.GetWant() == pb.StepWant_WANT_STOP, order.GetWant() == pb.StepWant_WANT_KILL:
		if order.GetStopReason() != "" {
			return order.GetStopReason()
		}
		return pb.StopDone
	case s.Phase >= pb.StepPhase_STEP_COMPLETING:
		return pb.StopDone
	}
	return ""
}

// stop ends a step gently.
func (r *round) stop(k Key, s State, why string) {
	order := &pb.StepOrder{Key: k.Proto(), Want: pb.StepWant_WANT_STOP, StopReason: why}
	if s.Applied.After(order) != s.Applied {
		r.add(Action{Kind: Control, Key: k, Order: order})
	}
}

func (r *round) kill(k Key, s State, why string) {
	if s.Applied.Want == pb.StepWant_WANT_KILL {
		return
	}
	order := &pb.StepOrder{Key: k.Proto(), Want: pb.StepWant_WANT_KILL, StopReason: pb.StopUnknown}
	r.add(Action{Kind: Control, Key: k, Order: order, Detail: why})
}

// missing decides about an order for a step that is not here.
func (r *round) missing(k Key, o *pb.StepOrder) {
	switch o.Want {
	case pb.StepWant_WANT_RUN:
		r.run(k, o)
	case pb.StepWant_WANT_STOP, pb.StepWant_WANT_KILL:
		r.add(Action{Kind: Refuse, Key: k, Order: o, Verdict: pb.VerdictCancelled, Detail: "it was not running on this node"})
	case pb.StepWant_WANT_TELL:
		r.tell(k)
	}
}

// tell answers about a step that a restored controller believes to be here.
func (r *round) tell(k Key) {
	a := Action{Kind: Refuse, Key: k, Verdict: pb.VerdictUnknown,
		Detail: "the controller's state was restored from a backup, and this node has no record of what became of the job"}
	if !k.Holder() {
		a.Verdict, a.Detail = pb.VerdictLost,
			"the controller's state was restored from a backup, and this node has no record of what became of the step"
	}
	r.add(a)
}

func (r *round) run(k Key, o *pb.StepOrder) {
	refuse := func(verdict, format string, args ...any) {
		r.add(Action{Kind: Refuse, Key: k, Verdict: verdict, Detail: fmt.Sprintf(format, args...)})
	}
	newest := r.d.newest(k.Job)
	switch {
	case k.Epoch < newest:
		refuse(pb.VerdictLaunchFailed, "epoch %d is older than %d, which this node has seen for job %d", k.Epoch, newest, k.Job)
	case r.d.started[k]:
		refuse(pb.VerdictLost, "this attempt has run on this node already")
	case r.orphaned(k) != "" && !r.expected(k):
		refuse(pb.VerdictCancelled, "the allocation has ended on this node")
	case o.Launch == nil, r.blocked(k), !r.held(k):
		// Wait: for the launch, which comes in a message of its own if many are due, for the holder of the step's allocation, or
		// for other attempts, which are being killed.
	default:
		r.add(Action{Kind: Start, Key: k, Order: o})
	}
}

// expected reports whether the holder of a step's allocation is yet to start here.
func (r *round) expected(k Key) bool {
	h, o, ordered := holder(k, r.d.orders)
	_, here := r.actual[h]
	return ordered && !here && o.Want == pb.StepWant_WANT_RUN && !r.d.started[h]
}

// held reports whether the holder of a step's allocation runs.
func (r *round) held(k Key) bool {
	if k.Holder() {
		return true
	}
	_, s, here := holder(k, r.actual)
	return here && s.Phase == pb.StepPhase_STEP_RUNNING
}

// blocked reports whether a step must wait: another attempt of the job has not ended here, or the step's name (which has no
// epoch) is still in use. Steps of the same attempt may run side by side.
func (r *round) blocked(k Key) bool {
	if r.present == nil {
		r.present = make(map[uint32]int, len(r.actual))
		for k := range r.actual {
			r.present[k.Job]++
		}
	}
	if r.present[k.Job] == 0 {
		return false
	}
	for other, s := range r.actual {
		if other.Job != k.Job || other.Attempt == k.Attempt && other.Epoch == k.Epoch {
			continue
		}
		if !s.ended() || other.Attempt == k.Attempt && other.Step == k.Step {
			return true
		}
	}
	return false
}

// Launched returns Applied for a step that was just started from order.
func Launched(order *pb.StepOrder) Applied {
	return Applied{Told: true, LimitS: order.GetLaunch().GetLimitS()}
}

// After returns Applied once order was passed on. A stop can only get harder, and ends the time limit.
func (was Applied) After(order *pb.StepOrder) Applied {
	now := was
	now.Told = true
	switch want := order.GetWant(); want {
	case pb.StepWant_WANT_STOP, pb.StepWant_WANT_KILL:
		now.Want = max(was.Want, want)
	default:
		now.LimitS, now.Suspended = order.GetLimitS(), order.GetSuspended()
	}
	for _, s := range order.GetSignals() {
		now.Signal = max(now.Signal, s.GetSeq())
	}
	for _, w := range order.GetWatchers() {
		now.Watcher = max(now.Watcher, w.GetSeq())
	}
	return now
}
