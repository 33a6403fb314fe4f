package stepd

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// shortJob is how long the runtime's poller waits for the end of the first process before a thread blocks in wait4. Long jobs
// need that thread, so that orphans do not pile up as zombies. For a short job it would cost more than the exec: the runtime
// polls for such threads every 20 µs.
const shortJob = 50 * time.Millisecond

// reap runs beside the step's loop and returns when no descendant is left.
func reap(events chan<- event, first, pidfd int, floor uint64, after []*epilog) {
	awaitExit(pidfd, shortJob)
	var sum reaped
	var status syscall.WaitStatus
	got, broken := false, false
	last := epilogs{}
	for flags := 0; ; {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := waitNext(&sum, &ws, flags, &ru)
		switch {
		case err != nil: // ECHILD
			events <- event{kind: evGone, status: status, hasStatus: got, use: sum, broken: broken}
			return
		case pid == 0: // the first process has ended, others run
			events <- event{kind: evFirst, status: status, hasStatus: true}
			flags = 0
			continue
		case ws.Stopped() || ws.Continued():
			continue
		}
		sum.add(&ru, floor)
		if pid == first && !got {
			status, got = ws, true
			last[first] = epilogsOf{first, after}
		}
		if _, waited := last[pid]; waited {
			broken = last.next(pid) || broken
			if len(last) == 0 {
				flags = syscall.WNOHANG
			}
		}
	}
}

// awaitExit returns when the process has ended or the time is over. Without a pidfd (Linux before 5.3) it returns at once.
func awaitExit(pidfd int, limit time.Duration) {
	if pidfd < 0 {
		return
	}
	fd, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return
	}
	_ = unix.SetNonblock(fd, true)
	f := os.NewFile(uintptr(fd), "pidfd") // nonblocking: the poller takes it
	defer f.Close()
	if f.SetReadDeadline(time.Now().Add(limit)) != nil {
		return
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
