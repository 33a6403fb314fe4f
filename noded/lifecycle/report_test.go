package lifecycle

import (
	"log/slog"
	"testing"

	"github.com/sluice-hpc/sluice/noded/agent"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestHistoryInParts: a long history is told in messages that the controller takes, and only the last one is marked as the end.
func TestHistoryInParts(t *testing.T) {
	const ends = 2*maxReports + 1
	h := &pb.NodeHistory{Restored: 7, LostUpTo: 3}
	for job := range uint32(ends) {
		h.Ended = append(h.Ended, &pb.StepReport{Key: &pb.StepKey{JobId: job}})
	}
	s := &Steps{history: h}
	told := uint32(0)
	for range 3 {
		h := s.History()
		for _, r := range h.GetEnded() {
			if r.Key.JobId != told {
				t.Fatalf("job %d is told after %d", r.Key.JobId, told)
			}
			told++
		}
		if last := told == ends; h.GetRestored() != 7 || len(h.Ended) > maxReports || h.More == last || (h.LostUpTo == 3) != last {
			t.Errorf("after %d: %d, more %v, lost up to %d", told, len(h.GetEnded()), h.GetMore(), h.GetLostUpTo())
		}
	}
	if h := s.History(); h != nil || told != ends {
		t.Errorf("%d were told, and then %v", told, h)
	}
}

// TestStepsBeforeAllocations: the ends of steps are told before those of their allocations, since the controller takes a step that is
// still open when its allocation has gone for cancelled; on a new stream, and in the messages about a burst of changes.
func TestStepsBeforeAllocations(t *testing.T) {
	const jobs = 200 // more than fit in one message
	var have []*nodepb.Known
	for id := range uint32(jobs) {
		for _, step := range []uint32{pb.BatchStep, pb.ExternStep, 0, 1, 7} {
			k := agent.Key{Job: id, Attempt: 1, Step: step}
			have = append(have, &nodepb.Known{Report: &pb.StepReport{Key: k.Proto(), Phase: pb.StepPhase_STEP_ENDED}})
		}
	}
	s := New(nil, slog.New(slog.DiscardHandler), "n1", "boot", nil, have)
	for _, j := range s.steps {
		s.dirty[j.key] = true
	}
	var changes []*pb.StepReport
	for s.Dirty() {
		part := s.Changes()
		if len(part) > maxReports {
			t.Errorf("%d reports in one message", len(part))
		}
		changes = append(changes, part...)
	}
	for _, all := range [][]*pb.StepReport{changes, s.Reports()} {
		gone := map[uint32]bool{}
		for _, r := range all {
			switch {
			case r.Key.Step >= pb.BatchStep:
				gone[r.Key.JobId] = true
			case gone[r.Key.JobId]:
				t.Fatalf("step %d.%d is told after its allocation", r.Key.JobId, r.Key.Step)
			}
		}
		if len(all) != len(have) || len(gone) != jobs {
			t.Errorf("%d reports of %d", len(all), len(have))
		}
	}
}
