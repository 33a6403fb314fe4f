// Package dispatch computes the orders for each node.
//
// It is level-triggered: orders follow from the published state alone, and a stream remembers what was sent on it only to leave out what
// has not changed. A new stream starts from nothing: the node reports what it has, and gets all orders again.
//
// An attempt that a restored state shows as started may have ended since, so it is never launched: its node is asked about it (WANT_TELL).
//
// Steps that a node has and the state no longer wants are ended (WANT_KILL) and, once their exit records have arrived and are committed,
// forgotten (WANT_FORGET). Because of "committed", this package reads published Views only.
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
	// Configuration returns the configuration that hosts without files get before their settings, and its hash, "" for none. May be nil.
	Configuration func() (hash string, c *pb.Configuration)

	mu    sync.Mutex
	links map[string]*Link
	ended chan struct{} // non-nil: the node daemons are told to end; closed when no link is left
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
			if v.Node(l.node) == nil { // removed: if it reconnects, it is told to end everything that it runs
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

// Resend sends nodes their settings, and with them everything, again.
func (d *Dispatcher) Resend(nodes []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range nodes {
		if l := d.links[n]; l != nil {
			l.resend()
		}
	}
}

// Shutdown tells the daemons of all linked nodes to end, and those that link from now on. It returns when no link is left, or stop is
// closed.
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

// Open makes the link of a node that has said hello; an older link of the node is closed. steps are those that the node has.
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

// Close ends a link. It reports whether the link was still the node's: false when a newer one has replaced it.
func (d *Dispatcher) Close(l *Link) bool {
	d.mu.Lock()
	current := d.links[l.node] == l
	if current {
		delete(d.links, l.node)
	}
	if current && d.ended != nil && len(d.links) == 0 {
		select {
		case <-d.ended: // already closed: a node has linked and gone since
		default:
			close(d.ended)
		}
	}
	d.mu.Unlock()
	l.close()
	return current
}

// Links returns the number of open links.
func (d *Dispatcher) Links() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.links)
}

// Link is the dispatcher's side of the stream to one node.
type Link struct {
	d      *Dispatcher
	node   string
	wake   chan struct{}
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	known map[stepID]pb.StepPhase // steps that the node has reported
	sent  map[stepID]sent         // orders sent on this stream
	full  bool                    // the next message carries settings and everything
	bare  bool                    // the node has no files of its own
	conf  string                  // hash of the configuration that it has, or was sent

	rebooting int64 // the reboot that it was told about
	down      bool  // whether it is down, as it was last told
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

// sent holds the parts of an order that can change while the step exists.
type sent struct {
	want      pb.StepWant
	signal    uint32
	limitS    uint32
	suspended bool
	watcher   uint32
}

// Wake makes the link's sender compute again.
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

// Saw notes the steps that the node reports.
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

// maxKnown bounds the steps that a node can report: far more than a node can have.
const maxKnown = 1 << 16

// maxLaunchBytes bounds the launches of one message; the rest follows in the next. A larger launch goes alone: with the largest script and
// environment (4 MiB and 1 MiB) it stays below the limit of 8 MiB for a message.
const maxLaunchBytes = 4 << 20

// Failed returns the steps that cannot be launched because their script cannot be read, as ends for the writer to record; the node was not
// told of them. If the writer does not take one, it is returned again after the next Next.
func (l *Link) Failed() []*pb.StepReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failed
	l.failed = nil
	return f
}

// Next computes the next message for the node, nil when there is none. more: another message is ready.
func (l *Link) Next() (msg *pb.NodeOrders, more bool) {
	v := l.d.view()
	n := v.Node(l.node)
	if n == nil {
		return nil, false
	}
	if l.d.shuttingDown() {
		return &pb.NodeOrders{Shutdown: true}, false // repeating it does no harm
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
			continue // PrologSlurmctld runs first
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

// Has notes the node's configuration. One that it was sent but could not apply counts as present for this link: the node retries by itself.
func (l *Link) Has(c *pb.ConfigurationState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bare = c.GetFetched(); c.GetError() == "" {
		l.conf = c.GetHash()
	}
}

// configuration returns the configuration to send before the settings, nil when the node has it.
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

// order returns the order for one step, nil when the node has it already. later: its launch has no room in this message.
func (l *Link) order(j *pb.JobRecord, key stepID, room *int) (o *pb.StepOrder, later bool) {
	now := sent{want: pb.StepWant_WANT_RUN, limitS: limitOf(j), suspended: j.State == pb.JobState_JOB_SUSPENDED}
	if k := len(j.Signals); k > 0 {
		now.signal = j.Signals[k-1].Seq
	}
	if j.StopReason != "" {
		now.want, now.limitS = pb.StepWant_WANT_STOP, 0
	}
	before, told := l.sent[key]
	if told && before == now && !l.full {
		return nil, false
	}
	o = &pb.StepOrder{Key: key.key(), Want: now.want, Signals: j.Signals, StopReason: j.StopReason, Suspended: now.suspended,
		LimitS: now.limitS}
	if _, has := l.known[key]; !has && !told && now.want == pb.StepWant_WANT_RUN {
		if l.d.view().FromBackup(j.Epoch) {
			o.Want = pb.StepWant_WANT_TELL
			l.sent[key] = now
			return o, false
		}
		if n := l.d.view().Node(l.node); len(n.Strays) > 0 { // it was given to a node that was asleep according to a restored state
			if l.full {
				return o, false // without a launch, so that the node keeps it in mind
			}
			return nil, false
		}
		spec, err := l.launch(j, room)
		switch later = l.addLaunch(o, spec, room); {
		case err != nil:
			l.fail(j, key, err)
			return nil, false
		case later && l.full:
			return o, true // without a launch, so that the node keeps it in mind
		case later:
			return nil, true
		}
	}
	l.sent[key] = now
	return o, false
}

// launch returns the launch of the allocation, nil when the message is full.
func (l *Link) launch(j *pb.JobRecord, room *int) (*pb.LaunchSpec, error) {
	if *room <= 0 {
		return nil, nil
	}
	return l.d.launch(j, l.node)
}

// addLaunch adds the launch to an order, unless the message is full.
func (l *Link) addLaunch(o *pb.StepOrder, spec *pb.LaunchSpec, room *int) (later bool) {
	if *room <= 0 || spec == nil {
		return true
	}
	size := proto.Size(spec)
	if size > *room && *room < maxLaunchBytes {
		*room = 0 // keep the order: later launches must not overtake
		return true
	}
	o.Launch = spec
	*room -= size
	return false
}

// fail ends a step whose script is lost; it would hold its resources for ever.
func (l *Link) fail(j *pb.JobRecord, key stepID, err error) {
	l.d.log.Error("cannot launch a job", "job", j.Id, "node", l.node, "err", err)
	l.failed = append(l.failed, &pb.StepReport{Key: key.key(), Phase: pb.StepPhase_STEP_ENDED,
		Exit: &pb.ExitRecord{Key: key.key(), Verdict: pb.VerdictLaunchFailed, Detail: err.Error(), EndNs: l.d.view().NowNS}})
}

// strays returns orders to kill the node's strays. The node answers for each, even if it does not have it. They stay wanted until the
// writer has the answer, so that it is not forgotten before.
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

// unwanted returns orders for steps that the node should not have.
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

// compareKeys orders the contents of maps, so that the same state gives the same message.
func compareKeys(a, b *pb.StepKey) int {
	return cmp.Or(cmp.Compare(a.JobId, b.JobId), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Attempt, b.Attempt),
		cmp.Compare(a.Step, b.Step))
}
