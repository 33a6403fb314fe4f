package logfile

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// # Time stamps
//
// By default a line has the time in UTC or with its zone, to milliseconds (RFC 3339). LogTimeFormat of slurm.conf(5) selects
// another format.

// stamp formats the time of a line of a process.
type stamp func(t time.Time, pid int) string

// stamps are the words of LogTimeFormat.
var stamps = map[string]stamp{
	"iso8601":    layout("2006-01-02T15:04:05"),
	"iso8601_ms": layout("2006-01-02T15:04:05.000"),
	"rfc5424":    layout("2006-01-02T15:04:05-07:00"),
	"rfc5424_ms": layout("2006-01-02T15:04:05.000-07:00"),
	"short":      layout("Jan 02 15:04:05"),
	"clock":      func(_ time.Time, pid int) string { return strconv.FormatInt(processorTime(pid).Microseconds(), 10) },
	"thread_id": func(t time.Time, pid int) string {
		thread := pid // the thread of another process is not known
		if pid == os.Getpid() {
			thread = unix.Gettid()
		}
		return fmt.Sprintf("%s %d %s %d", t.Format("Mon Jan _2 15:04:05.000000"), pid, program(), thread)
	},
}

func layout(l string) stamp { return func(t time.Time, _ int) string { return t.Format(l) } }

// onStderr is the word of LogTimeFormat that adds the time to lines in the journal.
const onStderr = "format_stderr"

// The variables by which a child of this daemon learns how to write to this log's file, which is its standard error: LogTimeFormat,
// and the level from which on it logs to syslog. Options would not do: the child may be of an older version, which exits when given
// an unknown option.
const (
	timeVar   = "SLUICE_LOG_TIME"
	syslogVar = "SLUICE_LOG_SYSLOG"
)

// OpenChild opens the log of a process started with Environment. It removes the variables from the environment.
func OpenChild() (*Log, error) {
	l, err := Open("")
	if err != nil {
		return nil, err
	}
	format, syslog := os.Getenv(timeVar), os.Getenv(syslogVar)
	if err := errors.Join(os.Unsetenv(timeVar), os.Unsetenv(syslogVar)); err != nil {
		return nil, err
	}
	l.SetTime(format)
	if syslog != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(syslog)); err != nil {
			return nil, err
		}
		l.SetSyslog(level)
	}
	return l, nil
}

// Environment returns the variables for a child at this moment, as "NAME=value".
func (l *Log) Environment() (env []string) {
	if s := l.style.Load(); s.text != "" {
		env = append(env, timeVar+"="+s.text)
	}
	if level := l.syslog.Level(); level < off {
		env = append(env, syslogVar+"="+level.String())
	}
	return env
}

// style is the format of lines.
type style struct {
	text   string
	stamp  stamp // nil: the default
	stderr bool  // format_stderr
}

// SetTime sets the format of the time to a value of LogTimeFormat that package conf has checked; "" is the default. It may be
// called at any time.
func (l *Log) SetTime(format string) {
	s := &style{text: format}
	for word := range strings.SplitSeq(format, ",") {
		s.stderr = s.stderr || word == onStderr
		if f := stamps[word]; f != nil {
			s.stamp = f
		}
	}
	l.style.Store(s)
}

// attr formats the time attribute of a line of this process.
func (s *style) attr(a slog.Attr) slog.Attr {
	if s.stamp == nil {
		return a
	}
	return slog.String(a.Key, s.stamp(a.Value.Time(), os.Getpid()))
}

// rewrite converts the time of another process's line from slog's default format to this style.
func (s *style) rewrite(value string, pid int) string {
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil || s.stamp == nil {
		return value
	}
	value = s.stamp(t.Local(), pid)
	if strings.ContainsAny(value, " \"=") {
		return strconv.Quote(value)
	}
	return value
}

// processorTime is the CPU time of all threads of a process: clock(3), but for any process.
func processorTime(pid int) time.Duration {
	var used unix.Timespec
	const ofProcess = 2 // CPUCLOCK_SCHED, <linux/posix-timers.h>: the low bits of such a clock's number
	if err := unix.ClockGettime(int32(^pid<<3|ofProcess), &used); err != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

func program() string { return filepath.Base(os.Args[0]) }
