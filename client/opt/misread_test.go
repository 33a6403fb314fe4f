package opt

import "testing"

func TestEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"time", "time", 0}, {"tiem", "time", 1}, {"tiem", "mem", 2}, {"usre", "user", 1}, {"", "ab", 2}, {"abc", "", 3},
		{"abcd", "xyzw", 4}, {"ca", "abc", 3}} {
		if got := edits(c.a, c.b, 9); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
