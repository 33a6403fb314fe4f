// Package logfile is a daemon's log file, which can be reopened, also under another name, while it is in use (slurm.conf(5),
// LOGGING: logrotate moves the file away and sends SIGUSR2).
//
// All holders of a Log's *os.File follow at once, including child processes started later, because Reopen replaces the file behind
// the descriptor (dup3). Rejected: a writer that swaps an *os.File under a lock, which would do for slog but not for shims and
// crash reports, which need the descriptor.
package logfile

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// mode is that of Slurm's logs, because logs name jobs, users and paths.
const mode = 0o600

// Log is an open log. Its methods are for one goroutine at a time, except Write.
type Log struct {
	file    *os.File
	path    string
	journal atomic.Bool // file is the journal's stream
	style   atomic.Pointer[style]
	syslog  *syslog
}

// Open opens the log for appending; "" means standard error.
func Open(path string) (*Log, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	l := &Log{file: f, path: path, syslog: newSyslog(syslogSocket)}
	l.style.Store(&style{})
	l.journal.Store(toJournal(f))
	l.reportCrashes()
	return l, nil
}

// open returns a separate descriptor, so that it can be replaced.
func open(path string) (*os.File, error) {
	if path == "" {
		fd, err := unix.FcntlInt(os.Stderr.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("cannot log to standard error: %w", err)
		}
		return os.NewFile(uintptr(fd), "standard error"), nil
	}
	if !filepath.IsAbs(path) {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("cannot tell where the log %s is: %w", path, err)
		}
		path = abs
	}
	// Non-blocking: the file may be a FIFO without a reader.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log: %w", err)
	}
	return f, nil
}

// Reopen continues in the named file, creating it if necessary. After an error the log is unchanged.
func (l *Log) Reopen(path string) error {
	f, err := open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	// Fd sets the descriptor to blocking mode, which is harmless for a regular file or standard error.
	if err := unix.Dup3(int(f.Fd()), int(l.file.Fd()), unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("cannot change to the log %s: %w", path, err)
	}
	l.path = path
	l.journal.Store(toJournal(l.file))
	l.reportCrashes()
	return nil
}

// Path returns the path of the log, "" for standard error.
func (l *Log) Path() string { return l.path }

// Apart reports whether the log is not standard error: messages printed there must then also be logged.
func (l *Log) Apart() bool {
	a, err1 := l.file.Stat()
	b, err2 := os.Stderr.Stat()
	return err1 != nil || err2 != nil || !os.SameFile(a, b)
}

// reportCrashes also writes a fatal panic to the log if that is not standard error.
func (l *Log) reportCrashes() {
	if !l.Apart() {
		_ = debug.SetCrashOutput(nil, debug.CrashOptions{})
		return
	}
	_ = debug.SetCrashOutput(l.file, debug.CrashOptions{})
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) { return l.file.Write(p) }

// File returns the log for child processes.
func (l *Log) File() *os.File { return l.file }
