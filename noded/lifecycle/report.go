package lifecycle

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/bundle"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// maxReports bounds the step reports in one message, so that the controller's writer can take turns.
const maxReports = 512

// NewStream starts a stream to the controller: answers for an earlier one are dropped.
func (s *Steps) NewStream() {
	s.stream++
	s.history = nil
}

// Reports returns all steps, for the first message of a stream. Steps precede their allocation, because with its end the
// controller ends the rest of the job here.
func (s *Steps) Reports() (all []*pb.StepReport) {
	clear(s.dirty)
	for _, j := range s.steps {
		r := s.report(j)
		if j.key.Holder() {
			r.Job = j.of()
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *pb.StepReport) int { // holders have the highest numbers
		return cmp.Or(cmp.Compare(a.Key.JobId, b.Key.JobId), cmp.Compare(a.Key.Step, b.Key.Step), cmp.Compare(a.Key.Epoch, b.Key.Epoch))
	})
	return all
}

// Dirty reports whether Changes has something to report.
func (s *Steps) Dirty() bool { return len(s.dirty) > 0 }

// Changes returns the steps that have changed since the last report, as many as fit in a message, steps before allocations.
func (s *Steps) Changes() (out []*pb.StepReport) {
	if len(s.dirty) == 0 {
		return nil
	}
	keys := make([]agent.Key, 0, len(s.dirty))
	for k := range s.dirty {
		keys = append(keys, k)
	}
	if len(keys) <= maxReports { // sorting more, for each message of a burst, is not worth it
		slices.SortFunc(keys, agent.Key.Compare)
	}
	for _, holders := range []bool{false, true} {
		for _, k := range keys {
			if k.Holder() != holders {
				continue
			}
			if len(out) == maxReports {
				return out
			}
			delete(s.dirty, k)
			if j := s.steps[k]; j != nil {
				out = append(out, s.report(j))
			}
		}
	}
	return out
}

// Recall answers a HistoryOrder: History then returns the ends on this node. If the stream ends first, the controller asks on the
// next one.
func (s *Steps) Recall(ctx context.Context, o *pb.HistoryOrder) {
	stream := s.stream
	s.host.Work(ctx, func() func() {
		a, err := s.host.Call(ctx, &nodepb.Request{What: &nodepb.Request_History{History: &nodepb.History{Above: o.Above}}})
		return func() {
			if err == nil && s.stream == stream {
				s.history = &pb.NodeHistory{Restored: o.Restored, Ended: a.Ended, LostUpTo: a.LostUpTo, LostUntilNs: a.LostUntilNs}
			}
		}
	})
}

// History returns the next part of the answer to a HistoryOrder, nil if there is none.
func (s *Steps) History() *pb.NodeHistory {
	h := s.history
	if h == nil || len(h.Ended) <= maxReports {
		s.history = nil
		return h
	}
	part := &pb.NodeHistory{Restored: h.Restored, Ended: h.Ended[:maxReports], More: true}
	h.Ended = h.Ended[maxReports:]
	return part
}

// of returns the description of a step's job, as far as this node knows it.
func (j *Step) of() *pb.StepJob {
	if l := j.spec; l != nil {
		return bundle.JobOf(l)
	}
	return j.brief.GetJob()
}

// report returns the state of a step for the controller.
func (s *Steps) report(j *Step) *pb.StepReport {
	out := &pb.StepReport{Key: j.key.Proto(), Phase: j.phase, SignalsSeen: j.rep.GetSignalsSeen(), Pid: j.rep.GetPid(),
		StartNs: j.rep.GetStartNs()}
	if j.phase != pb.StepPhase_STEP_ENDED {
		if unkillable(j.rep) {
			out.Exit = j.rep.Exit
		}
		return out
	}
	out.Exit = j.rep.GetExit()
	if j.key.Holder() {
		out.Job = j.of()
	}
	if x := out.Exit; x.GetEndBootNs() > 0 && x.GetBootId() == s.boot {
		out.EndedAgoNs = max(1, s.host.Boot()-x.GetEndBootNs())
	}
	if j.epilogErr != "" || j.fault != "" {
		out.Exit = proto.Clone(out.Exit).(*pb.ExitRecord)
		out.Exit.EpilogError, out.Exit.NodeFault = j.epilogErr, j.fault
	}
	return out
}
