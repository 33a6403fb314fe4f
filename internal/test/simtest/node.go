package simtest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-hpc/sluice/internal/tcp"
	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// machine is a node: what survives its daemon, and the daemon.
type machine struct {
	s       *sim
	name    string
	boot    int
	ahead   int64 // of its clock
	spool   map[agent.Key]*shim
	past    map[agent.Key]*pb.ExitRecord // what was forgotten came to (noded/root/past.go)
	pasts   []agent.Key                  // of past, the oldest first
	of      map[agent.Key]*pb.StepJob    // what it knows of jobs
	gone    pb.NodeHistory               // what was let go of past
	d       *daemon                      // nil: not running
	away    bool                         // partitioned from the controller
	off     bool                         // rebooting
	dark    bool                         // switched off, to save power
	streams []*stream
}

// wall is what its clock shows.
func (m *machine) wall() int64 { return m.s.now + m.ahead }

func (m *machine) bootID() string { return fmt.Sprintf("%s-boot%d", m.name, m.boot) }

func sortedKeys[V any](spool map[agent.Key]V) []agent.Key {
	return slices.SortedFunc(maps.Keys(spool), func(a, b agent.Key) int {
		switch {
		case a == b:
			return 0
		case a.Job != b.Job:
			return int(a.Job) - int(b.Job)
		case a.Epoch != b.Epoch:
			return int(a.Epoch) - int(b.Epoch)
		}
		return int(int64(a.Step) - int64(b.Step))
	})
}

// daemon is one life of the node daemon. It follows noded/node.go, act.go and sync.go, one event at a time.
type daemon struct {
	m       *machine
	dead    bool
	desired *agent.Desired
	jobs    map[agent.Key]*job
	dirty   map[agent.Key]bool
	changed bool
	turning bool // a turn is planned
	stream  *stream
	greeted bool
	startNS int64
}

// job is one step attempt as the daemon knows it.
type job struct {
	key       agent.Key
	phase     pb.StepPhase
	applied   agent.Applied
	exit      *pb.ExitRecord
	seen      uint32
	launching bool
	stopped   *pb.StepOrder // it was cancelled by that before its script started
	busy      bool
}

// start begins a life of the daemon: it learns what earlier ones left.
func (m *machine) start() {
	if m.d != nil || m.off || m.dark {
		return
	}
	d := &daemon{m: m, startNS: m.s.now, desired: agent.NewDesired(), jobs: map[agent.Key]*job{}, dirty: map[agent.Key]bool{}}
	m.d = d
	for _, k := range sortedKeys(m.past) {
		d.desired.Past(k)
	}
	m.s.logf("%s: daemon starts, %d steps in the spool", m.name, len(m.spool))
	for _, k := range sortedKeys(m.spool) {
		sh := m.spool[k]
		if sh.exit == nil && sh.killed {
			m.d = nil // it is not told: it looks
			sh.bury()
			m.d = d
		}
		d.jobs[k] = &job{key: k, phase: sh.phase, exit: sh.exit, seen: sh.seen}
		d.desired.Present(k)
		d.mark(d.jobs[k])
	}
	for k, j := range d.jobs {
		j.phase = d.phaseOf(k, m.spool[k])
	}
	d.dial()
}

// stop ends the daemon; its steps go on.
func (m *machine) stop() {
	if m.d == nil {
		return
	}
	m.s.logf("%s: daemon is killed", m.name)
	d := m.d
	d.dead, m.d = true, nil
	if d.stream != nil {
		d.stream.cut(0, time.Second)
	}
}

// reboot ends everything; with wipe the spool is lost as well.
func (m *machine) reboot(wipe bool) {
	m.s.logf("%s: reboots, wipe=%v", m.name, wipe)
	m.halt(wipe)
	m.boot++
	m.off = true
	boot := m.boot
	m.s.after(m.s.between(5*time.Second, 90*time.Second), func() {
		if m.boot == boot { // and has not been switched off and on meanwhile
			m.off = false
			m.start()
		}
	})
}

// deadLink is how long it takes at most until the controller notices that a host is gone (package tcp).
const deadLink = tcp.Gone * 3 / 2

// mostPast is how much of the past a machine remembers: few enough that it lets go of what a restore asks for.
const mostPast = 3

// remember keeps what something came to beyond the order to forget it.
func (m *machine) remember(k agent.Key, x *pb.ExitRecord) {
	if m.past[k] != nil {
		return
	}
	m.past[k], m.pasts = x, append(m.pasts, k)
	if len(m.pasts) > mostPast {
		old := m.pasts[0]
		m.gone.LostUpTo, m.gone.LostUntilNs = max(m.gone.LostUpTo, old.Epoch), max(m.gone.LostUntilNs, m.past[old].EndNs)
		delete(m.past, old)
		m.pasts = m.pasts[1:]
	}
}

// halt ends everything that runs.
func (m *machine) halt(wipe bool) {
	if d := m.d; d != nil {
		d.dead, m.d = true, nil
		if d.stream != nil {
			d.stream.cut(0, deadLink)
		}
	}
	if wipe {
		m.past, m.pasts = map[agent.Key]*pb.ExitRecord{}, nil
		m.gone.LostUpTo, m.gone.LostUntilNs = 0, 0
		for at, st := range m.s.witness.steps {
			st.wiped = st.wiped || at.node == m.name
		}
	}
	for _, k := range sortedKeys(m.spool) {
		sh := m.spool[k]
		if sh.alive {
			sh.alive = false
			m.s.witness.vanished(sh)
		}
		if sh.exit == nil {
			sh.killed = true
		}
		if wipe {
			m.s.witness.wiped(sh)
			delete(m.spool, k)
		}
	}
}

func (d *daemon) after(t time.Duration, f func()) {
	d.m.s.after(t, func() {
		if !d.dead {
			f()
		}
	})
}

// dial opens a stream when it can.
func (d *daemon) dial() {
	if d.stream != nil {
		return
	}
	s := d.m.s
	if d.m.away || s.ctl == nil {
		d.after(s.between(100*time.Millisecond, 5*time.Second), d.dial)
		return
	}
	d.stream, d.greeted = s.openStream(d), false
	d.wake()
}

// lost: the daemon notices that its stream is broken.
func (d *daemon) lost(st *stream) {
	if d.dead || d.stream != st {
		return
	}
	d.stream = nil
	d.after(d.m.s.between(50*time.Millisecond, 5*time.Second), d.dial)
}

func (d *daemon) ordered(m *pb.NodeOrders) {
	if h := m.History; h != nil {
		st := d.stream
		d.after(d.m.s.short(5*time.Second), func() { d.recall(st, h) })
	}
	d.desired.Apply(m)
	d.changed = true
	d.wake()
}

// recall says what has ended here and is here no more.
func (d *daemon) recall(st *stream, o *pb.HistoryOrder) {
	if d.stream != st {
		return
	}
	h := &pb.NodeHistory{Restored: o.Restored}
	for _, k := range sortedKeys(d.m.past) {
		if k.Epoch > o.Above {
			h.Ended = append(h.Ended, &pb.StepReport{Key: k.Proto(), Phase: pb.StepPhase_STEP_ENDED, Exit: d.m.past[k],
				Job: d.m.of[k]})
		}
	}
	if g := &d.m.gone; g.LostUpTo > o.Above {
		h.LostUpTo, h.LostUntilNs = g.LostUpTo, g.LostUntilNs
	}
	if n := len(h.Ended) / 2; n > 0 { // in parts
		st.up(&pb.NodeReport{History: &pb.NodeHistory{Restored: h.Restored, Ended: h.Ended[:n], More: true}})
		h.Ended = h.Ended[n:]
	}
	st.up(&pb.NodeReport{History: h})
}

func (d *daemon) mark(j *job) {
	d.dirty[j.key], d.changed = true, true
	d.wake()
}

// wake plans a turn of the daemon's loop.
func (d *daemon) wake() {
	if d.turning {
		return
	}
	d.turning = true
	d.after(d.m.s.short(20*time.Millisecond), func() {
		d.turning = false
		if d.changed {
			d.changed = false
			d.reconcile()
		}
		d.flush()
	})
}

func (d *daemon) reconcile() {
	actual := make(map[agent.Key]agent.State, len(d.jobs))
	for k, j := range d.jobs {
		actual[k] = agent.State{Phase: j.phase, Applied: j.applied}
	}
	for _, a := range agent.Reconcile(d.desired, actual) {
		d.m.s.logf("%s: %s %s", d.m.name, a.Kind, keyWords(a.Key))
		switch j := d.jobs[a.Key]; a.Kind {
		case agent.Start:
			d.launch(a)
		case agent.Control:
			d.control(j, a)
		case agent.Forget:
			d.forget(j)
		case agent.Refuse:
			d.refuse(a)
		}
	}
	d.desired.Tidy(actual)
}

// launch is the prolog, then a shim that accepts the step. A daemon that dies before leaves nothing.
func (d *daemon) launch(a agent.Action) {
	s := d.m.s
	j := &job{key: a.Key, phase: pb.StepPhase_STEP_PREPARING, applied: agent.Launched(a.Order), launching: true}
	d.jobs[a.Key] = j
	d.desired.Present(a.Key)
	d.mark(j)
	l := a.Order.Launch
	if a.Key.Holder() {
		d.m.of[a.Key] = &pb.StepJob{Uid: l.Spec.Uid, Name: l.Spec.Comment, Partition: l.Partition, NodeList: l.NodeList,
			Restarts: l.Restarts, Interactive: l.Spec.Interactive, ArrayJobId: l.ArrayJobId, ArrayTaskId: l.ArrayTaskId}
	}
	d.after(s.short(3*time.Second), func() {
		j.launching = false
		switch {
		case j.stopped != nil:
			d.fail(j, &pb.ExitRecord{Verdict: "cancelled", StoppedOnOrder: true, StopReason: j.stopped.StopReason,
				EndNs: d.m.wall()}, false)
		case a.Key.Holder() && s.faulty(s.faults.prolog):
			d.fail(j, &pb.ExitRecord{Verdict: "prolog_failed", Detail: "as planned", EndNs: d.m.wall()}, false)
		default:
			d.m.launch(a.Key, l)
			d.tell(j)
		}
	})
}

// fail keeps the record of a step that never began.
func (d *daemon) fail(j *job, x *pb.ExitRecord, refused bool) {
	x.Key = j.key.Proto()
	if was := d.m.past[j.key]; was != nil {
		x = was
	} else if x.Verdict == "unknown" && j.key.Epoch <= d.m.gone.LostUpTo {
		x.Verdict = "forgotten"
		d.m.s.witness.stats.Seen["forgotten"]++
	}
	d.m.s.witness.knows(stepAt{j.key, d.m.name}, x)
	sh := &shim{m: d.m, key: j.key, phase: pb.StepPhase_STEP_ENDED, exit: x, refused: refused}
	d.m.spool[j.key] = sh
	d.m.s.witness.ended(sh)
	d.tell(j)
}

func (d *daemon) refuse(a agent.Action) {
	j := &job{key: a.Key, phase: pb.StepPhase_STEP_PREPARING, launching: true}
	d.jobs[a.Key] = j
	d.desired.Present(a.Key)
	d.after(d.m.s.short(time.Second), func() {
		j.launching = false
		d.fail(j, &pb.ExitRecord{Verdict: a.Verdict, Detail: a.Detail, StoppedOnOrder: a.Verdict == "cancelled",
			StopReason: a.Order.GetStopReason(), EndNs: d.m.wall()}, true)
	})
}

func (d *daemon) control(j *job, a agent.Action) {
	switch {
	case j.busy:
		return
	case j.launching:
		if a.Order.Want == pb.StepWant_WANT_STOP || a.Order.Want == pb.StepWant_WANT_KILL {
			j.stopped = a.Order
		}
		return
	}
	j.busy = true
	d.after(d.m.s.short(2*time.Second), func() {
		j.busy = false
		if d.m.s.faulty(d.m.s.faults.control) {
			d.after(time.Second, func() { d.changed = true; d.wake() })
			return
		}
		if sh := d.m.spool[j.key]; sh != nil {
			sh.order(a.Order)
		}
		j.applied = j.applied.After(a.Order)
		d.changed = true
		d.wake()
	})
}

func (d *daemon) forget(j *job) {
	if j.busy || j.launching {
		return
	}
	j.busy = true
	d.after(d.m.s.short(time.Second), func() {
		if sh := d.m.spool[j.key]; sh != nil && sh.exit == nil {
			d.m.s.fail("%s forgets %s, which has not ended", d.m.name, keyWords(j.key))
		}
		if sh := d.m.spool[j.key]; sh != nil && j.key.Holder() {
			d.m.remember(j.key, sh.exit)
		}
		delete(d.m.spool, j.key)
		delete(d.jobs, j.key)
		delete(d.dirty, j.key)
		d.changed = true
		d.wake()
	})
}

// told: a shim has something to say to the daemon that runs, if one does.
func (m *machine) told(sh *shim) {
	d := m.d
	if d == nil {
		return
	}
	d.after(m.s.short(time.Second), func() {
		if j := d.jobs[sh.key]; j != nil {
			d.tell(j)
		}
	})
}

// tell takes over what the shim says.
func (d *daemon) tell(j *job) {
	sh := d.m.spool[j.key]
	if sh == nil || j.launching || j.phase == pb.StepPhase_STEP_ENDED {
		return
	}
	j.phase, j.exit, j.seen = d.phaseOf(j.key, sh), sh.exit, sh.seen
	d.mark(j)
	if j.phase == pb.StepPhase_STEP_ENDED && !j.key.Holder() {
		d.tellHolder(j.key)
	}
}

func (d *daemon) flush() {
	if d.stream == nil {
		return
	}
	m := &pb.NodeReport{}
	if !d.greeted {
		d.greeted = true
		m.Hello = &pb.NodeHello{Node: d.m.name, BootId: d.m.bootID(), ClusterId: clusterID, NowNs: d.m.wall(),
			NodedStartNs: d.startNS, HighestJob: d.desired.Highest(),
			Hardware: &pb.Hardware{Cpus: nodeCPUs, Sockets: 1, Cores: nodeCPUs, Threads: 1, RealMemoryMib: nodeMiB}}
		for _, k := range sortedKeys(d.jobs) {
			d.dirty[k] = true
		}
	}
	for _, k := range sortedKeys(d.dirty) {
		if j := d.jobs[k]; j != nil {
			m.Steps = append(m.Steps, j.report(d.m))
		}
	}
	clear(d.dirty)
	if m.Hello != nil || len(m.Steps) > 0 {
		d.stream.up(m)
	}
}

func (j *job) report(m *machine) *pb.StepReport {
	r := &pb.StepReport{Key: j.key.Proto(), Phase: j.phase, SignalsSeen: j.seen, Job: m.of[j.key]}
	if j.phase == pb.StepPhase_STEP_ENDED {
		r.Exit = j.exit
		if x := j.exit; x.EndBootNs != 0 && x.BootId == m.bootID() {
			r.EndedAgoNs = max(1, m.s.now-x.EndBootNs)
		}
	}
	return r
}
