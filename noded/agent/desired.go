package agent

import (
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// remembered bounds the record of past steps: large enough that no order still under way can start one of them again.
const remembered = 16384

// Desired is what the controller wants of this node, assembled from full lists and changes.
type Desired struct {
	orders map[Key]*pb.StepOrder
	synced bool // a full list has arrived
	// epochs is the newest epoch seen per job, started the attempts that have been here. Both outlive the orders; ring, which
	// holds each of their keys once, bounds them.
	epochs  map[uint32]uint64
	started map[Key]bool
	seen    map[Key]bool
	ring    []Key
	next    int
	highest uint32
}

// NewDesired returns a Desired without orders, which changes nothing until the first full list.
func NewDesired() *Desired {
	return &Desired{orders: map[Key]*pb.StepOrder{}, epochs: map[uint32]uint64{}, started: map[Key]bool{}, seen: map[Key]bool{}}
}

// Apply applies a message of the controller. A full list replaces everything except orders to forget: the controller gives such
// an order once, when the end is durably recorded, and a full list right after it no longer names the step. A change replaces the
// orders for the steps that it names. An order without a launch description keeps the previous one.
func (d *Desired) Apply(m *pb.NodeOrders) {
	was := d.orders
	if m.GetFull() {
		d.orders, d.synced = make(map[Key]*pb.StepOrder, len(m.GetSteps())), true
		for k, o := range was {
			if o.Want == pb.StepWant_WANT_FORGET {
				d.orders[k] = o
			}
		}
	}
	for _, o := range m.GetSteps() {
		if o.GetKey() == nil {
			continue
		}
		k := KeyOf(o.Key)
		if old := d.orders[k]; old != nil && old.Want == pb.StepWant_WANT_FORGET && !m.GetFull() {
			continue // its end is recorded: a late order must not keep it here
		}
		if old := was[k]; o.Launch == nil && old != nil && old.Launch != nil {
			o = withLaunch(o, old.Launch)
		}
		d.orders[k] = o
		d.remember(k)
	}
}

// StepsLeft reports whether steps of the allocation that a key holds are ordered to run here, or are here and have not ended: its
// own end comes after theirs.
func (d *Desired) StepsLeft(h Key, actual func(Key) (pb.StepPhase, bool)) bool {
	for k, o := range d.orders {
		if k.Holder() || k.Job != h.Job || k.Attempt != h.Attempt || k.Epoch != h.Epoch {
			continue
		}
		phase, here := actual(k)
		if here && phase != pb.StepPhase_STEP_ENDED ||
			!here && (o.Want == pb.StepWant_WANT_RUN || o.Want == pb.StepWant_WANT_TELL) {
			return true
		}
	}
	return false
}

// withLaunch copies an order: messages are immutable once received.
func withLaunch(o *pb.StepOrder, l *pb.LaunchSpec) *pb.StepOrder {
	return &pb.StepOrder{Key: o.Key, Want: o.Want, Launch: l, Signals: o.Signals, StopReason: o.StopReason, Suspended: o.Suspended,
		LimitS: o.LimitS, Watchers: o.Watchers}
}

// Limit returns the time limit that the controller orders for a step, in seconds (0: none); false: it does not order it to run.
func (d *Desired) Limit(k Key) (limit uint32, ordered bool) {
	o := d.orders[k]
	if o.GetWant() != pb.StepWant_WANT_RUN && o.GetWant() != pb.StepWant_WANT_TELL {
		return 0, false
	}
	return o.GetLimitS(), true
}

// newest returns the newest epoch seen of a job.
func (d *Desired) newest(job uint32) uint64 { return d.epochs[job] }

// Highest returns the highest job id that this node was given.
func (d *Desired) Highest() uint32 { return d.highest }

// Present records a step on this node, started now or found at startup: it will not be started again, so its launch description,
// with script and environment, is dropped.
func (d *Desired) Present(k Key) {
	if o := d.orders[k]; o != nil && o.Launch != nil {
		d.orders[k] = withLaunch(o, nil)
	}
	d.started[k] = true
	d.remember(k)
}

// Past records an attempt that ended here before this Desired existed: it will not be started again.
func (d *Desired) Past(k Key) {
	d.started[k] = true
	d.remember(k)
}

// remember notes a key and its epoch. If there are too many, it drops the oldest key without orders.
func (d *Desired) remember(k Key) {
	d.epochs[k.Job] = max(d.epochs[k.Job], k.Epoch)
	d.highest = max(d.highest, k.Job)
	if d.seen[k] {
		return
	}
	d.seen[k] = true
	if len(d.ring) < remembered {
		d.ring = append(d.ring, k)
		return
	}
	for range len(d.ring) {
		old := &d.ring[d.next]
		d.next = (d.next + 1) % len(d.ring)
		if d.orders[*old] == nil {
			d.evict(*old)
			*old = k
			return
		}
	}
	d.ring = append(d.ring, k) // more current orders than remembered: they set the bound then
}

func (d *Desired) evict(k Key) {
	delete(d.seen, k)
	delete(d.started, k)
	if d.epochs[k.Job] == k.Epoch {
		delete(d.epochs, k.Job)
	}
}

// Tidy drops orders to forget steps that are not here (any more). Call it after a round of Reconcile.
func (d *Desired) Tidy(actual map[Key]State) {
	for k, o := range d.orders {
		if _, here := actual[k]; !here && (o.Want == pb.StepWant_WANT_FORGET || o.Want == pb.StepWant_WANT_NOTHING) {
			delete(d.orders, k)
		}
	}
}
