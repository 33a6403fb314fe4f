package agent

import (
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// remembered bounds what is kept about steps that are gone: enough that no order still under way can start one of them again.
const remembered = 16384

// Desired is what the controller wants of this node, as put together from full lists and changes.
type Desired struct {
	orders map[Key]*pb.StepOrder
	synced bool // a full list has come
	// epochs is the newest epoch seen per job, started which attempts have been here. Both outlive the orders; ring, which holds
	// every key that they speak of once, bounds them.
	epochs  map[uint32]uint64
	started map[Key]bool
	seen    map[Key]bool
	ring    []Key
	next    int
	highest uint32
}

// NewDesired gives one that wants nothing and, until the first full list, lets everything be.
func NewDesired() *Desired {
	return &Desired{orders: map[Key]*pb.StepOrder{}, epochs: map[uint32]uint64{}, started: map[Key]bool{}, seen: map[Key]bool{}}
}

// Apply takes a message of the controller. A full list replaces everything but orders to forget: the controller gives such an order once,
// when the end is recorded for good, and a full list that is sent right behind it does not name the step any more. A change replaces the
// orders about the steps that it names. An order without launch description keeps the one that came before it.
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
			continue // its end is recorded: an order that comes late must not keep it here
		}
		if old := was[k]; o.Launch == nil && old != nil && old.Launch != nil {
			o = withLaunch(o, old.Launch)
		}
		d.orders[k] = o
		d.remember(k)
	}
}

// StepsLeft tells whether steps of the allocation that a key holds are ordered to run here, or are here and have not ended: its own end
// comes after theirs.
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

// withLaunch copies an order: messages are never changed once received.
func withLaunch(o *pb.StepOrder, l *pb.LaunchSpec) *pb.StepOrder {
	return &pb.StepOrder{Key: o.Key, Want: o.Want, Launch: l, Signals: o.Signals, StopReason: o.StopReason, Suspended: o.Suspended,
		LimitS: o.LimitS, Watchers: o.Watchers}
}

// newest is the newest epoch that was seen of a job.
func (d *Desired) newest(job uint32) uint64 { return d.epochs[job] }

// Highest is the highest id of a job that this node has been given.
func (d *Desired) Highest() uint32 { return d.highest }

// Present records a step that is here, started now or found at start-up: it will not be started again. Its launch
// description, with script and environment, is needed no more.
func (d *Desired) Present(k Key) {
	if o := d.orders[k]; o != nil && o.Launch != nil {
		d.orders[k] = withLaunch(o, nil)
	}
	d.started[k] = true
	d.remember(k)
}

// Past records an attempt that has ended here in the time of an earlier Desired: it will not be started again.
func (d *Desired) Past(k Key) {
	d.started[k] = true
	d.remember(k)
}

// remember notes a key and its epoch; the oldest key about which nothing is ordered is let go when there are too many.
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
	d.ring = append(d.ring, k) // more orders in force than we remember old ones: they are what bounds it then
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
