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
	h := NewLogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
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
