package stepd

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/clock"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// A warning (sbatch --signal) can be due the moment a job starts: --signal=B:USR1@60 with a limit of one minute. A batch script
// has no trap by then, and the signal would end it. Slurm sends such warnings when slurmctld next checks running jobs, up to 30
// seconds later (PERIODIC_TIMEOUT). Here the warning waits until the batch shell has changed the signal's default action, at most
// as long as in Slurm's worst case.
const (
	warnGrace = 30 * time.Second
	warnAgain = 100 * time.Millisecond
)

func (r *run) warnDue() bool {
	return r.b.WarnSignal != 0 && !r.warned && r.phase == pb.StepPhase_STEP_RUNNING
}

// warnTime returns when to send the warning, or when to check again whether it can be sent.
func (r *run) warnTime(now time.Time) time.Time {
	at := now.Add(time.Duration(r.limit.at() - clock.Boot() - int64(r.b.WarnSeconds)*int64(time.Second)))
	if at.Before(r.warnAt) {
		return r.warnAt
	}
	return at
}

// warn sends a warning that is due, unless the batch shell is not ready for it.
func (r *run) warn(now time.Time) {
	target := uint32(targetSteps)
	if r.b.WarnBatch {
		target = targetBatch
		if clock.Boot()-r.startUp < int64(warnGrace) && byDefault(r.pid, unix.Signal(r.b.WarnSignal)) {
			r.warnAt = now.Add(warnAgain)
			return
		}
	}
	r.warned = true
	r.deliver(&pb.Signal{Signal: r.b.WarnSignal, Target: target})
}

// byDefault reports whether a signal has its default action in a process: it could be caught, ignored or blocked, but is not.
// False if the kernel does not tell.
func byDefault(pid int, sig unix.Signal) bool {
	if sig == unix.SIGKILL || sig == unix.SIGSTOP || sig < 1 || sig > 64 {
		return false
	}
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	defer f.Close()
	return defaultAction(bufio.NewScanner(f), sig)
}

// defaultAction reads the lines of proc_pid_status(5).
func defaultAction(lines *bufio.Scanner, sig unix.Signal) bool {
	known := false
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "SigBlk", "SigIgn", "SigCgt":
			mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil || mask&(1<<(sig-1)) != 0 {
				return false
			}
			known = true
		}
	}
	return known
}
