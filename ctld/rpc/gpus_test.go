package rpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/admit"
	"github.com/sluice-hpc/sluice/ctld/live"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// gpuView has a node g1 with five GPUs in every state, and an idle one, w1, of another partition.
func gpuView(t *testing.T) *state.View {
	t.Helper()
	cfg := &state.Config{Settings: &state.Settings{MaxJobsPerUser: 9, MaxJobCount: 9}, Default: "p",
		PartitionNodes: map[string][]string{"p": {"g1"}, "q": {"w1"}},
		Gres:           map[string]state.GresConfig{"g1": {DynamicMIG: true}}}
	for _, n := range []string{"g1", "w1"} {
		cfg.Nodes = append(cfg.Nodes, &pb.NodeRecord{Name: n, Cpus: 8, Sockets: 2, Cores: 4, Threads: 1, RealMemoryMib: 100,
			CfgTres: "cpu=8,mem=100M,billing=8"})
	}
	for _, p := range []string{"p", "q"} {
		cfg.Partitions = append(cfg.Partitions, &pb.PartitionRecord{Name: p, State: "UP", MaxTimeS: pb.Unlimited, MaxNodes: pb.Unlimited})
	}
	v := state.New(cfg, "c", 1)
	do := func(c reactor.Command) any {
		tx := state.Begin(v, 1000e9)
		r := c.Handle(tx)
		v, _ = tx.Freeze()
		return r
	}
	card := func(i int, change func(*pb.Device)) *pb.Device {
		d := &pb.Device{Name: "gpu", Type: "a100", Index: uint32(i), Id: fmt.Sprint("G", i), MemoryMib: 40960, Cores: fmt.Sprint(i)}
		if change != nil {
			change(d)
		}
		return d
	}
	hello := func(n string, devices ...*pb.Device) {
		do(reactor.NodeHello{Hello: &pb.NodeHello{Node: n, BootId: "b",
			Hardware: &pb.Hardware{Cpus: 8, Sockets: 2, Cores: 4, Threads: 1, RealMemoryMib: 100, Devices: devices}}, Stream: 1})
	}
	hello("g1", card(0, nil), card(1, func(d *pb.Device) { d.Fault, d.FaultNs = "XID 79", 900e9 }),
		card(2, func(d *pb.Device) { d.Foreign = "sh (pid 7) of eve" }),
		card(3, func(d *pb.Device) { d.Shares, d.SharedAs = 4, "shard" }),
		card(4, func(d *pb.Device) {
			d.MigMode, d.MigProfiles = "on", []*pb.MigProfile{{Name: "3g.20gb", Size: 4, Starts: []uint32{0, 4}}}
		}))
	hello("w1", &pb.Device{Name: "gpu", Type: "titan", Id: "W"})
	start := func(tres string, devices ...*pb.GresDevice) {
		j, p := admit.Job(v, &pb.JobSpec{Name: "j", Uid: 1000, User: "alice", TresPerNode: tres}, "")
		if p != nil {
			t.Fatal(p)
		}
		id := do(reactor.Submit{Job: j}).(reactor.Submitted).ID
		if r := do(reactor.ApplyPlan{Starts: []reactor.PlannedStart{{ID: id, Task: -1, Spec: v.Jobs.Get(id).Spec, Partition: "p",
			LimitS: 60, NodeList: "g1",
			Alloc: []*pb.NodeAlloc{{Node: "g1", Cpus: 1, Devices: devices}}}}}); r.(reactor.Applied).Started != 1 {
			t.Fatalf("%s does not start", tres)
		}
	}
	start("gres/gpu:1", &pb.GresDevice{Name: "gpu", Type: "a100", Id: "G0"})
	start("gres/shard:3", &pb.GresDevice{Name: "shard", Type: "a100", Index: 3, Id: "G3", Share: 3})
	start("gres/gpu:3g.20gb:1", &pb.GresDevice{Name: "gpu", Type: "a100_3g.20gb", Index: 41, Parent: "G4", MigStart: 4})
	return v
}

func listGPUs(t *testing.T, s *Service, r *pb.GpusRequest, v *state.View) (out []string) {
	t.Helper()
	if err := s.gpus(ctx, r, v, func(reply *pb.GpusReply) error {
		for _, g := range reply.Gpus {
			line := fmt.Sprintf("%s/%d %s %s", g.Node, g.Device.Index, g.State, g.Why)
			for _, o := range g.Owners {
				line += fmt.Sprintf(" %s:%s:%d:%s", o.Id, o.User, o.Share, o.Type)
			}
			if g.Sample != nil {
				line += fmt.Sprintf(" %d%% %d", g.Sample.UtilPercent, g.IdleSinceNs/1e9)
			}
			if len(g.Device.Links)+len(g.Device.MigProfiles)+len(g.Device.Files)+len(g.Device.Cores) > 0 {
				t.Errorf("%s: has what nobody shows", line)
			}
			out = append(out, strings.TrimSpace(line))
		}
		return nil
	}); err != nil {
		return []string{err.Error()}
	}
	return out
}

func TestGPUs(t *testing.T) {
	v := gpuView(t)
	s := &Service{Samples: live.NewSamples()}
	s.Samples.Put("g1", []*pb.DeviceSample{{Id: "G0", UtilPercent: 0}, {Id: "G3", UtilPercent: -1}, {Id: "G4", UtilPercent: 50}}, 800e9)
	s.Samples.Put("g1", []*pb.DeviceSample{{Id: "G0", UtilPercent: 0}, {Id: "G3", UtilPercent: -1}}, 990e9)
	for name, tt := range map[string]struct {
		r    *pb.GpusRequest
		want string
	}{
		"all": {&pb.GpusRequest{},
			"g1/0 alloc  1:alice:0: 0% 800\ng1/1 fault XID 79\ng1/2 foreign sh (pid 7) of eve\ng1/3 mixed  2:alice:3: -1% 0\ng1/4 mixed " +
				" 3:alice:0:a100_3g.20gb\nw1/0 idle"},
		"node":      {&pb.GpusRequest{Nodes: []string{"w1"}}, "w1/0 idle"},
		"partition": {&pb.GpusRequest{Partitions: []string{"q"}}, "w1/0 idle"},
		"neither":   {&pb.GpusRequest{Partitions: []string{"q"}, Nodes: []string{"g1"}}, ""},
	} {
		if got := strings.Join(listGPUs(t, s, tt.r, v), "\n"); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tt.want)
		}
	}
	for _, bad := range []*pb.GpusRequest{{Nodes: []string{"g9"}}, {Partitions: []string{"nope"}}, {Nodes: []string{"g["}}} {
		if got := listGPUs(t, s, bad, v); len(got) != 1 || !strings.Contains(got[0], "rpc error") {
			t.Errorf("%v: %q, want a refusal", bad, got)
		}
	}
}

func TestOwnersOfAnInstance(t *testing.T) {
	part := &pb.Device{Type: "a100_3g.20gb", Parent: "G4", MigStart: 4}
	for _, tt := range []struct {
		o    *pb.GpuOwner
		want bool
	}{
		{&pb.GpuOwner{Type: "a100_3g.20gb", Start: 4}, true},
		{&pb.GpuOwner{Type: "a100_3g.20gb", Start: 0}, false},
		{&pb.GpuOwner{}, true}, // of the whole GPU
	} {
		if got := len(ownersOfPart([]*pb.GpuOwner{tt.o}, part)) == 1; got != tt.want {
			t.Errorf("%v has the instance: %v, want %v", tt.o, got, tt.want)
		}
	}
}

// TestGresOfANode: a node's devices as sinfo and scontrol show them.
func TestGresOfANode(t *testing.T) {
	v := gpuView(t)
	r := &pb.NodeRecord{}
	showNode(r, v, v.Node("g1"), 0)
	for _, tt := range [][3]string{
		{"Gres", r.Gres, "gpu:a100:5(S:0-1),shard:4(S:0)"},
		{"GresUsed", r.GresUsed, "gpu:a100:2(IDX:0,4),gpu:a100_3g.20gb:1(IDX:41),shard:3(3/4)"},
		{"GresDrain", r.GresDrain, "gpu:a100:2(IDX:1-2)"},
		{"CfgTRES", r.CfgTres, "cpu=8,mem=100M,billing=8,gres/gpu=5,gres/shard=4"},
		{"AllocTRES", r.AllocTres, "cpu=3,mem=0,gres/gpu=2,gres/shard=3"},
		{"Reason", r.Reason, "gpu 1 (a100): XID 79; gpu 2 (a100): in use outside of any job by sh (pid 7) of eve"},
		{"Diagnosis", r.Diagnosis, "gpu 1 (a100): XID 79; gpu 2 (a100): in use outside of any job by sh (pid 7) of eve"},
	} {
		if tt[1] != tt[2] {
			t.Errorf("%s=%s, want %s", tt[0], tt[1], tt[2])
		}
	}
	if r.Reported != nil || v.Node("g1").Reported == nil {
		t.Error("what the node reported is sent along, or is lost")
	}
}

// TestWhyNoGPU: of nodes without GPUs it is said why, those with the same reason together; where there is one GPU among what was asked
// about, nothing.
func TestWhyNoGPU(t *testing.T) {
	node := func(name string, hw *pb.Hardware, up bool, differ ...string) *state.Node {
		n := &state.Node{NodeRecord: &pb.NodeRecord{Name: name, Version: "0.0.9", Reported: hw, State: pb.NodeState_NODE_IDLE}, LinkUp: up}
		if !up {
			n.State = pb.NodeState_NODE_DOWN
		}
		n.Inv = &state.Inventory{Differ: differ}
		return n
	}
	got := ""
	for _, r := range noGPUs([]*state.Node{
		node("a", &pb.Hardware{NoGpus: "no library"}, true), node("b", nil, true), node("c", &pb.Hardware{NoGpus: "no library"}, true),
		node("d", &pb.Hardware{NoGpus: "no library"}, false), node("e", &pb.Hardware{Driver: "570.1"}, true, "gres.conf:1 says so"),
		node("f", &pb.Hardware{}, true), node("g", &pb.Hardware{Unread: true, NoGpus: "x"}, true),
	}) {
		got += strings.Join(r.Nodes, ",") + ": " + r.Why + "\n"
	}
	const want = `a,c: no library
b: its node daemon has not registered yet, and slurm.conf has no Gres=gpu for it
d: no library; it is not connected now; this was its last report
e: NVIDIA's driver 570.1 shows no GPU that gres.conf gives to jobs; gres.conf:1 says so
f: its node daemon, of version 0.0.9, does not say why
g: its node daemon has not read gres.conf yet
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	v := gpuView(t)
	for nodes, none := range map[string]int{"": 0, "w1": 0} {
		r := &pb.GpusRequest{}
		if nodes != "" {
			r.Nodes = []string{nodes}
		}
		if err := (&Service{Samples: live.NewSamples()}).gpus(ctx, r, v, func(reply *pb.GpusReply) error {
			if len(reply.None) != none {
				t.Errorf("%q: %v", nodes, reply.None)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
