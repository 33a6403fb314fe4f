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

// # How the time is written
//
// By default a line has the time in UTC or with its zone, to milliseconds (RFC 3339). LogTimeFormat of slurm.conf(5) asks for another form.

// stamp writes the time of a line of a process.
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
		thread := pid // of another process only this is known
		if pid == os.Getpid() {
			thread = unix.Gettid()
		}
		return fmt.Sprintf("%s %d %s %d", t.Format("Mon Jan _2 15:04:05.000000"), pid, program(), thread)
	},
}

func layout(l string) stamp { return func(t time.Time, _ int) string { return t.Format(l) } }

// onStderr is the word of LogTimeFormat that has lines to the journal begin with the time, too.
const onStderr = "format_stderr"

// The variables by which a process of this daemon's is told how to write to this log's file, its standard error: LogTimeFormat, and the
// level from which on it logs to syslog, too. Options would not do: the process may be of an older version, which ends when it is given
// one that it does not know.
const (
	timeVar   = "SLUICE_LOG_TIME"
	syslogVar = "SLUICE_LOG_SYSLOG"
)

// OpenChild opens the log of a process that was started with Environment. It takes the variables out of the environment.
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

// Environment is what such a process is told now, as "NAME=value".
func (l *Log) Environment() (env []string) {
	if s := l.style.Load(); s.text != "" {
		env = append(env, timeVar+"="+s.text)
	}
	if level := l.syslog.Level(); level < off {
		env = append(env, syslogVar+"="+level.String())
	}
	return env
}

// style is how lines are written.
type style struct {
	text   string
	stamp  stamp // nil: as by default
	stderr bool  // format_stderr
}

// SetTime has lines written with the time as a value of LogTimeFormat says that package conf has checked, "" being the default. It may be
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

// attr is the attribute of the time of a line of this process.
func (s *style) attr(a slog.Attr) slog.Attr {
	if s.stamp == nil {
		return a
	}
	return slog.String(a.Key, s.stamp(a.Value.Time(), os.Getpid()))
}

// rewrite gives the time of another process's line, as slog writes it by default, in this style.
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

// processorTime is how long all threads of a process have run on processors: clock(3), for any process.
func processorTime(pid int) time.Duration {
	var used unix.Timespec
	const ofProcess = 2 // CPUCLOCK_SCHED, <linux/posix-timers.h>: the low bits of such a clock's number
	if err := unix.ClockGettime(int32(^pid<<3|ofProcess), &used); err != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// program is the name of this program.
func program() string { return filepath.Base(os.Args[0]) }
