package lifecycle

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/bundle"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// stepsLeft reports whether steps of the allocation that k holds have not ended here.
func (s *Steps) stepsLeft(k agent.Key) bool {
	if !k.Holder() {
		return false
	}
	for other, j := range s.steps { // including those without an order
		if !other.Holder() && other.Job == k.Job && other.Attempt == k.Attempt && j.phase != pb.StepPhase_STEP_ENDED {
			return true
		}
	}
	return s.desired.StepsLeft(k, func(k agent.Key) (pb.StepPhase, bool) {
		j := s.steps[k]
		if j == nil {
			return 0, false
		}
		return j.phase, true
	})
}

// holder returns the step that holds the allocation of a step here; nil: none.
func (s *Steps) holder(k agent.Key) *Step {
	for _, step := range []uint32{pb.BatchStep, pb.ExternStep} {
		if j := s.steps[agent.Key{Job: k.Job, Attempt: k.Attempt, Epoch: k.Epoch, Step: step}]; j != nil {
			return j
		}
	}
	return nil
}

// advanceHolder advances an allocation that waited for the end of a step.
func (s *Steps) advanceHolder(ctx context.Context, k agent.Key) {
	if h := s.holder(k); h != nil && h.phase != pb.StepPhase_STEP_ENDED && h.rep.GetPhase() == pb.StepPhase_STEP_ENDED {
		s.advance(ctx, h)
	}
}

// withHolder completes the launch of an srun step from its allocation on this node: the ids of its devices, and the end of its
// time.
func (s *Steps) withHolder(j *Step, l *pb.LaunchSpec) *pb.LaunchSpec {
	h := s.holder(j.key)
	if h == nil {
		return l
	}
	l = proto.CloneOf(l)
	have := h.brief.GetDevices()
	if h.spec != nil {
		have = bundle.DevicesOf(h.spec)
	}
	if here := bundle.StepNode(l); here != nil {
		for _, d := range here.Devices {
			for _, of := range have {
				if of.Name == d.Name && of.Index == d.Index && of.Parent == d.Parent && of.MigStart == d.MigStart && of.Id != "" {
					d.Id = of.Id
				}
			}
		}
	}
	l.LimitS = agent.Shorter(l.LimitS, s.limitOfAllocation(j))
	j.applied.LimitS = l.LimitS
	return l
}

// limitOfAllocation returns when the time of a step's allocation ends, in seconds since the step began; 0: never, or it holds an allocation
// itself. Steps have a limit of their own because a batch script may outlive its limit, by KillWait.
func (s *Steps) limitOfAllocation(j *Step) uint32 {
	h := s.holder(j.key)
	if j.key.Holder() || h == nil {
		return 0
	}
	limit, ordered := s.desired.Limit(h.key)
	if !ordered {
		limit = h.applied.LimitS
	}
	began, begun := cmp.Or(h.begun, h.brief.GetBegunBootNs()), cmp.Or(j.begun, j.brief.GetBegunBootNs())
	if limit == 0 || began == 0 || begun == 0 {
		return 0
	}
	suspended := j.brief.GetSuspendedNs()
	if j.spec != nil {
		suspended = j.spec.SuspendedNs
	}
	left := began + int64(limit)*int64(time.Second) + suspended - begun
	return uint32(min(max((left+int64(time.Second)-1)/int64(time.Second), 1), math.MaxUint32))
}
