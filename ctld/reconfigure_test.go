package ctld

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/dispatch"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/planner"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// confBench is a controller without its goroutines, and its slurm.conf.
type confBench struct {
	*daemon
	t *testing.T
}

func newConfBench(t *testing.T, text string) *confBench {
	log := slog.New(NewLogHandler(slog.DiscardHandler, slog.DiscardHandler))
	b := &confBench{t: t, daemon: &daemon{opts: Options{Conf: filepath.Join(t.TempDir(), "slurm.conf")}, log: log,
		conf: &atomic.Pointer[conf.Config]{}, started: time.Now()}}
	b.write(text)
	c, err := conf.Load(b.opts.Conf, conf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.useConfig(c)
	cfg := stateConfig(c, 0)
	b.loop = loop.New(journal.NewMemory(), state.New(cfg, "c", 1), time.Now, log)
	b.planner, b.advisor = planner.New(b.loop, schedParams(c), time.Now, log), planner.NewAdvisor(schedParams(c))
	b.disp = dispatch.New(b.loop.View, func(*pb.JobRecord) ([]byte, []string, error) { return []byte("#!/bin/sh\n"), nil, nil },
		b.nodeSettings, log)
	b.loop.Observe(b.planner.Changed)
	b.loop.Observe(b.disp.Changed)
	return b
}

func (b *confBench) write(text string) {
	b.t.Helper()
	if err := os.WriteFile(b.opts.Conf, []byte("ClusterName=c\nSlurmctldHost=localhost\nSlurmUser=root\n"+text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *confBench) turn(c reactor.Command) any {
	b.t.Helper()
	out, err := b.loop.Turn(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

func (b *confBench) submit() uint32 {
	b.t.Helper()
	return b.submitSpec(&pb.JobSpec{Name: "j", Uid: 1000, User: "u", NumTasks: 1})
}

func (b *confBench) submitSpec(spec *pb.JobSpec) uint32 {
	b.t.Helper()
	j, p := admit.Job(b.loop.View(), spec, "")
	if p != nil {
		b.t.Fatal(p)
	}
	return b.turn(reactor.Submit{Job: j}).(reactor.Submitted).ID
}

// plan returns the planner's current plan.
func (b *confBench) plan() *reactor.ApplyPlan {
	b.t.Helper()
	_, cmd := b.planner.Prepare(record.Cursor{})
	if cmd == nil || len(cmd.Starts) != 1 {
		b.t.Fatalf("the plan is %+v, want one start", cmd)
	}
	return cmd
}

// seen returns the visible results of a configuration: scontrol show config, partitions, weights of priorities, a job's defaults, log
// level.
func (b *confBench) seen() string {
	var out strings.Builder
	for _, kv := range b.shown().Pairs {
		fmt.Fprintln(&out, kv.Key, kv.Value)
	}
	for _, p := range b.loop.View().Partitions() {
		fmt.Fprintln(&out, p.Name, p.Nodes, p.MaxTimeS)
	}
	_, weights := b.advisor.Priorities(b.loop.View(), nil, nil)
	fmt.Fprintf(&out, "weights %+v\ncpus %d\nn1 %v\n", weights, b.plan().Starts[0].Alloc[0].Cpus, b.nodeLevel("n1"))
	return out.String()
}

// TestReconfigureAllOrNothing: of a configuration that is refused nothing is in force, of one that is taken all is.
func TestReconfigureAllOrNothing(t *testing.T) {
	const partition, later = "PartitionName=debug Nodes=ALL Default=YES MaxTime=%s\n",
		"SelectType=select/linear\nPriorityType=priority/multifactor\nPriorityWeightAge=777\nSlurmctldDebug=debug\nKillWait=77\n"
	b := newConfBench(t, "NodeName=n[1-2] CPUs=4 RealMemory=100\n"+fmt.Sprintf(partition, "60"))
	for _, n := range []string{"n1", "n2"} {
		b.turn(reactor.NodeHello{Hello: &pb.NodeHello{Node: n, BootId: "b",
			Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 100}}})
	}
	b.submit()
	first := b.plan()
	b.turn(*first)
	busy := first.Starts[0].NodeList
	free := map[string]string{"n1": "n2", "n2": "n1"}[busy]
	b.submit()
	if p := b.setDebug(&pb.SetDebugRequest{Level: "debug"}, []string{"n1"}); p != nil {
		t.Fatal(p)
	}
	before := b.seen()

	b.write(later + "NodeName=" + free + " CPUs=4 RealMemory=100\n" + fmt.Sprintf(partition, "70"))
	cmd, _, err := b.reload(false, false)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := b.turn(cmd).(*pb.Problem); !ok || pb.Code(p.Code) != pb.CodeNodesBusy {
		t.Fatalf("a configuration without %s, where a job runs, was answered with %v", busy, p)
	}
	if after := b.seen(); after != before {
		t.Errorf("a refused configuration has changed\n%s\nto\n%s", before, after)
	}

	b.write(later + "NodeName=n[1-2] CPUs=4 RealMemory=100\n" + fmt.Sprintf(partition, "70"))
	if cmd, _, err = b.reload(false, false); err != nil {
		t.Fatal(err)
	}
	if after := b.seen(); after != before {
		t.Errorf("a configuration that is only read has changed\n%s\nto\n%s", before, after)
	}
	if p, refused := b.turn(cmd).(*pb.Problem); refused {
		t.Fatal(p)
	}
	after := b.seen()
	for _, want := range []string{"SelectType select/linear", "KillWait 77 sec", "debug n[1-2] 4200", "Age:777", "cpus 4", "n1 INFO"} {
		if strings.Contains(before, want) || !strings.Contains(after, want) {
			t.Errorf("%q is not new in what can be seen:\n%s", want, after)
		}
	}
}

// TestSetDebugOfNodes: a node is told its level while another operator changes it.
func TestSetDebugOfNodes(t *testing.T) {
	b := newConfBench(t, "NodeName=n1 CPUs=4 RealMemory=100\nPartitionName=debug Nodes=ALL Default=YES\n")
	link := b.disp.Open("n1", nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20000 {
			b.setDebug(&pb.SetDebugRequest{Level: "debug"}, []string{"n1"})
		}
	}()
	for {
		select {
		case <-done:
			b.disp.Resend([]string{"n1"})
			if msg, _ := link.Next(); msg.GetSettings().GetLogLevel() != int32(slog.LevelDebug) {
				t.Errorf("the node is told %v", msg)
			}
			return
		default:
			link.Next()
		}
	}
}

// TestUnknownGroup: a group that this machine does not know admits nobody and does not prevent a start, as in Slurm; the log names it.
func TestUnknownGroup(t *testing.T) {
	var log strings.Builder
	b := newConfBench(t,
		"AuthType=auth/munge\nNodeName=n1 CPUs=4 RealMemory=1000\nPartitionName=p Nodes=n1 Default=YES "+
			"AllowGroups=nosuchgroup\nPartitionName=q Nodes=n1 AllowGroups=nosuchgroup,root\n")
	b.log = slog.New(slog.NewTextHandler(&log, nil))
	if _, _, err := b.reload(false, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AllowGroups names nosuchgroup, which is not a group on this machine", "key=AuthType why="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
	v := b.loop.View()
	for partition, want := range map[string]int{"p": 0, "q": 1} {
		if gids := v.PartitionGIDs(partition); gids == nil || len(gids) != want {
			t.Errorf("%s is open to the groups %v, want %d", partition, gids, want)
		}
	}
}
