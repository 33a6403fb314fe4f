package reactor

import (
	"reflect"
	"testing"

	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// partWorld is three nodes and a default partition of two of them.
type partWorld struct {
	t     *testing.T
	cfg   *state.Config
	store *journal.Memory
	view  *state.View
}

func newPartWorld(t *testing.T) *partWorld {
	node := func(name string) *pb.NodeRecord { return &pb.NodeRecord{Name: name, Cpus: 4, RealMemoryMib: 1000} }
	cfg := &state.Config{Settings: &state.Settings{}, Default: "debug", Nodes: []*pb.NodeRecord{node("n1"), node("n2"), node("n3")},
		Partitions:     []*pb.PartitionRecord{{Name: "debug", Nodes: "n[1-2]", IsDefault: true, State: "UP", TotalNodes: 2}},
		PartitionNodes: map[string][]string{"debug": {"n1", "n2"}}}
	return &partWorld{t, cfg, journal.NewMemory(), state.New(cfg, "c", 1)}
}

func (w *partWorld) do(cmd Command) *pb.Problem {
	w.t.Helper()
	tx := state.Begin(w.view, 1e9)
	out := cmd.Handle(tx)
	if p, ok := out.(*pb.Problem); ok {
		if len(tx.Events()) > 0 {
			w.t.Errorf("%+v was refused and changed something", cmd)
		}
		return p
	}
	rows, err := tx.Rows()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.Commit(journal.Batch{Seq: tx.Seq, Rows: rows}); err != nil {
		w.t.Fatal(err)
	}
	w.view, _ = tx.Freeze()
	return nil
}

// again is the view after a restart.
func (w *partWorld) again() *state.View {
	v, err := state.Load(w.cfg, w.store, "c", 1)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func keys(pairs ...string) (set []*pb.KeyValue) {
	for i := 0; i < len(pairs); i += 2 {
		set = append(set, &pb.KeyValue{Key: pairs[i], Value: pairs[i+1]})
	}
	return set
}

func TestPartitionIsMadeAndKept(t *testing.T) {
	w := newPartWorld(t)
	if p := w.do(UpdatePartition{Caller: root, Name: "fast", Create: true,
		Set:  keys("Nodes", "n[2-3]", "MaxTime", "60", "Default", "YES", "PriorityTier", "7", "AllowGroups", "staff"),
		GIDs: []uint32{50}}); p != nil {
		t.Fatal(p)
	}
	for what, v := range map[string]*state.View{"now": w.view, "after a restart": w.again()} {
		p := v.Partition("fast")
		if p == nil || p.Nodes != "n[2-3]" || p.TotalNodes != 2 || p.TotalCpus != 8 || p.MaxTimeS != 3600 || p.PriorityTier != 7 ||
			p.Tres != "cpu=8,mem=2000M,node=2,billing=8" {
			t.Errorf("%s: %v", what, p)
		}
		if !reflect.DeepEqual(v.PartitionNodes("fast"), []string{"n2", "n3"}) || !reflect.DeepEqual(v.PartitionGIDs("fast"), []uint32{50}) {
			t.Errorf("%s: nodes %v, groups %v", what, v.PartitionNodes("fast"), v.PartitionGIDs("fast"))
		}
		if !reflect.DeepEqual(v.Node("n2").Partitions, []string{"debug", "fast"}) ||
			!reflect.DeepEqual(v.Node("n1").Partitions, []string{"debug"}) {
			t.Errorf("%s: n2 is in %v", what, v.Node("n2").Partitions)
		}
	}
	if w.view.Default != "fast" || w.view.Partition("debug").IsDefault {
		t.Errorf("the default is %s", w.view.Default)
	}
	if err := w.view.Check(); err != nil {
		t.Error(err)
	}
	if w.cfg.PartitionNodes["fast"] != nil {
		t.Error("the configuration was changed")
	}
	w.do(Reconfigure{Config: w.cfg})
	if w.view.Partition("fast") == nil || w.view.Default != "debug" {
		t.Errorf("after a reconfigure: %v, default %s", w.view.Partition("fast"), w.view.Default)
	}
	if p := w.do(UpdatePartition{Caller: root, Name: "fast", Delete: true}); p != nil {
		t.Fatal(p)
	}
	if w.view.Partition("fast") != nil || w.again().Partition("fast") != nil || len(w.view.Node("n3").Partitions) != 0 {
		t.Error("it is still there")
	}
}

func TestPartitionNodesChange(t *testing.T) {
	w := newPartWorld(t)
	for _, step := range []struct {
		key, value string
		want       []string
	}{{"Nodes+", "n3", []string{"n1", "n2", "n3"}}, {"Nodes-", "n1", []string{"n2", "n3"}}, {"Nodes", "ALL", []string{"n1", "n2", "n3"}},
		{"Nodes", "n2", []string{"n2"}}, {"Nodes", "", nil}} {
		if p := w.do(UpdatePartition{Caller: root, Name: "debug", Set: keys(step.key, step.value)}); p != nil {
			t.Fatal(p)
		}
		if got := w.view.PartitionNodes("debug"); !reflect.DeepEqual(got, step.want) ||
			int(w.view.Partition("debug").TotalNodes) != len(step.want) {
			t.Errorf("%s=%s: %v", step.key, step.value, got)
		}
	}
	if got := w.again().PartitionNodes("debug"); len(got) != 2 {
		t.Errorf("slurm.conf says n[1-2], after a restart there are %v", got)
	}
}

func TestPartitionRefusals(t *testing.T) {
	w := newPartWorld(t)
	w.do(Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Uid: 1, Partition: "debug"}, Partition: "debug"}})
	for _, c := range []struct {
		cmd  UpdatePartition
		code pb.Code
	}{
		{UpdatePartition{Caller: Caller{UID: 1}, Name: "x", Create: true}, pb.CodeAccessDenied},
		{UpdatePartition{Caller: root, Name: "debug", Create: true}, pb.CodeInvalidPartition},
		{UpdatePartition{Caller: root, Name: "a b", Create: true}, pb.CodeInvalidPartition},
		{UpdatePartition{Caller: root, Name: "", Create: true}, pb.CodeInvalidPartition},
		{UpdatePartition{Caller: root, Name: "x", Create: true, Set: keys("Nodes", "n9")}, pb.CodeInvalidNodeName},
		{UpdatePartition{Caller: root, Name: "x", Create: true, Set: keys("Default", "YES", "PreemptMode", "x")}, pb.CodeInvalidSpec},
		{UpdatePartition{Caller: root, Name: "x", Create: true, Set: keys("DefMemPerCPU", "-1")}, pb.CodeInvalidMemory},
		{UpdatePartition{Caller: root, Name: "x", Delete: true}, pb.CodeInvalidPartition},
		{UpdatePartition{Caller: root, Name: "debug", Delete: true}, pb.CodePartitionInUse},
		{UpdatePartition{Caller: root, Name: "debug", Set: keys("MaxTime+", "5")}, pb.CodeNotSupported},
		{UpdatePartition{Caller: root, Name: "debug", Set: keys("Nosuch", "5")}, pb.CodeNotSupported},
	} {
		if p := w.do(c.cmd); p == nil || p.Code != uint32(c.code) {
			t.Errorf("%+v: %v", c.cmd, p)
		}
	}
}
