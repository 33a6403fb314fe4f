package reactor

import (
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// cloud has a node n1 of the cloud that has never been up, with what slurm.conf says of its generic resources.
func cloud(t *testing.T, gres string) *bench {
	t.Helper()
	b := newBench(t, nil)
	s := &state.Settings{Cluster: "test", CountMemory: true, DefMemPerCPUMiB: 100, NodeTimeoutS: 100, JobRequeue: true,
		RequeueDelayS: 120, PriorityBasic: true, MaxJobsPerUser: 1000, MaxArraySize: 1001}
	powered(s)
	b.view = state.New(&state.Config{Settings: s, Default: "debug", PartitionNodes: map[string][]string{"debug": {"n1"}},
		Nodes: []*pb.NodeRecord{{Name: "n1", Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000, Gres: gres,
			State: pb.NodeState_NODE_IDLE, StateFlags: pb.NodeCloud | pb.NodePoweredDown}},
		Partitions: []*pb.PartitionRecord{{Name: "debug", State: "UP", MaxTimeS: pb.Unlimited, DefaultTimeS: 1800,
			MaxNodes: pb.Unlimited}}}, "c", 1)
	return b
}

// comes registers a daemon that has devices; unread: it does not know gres.conf yet.
func (b *bench) comes(boot string, unread bool, devices ...*pb.Device) {
	b.t.Helper()
	h := booted("n1", boot, int64(len(boot)))
	h.Hello.Hardware.Devices, h.Hello.Hardware.Unread = devices, unread
	b.do(h)
}

// sleep powers n1 down.
func (b *bench) sleep() {
	b.t.Helper()
	b.after(100)
	b.do(NodeGone{Node: "n1"})
	b.ran(PowerSuspend, "n1")
	b.after(20)
	b.flags("n1", pb.NodeCloud|pb.NodePoweredDown, "")
}

// holds compares the devices that a job has, ID after ID.
func (b *bench) holds(id uint32, ids, text string) {
	b.t.Helper()
	j := b.job(id)
	var have []string
	for _, a := range j.Alloc {
		for _, d := range a.Devices {
			have = append(have, d.Id)
		}
	}
	if got := strings.Join(have, " "); got != ids || j.StateFlags != 0 || j.State != pb.JobState_JOB_RUNNING || j.Alloc[0].Gres != text {
		b.t.Fatalf("job %d is %v with flags %#x and holds %q (%v), want %q, %s", id, j.State, j.StateFlags, got, j.Alloc, ids, text)
	}
}

func declared(index uint32) *pb.GresDevice { return dev(index, "") }

// TestDevicesOfNodeThatWasAsleep: jobs get the devices that the node turns out to have, also when it is another host than before.
func TestDevicesOfNodeThatWasAsleep(t *testing.T) {
	b := cloud(t, "gpu:a100:2")
	one, _ := b.give(declared(0))
	two, ok := b.give(declared(1))
	if _, third := b.give(declared(1)); !ok || third {
		t.Fatal("what is declared is not given once")
	}
	b.after(1)
	b.comes("boot1", false, gpus("A", "B")...)
	b.holds(one, "A", "gpu:a100:1(IDX:0)")
	b.holds(two, "B", "gpu:a100:1(IDX:1)")
	b.ended(one, "n1", "exited", 0)
	b.ended(two, "n1", "exited", 0)
	b.sleep()

	one, _ = b.give(dev(0, "A"))
	two, _ = b.giveAs("gpu:a100:1", dev(1, "B"))
	b.after(1)
	found := gpus("C", "D", "B")
	found[0].Fault = "broken"
	b.comes("boot20", false, found...)
	if n := b.node("n1"); len(n.Inv.Differ) == 0 {
		t.Error("a GPU more than slurm.conf says is nothing to say")
	}
	b.holds(one, "D", "gpu:a100:1(IDX:1)")
	j := b.job(two) // of two that it may use, one is broken
	if j.State != pb.JobState_JOB_PENDING || j.Restarts != 1 ||
		j.SystemComment != "node n1 was powered up, and it lacks some of gpu:a100:1" {
		t.Errorf("a job for which there is nothing: %v", j)
	}
}

// TestHostThatDoesNotKnowGresConf: one that comes up for the first time says what it has only when it has been told of gres.conf.
func TestHostThatDoesNotKnowGresConf(t *testing.T) {
	b := cloud(t, "gpu:a100:2")
	id, _ := b.give(declared(0))
	b.after(1)
	b.comes("boot1", true)
	if j := b.job(id); j.StateFlags&pb.JobPowerUp == 0 || j.State != pb.JobState_JOB_RUNNING {
		t.Fatalf("its node has not said what it has: %v", j)
	}
	if _, ok := b.give(declared(1)); ok {
		t.Error("what is only declared is given of a node that is up")
	}
	b.do(DeviceReport{Node: "n1", Report: &pb.DeviceReport{Devices: gpus("A", "B")}})
	b.holds(id, "A", "gpu:a100:1(IDX:0)")

	b = cloud(t, "gpu:a100:2") // and one that goes before it has said so
	b.comes("boot1", true)
	b.sleep()
	if _, ok := b.give(declared(0), declared(1)); !ok {
		t.Errorf("a node that has never said what it has: %v", b.node("n1").Inv)
	}
}

// TestLessThanDeclared: a node that comes up with less memory is INVALID_REG, and its job waits again; nothing of it is launched.
func TestLessThanDeclared(t *testing.T) {
	b := cloud(t, "")
	id := b.submit(&pb.JobSpec{})
	b.start(id, "n1")
	b.after(1)
	h := booted("n1", "boot1", 5)
	h.Hello.Hardware.RealMemoryMib = 3000
	b.trace = nil
	b.do(h)
	b.flags("n1", pb.NodeCloud|pb.NodeDrain|pb.NodeInvalidReg, "")
	if j := b.job(id); j.State != pb.JobState_JOB_PENDING || j.Restarts != 1 || len(b.node("n1").Jobs) > 0 {
		t.Errorf("its job: %v", j)
	}
	for _, e := range b.trace {
		if strings.Contains(e, "node is up") {
			t.Error(e)
		}
	}
}

// TestUseEndsWithTheHost: processes outside of jobs that used a GPU ended with their host, and in the cloud the next host has other GPUs.
func TestUseEndsWithTheHost(t *testing.T) {
	b := cloud(t, "gpu:a100:2")
	found := gpus("A", "B")
	found[0].Foreign, found[1].Fault = "python3", "broken"
	b.comes("boot1", false, found...)
	if _, ok := b.give(dev(0, "A")); ok {
		t.Fatal("a GPU that somebody uses is given")
	}
	b.sleep()
	if _, ok := b.give(dev(0, "A"), dev(1, "B")); !ok {
		t.Errorf("given not even when its host is off: %v", b.node("n1").Inv.Kinds)
	}
}
