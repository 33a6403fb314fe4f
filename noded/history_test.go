package noded

import (
	"testing"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestHistoryInParts: a long history is told in messages that the controller takes, and only the last of them says that it is all.
func TestHistoryInParts(t *testing.T) {
	const ends = 2*maxReports + 1
	h := &pb.NodeHistory{Restored: 7, LostUpTo: 3}
	for job := range uint32(ends) {
		h.Ended = append(h.Ended, &pb.StepReport{Key: &pb.StepKey{JobId: job}})
	}
	n := &node{greeted: true, history: h}
	told := uint32(0)
	for range 3 {
		m := n.message().GetHistory()
		for _, r := range m.GetEnded() {
			if r.Key.JobId != told {
				t.Fatalf("job %d is told after %d", r.Key.JobId, told)
			}
			told++
		}
		if last := told == ends; m.GetRestored() != 7 || len(m.Ended) > maxReports || m.More == last || (m.LostUpTo == 3) != last {
			t.Errorf("after %d: %d, more %v, lost up to %d", told, len(m.GetEnded()), m.GetMore(), m.GetLostUpTo())
		}
	}
	if m := n.message(); m != nil || told != ends {
		t.Errorf("%d were told, and then %v", told, m)
	}
}
