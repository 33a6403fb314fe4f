package simtest

import (
	"fmt"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// clocks are the machines' wall clocks, as offsets from the simulated time, which is their CLOCK_BOOTTIME. In the calm they are
// right.
type clocks struct {
	set    bool // one was set in this run, or drifts
	ahead  int64
	boot   int   // boot of the controller's machine
	bootNS int64 // when that was
	drift  int64 // ns per second
}

// clock is the time on the controller's machine.
func (s *sim) clock() time.Time { return time.Unix(0, s.now+s.clocks.ahead) }

func (s *sim) both() (time.Time, int64) { return s.clock(), s.now - s.clocks.bootNS }

func (s *sim) bootID() string { return fmt.Sprintf("ctld-boot%d", s.clocks.boot) }

// anyJump returns a random change of a clock: often enough one that puts it right.
func (s *sim) anyJump(ahead int64) int64 {
	switch s.rng.IntN(4) {
	case 0:
		return -ahead
	case 1:
		return int64(s.between(0, 10*time.Second)) - 5e9
	default:
		return int64(s.between(0, 6*time.Hour) - 3*time.Hour)
	}
}

func (s *sim) setClock() {
	by := s.anyJump(s.clocks.ahead)
	s.clocks.set, s.clocks.ahead = true, s.clocks.ahead+by
	s.logf("the controller's clock is set by %v, it is %v ahead", time.Duration(by), time.Duration(s.clocks.ahead))
	s.witness.stats.Seen["clock of the controller set"]++
}

func (s *sim) setNodeClock() {
	m := s.anyNode()
	m.ahead += s.anyJump(m.ahead)
	s.logf("%s: the clock is set, it is %v ahead", m.name, time.Duration(m.ahead))
	s.witness.stats.Seen["clock of a node set"]++
}

// rebootController reboots the controller's machine; its clock may show any time afterwards.
func (s *sim) rebootController() {
	if s.ctl != nil {
		s.ctl.crash("its machine reboots")
	}
	s.clocks.set, s.clocks.ahead = true, s.clocks.ahead+s.anyJump(s.clocks.ahead)
	s.clocks.boot, s.clocks.bootNS = s.clocks.boot+1, s.now
	s.witness.stats.Seen["clock after a reboot"]++
}

// startDrift makes the controller's clock drift by up to a tenth of a second per second.
func (s *sim) startDrift() {
	if s.clocks.drift == 0 {
		s.clocks.set, s.clocks.drift = true, int64(s.between(0, 200*time.Millisecond)-100*time.Millisecond)
		s.after(time.Second, s.driftOn)
	}
}

func (s *sim) driftOn() {
	if s.calm {
		return
	}
	s.clocks.ahead += s.clocks.drift
	s.after(time.Second, s.driftOn)
}

// rightClocks puts all clocks right.
func (s *sim) rightClocks() {
	s.clocks.ahead = 0
	for _, m := range s.nodes {
		m.ahead = 0
	}
}

// began is when an attempt began: the simulated time, and the boot of the controller's machine.
type began struct {
	atNS int64
	boot int
}

// waits checks, in the calm, that nothing waits for a time that only a wrong clock has produced. The workload asks for two
// minutes at most.
func (w *witness) waits(v *state.View) {
	for j := range v.Jobs.All() {
		if state.Pending(j) && max(j.EligibleNs, j.Spec.BeginNs)-w.s.now > int64(3*time.Minute) {
			w.s.fail("%s waits for %v, by a clock that was wrong", jobWords(j), time.Duration(max(j.EligibleNs, j.Spec.BeginNs)-w.s.now))
		}
	}
}

// lengths checks that an attempt did not end before it began, nor take longer than the elapsed time. The clock may be off for the
// second in which it is not checked and for the time until the check takes effect; across a reboot the error is unknown.
func (w *witness) lengths(j *pb.JobRecord) {
	if j.EndNs < j.StartNs {
		w.s.fail("%s ended %v before it began", jobWords(j), time.Duration(j.StartNs-j.EndNs))
	}
	b, ok := w.starts[attemptOf(j)]
	if !ok || b.boot != w.s.clocks.boot {
		return
	}
	if took, most := j.EndNs-j.StartNs, w.s.now-b.atNS; took > most+5e9 {
		w.s.fail("%s took %v, by its record, of %v", jobWords(j), time.Duration(took), time.Duration(most))
	}
}
