package ctld

import "testing"

// TestHeartbeat: a few within SlurmdTimeout, and of many nodes no more in a second than of some.
func TestHeartbeat(t *testing.T) {
	for _, c := range []struct {
		timeout int64
		nodes   int
		want    uint32
	}{{300, 4, 10}, {300, 2500, 10}, {300, 2501, 11}, {300, 10000, 40}, {300, 100000, 60}, {30, 4, 6}, {30, 10000, 6}, {0, 4, 10},
		{0, 10000, 40}, {3, 4, 1}} {
		if got := heartbeat(c.timeout, c.nodes); got != c.want {
			t.Errorf("SlurmdTimeout=%d, %d nodes: every %d s, want %d", c.timeout, c.nodes, got, c.want)
		}
	}
}
