package pretend

import (
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// step is a step that is simulated as running. Its fields are guarded by its life's lock.
type step struct {
	l         *life
	key       agent.Key
	hold      bool // no script: only holds the allocation
	cpus      uint32
	memoryMiB uint64
	script    script

	startNS int64
	begun   time.Duration // by CLOCK_BOOTTIME, as the next ones
	frozen  time.Duration // suspended since; 0: not suspended
	slept   time.Duration // suspended so far
	limit   time.Duration // time limit including OverTimeLimit; 0: none
	over    time.Duration
	seen    uint32
	timer   *time.Timer
	exit    *pb.ExitRecord
}

func newStep(l *life, k agent.Key, o *nodepb.Launch) *step {
	b := o.Bundle
	s := &step{l: l, key: k, hold: b.GetHoldOnly(), cpus: b.GetCpus(), memoryMiB: b.GetLimits().GetMemoryMib(), script: read(o.Script),
		startNS: time.Now().UnixNano(), begun: now(), over: time.Duration(b.GetOverTimeS()) * time.Second}
	s.limitTo(b.GetLimitS())
	s.timer = time.AfterFunc(forever, func() { s.due() })
	return s
}

// forever is no time limit, or a script without an end.
const forever = 100 * 365 * 24 * time.Hour

func (s *step) limitTo(seconds uint32) {
	s.limit = 0
	if seconds != 0 && seconds != pb.Unlimited {
		s.limit = time.Duration(seconds)*time.Second + s.over
	}
}

func (s *step) running() bool { return s.exit == nil }

// ran returns how long the step was not suspended.
func (s *step) ran() time.Duration {
	end := now()
	if s.frozen != 0 {
		end = s.frozen
	}
	return end - s.begun - s.slept
}

// left returns the time until the step ends if nothing happens.
func (s *step) left() (d time.Duration, timeout bool) {
	d = forever
	if !s.hold {
		d = s.script.takes
	}
	if s.limit != 0 && s.limit < d {
		d, timeout = s.limit, true
	}
	return d - s.ran(), timeout
}

// plan sets the timer for the end.
func (s *step) plan() {
	if !s.running() || s.frozen != 0 {
		s.timer.Stop()
		return
	}
	d, _ := s.left()
	s.timer.Reset(max(d, 0))
}

// due is called when the end may have come.
func (s *step) due() {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.l.ended || !s.running() || s.frozen != 0 {
		return
	}
	d, timeout := s.left()
	switch {
	case d > 0:
		s.timer.Reset(d)
	case timeout:
		s.done(pb.VerdictTimeout, uint32(unix.SIGTERM), false)
	default:
		s.done(pb.VerdictExited, s.script.status<<8, false)
	}
}

// order applies the controller's order to a running step.
func (s *step) order(o *pb.StepOrder) {
	if o.Want == pb.StepWant_WANT_STOP || o.Want == pb.StepWant_WANT_KILL {
		switch {
		case s.hold:
			s.done(pb.VerdictExited, 0, true)
		case o.StopReason == pb.StopTimeout:
			s.done(pb.VerdictTimeout, uint32(unix.SIGTERM), true)
		default:
			s.done(pb.VerdictCancelled, uint32(unix.SIGTERM), true)
		}
		return
	}
	s.limitTo(o.LimitS)
	s.suspend(o.Suspended)
	var deadly uint32
	news := false
	for _, sig := range o.Signals {
		if sig.Seq > s.seen {
			s.seen, news = sig.Seq, true
			if sig.Target == pb.SignalAll && ends(unix.Signal(sig.Signal)) {
				deadly = sig.Signal
			}
		}
	}
	switch {
	case deadly != 0 && !s.hold && s.frozen == 0:
		s.done(pb.VerdictSignaled, deadly, false)
		return
	case news:
		s.l.report(s)
	}
	s.plan()
}

// ends reports whether a script without a trap dies of a signal.
func ends(s unix.Signal) bool {
	return s != unix.SIGCHLD && s != unix.SIGURG && s != unix.SIGWINCH && s != unix.SIGCONT && s != unix.SIGSTOP && s != unix.SIGTSTP
}

func (s *step) suspend(want bool) {
	switch {
	case s.hold || want == (s.frozen != 0):
	case want:
		s.frozen = now()
	default:
		s.slept += now() - s.frozen
		s.frozen = 0
	}
}

// done ends the step.
func (s *step) done(verdict string, status uint32, onOrder bool) {
	s.timer.Stop()
	ran := s.ran()
	u := s.usage()
	u.Key = nil
	s.exit = &pb.ExitRecord{Key: s.key.Proto(), Verdict: verdict, WaitStatus: status, StoppedOnOrder: onOrder, StartNs: s.startNS,
		EndNs: time.Now().UnixNano(), RanNs: int64(ran), BootId: s.l.boot, EndBootNs: int64(now()), MaxRssKib: u.MaxRssKib,
		CpuUsecUser: u.CpuUsecUser, CpuUsecSystem: u.CpuUsecSystem, Usage: u}
	s.l.report(s)
}

// usage returns the simulated use of a step: nine tenths of its processors, half of its memory.
func (s *step) usage() *pb.StepUsage {
	us := uint64(s.ran().Microseconds()) * uint64(s.cpus)
	rss := max(s.memoryMiB, 8) << 9
	return &pb.StepUsage{Key: s.key.Proto(), CpuUsecUser: us / 10 * 9, CpuUsecSystem: us / 100, RssKib: rss, MaxRssKib: rss, VmKib: 2 * rss,
		MaxVmKib: 2 * rss}
}
