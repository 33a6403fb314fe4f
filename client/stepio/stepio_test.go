package stepio

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/internal/test/output"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

type piece struct {
	task uint32
	text string // "" = the end
}

func printed(t *testing.T, s *Sink, w *output.Buffer, pieces []piece) string {
	t.Helper()
	o := NewOutput(s, nil)
	for _, p := range pieces {
		if err := o.Write(p.task, false, []byte(p.text)); p.text != "" && err != nil {
			t.Fatal(err)
		}
		if p.text == "" {
			_ = o.End(p.task, false)
		}
	}
	_ = o.Flush()
	return w.String()
}

// TestLines: as a real Slurm prints them.
func TestLines(t *testing.T) {
	long := strings.Repeat("x", heldBytes)
	for name, c := range map[string]struct {
		tasks             uint32
		only              int64
		label, unbuffered bool
		pieces            []piece
		want              string
	}{
		"lines of two tasks do not mix": {2, -1, false, false, []piece{{0, "a0"}, {1, "a1"}, {0, "b\n"}, {1, "b\n"}}, "a0b\na1b\n"},
		"unless -u is given":            {2, -1, false, true, []piece{{0, "a0"}, {1, "a1"}, {0, "b\n"}, {1, "b\n"}}, "a0a1b\nb\n"},
		"one task is not touched":       {1, -1, false, false, []piece{{0, "a\x00"}, {0, "\n\nb"}}, "a\x00\n\nb"},
		"labels": {11, -1, true, false, []piece{{0, "a\nb"}, {10, "c\n\n"}, {0, "d\n"}},
			" 0: a\n10: c\n10: \n 0: bd\n"},
		"a line without end gets one": {1, -1, true, false, []piece{{0, "a\nb"}, {0, ""}}, "0: a\n0: b\n"},
		"a long line is cut by none":  {1, -1, true, false, []piece{{0, long}, {0, long + "y\n"}}, "0: " + long + long + "y\n"},
		"but by that of another task": {2, -1, true, false, []piece{{0, long + "y"}, {1, "z\n"}, {0, "e\n"}},
			"0: " + long + "y\n1: z\n0: e\n"},
		"one task of several":     {3, 1, false, false, []piece{{0, "a\n"}, {1, "b\n"}, {2, "c\n"}}, "b\n"},
		"what is left at the end": {2, -1, false, false, []piece{{0, "a"}, {1, "b"}, {0, ""}, {1, ""}}, "ab"},
	} {
		w := &output.Buffer{}
		if got := printed(t, NewSink(w, c.tasks, c.only, c.label, c.unbuffered), w, c.pieces); got != c.want {
			t.Errorf("%s: %.80q, want %.80q", name, got, c.want)
		}
	}
}

// TestPrompt: a part of a line appears although its end does not come.
func TestPrompt(t *testing.T) {
	w := &output.Buffer{}
	s := NewSink(w, 2, -1, false, false)
	if err := s.write(key{0, false}, []byte("password: ")); err != nil {
		t.Fatal(err)
	}
	for w.String() == "" {
		time.Sleep(time.Millisecond)
	}
	if w.String() != "password: " {
		t.Errorf("%q", w.String())
	}
}

// TestNothingIsLost: whatever the pieces are, each task's bytes come whole and in order.
func TestNothingIsLost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		tasks := uint32(r.IntN(4) + 1)
		var wrote [4]strings.Builder
		w := &output.Buffer{}
		s := NewSink(w, tasks, -1, true, r.IntN(2) == 0)
		for range r.IntN(50) {
			task := r.Uint32N(tasks)
			text := strings.Repeat(string(rune('a'+task)), r.IntN(20)) + strings.Repeat("\n", r.IntN(2))
			wrote[task].WriteString(text)
			if err := s.write(key{task, false}, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.flushAll()
		var got [4]strings.Builder
		for line := range strings.Lines(w.String()) {
			got[line[0]-'0'].WriteString(strings.TrimSuffix(line[3:], "\n"))
		}
		for task := range tasks {
			if a, b := got[task].String(), strings.ReplaceAll(wrote[task].String(), "\n", ""); a != b {
				t.Fatalf("task %d: %q, wrote %q", task, a, b)
			}
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestUnwritable(t *testing.T) {
	s := NewSink(broken{}, 1, -1, false, false)
	for range 2 {
		if err := s.write(key{}, []byte("a")); err == nil {
			t.Error("a write that fails is no error")
		}
	}
}

func TestListen(t *testing.T) {
	for _, bad := range []string{"x", "5-", "10-5", "0-3", "1-70000"} {
		if l, err := Listen(bad); err == nil {
			l.Close()
			t.Errorf("%q is a range", bad)
		}
	}
	l, err := Listen("")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addresses := l.Addresses()
	if len(addresses) == 0 || len(addresses) > mostAddresses || !strings.HasPrefix(addresses[len(addresses)-1], "127.") {
		t.Errorf("%q", addresses)
	}
}
