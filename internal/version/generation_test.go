package version

import (
	"strings"
	"testing"
)

// TestOutdated: only a lower generation of the same cluster is an old controller's, and the error names both.
func TestOutdated(t *testing.T) {
	for _, c := range []struct {
		mine, seen string
		old        bool
	}{
		{"c 1", "", false},
		{"c 1", "c 1", false},
		{"c 1795835331", "c 1", false},
		{"c 1", "c 1795835331", true},
		{"", "c 1", false}, // says nothing of its cluster
		{"c 1", "d 1795835331", false},
		{"c 1", "c x", false},
	} {
		err := ParseGeneration(c.mine).Outdated("n1", ParseGeneration(c.seen))
		if (err != nil) != c.old {
			t.Errorf("%q after %q: %v", c.mine, c.seen, err)
		}
		if err != nil && !(strings.Contains(err.Error(), "generation 1 (never restored)") &&
			strings.Contains(err.Error(), "generation 1795835331 (restored 2026-11-28 03:08:51 UTC)")) {
			t.Error(err)
		}
	}
}
