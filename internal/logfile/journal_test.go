package logfile

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestJournal: lines to the journal have a priority and no time, those to a file a time and no priority, also after it was opened again.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	stream, err := os.Create(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(stream.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", st.Dev, st.Ino))
	l, err := Open(stream.Name())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(l.Handler(slog.LevelDebug)).With("node", "n1").WithGroup("g")
	log.Error("e")
	log.Warn("w")
	log.Info("i", "time", 3)
	log.Debug("d")
	for _, line := range []string{"time=2026-01-01T00:00:00Z level=WARN msg=x time=1\n", "level=ERROR msg=y\n", "<1>panic: no\n"} {
		if err := l.Line([]byte(line), 7); err != nil {
			t.Fatal(err)
		}
	}
	want := `<3>level=ERROR msg=e node=n1
<4>level=WARN msg=w node=n1
<6>level=INFO msg=i node=n1 g.time=3
<7>level=DEBUG msg=d node=n1
<4>level=WARN msg=x time=1
<3>level=ERROR msg=y
<6><1>panic: no
`
	if got := read(t, stream.Name()); got != want {
		t.Errorf("the journal has\n%swant\n%s", got, want)
	}
	file := filepath.Join(dir, "file")
	if err := l.Reopen(file); err != nil {
		t.Fatal(err)
	}
	log.Warn("w")
	if got := read(t, file); !strings.HasPrefix(got, "time=") || !strings.HasSuffix(got, " level=WARN msg=w node=n1\n") {
		t.Errorf("the file has %q", got)
	}
}

// BenchmarkHandler is what a line costs that is written to a file.
func BenchmarkHandler(b *testing.B) {
	l, err := Open(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(l.Handler(slog.LevelInfo))
	for b.Loop() {
		log.Info("JobStarted", "job", 1, "user", "ada", "nodes", "n1", "cpus", 1)
	}
}
