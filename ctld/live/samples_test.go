package live

import (
	"fmt"
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestSamplesAreBounded(t *testing.T) {
	s := NewSamples()
	for i := range 2 * maxSampled {
		s.Put("n", []*pb.DeviceSample{{Id: fmt.Sprint(i)}}, 1)
	}
	if n := len(s.nodes["n"]); n != maxSampled {
		t.Errorf("%d devices are kept of one node, want %d", n, maxSampled)
	}
	if last, _ := s.Get("n", "0", 2); last != nil {
		t.Error("an old sample is shown")
	}
	// Instances that were merged back make room for new ones.
	if s.Put("n", []*pb.DeviceSample{{Id: "new"}}, StaleNS+2); len(s.nodes["n"]) != 1 {
		t.Errorf("%d devices are kept, want the new one", len(s.nodes["n"]))
	}
}
