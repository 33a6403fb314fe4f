package simtest

import (
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// script is what a batch script will do, decided at submission.
type script struct {
	run     time.Duration // until it ends by itself
	verdict string        // exited, signaled, oom, output_failed
	status  uint32        // wait status
	onTERM  int           // dies, traps (and exits 0), ignores
	lingers time.Duration // its leftover processes keep the cgroup for so long
}

const (
	dies = iota
	traps
	ignores
)

// shim is one step attempt: its directory in the spool and its processes. It outlives the node daemon.
type shim struct {
	m      *machine
	key    agent.Key
	hold   bool // no process of the user: only holds the allocation
	script script
	bundle *pb.Bundle

	phase   pb.StepPhase
	exit    *pb.ExitRecord // once on disk
	seen    uint32         // highest numbered signal
	limitS  uint32
	begunNS int64
	sleptNS int64 // suspended so far
	sinceNS int64 // suspended since
	stop    string
	onOrder bool
	frozen  bool
	left    time.Duration // of the script, while frozen
	doneNS  int64         // when the script ends by itself

	alive   bool // processes exist
	refused bool // never began: the answer to an order that cannot be carried out
	killed  bool // the shim itself has died and will write no record
	timer   int  // number of the timer in force; older ones do nothing
}

func (m *machine) launch(k agent.Key, b *pb.Bundle, l *pb.LaunchSpec) *shim {
	sh := &shim{m: m, key: k, bundle: b, hold: !l.Batch && l.Step == nil, script: m.s.scriptOf(l), phase: pb.StepPhase_STEP_RUNNING,
		limitS: b.LimitS, begunNS: m.s.now, alive: true}
	m.spool[k] = sh
	m.s.witness.started(m, sh, l)
	if !sh.hold {
		sh.runFor(sh.script.run)
	}
	sh.arm()
	return sh
}

func (sh *shim) after(d time.Duration, f func()) {
	sh.timer++
	n := sh.timer
	sh.m.s.after(d, func() {
		if sh.timer == n && sh.alive {
			f()
		}
	})
}

func (sh *shim) runFor(d time.Duration) {
	sh.doneNS = sh.m.s.now + int64(d)
	sh.after(d, func() { sh.done(sh.script.verdict, sh.script.status) })
}

// endNS is when its time limit ends, by CLOCK_BOOTTIME. The time before its prolog counts.
func (sh *shim) endNS() int64 { return sh.bundle.BegunBootNs + int64(sh.limitS)*1e9 + sh.sleptNS }

// arm sets a timer for the current time limit.
func (sh *shim) arm() {
	if sh.limitS == 0 {
		return
	}
	end := sh.endNS()
	sh.m.s.at(end, func() {
		if sh.limitS != 0 && sh.endNS() == end && sh.alive && !sh.killed && !sh.frozen && sh.stop == "" &&
			sh.phase == pb.StepPhase_STEP_RUNNING {
			sh.end("timeout", false)
		}
	})
}

// order applies an order that the daemon passes on.
func (sh *shim) order(o *pb.StepOrder) {
	if sh.killed || sh.phase != pb.StepPhase_STEP_RUNNING {
		return
	}
	switch o.Want {
	case pb.StepWant_WANT_RUN:
		sh.suspend(o.Suspended)
		if sh.limitS != o.LimitS || !sh.frozen {
			sh.limitS = o.LimitS
			sh.arm()
		}
	case pb.StepWant_WANT_STOP:
		sh.end(orElse(o.StopReason, "cancel"), true)
	case pb.StepWant_WANT_KILL:
		sh.end(orElse(o.StopReason, "cancel"), true)
		sh.kill()
	}
	for _, sig := range o.Signals {
		if sig.Seq > sh.seen {
			sh.seen = sig.Seq
			sh.signal(sig)
		}
	}
}

// signal delivers a numbered signal once.
func (sh *shim) signal(sig *pb.Signal) {
	if (sig.Target == pb.SignalAll || !sh.key.Holder()) && !sh.hold && !sh.frozen && sh.stop == "" && sh.script.onTERM == dies &&
		sh.phase == pb.StepPhase_STEP_RUNNING {
		sh.after(10*time.Millisecond, func() { sh.done("signaled", sig.Signal) })
	}
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func (sh *shim) suspend(want bool) {
	switch {
	case want == sh.frozen || sh.stop != "":
	case sh.hold && want:
		sh.frozen, sh.sinceNS = true, sh.m.s.now
	case sh.hold:
		sh.frozen, sh.sleptNS = false, sh.sleptNS+sh.m.s.now-sh.sinceNS
	case want:
		sh.frozen, sh.left, sh.sinceNS = true, time.Duration(sh.doneNS-sh.m.s.now), sh.m.s.now
		sh.timer++
	default:
		sh.frozen, sh.sleptNS = false, sh.sleptNS+sh.m.s.now-sh.sinceNS
		sh.runFor(max(sh.left, 0))
	}
}

// end starts the end, as SIGTERM does.
func (sh *shim) end(why string, onOrder bool) {
	if sh.stop != "" || sh.phase != pb.StepPhase_STEP_RUNNING {
		return
	}
	sh.stop, sh.onOrder, sh.frozen = why, onOrder, false
	switch {
	case sh.hold:
		sh.done("exited", 0)
	case sh.script.onTERM == traps:
		sh.after(sh.m.s.between(0, 2*time.Second), func() { sh.done("exited", 0) })
	case sh.script.onTERM == ignores:
		sh.after(killWaitS*time.Second, func() { sh.done("signaled", 9) })
	default:
		sh.after(sh.m.s.between(0, 100*time.Millisecond), func() { sh.done("signaled", 15) })
	}
}

func (sh *shim) kill() {
	if sh.phase == pb.StepPhase_STEP_RUNNING && !sh.hold {
		sh.after(10*time.Millisecond, func() { sh.done("signaled", 9) })
	}
}

// done is the end of the first process; leftovers may keep the cgroup for a while.
func (sh *shim) done(verdict string, status uint32) {
	if sh.killed { // nobody watches
		sh.alive = false
		sh.m.s.witness.vanished(sh)
		return
	}
	if sh.stop == "timeout" && !sh.hold {
		verdict = "timeout"
	} else if sh.stop != "" && !sh.hold {
		verdict = "cancelled"
	}
	sh.phase = pb.StepPhase_STEP_COMPLETING
	x := &pb.ExitRecord{Key: sh.key.Proto(), Verdict: verdict, WaitStatus: status, StoppedOnOrder: sh.onOrder}
	if sh.onOrder {
		x.StopReason = sh.stop
	}
	sh.m.told(sh)
	sh.after(sh.script.lingers, func() {
		if sh.killed {
			sh.alive = false
			sh.m.s.witness.vanished(sh)
			return
		}
		x.RanNs, x.BootId, x.EndBootNs = sh.m.s.now-sh.begunNS, sh.m.bootID(), sh.m.s.now
		x.StartNs, x.EndNs = sh.m.wall()-x.RanNs, sh.m.wall()
		sh.record(x)
	})
}

// record writes the exit record: the cgroup is empty.
func (sh *shim) record(x *pb.ExitRecord) {
	sh.alive, sh.exit, sh.phase = false, x, pb.StepPhase_STEP_ENDED
	sh.timer++
	sh.m.s.witness.ended(sh)
	sh.m.told(sh)
}

// bury does what the runner does for a dead shim: it kills leftovers and writes the record itself.
func (sh *shim) bury() {
	sh.record(&pb.ExitRecord{Key: sh.key.Proto(), Verdict: "lost", Detail: "its shim died", EndNs: sh.m.wall()})
}
