package lifecycle

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/noded/agent"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

var (
	batchKey = agent.Key{Job: 1, Attempt: 1, Epoch: 3, Step: pb.BatchStep}
	stepKey  = agent.Key{Job: 1, Attempt: 1, Epoch: 3}
)

// limits gives the time limits that noded-root was told since, by step.
func (b *bench) limits() string {
	var out []string
	for _, r := range b.asked {
		if o := r.GetControl(); o != nil {
			out = append(out, fmt.Sprint(o.Key.Step == pb.BatchStep, " ", o.LimitS))
		}
		if l := r.GetLaunch(); l != nil {
			out = append(out, fmt.Sprint("launch ", l.Bundle.LimitS))
		}
	}
	b.asked = nil
	return strings.Join(out, ", ")
}

func runOrder(k agent.Key, limit uint32) *pb.StepOrder {
	return &pb.StepOrder{Key: k.Proto(), Want: pb.StepWant_WANT_RUN, LimitS: limit}
}

// TestStepsHaveTheLimitOfTheirAllocation: steps of srun end with the time of their allocation, also when that changes while they run, and
// when the node daemon was restarted since.
func TestStepsHaveTheLimitOfTheirAllocation(t *testing.T) {
	b := &bench{wall: 5000e9, boot: 70e9}
	running := func(k agent.Key, limit uint32, begun int64) *nodepb.Known {
		return &nodepb.Known{Report: &pb.StepReport{Key: k.Proto(), Phase: pb.StepPhase_STEP_RUNNING},
			Bundle: &pb.Bundle{Key: k.Proto(), Cgroup: "job", LimitS: limit, BegunBootNs: begun}}
	}
	s := New(b, slog.New(slog.DiscardHandler), "n1", "boot", nil, []*nodepb.Known{running(batchKey, 60, 40e9), running(stepKey, 50, 50e9)})
	told := func(what, want string, orders ...*pb.StepOrder) {
		t.Helper()
		s.Order(&pb.NodeOrders{Full: true, Steps: orders})
		s.Reconcile(t.Context())
		b.work()
		if got := b.limits(); got != want {
			t.Errorf("%s: told %q, want %q", what, got, want)
		}
		s.Reconcile(t.Context())
		if b.work(); len(b.asked) > 0 {
			t.Errorf("%s: and then %v", what, b.asked)
		}
	}
	told("extended before the daemon was restarted", "false 590, true 600", runOrder(batchKey, 600), runOrder(stepKey, 0))
	told("extended", "false 1990, true 2000", runOrder(batchKey, 2000), runOrder(stepKey, 0))
	told("a limit of its own", "false 100", runOrder(batchKey, 2000), runOrder(stepKey, 100))
	told("no limit", "false 0, true 0", runOrder(batchKey, 0), runOrder(stepKey, 0))

	launch := &pb.LaunchSpec{Node: "n1", Spec: &pb.JobSpec{}, Step: &pb.StepRecord{}, SuspendedNs: 1000e9}
	next := stepKey
	next.Step = 1
	launch.Key = next.Proto()
	start := runOrder(next, 0)
	start.Launch = launch
	b.boot = 140e9
	told("a step that begins 100 s after its allocation, 1000 s of which it was suspended",
		"false 1190, true 1200, launch 2100", runOrder(batchKey, 1200), runOrder(stepKey, 0), start)
}
