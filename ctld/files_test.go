package ctld

import (
	"strings"
	"testing"
)

func TestFilesLack(t *testing.T) {
	for _, tt := range []struct {
		nodes int
		most  uint64
		want  string
	}{{10, 1024, "up to 1064"}, {10, 1064, ""}, {10000, 4096, "of 10000 nodes"}, {10000, 524288, ""}} {
		if got := filesLack(tt.nodes, tt.most); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%d nodes with %d: %q", tt.nodes, tt.most, got)
		}
	}
}
