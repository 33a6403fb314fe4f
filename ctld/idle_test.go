package ctld

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// idleBench is a controller with one node of two GPUs, and a job on both.
type idleBench struct {
	*idleWatch
	t     *testing.T
	loop  *loop.Loop
	rules conf.GPU
	now   int64
	id    uint32
}

func newIdleBench(t *testing.T, rules conf.GPU) *idleBench {
	b := &idleBench{t: t, rules: rules, now: 1000e9}
	cfg := &state.Config{Settings: &state.Settings{MaxJobsPerUser: 9, MaxJobCount: 9, KillWaitS: 30}, Default: "p",
		PartitionNodes: map[string][]string{"p": {"g1"}},
		Nodes:          []*pb.NodeRecord{{Name: "g1", Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 100}},
		Partitions:     []*pb.PartitionRecord{{Name: "p", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited}}}
	b.loop = loop.New(journal.NewMemory(), state.New(cfg, "c", 1), func() time.Time { return time.Unix(0, b.now) },
		slog.New(slog.DiscardHandler))
	b.idleWatch = &idleWatch{view: b.loop.View, samples: live.NewSamples(), rules: func() *conf.GPU { return &b.rules },
		log: slog.New(slog.DiscardHandler),
		do: func(_ context.Context, c reactor.Command) (any, error) {
			out, err := b.loop.Turn(c)
			return out, err
		}}
	held := []*pb.Device{{Name: "gpu", Type: "a100", Id: "A"}, {Name: "gpu", Type: "a100", Id: "B", Index: 1}}
	b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: "g1", BootId: "b",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 100, Devices: held}}})
	j, p := admit.Job(b.loop.View(), &pb.JobSpec{Name: "j", Uid: 1000, User: "u", TresPerNode: "gres/gpu:2"}, "")
	if p != nil {
		t.Fatal(p)
	}
	b.id = b.turn(reactor.Submit{Job: j}).(reactor.Submitted).ID
	spec := b.job().Spec
	given := []*pb.GresDevice{{Name: "gpu", Type: "a100", Id: "A"}, {Name: "gpu", Type: "a100", Index: 1, Id: "B"}}
	start := reactor.PlannedStart{ID: b.id, Spec: spec, Partition: "p", LimitS: pb.Unlimited, NodeList: "g1",
		Alloc: []*pb.NodeAlloc{{Node: "g1", Cpus: 1, Devices: given}}}
	if r := b.turn(reactor.ApplyPlan{Starts: []reactor.PlannedStart{start}}); r.(reactor.Applied).Started != 1 {
		t.Fatal("the job does not start")
	}
	return b
}

func (b *idleBench) turn(c reactor.Command) any {
	b.t.Helper()
	out, err := b.loop.Turn(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

func (b *idleBench) job() *pb.JobRecord { return b.loop.View().Jobs.Get(b.id) }

// pass lets minutes pass with the GPUs as busy as is said, in percent, and looks.
func (b *idleBench) pass(minutes int, utilA, utilB int64) {
	for range minutes {
		b.now += 60e9
		b.samples.Put("g1", []*pb.DeviceSample{{Id: "A", UtilPercent: utilA}, {Id: "B", UtilPercent: utilB}}, b.now)
	}
	b.look(context.Background(), b.now)
}

func TestIdleGPUsAreMarked(t *testing.T) {
	b := newIdleBench(t, conf.GPU{IdleMin: 5, SampleS: 60, IdleAction: "mark"})
	for _, step := range []struct {
		what         string
		minutes      int
		a, b         int64
		marked       bool
		commentTimes int
	}{
		{"it has just begun", 2, 0, 0, false, 0},
		{"one GPU works", 10, 0, 80, false, 0},
		{"not yet", 4, 0, 0, false, 0},
		{"idle", 3, 0, 0, true, 1},
		{"still", 30, 0, 0, true, 1},
		{"at work again", 1, 50, 0, false, 1},
		{"idle again", 8, 0, 0, true, 2},
		{"nobody says", 10, -1, 0, false, 2},
	} {
		b.pass(step.minutes, step.a, step.b)
		j := b.job()
		if marked := strings.HasPrefix(j.ReasonDetail, "idle GPUs: nothing has run on them since "); marked != step.marked {
			t.Errorf("%s: marked %v (%q), want %v", step.what, marked, j.ReasonDetail, step.marked)
		}
		if n := strings.Count(j.SystemComment, "idle GPUs"); n != step.commentTimes {
			t.Errorf("%s: %d times in the comment %q, want %d", step.what, n, j.SystemComment, step.commentTimes)
		}
	}
	b.pass(8, 0, 0)
	b.now += 1000e9
	b.look(context.Background(), b.now)
	if b.job().ReasonDetail != "" {
		t.Error("marked although the node has not said anything for long")
	}
}

func TestIdleGPUsAreCancelled(t *testing.T) {
	b := newIdleBench(t, conf.GPU{IdleMin: 5, SampleS: 60, IdleAction: "cancel"})
	b.pass(4, 0, 0)
	if b.job().StopReason != "" {
		t.Fatal("cancelled too early")
	}
	b.pass(4, 0, 0)
	if j := b.job(); j.State != pb.JobState_JOB_CANCELLED || !strings.Contains(j.ReasonDetail, "gpu_idle_action=cancel") {
		t.Errorf("%v %q, want a cancelled job that says why", j.State, j.ReasonDetail)
	}
}

func TestIdleGPUsUnsaid(t *testing.T) {
	b := newIdleBench(t, conf.GPU{SampleS: 60, IdleAction: "cancel"})
	b.pass(1000, 0, 0)
	if j := b.job(); j.StopReason != "" || j.ReasonDetail != "" {
		t.Errorf("without gpu_idle= a job was touched: %q %q", j.StopReason, j.ReasonDetail)
	}
}

// TestIdleGPUsOfAResumedJob: the time in which a job was suspended is not its own.
func TestIdleGPUsOfAResumedJob(t *testing.T) {
	b := newIdleBench(t, conf.GPU{IdleMin: 5, SampleS: 60, IdleAction: "cancel"})
	b.pass(2, 0, 0)
	b.turn(reactor.Control{Caller: reactor.Caller{Operator: true}, Verb: "suspend", IDs: []string{fmt.Sprint(b.id)}})
	b.pass(20, 0, 0)
	b.turn(reactor.Control{Caller: reactor.Caller{Operator: true}, Verb: "resume", IDs: []string{fmt.Sprint(b.id)}})
	b.pass(4, 0, 0)
	if j := b.job(); j.StopReason != "" || j.ReasonDetail != "" {
		t.Fatalf("%q %q, four minutes after it was resumed", j.StopReason, j.ReasonDetail)
	}
	b.pass(2, 0, 0)
	if b.job().State != pb.JobState_JOB_CANCELLED {
		t.Error("not cancelled")
	}
}

// TestIdleActionChanges: a job that is marked already is cancelled when that becomes the rule.
func TestIdleActionChanges(t *testing.T) {
	b := newIdleBench(t, conf.GPU{IdleMin: 5, SampleS: 60, IdleAction: "mark"})
	b.pass(6, 0, 0)
	if !reactor.IdleMarked(b.job()) {
		t.Fatal("not marked")
	}
	b.rules.IdleAction = "cancel"
	b.pass(1, 0, 0)
	if b.job().State != pb.JobState_JOB_CANCELLED {
		t.Error("not cancelled")
	}
}
