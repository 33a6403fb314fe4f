package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// reported makes a node of what it reports.
func reported(gres string, cfg state.GresConfig, devices ...*pb.Device) *state.Node {
	n := &state.Node{NodeRecord: &pb.NodeRecord{Name: "g", Gres: gres, Cores: 4, Reported: &pb.Hardware{Devices: devices}}, GresConf: cfg}
	n.Recount()
	return n
}

func showGres(list []record.Gres) string {
	var out []string
	for _, g := range list {
		text := fmt.Sprintf("%s:%s:%d", g.Name, g.Type, g.Count)
		for _, d := range g.Devices {
			text += fmt.Sprintf(" %d%v%v", d.Index, d.Cores.List(), d.Links)
		}
		if g.Shares > 0 {
			text += fmt.Sprintf(" %s=%d", g.Shared, g.Shares)
		}
		for _, p := range g.Profiles {
			text += " " + p.Name
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// TestNodeGres: the scheduler's view of a node's devices, both as they are now and as they could ever be.
func TestNodeGres(t *testing.T) {
	card := func(index int, change ...func(*pb.Device)) *pb.Device {
		d := &pb.Device{Name: "gpu", Type: "a100", Index: uint32(index), Id: fmt.Sprint("G", index), Links: []uint32{0, 1, 2, 3}}
		for _, f := range change {
			f(d)
		}
		return d
	}
	faulty := func(d *pb.Device) { d.Fault = "x" }
	foreign := func(d *pb.Device) { d.Foreign = "x" }
	cut := func(mode string) func(*pb.Device) {
		return func(d *pb.Device) {
			d.MigMode, d.MigProfiles, d.Links = mode, []*pb.MigProfile{{Name: "3g.20gb", Size: 4, Starts: []uint32{4, 0}}}, nil
		}
	}
	dynamic := state.GresConfig{DynamicMIG: true}
	for name, tt := range map[string]struct {
		n        *state.Node
		now, all string
		withheld string
	}{
		"plain": {reported("", state.GresConfig{}, card(0), card(1, func(d *pb.Device) { d.Cores = "2-3" })),
			"gpu:a100:2 0[][0 1] 1[2 3][0 1]", "gpu:a100:2 0[][0 1] 1[2 3][0 1]", ""},
		"one is faulty": {reported("", state.GresConfig{}, card(0), card(1, faulty), card(2), card(3, foreign)),
			"gpu:a100:2 0[][0 2] 2[][0 2]", "gpu:a100:4 0[][0 1 2 3] 1[][0 1 2 3] 2[][0 1 2 3] 3[][0 1 2 3]", "gpu"},
		"one is missing": {reported("gpu:a100:2", state.GresConfig{}, card(0)), "gpu:a100:1 0[][0]", "gpu:a100:2 0[][0] 1[][]", "gpu"},
		"all are missing": {reported("gpu:a100:1", state.GresConfig{}, &pb.Device{Name: "gpu", Type: "v100", Id: "V"}), "",
			"gpu:a100:1 1[][]", "gpu"},
		"only counted": {reported("gpu:2,license:5", state.GresConfig{}), "gpu::2 0[][] 1[][]; license::5",
			"gpu::2 0[][] 1[][]; license::5", ""},
		"shares differ": {reported("", state.GresConfig{}, card(0, func(d *pb.Device) { d.Shares, d.Links = 2, nil }),
			card(1, func(d *pb.Device) { d.Links = nil })), "gpu:a100:1 0[][] shard=2; gpu:a100:1 1[][]",
			"gpu:a100:1 0[][] shard=2; gpu:a100:1 1[][]", ""},
		"cut on demand":  {reported("", dynamic, card(0, cut("on"))), "gpu:a100:1 0[][] 3g.20gb", "gpu:a100:1 0[][] 3g.20gb", ""},
		"not on demand":  {reported("", state.GresConfig{}, card(0, cut("off"))), "gpu:a100:1 0[][]", "gpu:a100:1 0[][]", ""},
		"a reset is due": {reported("", dynamic, card(0, cut("pending on"))), "gpu:a100:1 0[][]", "gpu:a100:1 0[][] 3g.20gb", "gpu"},
		"takes no reset": {reported("", dynamic, card(0, cut("off"), func(d *pb.Device) { d.MigNoReset = true })),
			"gpu:a100:1 0[][] 3g.20gb", "gpu:a100:1 0[][] 3g.20gb", ""},
		"free for all":     {reported("bandwidth:no_consume:9", state.GresConfig{}), "", "", ""},
		"nothing reported": {&state.Node{NodeRecord: &pb.NodeRecord{Name: "g"}}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := showGres(nodeGres(tt.n, false)); got != tt.now {
				t.Errorf("now %s, want %s", got, tt.now)
			}
			if got := showGres(nodeGres(tt.n, true)); got != tt.all {
				t.Errorf("ever %s, want %s", got, tt.all)
			}
			if got := strings.Join(withheld(tt.n), ","); got != tt.withheld {
				t.Errorf("withheld %q, want %q", got, tt.withheld)
			}
		})
	}
}

// TestOneTaskPerSharing: tasks with shares of their own GPU are on nodes of their own, as a job has shares of one GPU of a node.
func TestOneTaskPerSharing(t *testing.T) {
	for _, tt := range []struct {
		spec           *pb.JobSpec
		tasks, perNode int
	}{
		{&pb.JobSpec{TresPerTask: "gres/shard:2", NumTasks: 3, GresFlags: "one-task-per-sharing"}, 3, 1},
		{&pb.JobSpec{TresPerTask: "gres/mps:2", MinNodes: 2, NtasksPerNode: 2, GresFlags: "enforce-binding,one-task-per-sharing"}, 4, 1},
		{&pb.JobSpec{TresPerTask: "gres/shard:2", NumTasks: 3, GresFlags: "multiple-tasks-per-sharing"}, 3, 0},
		{&pb.JobSpec{TresPerNode: "gres/shard:2", NumTasks: 3, GresFlags: "one-task-per-sharing"}, 3, 0},
		{&pb.JobSpec{TresPerTask: "gres/gpu:2", NumTasks: 3, GresFlags: "one-task-per-sharing"}, 3, 0},
	} {
		if r := Request(tt.spec, state.Users{}); r.Tasks != tt.tasks || r.TasksPerNode != tt.perNode {
			t.Errorf("%v: %d tasks, %d on each node, want %d and %d", tt.spec, r.Tasks, r.TasksPerNode, tt.tasks, tt.perNode)
		}
	}
}
