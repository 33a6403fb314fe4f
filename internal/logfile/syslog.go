package logfile

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// # Syslog
//
// SlurmctldSyslogDebug and SlurmdSyslogDebug of slurm.conf(5) also send lines to syslog(3), in the format of RFC 3164, facility
// daemon. Package log/syslog blocks while the syslog daemon does not read; here a line that does not fit is dropped and counted,
// because a daemon must not stop because of its second log.

const (
	syslogSocket = "/dev/log"
	facility     = 3 << 3  // LOG_DAEMON
	maxSyslog    = 8 << 10 // bytes of a message: rsyslog's own limit
	redialAfter  = time.Second
)

// off is above every level in use.
const off = slog.LevelError + 4

// syslog is the connection to the local syslog daemon, opened on demand.
type syslog struct {
	path  string
	level atomic.Int64 // slog.Level; lower levels are not sent

	mu     sync.Mutex
	fd     int // -1: none
	tried  time.Time
	missed int // lines
}

func newSyslog(path string) *syslog {
	s := &syslog{path: path, fd: -1}
	s.level.Store(int64(off))
	return s
}

// SetSyslog also sends lines of a level or above to syslog; above slog.LevelError: none. It may be called at any time.
func (l *Log) SetSyslog(level slog.Level) { l.syslog.level.Store(int64(level)) }

// Level implements slog.Leveler.
func (s *syslog) Level() slog.Level { return slog.Level(s.level.Load()) }

// send sends one line of a process. priority is that of syslog(3) without a facility.
func (s *syslog) send(priority, pid int, line []byte) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 && !s.dial(now) {
		s.missed++
		return
	}
	if s.missed > 0 {
		if !s.put(now, 4, os.Getpid(), fmt.Sprintf("level=WARN msg=\"lines to syslog are left out\" lines=%d", s.missed)) {
			s.missed++
			return
		}
		s.missed = 0
	}
	if !s.put(now, priority, pid, strings.TrimSuffix(string(line), "\n")) {
		s.missed++
	}
}

func (s *syslog) dial(now time.Time) bool {
	if now.Sub(s.tried) < redialAfter && now.After(s.tried) {
		return false
	}
	s.tried = now
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: s.path}); err != nil {
		_ = unix.Close(fd)
		return false
	}
	s.fd = fd
	return true
}

// put sends one message. If the syslog daemon was restarted, it reconnects, once.
func (s *syslog) put(now time.Time, priority, pid int, text string) bool {
	head := fmt.Sprintf("<%d>%s %s[%d]: ", facility|priority, now.Format(time.Stamp), program(), pid)
	message := []byte(head + text)
	message = message[:min(len(message), maxSyslog)]
	for range 2 {
		if s.fd < 0 && !s.dial(now) {
			return false
		}
		switch err := unix.Send(s.fd, message, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err {
		case nil:
			return true
		case unix.EAGAIN, unix.ENOBUFS, unix.EMSGSIZE, unix.ENOMEM:
			return false
		}
		_ = unix.Close(s.fd)
		s.fd = -1
	}
	return false
}

// Syslog returns a handler that writes to syslog the levels selected by SetSyslog.
func (l *Log) Syslog() slog.Handler {
	f := fan{level: l.syslog}
	for _, p := range levels {
		to := sender{l.syslog, p.priority}
		f.by = append(f.by, slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: timeless}))
	}
	return f
}

// sender sends lines of this process, one call each.
type sender struct {
	to       *syslog
	priority int
}

func (s sender) Write(line []byte) (int, error) {
	s.to.send(s.priority, os.Getpid(), line)
	return len(line), nil // do not report failures of the second log in itself
}
