package rpc

import (
	"strings"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestValuesOfUpdates: an administrator's value is checked as a whole, however long, and is not cut.
func TestValuesOfUpdates(t *testing.T) {
	long := strings.Repeat("x", 999) + "ä" + strings.Repeat("y", 3000)
	for value, bad := range map[string]bool{long: false, long + "\x1b[2J": true, long + "\xff": true, "a\nb": true,
		strings.Repeat("x", 70<<10): true, "": false} {
		if p := badValue(&pb.KeyValue{Key: "Reason", Value: value}); (p != nil) != bad {
			t.Errorf("%d bytes, ending in %q: %v", len(value), value[max(0, len(value)-4):], p)
		}
	}
	if badValue(&pb.KeyValue{Key: "Rea\x07son"}) == nil {
		t.Error("a key with a control character is accepted")
	}
}
