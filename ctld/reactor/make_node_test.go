package reactor

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func rec(name string) *pb.NodeRecord {
	return &pb.NodeRecord{Name: name, Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000, Features: "quick"}
}

// answer is the answer to a command that changes nothing, "" for one that is done.
func (b *bench) answer(cmd Command) string {
	b.t.Helper()
	switch r := b.do(cmd).(type) {
	case *pb.Problem:
		return r.Error()
	case Outcomes:
		if len(r.List) > 0 {
			return r.List[0].Id + ": " + r.List[0].Problem.Error()
		}
	}
	return ""
}

func (b *bench) wants(got, want string) {
	b.t.Helper()
	if want == "" && got != "" || !strings.Contains(got, want) {
		b.t.Errorf("got %q, want %q in it", got, want)
	}
}

// TestNodesAreMadeAndDeleted: only administrators, only where MaxNodeCount leaves room, all of them or none; only dynamic nodes are
// deleted, and only without jobs and reservations.
func TestNodesAreMadeAndDeleted(t *testing.T) {
	b := newBench(t, nil)
	create := func(c Caller, names ...string) string {
		cmd := CreateNodes{Caller: c}
		for _, n := range names {
			cmd.Nodes = append(cmd.Nodes, rec(n))
		}
		return b.answer(cmd)
	}
	b.wants(create(root, "d1"), "slurm.conf has no MaxNodeCount")
	b = newBench(t, func(s *state.Settings) { s.MaxNodeCount = 4 })
	b.wants(create(alice, "d1"), "Invalid user id: only root and SlurmUser may create nodes")
	b.wants(create(root, "d1", "d2", "d3"), "there are 2 nodes, and MaxNodeCount=4 in slurm.conf does not allow 3 more")
	b.wants(create(root, "d1", "d2"), "")
	b.wants(create(root, "n1"), "Invalid node name specified: node n1 already exists (slurm.conf names it)")
	b.wants(create(root, "d2"), "scontrol delete nodename=d2")
	if n := b.view.Node("d2"); n.State != pb.NodeState_NODE_UNKNOWN || n.StateFlags != pb.NodeDynamic || n.LinkUp {
		t.Errorf("d2 was made as %v", n)
	}
	b.do(hello("d2", "boot1"))
	if n := b.view.Node("d2"); n.State != pb.NodeState_NODE_IDLE || n.StateFlags != pb.NodeDynamic {
		t.Errorf("d2 registered as %v", n)
	}

	del := func(c Caller, names ...string) string { return b.answer(DeleteNodes{Caller: c, Nodes: names}) }
	b.wants(del(alice, "d1"), "only root and SlurmUser may delete nodes")
	b.wants(del(root, "n1"), "n1: Requested operation not supported on this system: node n1 is defined in slurm.conf")
	b.wants(del(root, "nosuch", "d1"), "nosuch: Invalid node name specified: there is no node nosuch")
	if b.view.Node("d1") != nil {
		t.Error("d1, which could be deleted, was not")
	}
	id := b.submit(&pb.JobSpec{NumTasks: 1})
	b.start(id, "d2")
	b.wants(del(root, "d2"), "d2: Requested nodes are busy: node d2 has job 1")
	b.ended(id, "d2", "exited", 0)
	b.wants(del(root, "d2"), "")
	if b.view.Node("d2") != nil || len(b.view.Nodes()) != 2 {
		t.Error("d2 was not deleted")
	}
	b.wants(b.answer(hello("d2", "boot1")), "node d2 is not in the configuration of this cluster")
}

// TestHostJoins: a host that asks becomes a node where there is room; it says anew what it is when it comes again without jobs.
func TestHostJoins(t *testing.T) {
	joining := func(name string, change func(*pb.NodeRecord), steps ...*pb.StepReport) NodeHello {
		h := hello(name, "boot1", steps...)
		if h.Join = rec(name); change != nil {
			change(h.Join)
		}
		return h
	}
	b := newBench(t, nil)
	b.wants(b.answer(joining("z1", nil)), "node z1 cannot join: slurm.conf has no MaxNodeCount")
	b = newBench(t, func(s *state.Settings) { s.MaxNodeCount = 3 })
	b.wants(b.answer(hello("z1", "boot1")), "or start sluice-noded with -Z there")
	b.wants(b.answer(joining("n1", nil)), "node n1 is defined in slurm.conf")
	stray := &pb.StepReport{Key: &pb.StepKey{JobId: 9, Attempt: 1, Epoch: 5, Step: pb.BatchStep}, Phase: pb.StepPhase_STEP_RUNNING}
	b.wants(b.answer(joining("z1", nil, stray)), "")
	if n := b.view.Node("z1"); n.State != pb.NodeState_NODE_IDLE || n.Origin != "joined" || !n.LinkUp || len(n.Strays) != 1 {
		t.Fatalf("z1 joined as %v", n)
	}
	b.wants(b.answer(joining("z2", nil)), "node z2 cannot join: there are 3 nodes, and MaxNodeCount=3")

	gone := &pb.StepReport{Key: stray.Key, Phase: pb.StepPhase_STEP_ENDED}
	b.do(StepReports{Node: "z1", Steps: []*pb.StepReport{gone}})
	more := func(n *pb.NodeRecord) { n.Weight, n.Features = 7, "slow" }
	id := b.submit(&pb.JobSpec{NumTasks: 1})
	b.start(id, "z1")
	b.wants(b.answer(joining("z1", more,
		&pb.StepReport{Key: endReport(b.job(id), "", 0).Key, Phase: pb.StepPhase_STEP_RUNNING})), "")
	if n := b.view.Node("z1"); n.Weight != 0 {
		t.Error("z1 is another node under a running job")
	}
	b.ended(id, "z1", "exited", 0)
	b.wants(b.answer(joining("z1", more)), "")
	if n := b.view.Node("z1"); n.Weight != 7 || n.Features != "slow" || n.State != pb.NodeState_NODE_IDLE ||
		n.StateFlags != pb.NodeDynamic {
		t.Errorf("z1 came again as %v", n)
	}
	b.do(NodeGone{Node: "z1", Stream: 99})
	b.now += 101e9
	b.do(Tick{})
	if n := b.view.Node("z1"); n.State != pb.NodeState_NODE_DOWN {
		t.Errorf("z1 went, and is %v", n.State)
	}
	b.wants(b.answer(DeleteNodes{Caller: root, Nodes: []string{"z1"}}), "")
}

// TestReconfigureAndDynamicNodes: they stay, also under jobs, unless MaxNodeCount has no room for them any more.
func TestReconfigureAndDynamicNodes(t *testing.T) {
	b := newBench(t, func(s *state.Settings) { s.MaxNodeCount = 4 })
	b.wants(b.answer(CreateNodes{Caller: root, Nodes: []*pb.NodeRecord{rec("d1")}}), "")
	b.do(hello("d1", "boot1"))
	id := b.submit(&pb.JobSpec{NumTasks: 1})
	b.start(id, "d1")
	to := func(most uint32) *state.Config {
		s := *b.view.Settings
		s.MaxNodeCount = most
		cfg := &state.Config{Settings: &s, Default: "debug", PartitionNodes: map[string][]string{"debug": {"n1", "n2"}}}
		for _, n := range []string{"n1", "n2"} {
			cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000})
		}
		cfg.Partitions = []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited},
			{Name: "quick", SetFeatures: []string{"quick"}}}
		return cfg
	}
	b.wants(b.answer(Reconfigure{Config: to(2)}), "MaxNodeCount would be 2, with 2 nodes in slurm.conf and 1 dynamic ones")
	b.wants(b.answer(Reconfigure{Config: to(3)}), "")
	if n := b.view.Node("d1"); n == nil || len(n.Jobs) != 1 || !slices.Equal(n.Partitions, []string{"quick"}) {
		t.Errorf("after reconfigure d1 is %v", n)
	}
	if b.state(id) != "RUNNING None" {
		t.Errorf("its job is %s", b.state(id))
	}
}
