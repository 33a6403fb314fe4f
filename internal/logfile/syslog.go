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
// SlurmctldSyslogDebug and SlurmdSyslogDebug of slurm.conf(5) send lines to syslog(3) as well, in the form of RFC 3164, facility daemon.
// Package log/syslog waits for as long as the syslog daemon does not read; here a line that does not fit is left out and counted, because
// a daemon must not stand still for the sake of its second log.

const (
	syslogSocket = "/dev/log"
	facility     = 3 << 3  // LOG_DAEMON
	maxSyslog    = 8 << 10 // bytes of a message: rsyslog's own bound
	redialAfter  = time.Second
)

// off is above all that is logged.
const off = slog.LevelError + 4

// syslog is the connection with the local syslog daemon, made when it is needed.
type syslog struct {
	path  string
	level atomic.Int64 // slog.Level; what is below it is not sent

	mu     sync.Mutex
	fd     int // -1: there is none
	tried  time.Time
	missed int // lines
}

func newSyslog(path string) *syslog {
	s := &syslog{path: path, fd: -1}
	s.level.Store(int64(off))
	return s
}

// SetSyslog sends lines of a level or above to syslog as well; above slog.LevelError: none. It may be called at any time.
func (l *Log) SetSyslog(level slog.Level) { l.syslog.level.Store(int64(level)) }

// Level is for slog.
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

// put sends one message. A connection that has ended, because the syslog daemon was started anew, is made again, once.
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

// Syslog writes lines to syslog, of the level that SetSyslog says.
func (l *Log) Syslog() slog.Handler {
	f := fan{level: l.syslog}
	for _, p := range levels {
		to := sender{l.syslog, p.priority}
		f.by = append(f.by, slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: timeless}))
	}
	return f
}

// sender sends lines of this process, each with one call.
type sender struct {
	to       *syslog
	priority int
}

func (s sender) Write(line []byte) (int, error) {
	s.to.send(s.priority, os.Getpid(), line)
	return len(line), nil // a second log that fails is no reason to complain in it
}
