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

// machine is a node: the parts that survive its daemon, and the daemon.
type machine struct {
	s         *sim
	name      string
	boot      int
	ahead     int64 // of its clock
	spool     map[agent.Key]*shim
	launches  map[agent.Key]*pb.LaunchSpec // kept by noded-root for the epilog
	launching map[agent.Key]*pb.LaunchSpec // of bundles under way to noded-root
	settings  *pb.NodeSettings             // the controller's, as stored by noded-root
	past      map[agent.Key]*pb.ExitRecord // how forgotten attempts ended (noded/root/past.go)
	pasts     []agent.Key                  // keys of past, the oldest first
	of        map[agent.Key]*pb.StepJob    // what it knows of jobs
	gone      pb.NodeHistory               // bounds of the ends dropped from past
	d         *daemon                      // nil: not running
	away      bool                         // partitioned from the controller
	unfit     bool                         // no shim can be started
	off       bool                         // rebooting
	dark      bool                         // switched off, to save power
	streams   []*stream
}

// wall returns the time on its clock.
func (m *machine) wall() int64 { return m.s.now + m.ahead }

func (m *machine) bootID() string { return fmt.Sprintf("%s-boot%d", m.name, m.boot) }

func sortedKeys[V any](of map[agent.Key]V) []agent.Key {
	return slices.SortedFunc(maps.Keys(of), agent.Key.Compare)
}

// stop ends the daemon; its steps continue.
func (m *machine) stop() {
	if m.d == nil {
		return
	}
	m.s.logf("%s: daemon is killed", m.name)
	m.d.die(time.Second)
}

// reboot ends everything; with wipe the spool is lost as well.
func (m *machine) reboot(wipe bool) {
	m.s.logf("%s: reboots, wipe=%v", m.name, wipe)
	m.halt(wipe)
	m.boot++
	m.off = true
	boot := m.boot
	m.s.after(m.s.between(5*time.Second, 90*time.Second), func() {
		if m.boot == boot { // and was not switched off and on meanwhile
			m.off = false
			m.start()
		}
	})
}

// deadLink bounds the time until the controller notices that a host is gone (package tcp).
const deadLink = tcp.Gone * 3 / 2

// mostPast is how many ends a machine remembers: so few that it drops some that a restore asks for.
const mostPast = 3

// remember keeps the end of an attempt beyond the order to forget it.
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
	if m.d != nil {
		m.d.die(deadLink)
	}
	m.launching = map[agent.Key]*pb.LaunchSpec{}
	if wipe {
		m.settings = nil
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
			delete(m.launches, k)
		}
	}
}
