package simtest

import (
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Power saving: SuspendProgram and ResumeProgram switch machines off and on, late, or not at all.

// drawPower decides whether idle nodes are powered down, and how long that takes.
func (s *sim) drawPower() {
	if !s.chance(0.35) {
		return
	}
	seconds := func(low, high int) uint32 { return uint32(low + s.rng.IntN(high-low)) }
	p := &state.PowerSettings{SuspendTimeS: seconds(2, 120), SuspendTimeoutS: seconds(1, 30), ResumeTimeoutS: seconds(5, 120),
		FailProgram: s.chance(0.5), RequeueOnFail: s.chance(0.5), IdleOnSuspend: s.chance(0.3)}
	if s.chance(0.2) {
		p.SuspendRate, p.ResumeRate = 1, 1
	}
	s.cfg.Settings.Power = p
	s.faults.program = s.rng.Float64() / 2
	for i, n := range s.cfg.Nodes {
		if s.chance(0.3) {
			n.State, n.StateFlags = pb.NodeState_NODE_IDLE, pb.NodeCloud|pb.NodePoweredDown
			s.nodes[i].dark = true
		}
	}
}

// programs runs the programs that nodes need after a commit, as ctld/powersave does: one at a time for a node, and they end with
// the controller.
func (c *controller) programs(ch state.Change) {
	for _, name := range ch.Nodes {
		c.program(name)
	}
}

func (c *controller) program(name string) {
	n := c.loop.View().Node(name)
	if n == nil || n.PowerProgram == "" || c.running[name] {
		return
	}
	c.running[name] = true
	s, what, at := c.s, n.PowerProgram, n.PowerNs
	longest := 2 * time.Duration(s.cfg.Settings.Power.SuspendTimeoutS) * time.Second
	if s.calm {
		longest = time.Second
	}
	c.after(s.short(longest), func() {
		fails := s.faulty(s.faults.program)
		s.logf("%sProgram for %s, fails=%v", what, name, fails)
		s.witness.stats.Seen["program "+what]++
		if fails {
			s.witness.stats.Seen["program that fails"]++
		} else {
			s.switchPower(name, what)
		}
		c.programEnded(what, name, at)
	})
}

// programEnded reports to the writer until it has accepted.
func (c *controller) programEnded(what, name string, at int64) {
	c.send(reactor.PowerProgramDone{Program: what, Nodes: map[string]int64{name: at}}, func(r any) {
		if _, refused := r.(*pb.Problem); refused {
			c.after(time.Second, func() { c.programEnded(what, name, at) })
			return
		}
		delete(c.running, name)
		c.program(name) // needed since then
	})
}

func (s *sim) switchPower(name, what string) {
	for _, m := range s.nodes {
		switch {
		case m.name != name:
		case what == reactor.PowerSuspend && !m.dark:
			m.powerOff()
		case what == reactor.PowerResume && (m.dark || s.calm):
			m.powerOn()
		}
	}
}

// powerOff switches a machine off and ends everything on it.
func (m *machine) powerOff() {
	m.dark = true
	m.halt(false)
	m.s.logf("%s is off", m.name)
}

// powerOn boots a machine; one that is on is switched off first.
func (m *machine) powerOn() {
	if !m.dark {
		m.powerOff()
	}
	m.dark = false
	m.boot++
	m.off = true
	boot := m.boot
	longest := time.Duration(m.s.cfg.Settings.Power.ResumeTimeoutS) * time.Second * 3 / 2
	if m.s.calm {
		longest = time.Second
	}
	m.s.after(m.s.between(0, longest), func() {
		if m.boot == boot && !m.dark {
			m.off = false
			m.start()
		}
	})
}

// sleeps reports whether a node is powered down, and its machine is off, or on only because SuspendProgram has not switched it
// off.
func (s *sim) sleeps(m *machine, n *state.Node) bool {
	return n.StateFlags&pb.NodePoweredDown != 0 && n.Asleep() && n.PowerProgram == "" && (m.dark || n.LinkUp)
}

// wake tracks how long a node has been powering up. The controller's clock may be off as in lengths.
func (w *witness) wake(n *state.Node, nowNS int64) {
	since, known := w.wakes[n.Name]
	w.overdue[n.Name] = known && (since.boot != w.s.clocks.boot || w.s.now-since.atNS >= int64(n.Power.UpS)*1e9-5e9)
	switch {
	case n.StateFlags&pb.NodePoweringUp == 0:
		delete(w.wakes, n.Name)
	case !known:
		w.wakes[n.Name] = began{nowNS, w.s.clocks.boot}
	}
}
