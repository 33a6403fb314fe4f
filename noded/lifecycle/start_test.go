package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/taskenv"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// bench is a Host whose work takes a second each time.
type bench struct {
	wall, boot int64
	settings   *pb.NodeSettings
	asked      []*nodepb.Request
	refuse     error // the answer to every hook
	due        []func() func()
}

func (b *bench) Call(_ context.Context, r *nodepb.Request) (*nodepb.Answer, error) {
	b.asked = append(b.asked, r)
	if r.GetHook() != nil {
		return &nodepb.Answer{}, b.refuse
	}
	return &nodepb.Answer{}, nil
}

func (b *bench) work() {
	for len(b.due) > 0 {
		f := b.due[0]
		b.due = b.due[1:]
		b.wall, b.boot = b.wall+1e9, b.boot+1e9
		f()()
	}
}

func (b *bench) Work(_ context.Context, f func() func())            { b.due = append(b.due, f) }
func (b *bench) Signal(_ context.Context, f func() func())          { b.due = append(b.due, f) }
func (b *bench) Later(_ context.Context, _ time.Duration, f func()) { f() }
func (b *bench) Pause(context.Context, time.Duration)               {}
func (b *bench) Now() time.Time                                     { return time.Unix(0, b.wall).UTC() }
func (b *bench) Boot() int64                                        { return b.boot }
func (b *bench) Settings() *pb.NodeSettings                         { return b.settings }
func (b *bench) Bundle(l *pb.LaunchSpec) *pb.Bundle {
	return &pb.Bundle{Key: l.Key, Cgroup: "job", LimitS: l.LimitS}
}
func (b *bench) Daemon() taskenv.Daemon { return taskenv.Daemon{} }
func (b *bench) Fault(string)           {}

// TestFailedPrologHasTimesOfOneClock: start and end of a step that never began are by the node's clock, however far the controller's is
// off. After a restore, only the node knows of it, and the controller computes how long it took from both.
func TestFailedPrologHasTimesOfOneClock(t *testing.T) {
	b := &bench{wall: 5000e9, boot: 70e9, settings: &pb.NodeSettings{Prolog: "/prolog"}, refuse: errors.New("exit status 1")}
	s := New(b, slog.New(slog.DiscardHandler), "n1", "boot", nil, nil)
	k := agent.Key{Job: 1, Attempt: 1, Epoch: 3, Step: pb.BatchStep}
	launch := &pb.LaunchSpec{Key: k.Proto(), Node: "n1", Batch: true, StartNs: 9000e9, Spec: &pb.JobSpec{}}
	s.Order(&pb.NodeOrders{Full: true, Steps: []*pb.StepOrder{{Key: k.Proto(), Want: pb.StepWant_WANT_RUN, Launch: launch}}})
	s.Reconcile(t.Context())
	b.work()
	exit := b.asked[len(b.asked)-1].GetFail().GetExit()
	if exit.GetVerdict() != pb.VerdictPrologFailed || exit.StartNs != 5000e9 || exit.EndNs != 5001e9 {
		t.Errorf("recorded is %v", exit)
	}
}
