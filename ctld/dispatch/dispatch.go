// Package dispatch computes the orders for each node.
//
// It is level-triggered: orders follow from the published state alone, and a stream remembers what was sent on it only
// to leave out what has not changed. A new stream starts from nothing: the node reports what it has, and gets all orders
// again.
//
// An attempt that a restored state shows as started may have ended since, so it is never launched: its node is asked for
// it (WANT_TELL).
//
// What a node has and the state does not want any more is ended (WANT_KILL) and, once its exit record is here and
// committed, forgotten (WANT_FORGET). Because of "committed", this package reads published Views only.
package dispatch

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// Scripts reads a job's script and environment (state.ReadTexts).
type Scripts func(*pb.JobRecord) (script []byte, env []string, err error)

// Dispatcher keeps the open links.
type Dispatcher struct {
	view     func() *state.View
	scripts  Scripts
	settings func(v *state.View, node *state.Node) *pb.NodeSettings
	log      *slog.Logger
	// Configuration is what hosts without files are given before their settings, and its hash, "" for none. May be nil.
	Configuration func() (hash string, c *pb.Configuration)

	mu    sync.Mutex
	links map[string]*Link
	ended chan struct{} // not nil: the node daemons are told to end; closed when no link is left
}

// New makes a dispatcher.
func New(view func() *state.View, scripts Scripts, settings func(*state.View, *state.Node) *pb.NodeSettings, log *slog.Logger) *Dispatcher {
	return &Dispatcher{view: view, scripts: scripts, settings: settings, log: log, links: map[string]*Link{}}
}

// Changed wakes the links of the nodes that a commit concerns. It is a loop observer.
func (d *Dispatcher) Changed(c state.Change) {
	if len(c.Wake) == 0 && !c.Structure {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Structure && !c.Roster {
		v := d.view()
		for _, l := range d.links {
			if v.Node(l.node) == nil { // taken out: what it says when it comes again is answered with the end of all that it runs
				l.close()
			}
			l.resend()
		}
		return
	}
	for _, n := range c.Wake {
		l := d.links[n]
		switch {
		case l == nil:
		case c.Roster && c.View.Node(n) == nil:
			l.close()
		default:
			l.Wake()
		}
	}
}

// Resend tells nodes their settings, and with them everything, again.
func (d *Dispatcher) Resend(nodes []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range nodes {
		if l := d.links[n]; l != nil {
			l.resend()
		}
	}
}

// Shutdown tells the daemons of all nodes that are linked to end, and those that link from now on. It returns when no link is left, or
// stop is closed.
func (d *Dispatcher) Shutdown(stop <-chan struct{}) {
	d.mu.Lock()
	if d.ended == nil {
		d.ended = make(chan struct{})
		if len(d.links) == 0 {
			close(d.ended)
		}
	}
	ended := d.ended
	for _, l := range d.links {
		l.Wake()
	}
	d.mu.Unlock()
	select {
	case <-ended:
	case <-stop:
	}
}

// shuttingDown reports whether the node daemons are told to end.
func (d *Dispatcher) shuttingDown() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended != nil
}

// Open makes the link of a node that has said hello; an older link of the node is closed. steps is what the node has.
func (d *Dispatcher) Open(node string, steps []*pb.StepReport) *Link {
	l := &Link{d: d, node: node, wake: make(chan struct{}, 1), closed: make(chan struct{}), known: map[stepID]pb.StepPhase{},
		sent: map[stepID]sent{}, full: true}
	l.Saw(steps)
	d.mu.Lock()
	old := d.links[node]
	d.links[node] = l
	d.mu.Unlock()
	if old != nil {
		old.close()
	}
	l.Wake()
	return l
}

// Close ends a link. It reports whether the link was still the node's: false when a newer one has taken its place.
func (d *Dispatcher) Close(l *Link) bool {
	d.mu.Lock()
	current := d.links[l.node] == l
	if current {
		delete(d.links, l.node)
	}
	if current && d.ended != nil && len(d.links) == 0 {
		select {
		case <-d.ended: // before: a node has linked and gone again
		default:
			close(d.ended)
		}
	}
	d.mu.Unlock()
	l.close()
	return current
}

// Links is the number of open links.
func (d *Dispatcher) Links() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.links)
}

// Link is the stream to one node, as the dispatcher sees it.
type Link struct {
	d      *Dispatcher
	node   string
	wake   chan struct{}
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	known map[stepID]pb.StepPhase // what the node has said it has
	sent  map[stepID]sent         // what it was told on this stream
	full  bool                    // the next message carries settings and everything
	bare  bool                    // the node has no files of its own
	conf  string                  // hash of the configuration that it has, or was sent

	rebooting int64 // the reboot that it was told of
	down      bool  // how it stands, as it was told last
	drained   bool

	failed []*pb.StepReport // cannot be launched
}

type stepID struct {
	job, attempt uint32
	epoch        uint64
	step         uint32
}

func idOf(k *pb.StepKey) stepID {
	return stepID{k.GetJobId(), k.GetAttempt(), k.GetEpoch(), k.GetStep()}
}

func (s stepID) key() *pb.StepKey {
	return &pb.StepKey{JobId: s.job, Attempt: s.attempt, Epoch: s.epoch, Step: s.step}
}

// sent is what of an order can change while the step exists.
type sent struct {
	want      pb.StepWant
	signal    uint32
	endNS     int64
	limitS    uint32
	suspended bool
	watcher   uint32
}

// Wake makes the link's sender look again.
func (l *Link) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Woken and Closed are for the sender to select on.
func (l *Link) Woken() <-chan struct{}  { return l.wake }
func (l *Link) Closed() <-chan struct{} { return l.closed }

func (l *Link) close() { l.once.Do(func() { close(l.closed) }) }

func (l *Link) resend() {
	l.mu.Lock()
	l.full = true
	l.mu.Unlock()
	l.Wake()
}

// Saw notes what the node says it has.
func (l *Link) Saw(steps []*pb.StepReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range steps {
		id := idOf(r.Key)
		if _, known := l.known[id]; known || len(l.known) < maxKnown {
			l.known[id] = r.Phase
		}
	}
}

// maxKnown bounds the steps that a node can say it has: far more than there can be on one.
const maxKnown = 1 << 16

// maxLaunchBytes bounds the launches of one message; the rest follows in the next. A launch that is larger by itself goes alone: with
// the largest script and environment (4 MiB and 1 MiB) it stays below the 8 MiB that a message may have.
const maxLaunchBytes = 4 << 20

// Failed are the steps that cannot be launched because their script cannot be read, as ends for the writer to record; the node
// was not told of them. What the writer does not take is given again after the next Next.
func (l *Link) Failed() []*pb.StepReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failed
	l.failed = nil
	return f
}

// Next computes the next message for the node, nil when there is nothing to say. more: there is more to say at once.
func (l *Link) Next() (msg *pb.NodeOrders, more bool) {
	v := l.d.view()
	n := v.Node(l.node)
	if n == nil {
		return nil, false
	}
	if l.d.shuttingDown() {
		return &pb.NodeOrders{Shutdown: true}, false // once more is no harm
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.configuration(); c != nil {
		return &pb.NodeOrders{Configuration: c}, true
	}
	msg = &pb.NodeOrders{}
	if l.full {
		msg.Settings, msg.Full = l.d.settings(v, n), true
		if above, ask := v.Untold(n); ask {
			msg.History = &pb.HistoryOrder{Restored: v.Restored, Above: above}
		}
	}
	if n.StateFlags&pb.NodeRebootIssued != 0 && l.rebooting != n.RebootNs {
		l.rebooting = n.RebootNs
		msg.Reboot = &pb.RebootOrder{Program: v.Settings.RebootProgram, BootId: n.BootId}
	}
	down, drained := n.State == pb.NodeState_NODE_DOWN, n.StateFlags&pb.NodeDrain != 0
	if l.full || down != l.down || drained != l.drained {
		l.down, l.drained = down, drained
		msg.Standing = &pb.NodeStanding{Down: down, Drained: drained}
	}
	want := make(map[stepID]bool, len(n.Jobs))
	room := maxLaunchBytes
	for _, id := range n.Jobs {
		j := v.Jobs.Get(id)
		if j == nil {
			continue
		}
		key := stepOf(j, l.node)
		want[key] = true
		if j.StateFlags&pb.JobConfiguring != 0 {
			continue // PrologSlurmctld comes first
		}
		o, later := l.order(j, key, &room)
		if o != nil {
			msg.Steps = append(msg.Steps, o)
		}
		more = more || later
		for _, s := range v.Steps(id).Live() {
			if o, later = l.stepOrder(j, s, want, &room, later); o != nil {
				msg.Steps = append(msg.Steps, o)
			}
			more = more || later
		}
	}
	msg.Steps = append(msg.Steps, l.strays(n, want)...)
	msg.Steps = append(msg.Steps, l.unwanted(want)...)
	if len(msg.Steps) == 0 && msg.Settings == nil && msg.Reboot == nil && msg.Standing == nil {
		return nil, more
	}
	l.full = false
	return msg, more
}

// Has notes what the node says it has of the configuration. What it was sent and could not put in force it has, as far as this link goes:
// it tries again by itself.
func (l *Link) Has(c *pb.ConfigurationState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bare = c.GetFetched(); c.GetError() == "" {
		l.conf = c.GetHash()
	}
}

// configuration is what the node is to be sent before its settings, nil when it has that.
func (l *Link) configuration() *pb.Configuration {
	if !l.full || !l.bare || l.d.Configuration == nil {
		return nil
	}
	hash, c := l.d.Configuration()
	if hash == "" || hash == l.conf {
		return nil
	}
	l.conf = hash
	return c
}

func stepOf(j *pb.JobRecord, node string) stepID {
	return stepID{job: j.Id, attempt: j.Attempt, epoch: j.Epoch, step: state.HolderOn(j, node)}
}

// order is what to say of one step, nil when the node knows. later: its launch has no room in this message.
func (l *Link) order(j *pb.JobRecord, key stepID, room *int) (o *pb.StepOrder, later bool) {
	now := sent{want: pb.StepWant_WANT_RUN, endNS: j.EndNs, limitS: limitOf(j), suspended: j.State == pb.JobState_JOB_SUSPENDED}
	if k := len(j.Signals); k > 0 {
		now.signal = j.Signals[k-1].Seq
	}
	if j.StopReason != "" {
		now.want, now.endNS, now.limitS = pb.StepWant_WANT_STOP, 0, 0
	}
	before, told := l.sent[key]
	if told && before == now && !l.full {
		return nil, false
	}
	o = &pb.StepOrder{Key: key.key(), Want: now.want, Signals: j.Signals, StopReason: j.StopReason, EndNs: now.endNS,
		Suspended: now.suspended, LimitS: now.limitS}
	if _, has := l.known[key]; !has && !told && now.want == pb.StepWant_WANT_RUN {
		if l.d.view().FromBackup(j.Epoch) {
			o.Want = pb.StepWant_WANT_TELL
			l.sent[key] = now
			return o, false
		}
		if n := l.d.view().Node(l.node); len(n.Strays) > 0 { // it was given to a node that was asleep as far as a restored state knew
			if l.full {
				return o, false // named, so that the node keeps it in mind
			}
			return nil, false
		}
		spec, err := l.launch(j, room)
		switch later = l.addLaunch(o, spec, room); {
		case err != nil:
			l.fail(j, key, err)
			return nil, false
		case later && l.full:
			return o, true // named, so that the node keeps it in mind
		case later:
			return nil, true
		}
	}
	l.sent[key] = now
	return o, false
}

// launch is the launch of the allocation, nil when the message is full.
func (l *Link) launch(j *pb.JobRecord, room *int) (*pb.LaunchSpec, error) {
	if *room <= 0 {
		return nil, nil
	}
	return l.d.launch(j, l.node)
}

// addLaunch puts the launch into an order, unless the message is full.
func (l *Link) addLaunch(o *pb.StepOrder, spec *pb.LaunchSpec, room *int) (later bool) {
	if *room <= 0 || spec == nil {
		return true
	}
	size := proto.Size(spec)
	if size > *room && *room < maxLaunchBytes {
		*room = 0 // in order: what comes later does not overtake
		return true
	}
	o.Launch = spec
	*room -= size
	return false
}

// fail ends a step whose script is lost: it would hold its resources for ever.
func (l *Link) fail(j *pb.JobRecord, key stepID, err error) {
	l.d.log.Error("cannot launch a job", "job", j.Id, "node", l.node, "err", err)
	l.failed = append(l.failed, &pb.StepReport{Key: key.key(), Phase: pb.StepPhase_STEP_ENDED,
		Exit: &pb.ExitRecord{Key: key.key(), Verdict: pb.VerdictLaunchFailed, Detail: err.Error(), EndNs: l.d.view().NowNS}})
}

// strays are orders to kill what was given up with the node. The node answers for each, also for what it does not have; until the
// writer has taken that in they stay wanted, so that the answer is not forgotten before.
func (l *Link) strays(n *state.Node, want map[stepID]bool) []*pb.StepOrder {
	var out []*pb.StepOrder
	for _, k := range n.Strays {
		key := idOf(k)
		want[key] = true
		if told := l.sent[key]; told.want == pb.StepWant_WANT_KILL && !l.full {
			continue
		}
		out = append(out, &pb.StepOrder{Key: k, Want: pb.StepWant_WANT_KILL, StopReason: pb.StopUnknown})
		l.sent[key] = sent{want: pb.StepWant_WANT_KILL}
	}
	return out
}

// unwanted are orders for what the node has and should not.
func (l *Link) unwanted(want map[stepID]bool) []*pb.StepOrder {
	var out []*pb.StepOrder
	for key, phase := range l.known {
		if want[key] {
			continue
		}
		if phase == pb.StepPhase_STEP_ENDED {
			out = append(out, &pb.StepOrder{Key: key.key(), Want: pb.StepWant_WANT_FORGET})
			delete(l.known, key)
			delete(l.sent, key)
			continue
		}
		if l.sent[key].want != pb.StepWant_WANT_KILL {
			out = append(out, &pb.StepOrder{Key: key.key(), Want: pb.StepWant_WANT_KILL, StopReason: pb.StopUnknown})
			l.sent[key] = sent{want: pb.StepWant_WANT_KILL}
		}
	}
	for key := range l.sent {
		if _, has := l.known[key]; !has && !want[key] {
			// told to run, never reported, no longer wanted: it may be starting right now
			out = append(out, &pb.StepOrder{Key: key.key(), Want: pb.StepWant_WANT_KILL, StopReason: pb.StopUnknown})
			delete(l.sent, key)
		}
	}
	slices.SortFunc(out, func(a, b *pb.StepOrder) int { return compareKeys(a.Key, b.Key) })
	return out
}

// compareKeys orders what comes out of maps, so that the same state gives the same message.
func compareKeys(a, b *pb.StepKey) int {
	return cmp.Or(cmp.Compare(a.JobId, b.JobId), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Attempt, b.Attempt),
		cmp.Compare(a.Step, b.Step))
}
