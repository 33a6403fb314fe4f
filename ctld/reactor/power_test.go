package reactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// powered is a cluster that powers nodes down after 100 s; they take 20 s to go down and at most 60 s to come up.
func powered(s *state.Settings) {
	s.Power = &state.PowerSettings{SuspendTimeS: 100, SuspendTimeoutS: 20, ResumeTimeoutS: 60, FailProgram: true}
}

// booted is a daemon that registers, told apart from others by its start.
func booted(node, boot string, start int64) NodeHello {
	h := hello(node, boot)
	h.Hello.NodedStartNs = start
	return h
}

// flags compares those of a node with what is wanted, and the program that is owed to it.
func (b *bench) flags(node string, want uint32, program string) {
	b.t.Helper()
	if n := b.node(node); n.StateFlags != want || n.PowerProgram != program {
		b.t.Fatalf("node %s has flags %#x and is owed %q, want %#x and %q", node, n.StateFlags, n.PowerProgram, want, program)
	}
}

func (b *bench) ran(program string, nodes ...string) {
	b.t.Helper()
	done := PowerProgramDone{Program: program, Nodes: map[string]int64{}}
	for _, n := range nodes {
		done.Nodes[n] = b.node(n).PowerNs
	}
	b.do(done)
}

func (b *bench) after(seconds int64) {
	b.t.Helper()
	b.now += seconds * 1e9
	b.do(Tick{})
}

func newPowered(t *testing.T, more func(*state.Settings)) *bench {
	t.Helper()
	b := newBench(t, func(s *state.Settings) {
		powered(s)
		if more != nil {
			more(s)
		}
	})
	for _, n := range []string{"n1", "n2"} {
		b.do(booted(n, "boot1", 1))
	}
	return b
}

// asleep powers n1 and n2 down.
func asleep(t *testing.T, more func(*state.Settings)) *bench {
	t.Helper()
	b := newPowered(t, more)
	b.after(100)
	for _, n := range []string{"n1", "n2"} {
		b.flags(n, pb.NodePoweringDown, PowerSuspend)
		b.do(NodeGone{Node: n})
	}
	b.ran(PowerSuspend, "n1", "n2")
	b.after(20)
	for _, n := range []string{"n1", "n2"} {
		b.flags(n, pb.NodePoweredDown, "")
	}
	return b
}

func TestIdleNodesArePoweredDown(t *testing.T) {
	b := newPowered(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.after(99)
	b.flags("n2", 0, "")
	b.after(1)
	b.flags("n1", 0, "")
	b.flags("n2", pb.NodePoweringDown, PowerSuspend)
	b.after(19)
	b.do(booted("n2", "boot1", 1)) // the daemon that is about to end comes again, as after a restart of the controller
	b.flags("n2", pb.NodePoweringDown, PowerSuspend)
	b.do(NodeGone{Node: "n2"})
	b.after(1)
	b.flags("n2", pb.NodePoweredDown, PowerSuspend) // whose program has still not ended
	b.after(10000)
	if n := b.node("n2"); n.State != pb.NodeState_NODE_IDLE || n.StateFlags != pb.NodePoweredDown {
		t.Errorf("a node that is powered down is silent, and became %v %#x", n.State, n.StateFlags)
	}
	b.do(booted("n2", "boot2", 2)) // somebody has pressed the button, and the program may switch it off yet
	b.flags("n2", pb.NodePoweredDown, PowerSuspend)
	b.ran(PowerSuspend, "n2")
	b.after(39)
	b.flags("n2", pb.NodePoweringDown, "") // and it has as long to go down as any other, and as it takes to see that it has
	b.after(1)
	b.flags("n2", 0, "")
}

func TestJobWakesNode(t *testing.T) {
	b := asleep(t, nil)
	b.do(booted("n1", "boot1", 1)) // SuspendProgram has not ended it, and it is slow to say so
	b.flags("n1", pb.NodePoweredDown, "")
	b.do(NodeGone{Node: "n1"})
	id := b.submit(&pb.JobSpec{TimeLimitS: 600})
	if r := b.start(id, "n1"); r.Started != 1 {
		t.Fatal("a job does not start on a node that is powered down")
	}
	j := b.job(id)
	if j.StateFlags != pb.JobConfiguring|pb.JobPowerUp || Configuring(j) || j.EndNs != b.now+660e9 || j.Alloc[0].BootId != "" {
		t.Fatalf("started on a node that is powered down: %v", j)
	}
	b.do(Tick{})
	b.flags("n1", pb.NodePoweringUp|pb.NodeNoRespond, PowerResume)
	b.ran(PowerResume, "n1")
	b.after(30)
	b.do(booted("n1", "boot1", 1)) // the previous daemon: it has not been down
	b.flags("n1", pb.NodePoweringUp|pb.NodeNoRespond, "")
	if b.job(id).StateFlags == 0 {
		t.Fatal("the job runs on a node that is not up")
	}
	b.do(NodeGone{Node: "n1"})
	b.do(booted("n1", "boot2", 5))
	b.flags("n1", 0, "")
	if j := b.job(id); j.StateFlags != 0 || j.EndNs != b.now+600e9 || j.Alloc[0].BootId != "boot2" || j.ReasonDetail != "" {
		t.Fatalf("its node is up: %v", j)
	}
	b.ended(id, "n1", "exited", 0)
	b.after(99)
	b.flags("n1", 0, "")
	b.after(1)
	b.flags("n1", pb.NodePoweringDown, PowerSuspend)
}

// TestSleepingHostMayKeepItsDaemon: one that is suspended to memory registers again with the daemon that slept.
func TestSleepingHostMayKeepItsDaemon(t *testing.T) {
	b := asleep(t, nil)
	b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "POWER_UP"}}})
	b.after(1)
	b.flags("n1", pb.NodePoweringUp|pb.NodeNoRespond, PowerResume)
	b.do(booted("n1", "boot1", 1))
	b.flags("n1", 0, "")
}

func TestJobWaitsForAllNodes(t *testing.T) {
	b := asleep(t, func(s *state.Settings) { s.PrologSlurmctld = true })
	b.do(booted("n2", "boot2", 2))
	id := b.submit(&pb.JobSpec{MinNodes: 2, MaxNodes: 2})
	b.start(id, "n1", "n2")
	b.after(1)
	b.do(booted("n1", "boot2", 3))
	if j := b.job(id); !Configuring(j) {
		t.Errorf("all nodes are up, and PrologSlurmctld is not due: %v", j)
	}
}

func TestResumeTimeout(t *testing.T) {
	b := asleep(t, func(s *state.Settings) { s.NodeTimeoutS = 10 })
	id := b.submit(&pb.JobSpec{MinNodes: 2, MaxNodes: 2})
	never := b.submit(&pb.JobSpec{Requeue: pb.No})
	b.start(id, "n1", "n2")
	b.start(never, "n1")
	b.after(0)
	b.do(booted("n2", "boot2", 2))
	b.after(59)
	b.flags("n1", pb.NodePoweringUp|pb.NodeNoRespond, PowerResume)
	b.after(1)
	b.flags("n1", pb.NodePoweredDown|pb.NodeNoRespond, PowerFail)
	if n := b.node("n1"); n.State != pb.NodeState_NODE_DOWN || n.Reason != "ResumeTimeout reached" || len(n.Strays) > 0 {
		t.Errorf("after ResumeTimeout: %v", n.NodeRecord)
	}
	if j := b.job(id); j.State != pb.JobState_JOB_PENDING || state.Live(j) || j.Reason != "BeginTime" || j.Restarts != 1 {
		t.Errorf("its job: %v", j)
	}
	if j := b.job(never); j.State != pb.JobState_JOB_NODE_FAIL || state.Active(j) {
		t.Errorf("its job that is not requeued: %v", j)
	}
	b.do(UpdateNode{Caller: root, Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "RESUME"}}})
	if !b.node("n1").Asleep() {
		t.Errorf("resumed: %v", b.node("n1").NodeRecord)
	}
}

// TestCancelledBeforeItsNodesAreUp: a cancelled job does not wait for nodes that were never told of it.
func TestCancelledBeforeItsNodesAreUp(t *testing.T) {
	b := asleep(t, nil)
	id := b.submit(&pb.JobSpec{MinNodes: 2, MaxNodes: 2})
	b.start(id, "n1", "n2")
	b.after(1)
	b.do(Cancel{Caller: alice, IDs: []string{fmt.Sprint(id)}})
	if j := b.job(id); j.State != pb.JobState_JOB_CANCELLED || state.Active(j) || len(b.node("n1").Jobs) > 0 {
		t.Errorf("cancelled: %v", j)
	}
}

func TestPowerDownVerbs(t *testing.T) {
	set := func(b *bench, value string, more ...*pb.KeyValue) any {
		return b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"},
			Set: append([]*pb.KeyValue{{Key: "State", Value: value}}, more...)})
	}
	if p, ok := set(newBench(t, nil), "POWER_DOWN").(*pb.Problem); !ok || p.Code != uint32(pb.CodeInvalidNodeState) {
		t.Errorf("without power saving: %v", p)
	}
	for _, verb := range []string{"POWER_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE"} {
		t.Run(verb, func(t *testing.T) {
			b := newPowered(t, nil)
			id := b.submit(&pb.JobSpec{})
			b.start(id, "n1")
			set(b, verb)
			b.after(1)
			switch verb {
			case "POWER_DOWN_FORCE":
				if j := b.job(id); j.State != pb.JobState_JOB_PENDING || state.Live(j) {
					t.Errorf("its job: %v", j)
				}
			case "POWER_DOWN":
				b.flags("n1", pb.NodePowerDownPending, "")
				if !b.node("n1").Up() {
					t.Error("jobs still start while others run")
				}
				b.ended(id, "n1", "exited", 0)
			default:
				b.flags("n1", pb.NodePowerDownPending|pb.NodeDrain|pb.NodePowerDrain, "")
				b.ended(id, "n1", "exited", 0)
			}
			b.do(Tick{})
			b.flags("n1", b.node("n1").StateFlags&pb.NodePowerDrain|pb.NodePoweringDown, PowerSuspend)
			set(b, "RESUME")
			b.flags("n1", pb.NodePoweredDown, PowerSuspend)
		})
	}
}

// TestPowerDownAgain: SuspendProgram can be run again for a node that is powered down. It stays known to be off, so that POWER_UP right
// after that runs ResumeProgram.
func TestPowerDownAgain(t *testing.T) {
	for _, verb := range []string{"POWER_DOWN", "POWER_DOWN_ASAP"} {
		b := asleep(t, nil)
		set := func(value string) {
			t.Helper()
			b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: value}}})
		}
		set(verb)
		b.flags("n1", b.node("n1").StateFlags&pb.NodePowerDrain|pb.NodePoweringDown, PowerSuspend)
		set("POWER_UP")
		b.ran(PowerSuspend, "n1")
		b.after(20)
		b.after(1)
		b.flags("n1", pb.NodePoweringUp|pb.NodeNoRespond, PowerResume)
		if b.do(booted("n1", "boot2", 7)); !b.node("n1").Up() {
			t.Errorf("%s: %v", verb, b.node("n1").NodeRecord)
		}
	}
}

// TestPowerDownWithAJobThatGoes: an order to power down a node that is not up yet waits for the job that it was given to; when that is
// cancelled the node goes down, and can be given to others again.
func TestPowerDownWithAJobThatGoes(t *testing.T) {
	for _, verb := range []string{"POWER_DOWN", "POWER_DOWN_ASAP"} {
		b := asleep(t, nil)
		id := b.submit(&pb.JobSpec{})
		b.start(id, "n1")
		b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: verb}}})
		b.do(Cancel{Caller: root, IDs: []string{fmt.Sprint(id)}})
		b.after(0)
		b.flags("n1", b.node("n1").StateFlags&pb.NodePowerDrain|pb.NodePoweringDown, PowerSuspend)
		b.ran(PowerSuspend, "n1")
		b.after(20)
		b.after(1)
		if n := b.node("n1"); !n.Asleep() {
			t.Errorf("%s: %v %#x", verb, n.State, n.StateFlags)
		}
	}
}

// TestSlowSuspendProgram: while SuspendProgram runs for a node, for longer than SuspendTimeout, it may switch the node off any moment. A
// host that has been started meanwhile is up if it is there still SuspendTimeout, and 40 seconds, after the program's end; else
// ResumeProgram runs then.
func TestSlowSuspendProgram(t *testing.T) {
	b := newPowered(t, nil)
	b.after(100)
	b.do(NodeGone{Node: "n1"})
	b.after(20)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.after(1000)
	b.flags("n1", pb.NodePoweredDown, PowerSuspend)
	b.do(booted("n1", "boot2", 2))
	if j := b.job(id); j.StateFlags&pb.JobPowerUp == 0 {
		t.Errorf("a job runs on what is being switched off: %v", j)
	}
	b.ran(PowerSuspend, "n1")
	b.after(19)
	b.flags("n1", pb.NodePoweringDown, "")
	b.after(20) // that a host is gone is not known at once, which may be later than SuspendTimeout
	b.flags("n1", pb.NodePoweringDown, "")
	b.do(NodeGone{Node: "n1"}) // so it has been switched off
	b.after(1)
	b.after(1)
	b.flags("n1", pb.NodePoweringUp|pb.NodeNoRespond, PowerResume)
	b.do(booted("n1", "boot3", 3))
	b.flags("n1", 0, "")
	if j := b.job(id); j.StateFlags != 0 {
		t.Errorf("its node is up: %v", j)
	}
}

// TestStartedWhileSuspendProgramRuns: even before SuspendTimeout has passed, a node that has registered may be the one that the program has
// switched off.
func TestStartedWhileSuspendProgramRuns(t *testing.T) {
	b := newPowered(t, nil)
	b.after(100)
	b.do(NodeGone{Node: "n1"})
	b.after(10)
	b.do(booted("n1", "boot2", 2))
	b.after(9)
	b.ran(PowerSuspend, "n1")
	b.after(39)
	b.flags("n1", pb.NodePoweringDown, "")
	b.do(NodeGone{Node: "n1"})
	b.after(1)
	b.flags("n1", pb.NodePoweredDown, "")
}

func TestWhatStaysPowered(t *testing.T) {
	for name, set := range map[string]func(*state.PowerSettings){
		"never":     func(p *state.PowerSettings) { p.SuspendTimeS = pb.Unlimited },
		"nodes":     func(p *state.PowerSettings) { p.Except = []state.PowerExcept{{Nodes: []string{"n1", "n2"}}} },
		"count":     func(p *state.PowerSettings) { p.Except = []state.PowerExcept{{Nodes: []string{"n1", "n2"}, Count: 2}} },
		"partition": func(p *state.PowerSettings) { p.ExceptParts = []string{"debug"} },
		"longer": func(p *state.PowerSettings) {
			hour := uint32(3600)
			p.Partitions = map[string]state.PartitionPower{"debug": {SuspendTimeS: &hour}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPowered(t, func(s *state.Settings) { set(s.Power) })
			b.after(1000)
			b.flags("n1", 0, "")
			b.flags("n2", 0, "")
		})
	}
	b := newPowered(t, func(s *state.Settings) { s.Power.Except = []state.PowerExcept{{Nodes: []string{"n1", "n2"}, Count: 1}} })
	b.after(1000)
	b.flags("n1", pb.NodePoweringDown, PowerSuspend)
	b.flags("n2", 0, "")
	b = newPowered(t, func(s *state.Settings) { s.Power.SuspendRate = 1 })
	b.after(1000)
	b.after(59)
	b.flags("n2", 0, "")
	b.after(1)
	b.flags("n2", pb.NodePoweringDown, PowerSuspend)
}

// TestDrainedToBePoweredDown: a node drained for POWER_DOWN_ASAP is no longer drained once it is powered down, whatever reason was given. A
// node drained before, or drained again since for another reason, stays drained.
func TestDrainedToBePoweredDown(t *testing.T) {
	set := func(b *bench, state, reason string) {
		t.Helper()
		kv := []*pb.KeyValue{{Key: "State", Value: state}}
		if reason != "" {
			kv = append(kv, &pb.KeyValue{Key: "Reason", Value: reason})
		}
		if p, refused := b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"}, Set: kv}).(*pb.Problem); refused {
			t.Fatal(p)
		}
	}
	down := func(b *bench) *state.Node {
		b.after(1)
		b.do(NodeGone{Node: "n1"})
		b.ran(PowerSuspend, "n1")
		b.after(20)
		return b.node("n1")
	}
	for _, reason := range []string{"", "mine"} {
		b := newPowered(t, nil)
		id := b.submit(&pb.JobSpec{})
		b.start(id, "n1")
		set(b, "POWER_DOWN_ASAP", reason)
		if n := b.node("n1"); n.Up() || !strings.Contains("POWER_DOWN_ASAP mine", n.Reason) {
			t.Errorf("not drained: %v", n.NodeRecord)
		}
		b.ended(id, "n1", "exited", 0)
		if n := down(b); !n.Asleep() || n.Reason == "" {
			t.Errorf("powered down with reason %q: %v", reason, n.NodeRecord)
		}
		if b.do(booted("n1", "boot2", 7)); !b.node("n1").Up() || b.node("n1").Reason != "" || b.node("n1").StateFlags != 0 {
			t.Errorf("and up again: %v", b.node("n1").NodeRecord)
		}
	}
	b := newPowered(t, nil)
	set(b, "DRAIN", "broken")
	set(b, "POWER_DOWN_ASAP", "")
	if n := down(b); n.Asleep() || n.Reason != "broken" || n.StateFlags&pb.NodeDrain == 0 {
		t.Errorf("drained before: %v", n.NodeRecord)
	}
	b = newPowered(t, nil)
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	set(b, "POWER_DOWN_ASAP", "")
	b.do(NodeBeats{Beats: map[string]*pb.Heartbeat{"n1": {}}})
	set(b, "DRAIN", "broken")
	b.ended(id, "n1", "exited", 0)
	if n := down(b); n.Asleep() || n.StateFlags&pb.NodeDrain == 0 {
		t.Errorf("drained since: %v", n.NodeRecord)
	}
}

// TestPlannedWhileGoingDown: when a node that is being powered down can be had again is known.
func TestPlannedWhileGoingDown(t *testing.T) {
	b := newPowered(t, nil)
	b.after(100)
	n := b.node("n1")
	if at, ok := n.AsleepAt(); !ok || at != b.now+20e9 || n.Asleep() || b.start(b.submit(&pb.JobSpec{}), "n1").Started != 0 {
		t.Errorf("going down: at %d, %v", at, ok)
	}
	b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "DRAIN"},
		{Key: "Reason", Value: "broken"}}})
	if _, ok := b.node("n1").AsleepAt(); ok {
		t.Error("jobs are promised a node that is drained")
	}
}

// TestGivenUpTogether: when two nodes of a job are late, and one is to be powered up for another, all of them are counted as free as they
// are.
func TestGivenUpTogether(t *testing.T) {
	b := asleep(t, nil)
	both := b.submit(&pb.JobSpec{MinNodes: 2, MaxNodes: 2})
	b.start(both, "n1", "n2")
	b.after(1)
	b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n2"}, Set: []*pb.KeyValue{{Key: "State", Value: "POWER_DOWN_FORCE"}}})
	again := b.submit(&pb.JobSpec{MinNodes: 2, MaxNodes: 2})
	b.start(again, "n1")
	b.after(25) // n2 is powered down
	third := b.submit(&pb.JobSpec{MinNodes: 2, MaxNodes: 2})
	b.start(third, "n1", "n2")
	b.now += 40e9 // n1 is late, and n2 has not been powered up yet
	b.do(Tick{})
	if n := b.node("n2"); len(n.Jobs) > 0 || n.AllocCpus != 0 || n.StateFlags&pb.NodePoweringUp != 0 {
		t.Errorf("n2: %v", n.NodeRecord)
	}
}

// TestWakesWithStrays: a node that was powered down with what it ran is given jobs all the same; they begin when that is known to be gone.
func TestWakesWithStrays(t *testing.T) {
	b := newPowered(t, nil)
	first := b.submit(&pb.JobSpec{})
	b.start(first, "n1")
	old := b.job(first)
	b.do(UpdateNode{Caller: root, UserName: "root", Nodes: []string{"n1"}, Set: []*pb.KeyValue{{Key: "State", Value: "POWER_DOWN_FORCE"}}})
	b.ran(PowerSuspend, "n1")
	b.after(20) // and its daemon lives on
	next := b.submit(&pb.JobSpec{})
	if len(b.node("n1").Strays) == 0 || b.start(next, "n1").Started != 1 {
		t.Fatalf("a node that may still run something is never woken: %v", b.node("n1").NodeRecord)
	}
	b.after(1)
	still := &pb.StepReport{Key: endReport(old, "", 0).Key, Phase: pb.StepPhase_STEP_RUNNING}
	still.Key.Step = pb.BatchStep
	h := booted("n1", "boot1", 2)
	h.Steps = []*pb.StepReport{still}
	if b.do(h); b.job(next).StateFlags&pb.JobPowerUp == 0 {
		t.Fatal("a job runs beside what the node still runs")
	}
	gone := endReport(old, "signaled", 9)
	gone.Key.Step = pb.BatchStep
	b.do(StepReports{Node: "n1", Steps: []*pb.StepReport{gone}})
	if j := b.job(next); j.StateFlags != 0 {
		t.Errorf("what was in the way is gone: %v, strays %v", j, b.node("n1").Strays)
	}
}
