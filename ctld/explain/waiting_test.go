package explain

import (
	"strings"
	"testing"
)

// TestFirstConditions: a dependency of thousands of jobs does not fill the screen; ten are shown whole.
func TestFirstConditions(t *testing.T) {
	conditions := func(n int, sep string) string {
		return strings.TrimSuffix(strings.Repeat("afterok:12_*(unfulfilled)"+sep, n), sep)
	}
	for _, sep := range []string{",", "?"} {
		for _, n := range []int{1, 10} {
			if got := firstConditions(conditions(n, sep)); got != conditions(n, sep) {
				t.Errorf("of %d: %q", n, got)
			}
		}
		want := conditions(10, sep) + " and 2990 more; scontrol show job shows all"
		if got := firstConditions(conditions(3000, sep)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
