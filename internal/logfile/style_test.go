package logfile

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
)

// TestTimeFormats: each word of LogTimeFormat has its form, in lines of this process and of others, and the line stays one that slog's
// readers can take apart.
func TestTimeFormats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(l.Handler(slog.LevelInfo))
	const date, clock, zone = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`, `\w{3} [ \d]\d \d\d:\d\d:\d\d`, `[+-]\d\d:\d\d`
	self := strconv.Itoa(os.Getpid())
	forms := map[string]string{
		"":           date + `\.\d{3}(Z|` + zone + `)`,
		"iso8601":    date,
		"iso8601_ms": date + `\.\d{3}`,
		"rfc5424":    date + zone,
		"rfc5424_ms": date + `\.\d{3}` + zone,
		"clock":      `\d+`,
		"short":      `"` + clock + `"`,
		"thread_id":  `"\w{3} ` + clock + `\.\d{6} ` + self + ` logfile\.test \d+"`,
	}
	for _, word := range conf.LogTimeFormats {
		if word != onStderr && forms[word] == "" {
			t.Errorf("LogTimeFormat=%s is not known here", word)
		}
	}
	for word, form := range forms {
		t.Run(word, func(t *testing.T) {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			l.SetTime(word)
			log.Info("own", "time", 3)
			if err := l.Line([]byte("time=2026-01-02T03:04:05.678Z level=INFO msg=own time=3\n"), os.Getpid()); err != nil {
				t.Fatal(err)
			}
			want := regexp.MustCompile(`^(time=` + form + ` level=INFO msg=own time=3\n){2}$`)
			if got := read(t, path); !want.MatchString(got) {
				t.Errorf("lines\n%swant %s", got, want)
			}
		})
	}
	if used := processorTime(os.Getpid()); used <= 0 {
		t.Errorf("this process has used %v", used)
	}
}

// TestTimeOnStderr: format_stderr has lines to the journal begin with the time as well, in the form chosen, after their priority.
func TestTimeOnStderr(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l.journal.Store(true)
	log := slog.New(l.Handler(slog.LevelInfo))
	for format, form := range map[string]string{
		"iso8601":               "",
		"iso8601,format_stderr": `time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d `,
		"format_stderr":         `time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\S+ `,
	} {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		l.SetTime(format)
		log.Warn("own")
		if err := l.Line([]byte("time=2026-01-02T03:04:05.678Z level=WARN msg=own\n"), 1); err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile(`^(<4>` + form + `level=WARN msg=own\n){2}$`)
		if got := read(t, path); !want.MatchString(got) {
			t.Errorf("%s: lines\n%swant %s", format, got, want)
		}
	}
}

// TestEnvironment: a process that was started with the environment of a log writes as that does, and does not pass it on.
func TestEnvironment(t *testing.T) {
	l, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Environment(); len(got) > 0 {
		t.Errorf("by default: %v", got)
	}
	l.SetTime("short,format_stderr")
	l.SetSyslog(slog.LevelWarn)
	for _, kv := range l.Environment() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	child, err := OpenChild()
	if err != nil {
		t.Fatal(err)
	}
	if got := child.Environment(); !slices.Equal(got, l.Environment()) || !strings.Contains(strings.Join(got, " "), "WARN") {
		t.Errorf("the child has %v, want %v", got, l.Environment())
	}
	for _, kv := range os.Environ() {
		if slices.Contains(l.Environment(), kv) {
			t.Errorf("%s is passed on", kv)
		}
	}
}
