package pretend

import (
	"testing"
	"time"
)

// TestScript: what is understood of a script, and what is not takes no time and succeeds.
func TestScript(t *testing.T) {
	for text, want := range map[string]script{
		"":                                    {},
		"#!/bin/sh\nsleep 2\nexit 3\n":        {2 * time.Second, 3},
		"#SBATCH -t 1\nsleep 0.5; sleep 1m\n": {time.Minute + 500*time.Millisecond, 0},
		"sleep 1 2 0.5h":                      {30*time.Minute + 3*time.Second, 0},
		"exec sleep 5":                        {5 * time.Second, 0},
		"exit 1\nsleep 9":                     {0, 1},
		"false":                               {0, 1},
		"false\ntrue":                         {},
		"# sleep 4\necho sleep 4":             {},
		"sleep $N":                            {},
		"sleep -1; exit x":                    {},
		"sleep infinity":                      {forever, 0},
		"sleep 1e300; sleep 9":                {forever, 0},
	} {
		if got := read([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzScript(f *testing.F) {
	f.Add([]byte("sleep 1m; exit 3"))
	f.Add([]byte("sleep NaN +Inf 9e99d"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s := read(text); s.takes < 0 || s.takes > forever || s.status > 255 {
			t.Errorf("%q: %v", text, s)
		}
	})
}
