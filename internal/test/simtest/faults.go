package simtest

import (
	"time"

	"github.com/sluice-hpc/sluice/ctld/journal"
)

// faults are the faults of one run and their frequency. Each seed draws its own mixture: with all of them at once, some things
// would never get far enough to go wrong.
type faults struct {
	every    time.Duration // mean time between two strikes
	strikes  []strike
	latency  time.Duration // of a message, at most
	fsync    time.Duration // of a commit, at most
	downtime time.Duration // of a controller, at most

	// probabilities per occasion
	crashCommit, crashSend, duplicate, prolog, control, program float64

	diskFull bool // now
}

type strike struct {
	name string
	do   func(*sim)
}

var strikes = []strike{
	{"controller dies", func(s *sim) {
		if s.ctl != nil {
			s.ctl.crash("kill -9")
		}
	}},
	{"stream breaks", func(s *sim) {
		if m := s.anyNode(); m.d != nil && m.d.stream != nil {
			m.d.stream.cut(5*time.Second, 30*time.Second)
		}
	}},
	{"partition", (*sim).partition},
	{"daemon dies", func(s *sim) { s.bounce(s.anyNode(), 0) }},
	{"daemon dies for long", func(s *sim) { s.bounce(s.anyNode(), 150*time.Second) }},
	{"node reboots", func(s *sim) { s.anyNode().rebootUnlessOff(false) }},
	{"node is replaced", func(s *sim) { s.anyNode().rebootUnlessOff(true) }},
	{"shim dies", (*sim).killShim},
	{"no shim can be started", func(s *sim) {
		m := s.anyNode()
		m.unfit = true
		s.after(s.between(time.Second, 30*time.Second), func() { m.unfit = false })
	}},
	{"disk is full", func(s *sim) {
		s.faults.diskFull = true
		s.after(s.between(time.Second, time.Minute), func() { s.faults.diskFull = false })
	}},
	{"node is drained", func(s *sim) { s.setNode(s.anyNode(), "DRAIN") }},
	{"node is set down", func(s *sim) { s.setNode(s.anyNode(), "DOWN") }},
	{"controller's clock is set", (*sim).setClock},
	{"node's clock is set", (*sim).setNodeClock},
	{"controller's machine reboots", (*sim).rebootController},
	{"controller's clock drifts", (*sim).startDrift},
	{"node is resumed", func(s *sim) { s.setNode(s.anyNode(), "RESUME") }},
	{"node is to be powered down", func(s *sim) { s.setNode(s.anyNode(), "POWER_DOWN") }},
	{"node is to be powered down as soon as possible", func(s *sim) { s.setNode(s.anyNode(), "POWER_DOWN_ASAP") }},
	{"node is to be powered down by force", func(s *sim) { s.setNode(s.anyNode(), "POWER_DOWN_FORCE") }},
	{"node is to be powered up", func(s *sim) { s.setNode(s.anyNode(), "POWER_UP") }},
	{"somebody presses the button", func(s *sim) {
		if m := s.anyNode(); m.dark {
			m.powerOn()
		}
	}},
}

func (s *sim) drawFaults() {
	rare := func(p float64) float64 {
		if s.chance(0.5) {
			return 0
		}
		return p * s.rng.Float64()
	}
	s.faults = faults{
		every: s.between(2*time.Second, 40*time.Second), latency: s.between(time.Millisecond, 3*time.Second),
		fsync:    s.between(time.Millisecond, time.Second),
		downtime: s.between(200*time.Millisecond, 20*time.Second), crashCommit: rare(0.03), crashSend: rare(0.03), duplicate: rare(0.1),
		prolog: rare(0.05), control: rare(0.2),
	}
	for _, k := range strikes {
		if s.chance(0.5) {
			s.faults.strikes = append(s.faults.strikes, k)
		}
	}
}

// faulty draws whether an occasional fault happens; in the calm at the end nothing goes wrong.
func (s *sim) faulty(p float64) bool { return p > 0 && !s.calm && s.chance(p) }

// commitFault decides the fault of a journal commit.
func (s *sim) commitFault(_ int, b journal.Batch) journal.Fault {
	switch {
	case s.calm:
	case s.faults.diskFull && !b.Must:
		return journal.Fault{Err: journal.ErrNoSpace}
	case s.faulty(s.faults.crashCommit):
		s.unseen = s.chance(0.5)
		return journal.Fault{Crash: true, After: s.unseen}
	}
	return journal.Fault{}
}

func (s *sim) strike() {
	if s.calm {
		return
	}
	if n := len(s.faults.strikes); n > 0 {
		k := s.faults.strikes[s.rng.IntN(n)]
		s.logf("-- %s", k.name)
		k.do(s)
	}
	s.after(s.between(0, 2*s.faults.every), s.strike)
}

func (s *sim) anyNode() *machine { return s.nodes[s.rng.IntN(len(s.nodes))] }

func (s *sim) partition() {
	m := s.anyNode()
	if m.away {
		return
	}
	m.away = true
	if m.d != nil && m.d.stream != nil {
		m.d.stream.cut(30*time.Second, 40*time.Second)
	}
	s.after(s.between(time.Second, 200*time.Second), func() { m.away = false })
}

// bounce kills a daemon and restarts it within d, or a second.
func (s *sim) bounce(m *machine, d time.Duration) {
	m.stop()
	s.after(s.between(0, max(d, time.Second)), m.start)
}

func (m *machine) rebootUnlessOff(wipe bool) {
	if !m.off && !m.dark {
		m.reboot(wipe)
	}
}

// killShim kills a shim but not its processes. A running daemon notices and ends them; otherwise the next one does.
func (s *sim) killShim() {
	m := s.anyNode()
	var alive []*shim
	for _, k := range sortedKeys(m.spool) {
		if sh := m.spool[k]; sh.alive && !sh.killed {
			alive = append(alive, sh)
		}
	}
	if len(alive) == 0 {
		return
	}
	sh := alive[s.rng.IntN(len(alive))]
	s.logf("%s: shim of %s is killed", m.name, keyWords(sh.key))
	sh.killed = true
	s.witness.shimDied(sh)
	if d := m.d; d != nil {
		d.after(s.between(10*time.Millisecond, 300*time.Millisecond), func() {
			if sh.exit == nil {
				sh.bury()
			}
		})
	}
}
