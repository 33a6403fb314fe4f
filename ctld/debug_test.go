package ctld

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
)

func TestLogHandler(t *testing.T) {
	var out bytes.Buffer
	h := NewLogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), slog.DiscardHandler)
	log := slog.New(h).With("part", "x")
	say := func() string {
		out.Reset()
		log.Error("e")
		log.Info("i")
		log.Debug("d")
		log.Debug("f", "flag", "Backfill")
		var said []string
		for line := range strings.Lines(out.String()) {
			_, msg, _ := strings.Cut(line, "msg=")
			said = append(said, msg[:1])
		}
		return strings.Join(said, "")
	}
	for _, c := range []struct {
		level string
		flags []string
		want  string
	}{{"quiet", nil, ""}, {"error", nil, "e"}, {"info", nil, "ei"}, {"verbose", []string{"Gres"}, "ei"},
		{"info", []string{"Gres", "Backfill"}, "eif"}, {"debug", nil, "eidf"}, {"debug5", nil, "eidf"}} {
		if h.Set(conf.SlogLevel(c.level), c.flags); say() != c.want {
			t.Errorf("%s %v: %q, want %q", c.level, c.flags, say(), c.want)
		}
	}
}

// TestSecondLog: the level and the flags of the log do not affect syslog, nor the reverse.
func TestSecondLog(t *testing.T) {
	var first, second bytes.Buffer
	level := &slog.LevelVar{}
	h := NewLogHandler(slog.NewTextHandler(&first, &slog.HandlerOptions{Level: slog.LevelDebug}),
		slog.NewTextHandler(&second, &slog.HandlerOptions{Level: level}))
	log := slog.New(h).With("part", "x")
	for _, c := range []struct {
		first, second slog.Level
		want, also    int // lines
	}{{slog.LevelInfo, slog.LevelDebug, 1, 2}, {slog.LevelDebug, slog.LevelError, 2, 0}, {slog.LevelError, slog.LevelInfo, 0, 1}} {
		first.Reset()
		second.Reset()
		h.Set(c.first, nil)
		level.Set(c.second)
		log.Info("i")
		log.Debug("d")
		if a, b := strings.Count(first.String(), "part=x"), strings.Count(second.String(), "part=x"); a != c.want || b != c.also {
			t.Errorf("%v and %v: %d and %d lines, want %d and %d", c.first, c.second, a, b, c.want, c.also)
		}
	}
}

func TestChangeFlags(t *testing.T) {
	flags, p := changeFlags([]string{"Gres"}, []string{"backfill", "GRES"}, nil)
	if p != nil || !slices.Equal(flags, []string{"Backfill", "Gres"}) {
		t.Errorf("%v, %v", flags, p)
	}
	if flags, p = changeFlags(flags, nil, []string{"gres"}); p != nil || !slices.Equal(flags, []string{"Backfill"}) {
		t.Errorf("%v, %v", flags, p)
	}
	if _, p = changeFlags(nil, []string{"nosuch"}, nil); p == nil {
		t.Error("an unknown flag was taken")
	}
}
