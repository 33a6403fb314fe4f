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
// Where standard error leads to systemd's journal (JOURNAL_STREAM, systemd.exec(5)), each line begins with its priority, "<4>"
// (sd-daemon(3)), so that `journalctl --priority=warning` finds warnings, and has no time, which the journal has itself. Lines to a file
// have a time and no priority; a Log can change from one to the other whenever it is opened.

// levels are those that are logged, and the priorities of syslog(3) that they have in the journal.
var levels = []struct {
	level  slog.Level
	prefix string
}{{slog.LevelError, "<3>"}, {slog.LevelWarn, "<4>"}, {slog.LevelInfo, "<6>"}, {slog.LevelDebug, "<7>"}}

// toJournal tells whether a file is the journal's stream for this process.
func toJournal(f *os.File) bool {
	var st unix.Stat_t
	name := os.Getenv("JOURNAL_STREAM")
	return name != "" && unix.Fstat(int(f.Fd()), &st) == nil && name == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// Handler writes lines of a level or above to the log.
func (l *Log) Handler(level slog.Leveler) slog.Handler {
	h := &handler{log: l, file: slog.NewTextHandler(l, &slog.HandlerOptions{Level: level})}
	for _, p := range levels {
		h.journal = append(h.journal, slog.NewTextHandler(prefixed{l, p.prefix}, &slog.HandlerOptions{Level: level,
			ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
				if len(groups) == 0 && a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
	}
	return h
}

// handler is a slog.Handler for the file, and one for each priority.
type handler struct {
	log     *Log
	file    slog.Handler
	journal []slog.Handler // as levels
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.file.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.log.journal.Load() {
		return h.file.Handle(ctx, r)
	}
	return h.journal[priority(r.Level)].Handle(ctx, r)
}

// priority is the index into levels.
func priority(level slog.Level) int {
	for i, p := range levels {
		if level >= p.level {
			return i
		}
	}
	return len(levels) - 1
}

func (h *handler) with(f func(slog.Handler) slog.Handler) slog.Handler {
	out := &handler{log: h.log, file: f(h.file)}
	for _, j := range h.journal {
		out.journal = append(out.journal, f(j))
	}
	return out
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

// prefixed writes lines with a prefix, each with one call.
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

// Line writes a line of another process, as its slog.TextHandler has made it: time=… level=WARN msg=….
func (l *Log) Line(line []byte) error {
	if l.journal.Load() {
		line = journalLine(line)
	}
	_, err := l.Write(line)
	return err
}

func journalLine(line []byte) []byte {
	rest := line
	if bytes.HasPrefix(rest, []byte("time=")) {
		_, rest, _ = bytes.Cut(rest, []byte(" "))
	}
	prefix := levels[priority(slog.LevelInfo)].prefix
	if word, ok := bytes.CutPrefix(rest, []byte("level=")); ok {
		word, _, _ = bytes.Cut(word, []byte(" "))
		var level slog.Level
		if level.UnmarshalText(word) == nil {
			prefix = levels[priority(level)].prefix
		}
	}
	return append([]byte(prefix), rest...)
}
