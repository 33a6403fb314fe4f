package logfile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// # The journal
//
// If standard error is systemd's journal (JOURNAL_STREAM, systemd.exec(5)), each line begins with its priority, "<4>"
// (sd-daemon(3)), so that `journalctl --priority=warning` finds warnings, and has no time, which the journal records itself. Lines
// in a file have a time and no priority. Whenever a Log is reopened it may change from one to the other.

// levels are the levels in use, with their priority (syslog(3)) in the journal.
var levels = []struct {
	level    slog.Level
	priority int
}{{slog.LevelError, 3}, {slog.LevelWarn, 4}, {slog.LevelInfo, 6}, {slog.LevelDebug, 7}}

// JournalVar is the variable in which systemd passes the journal's stream.
const JournalVar = "JOURNAL_STREAM"

// toJournal reports whether a file is this process's stream to the journal.
func toJournal(f *os.File) bool {
	var st unix.Stat_t
	name := os.Getenv(JournalVar)
	return name != "" && unix.Fstat(int(f.Fd()), &st) == nil && name == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// Handler writes lines of a level or above to the log.
func (l *Log) Handler(level slog.Leveler) slog.Handler {
	all := slog.HandlerOptions{Level: slog.LevelDebug - 4}
	h := &handler{log: l, level: level, file: slog.NewTextHandler(l, &all)}
	styled := all
	styled.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			return l.style.Load().attr(a)
		}
		return a
	}
	h.styled = slog.NewTextHandler(l, &styled)
	journal := all
	journal.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey && l.style.Load().stderr {
			return styled.ReplaceAttr(groups, a)
		}
		return timeless(groups, a)
	}
	for _, p := range levels {
		h.journal.by = append(h.journal.by, slog.NewTextHandler(prefixed{l, prefix(p.priority)}, &journal))
	}
	return h
}

func prefix(priority int) string { return fmt.Sprintf("<%d>", priority) }

// timeless removes the time of a line.
func timeless(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// handler writes to the file in the default format, to the file in another format, or to the journal.
type handler struct {
	log          *Log
	level        slog.Leveler
	file, styled slog.Handler
	journal      fan
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case h.log.journal.Load():
		return h.journal.Handle(ctx, r)
	case h.log.style.Load().stamp != nil:
		return h.styled.Handle(ctx, r)
	}
	return h.file.Handle(ctx, r)
}

func (h *handler) with(f func(slog.Handler) slog.Handler) slog.Handler {
	return &handler{log: h.log, level: h.level, file: f(h.file), styled: f(h.styled), journal: h.journal.with(f)}
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

// fan has a handler per priority.
type fan struct {
	level slog.Leveler
	by    []slog.Handler // in the order of levels
}

func (f fan) Enabled(_ context.Context, level slog.Level) bool { return level >= f.level.Level() }

func (f fan) Handle(ctx context.Context, r slog.Record) error {
	return f.by[place(r.Level)].Handle(ctx, r)
}

func (f fan) with(do func(slog.Handler) slog.Handler) fan {
	out := fan{level: f.level}
	for _, h := range f.by {
		out.by = append(out.by, do(h))
	}
	return out
}

func (f fan) WithAttrs(attrs []slog.Attr) slog.Handler {
	return f.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

func (f fan) WithGroup(name string) slog.Handler {
	return f.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

// place is the index into levels.
func place(level slog.Level) int {
	for i, p := range levels {
		if level >= p.level {
			return i
		}
	}
	return len(levels) - 1
}

// prefixed writes lines with a prefix, one call each.
type prefixed struct {
	to     io.Writer
	prefix string
}

func (p prefixed) Write(line []byte) (int, error) {
	if _, err := p.to.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// Line writes a line of another process in the format of slog.TextHandler: time=… level=WARN msg=…. It also sends the line to
// syslog if its level is enabled there.
func (l *Log) Line(line []byte, pid int) error {
	said, level, rest := parts(line)
	at := levels[place(level)].priority
	if level >= l.syslog.Level() {
		l.syslog.send(at, pid, rest)
	}
	s := l.style.Load()
	switch {
	case l.journal.Load() && (said == "" || !s.stderr):
		line = append([]byte(prefix(at)), rest...)
	case l.journal.Load():
		line = fmt.Appendf(nil, "%stime=%s %s", prefix(at), s.rewrite(said, pid), rest)
	case s.stamp != nil && said != "":
		line = fmt.Appendf(nil, "time=%s %s", s.rewrite(said, pid), rest)
	}
	_, err := l.Write(line)
	return err
}

// parts splits a line into its time, "" if there is none, its level, info by default, and everything but the time.
func parts(line []byte) (said string, level slog.Level, rest []byte) {
	rest = line
	if after, ok := bytes.CutPrefix(rest, []byte("time=")); ok {
		at, after, _ := bytes.Cut(after, []byte(" "))
		said, rest = string(at), after
	}
	if word, ok := bytes.CutPrefix(rest, []byte("level=")); ok {
		word, _, _ = bytes.Cut(word, []byte(" "))
		if level.UnmarshalText(word) != nil {
			level = slog.LevelInfo
		}
	}
	return said, level, rest
}
