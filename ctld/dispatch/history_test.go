package dispatch

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestHistory: a node is asked what it ran in the time that a restore has taken back, with the full list and until it has answered.
func TestHistory(t *testing.T) {
	b := newBench(t)
	v := *b.view
	v.Lose(7, 32<<20)
	v.Seq = v.Restored
	b.view = &v
	for range 2 {
		msg, _ := b.d.Open("n1", nil).Next()
		if h := msg.GetHistory(); !msg.GetFull() || h.GetAbove() != 7 || h.GetRestored() != v.Restored {
			t.Errorf("it is asked for %v", h)
		}
	}
	b.do(reactor.NodeHistory{Node: "n1", History: &pb.NodeHistory{Restored: v.Restored}})
	if msg, _ := b.d.Open("n1", nil).Next(); msg.GetHistory() != nil {
		t.Error("it is asked again")
	}
}
