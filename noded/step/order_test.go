package step_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/clock"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// deaf answers every signal it can by writing its name, and never ends by itself.
const deaf = `#!/usr/bin/python3 -IS
import signal, time, sys, os
names = {}
def on(s, f): os.write(1, (names[s] + "\n").encode())
for name in ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGHUP"):
    s = getattr(signal, name); names[s] = name; signal.signal(s, on)
os.write(1, b"ready\n")
while True: time.sleep(0.02) # a signal just before a long sleep would wait for its end
`

// limit is a time limit in seconds that a job which starts now has begun long before: longer where the machine is slow.
func (n *node) limit() uint32 {
	from := time.Now()
	n.run(n.bundle(), "true")
	return uint32(max(1, math.Ceil(10*time.Since(from).Seconds())))
}

// begunAgo has a step begin so long ago, as after a long prolog.
func begunAgo(b *pb.Bundle, ago time.Duration) { b.BegunBootNs = clock.Boot() - int64(ago) }

func TestTimeLimit(t *testing.T) {
	n := newNode(t)
	limit := n.limit()
	b := n.bundle()
	b.LimitS = limit
	before := clock.Boot()
	rec := n.run(b, "sleep 600")
	if rec.Verdict != "timeout" || rec.WaitStatus != 15 || rec.StoppedOnOrder || rec.EndBootNs < before+int64(limit)*1e9 {
		t.Errorf("default: %v", rec)
	}
	if got := n.output(b); !strings.HasPrefix(got, "slurmstepd: error: *** JOB 2 ON n1 CANCELLED AT 2") ||
		!strings.HasSuffix(got, " DUE TO TIME LIMIT ***\n") {
		t.Errorf("stderr: %q", got)
	}
	// One that does not listen is killed KillWait later, and one that exits 0 on SIGTERM has timed out all the same.
	b = n.bundle()
	begunAgo(b, 0)
	k := n.launch(b, deaf)
	n.awaitOutput(b, "ready")
	end := max(clock.Boot(), b.BegunBootNs+1e9)
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, LimitS: 1})
	rec = n.ended(k)
	// Slurm has 30
	if wait := time.Duration(rec.EndBootNs - end); rec.Verdict != "timeout" || rec.WaitStatus != 9 || wait < time.Second ||
		wait >= 30*time.Second {
		t.Errorf("deaf: %v after %v, want SIGKILL after 1 s", rec, wait)
	}
	if got := n.output(b); !strings.Contains(got, "SIGTERM\n") || !strings.Contains(got, "SIGCONT\n") {
		t.Errorf("deaf: got %q, want SIGCONT and SIGTERM", got)
	}
	b = n.bundle()
	begunAgo(b, time.Second)
	k = n.launch(b, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	n.awaitOutput(b, "ready")
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, LimitS: 1})
	if rec = n.ended(k); rec.Verdict != "timeout" || rec.WaitStatus != 0 {
		t.Errorf("polite: %v", rec)
	}
}

// TestLimitByBootClock: the limit is so many seconds of CLOCK_BOOTTIME from when the step began.
func TestLimitByBootClock(t *testing.T) {
	n := newNode(t)
	n.fifo("go")
	long := n.bundle()
	long.LimitS = 3600
	k := n.launch(long, "read line < go; exit 7")
	short := n.bundle()
	short.LimitS = 1
	before := clock.Boot()
	if x := n.run(short, "sleep 600"); x.Verdict != "timeout" || x.EndBootNs-before < 1e9 || x.EndNs-x.StartNs != x.RanNs {
		t.Errorf("a limit of one second: %v", x)
	}
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, LimitS: 3600})
	n.write("go", "")
	if x := n.ended(k); x.Verdict != "exited" || x.WaitStatus != 7<<8 || x.BootId != clock.BootID() || x.EndBootNs <= 0 ||
		x.EndBootNs > clock.Boot() {
		t.Errorf("a limit of an hour: %v", x)
	}
	waited := n.bundle() // its prolog took longer than the job may
	waited.LimitS = 60
	begunAgo(waited, 61*time.Second)
	if x := n.run(waited, "sleep 600"); x.Verdict != "timeout" {
		t.Errorf("a limit that was reached before: %v", x)
	}
}

func TestTimeLimitMoves(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	b.LimitS = 3600
	begunAgo(b, time.Second)
	k := n.launch(b, "sleep 600")
	n.running(k)
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, LimitS: 1})
	if rec := n.ended(k); rec.Verdict != "timeout" {
		t.Errorf("shortened: %v", rec)
	}
	limit := n.limit()
	extended := map[string]*pb.StepKey{}
	for to, seconds := range map[string]uint32{"an hour": 3600, "no limit": 0} {
		b = n.bundle()
		b.LimitS = limit
		extended[to] = n.launch(b, fmt.Sprintf("sleep %d; exit 7", 2*limit))
		n.order(&pb.StepOrder{Key: extended[to], Want: pb.StepWant_WANT_RUN, LimitS: seconds})
	}
	for to, k := range extended {
		if rec := n.ended(k); rec.Verdict != "exited" || rec.WaitStatus != 7<<8 {
			t.Errorf("extended to %s: %v", to, rec)
		}
	}
}

func TestWarnSignal(t *testing.T) {
	n := newNode(t)
	for _, batch := range []bool{true, false} {
		b := n.bundle()
		b.LimitS = 3600
		b.WarnSignal, b.WarnSeconds, b.WarnBatch = uint32(unix.SIGUSR1), 60, batch
		k := n.launch(b, deaf)
		n.awaitOutput(b, "ready")
		n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, LimitS: 60}) // the warning is due
		if batch {
			n.awaitOutput(b, "SIGUSR1\n")
		}
		n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_KILL})
		n.ended(k)
		// Without B: the signal goes to steps only, not to the batch shell.
		if got := strings.Contains(n.output(b), "SIGUSR1\n"); got != batch {
			t.Errorf("B=%v: the batch shell got it: %v", batch, got)
		}
	}
}

// A warning that is due when the job starts waits for the script's trap: --signal=B:USR1@60 with a limit of one minute.
func TestWarnSignalWaitsForTrap(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	b.LimitS = 600
	b.WarnSignal, b.WarnSeconds, b.WarnBatch = uint32(unix.SIGUSR1), 3600, true
	k := n.launch(b, "trap 'exit 7' USR1\necho trapped\nwhile :; do sleep 0.05; done")
	if rec := n.ended(k); rec.Verdict != "exited" || rec.WaitStatus != 7<<8 {
		t.Errorf("warned at once: %v", rec)
	}
	if got := n.output(b); got != "trapped\n" {
		t.Errorf("output %q", got)
	}
}

// The line about a cancelled job comes once, however many signals ask it to end.
func TestFarewellComesOnce(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	k := n.launch(b, deaf)
	n.awaitOutput(b, "ready")
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, Signals: []*pb.Signal{{Seq: 1, Signal: uint32(unix.SIGTERM), Target: 2}}})
	n.awaitOutput(b, "SIGTERM\n")
	if got := n.output(b); strings.Count(got, " CANCELLED AT ") != 1 {
		t.Errorf("after scancel --full --signal=TERM: %q", got)
	}
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, Signals: []*pb.Signal{{Seq: 2, Signal: uint32(unix.SIGTERM), Target: 1}}})
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	n.ended(k)
	if got := n.output(b); strings.Count(got, " CANCELLED AT ") != 1 {
		t.Errorf("at the end: %q", got)
	}
}

func TestStop(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	k := n.launch(b, deaf)
	n.awaitOutput(b, "ready")
	at := time.Now()
	for range 3 { // a level, not an edge
		n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP, StopReason: "preempt"})
	}
	rec := n.ended(k)
	if took := time.Since(at); rec.Verdict != "cancelled" || !rec.StoppedOnOrder || rec.WaitStatus != 9 || took < time.Second {
		t.Errorf("stop: %v after %v, want KillWait of 1 s and SIGKILL", rec, took)
	}
	if got := n.output(b); strings.Count(got, "SIGTERM\n") != 1 || !strings.Contains(got, " DUE TO PREEMPTION ***") {
		t.Errorf("output %q, want one SIGTERM and the reason", got)
	}
	b = n.bundle()
	b.KillWaitS = 600
	k = n.launch(b, deaf)
	n.awaitOutput(b, "ready")
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	n.awaitOutput(b, "SIGTERM")
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_KILL})
	if rec := n.ended(k); rec.Verdict != "cancelled" || rec.WaitStatus != 9 {
		t.Errorf("kill: %v", rec)
	}
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP}) // one that has ended: no error
	n.order(&pb.StepOrder{Key: &pb.StepKey{JobId: 999}, Want: pb.StepWant_WANT_STOP})
}

// TestStopOfATree: SIGTERM reaches children too, and the batch shell's own exit ends the job.
func TestStopOfATree(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	k := n.launch(b,
		"trap 'echo shell' TERM\nsh -c 'trap \"echo child; exit\" TERM; echo up; while :; do sleep 0.05; done' &\nwait; wait; exit 9")
	n.awaitOutput(b, "up")
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	rec := n.ended(k)
	if got := n.output(b); rec.Verdict != "cancelled" || rec.WaitStatus != 9<<8 || !strings.Contains(got, "shell\n") ||
		!strings.Contains(got, "child\n") {
		t.Errorf("record %v, output %q", rec, got)
	}
}

func TestNumberedSignals(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	// The child tells its signals too.
	k := n.launch(b, strings.Replace(deaf, `os.write(1, b"ready`,
		"pid = os.fork()\nif pid == 0:\n    for s in names: names[s] = 'child ' + names[s]\nos.write(1, b\"ready", 1))
	n.awaitOutput(b, "ready\nready")
	usr1 := &pb.Signal{Seq: 1, Signal: uint32(unix.SIGUSR1), Target: 1} // scancel --batch
	usr2 := &pb.Signal{Seq: 2, Signal: uint32(unix.SIGUSR2), Target: 2} // scancel --full
	hup := &pb.Signal{Seq: 3, Signal: uint32(unix.SIGHUP), Target: 0}   // scancel: steps only
	n.order(&pb.StepOrder{Key: k, Signals: []*pb.Signal{usr1}})
	n.awaitOutput(b, "SIGUSR1\n")
	n.order(&pb.StepOrder{Key: k, Signals: []*pb.Signal{usr2, usr1}})
	n.awaitOutput(b, "child SIGUSR2\n")
	n.restart()
	n.order(&pb.StepOrder{Key: k, Signals: []*pb.Signal{hup, usr2, usr1}})
	n.await(k, "signal 3 seen", func(r *pb.StepReport) bool { return r.SignalsSeen == 3 })
	n.order(&pb.StepOrder{Key: k, Signals: []*pb.Signal{{Seq: 4, Signal: uint32(unix.SIGKILL), Target: 0}}})
	if rec := n.ended(k); rec.Verdict != "signaled" || rec.WaitStatus != 9 {
		t.Errorf("SIGKILL without --batch ends the job: %v", rec)
	}
	got := strings.ReplaceAll(n.output(b), "child SIGUSR2\n", "C2\n")
	if strings.Count(got, "SIGUSR1\n") != 1 || strings.Count(got, "SIGUSR2\n") != 1 || strings.Count(got, "C2\n") != 1 ||
		strings.Contains(got, "HUP") {
		t.Errorf("each signal once, to its target: %q", got)
	}
}

// awaitFrozen waits until the kernel says that a step's processes are frozen: it does that to each when it next runs, which on a busy
// machine takes its time.
func (n *node) awaitFrozen(b *pb.Bundle) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		for _, dir := range n.groupDirs() {
			events, _ := os.ReadFile(filepath.Join(dir, b.Cgroup, "batch", "cgroup.events"))
			state, _ := os.ReadFile(filepath.Join(dir, b.Cgroup, "batch", "freezer.state"))
			if strings.Contains(string(events), "frozen 1") || string(state) == "FROZEN\n" {
				return
			}
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s is not frozen in any of %v", b.Cgroup, n.groupDirs())
		}
	}
}

func TestSuspend(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	b.LimitS = 3600
	begunAgo(b, time.Second)
	k := n.launch(b, "while :; do echo x; sleep 0.01; done")
	n.awaitOutput(b, "x\nx\n")
	// Its limit passes while it is suspended: that does not count.
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, Suspended: true, LimitS: 1})
	n.awaitFrozen(b)
	size := len(n.output(b))
	time.Sleep(150 * time.Millisecond) // the absence of an event has no event to wait for
	if len(n.output(b)) != size {
		t.Error("suspended, but it writes on")
	}
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, LimitS: 3600})
	awaitFile(t, b.StdOut.Path, func(s string) bool { return len(s) > size })
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, Suspended: true})
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	if rec := n.ended(k); rec.Verdict != "cancelled" || rec.WaitStatus != 15 {
		t.Errorf("stopped while suspended: %v", rec)
	}
}

func TestHoldOnly(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	b.HoldOnly = true
	k := n.launch(b, "")
	if rep := n.running(k); rep.Pid != 0 {
		t.Errorf("holds, but has process %d", rep.Pid)
	}
	if len(n.groupDirs()) > 0 {
		held := false
		for _, d := range n.groupDirs() {
			_, err := os.Stat(d + "/" + b.Cgroup)
			held = held || err == nil
		}
		if !held {
			t.Error("no cgroup")
		}
	}
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	if rec := n.ended(k); rec.Verdict != "exited" || rec.WaitStatus != 0 || !rec.StoppedOnOrder {
		t.Errorf("released: %v", rec)
	}
}
