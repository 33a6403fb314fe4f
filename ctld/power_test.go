package ctld

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestPowerSettings(t *testing.T) {
	read := func(text string) *state.View {
		t.Helper()
		path := filepath.Join(t.TempDir(), "slurm.conf")
		text = fmt.Sprintf("ClusterName=c\nSlurmctldHost=localhost\nNodeName=n[1-4]\nNodeName=c1 State=CLOUD\n%s", text)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := conf.Load(path, conf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return state.New(stateConfig(c, 0), "c", 1)
	}
	parts := "PartitionName=a Nodes=n[1-3] SuspendTime=60 ResumeTimeout=900\nPartitionName=b Nodes=n[3-4],c1 SuspendTime=INFINITE\n"
	if v := read(parts); v.Settings.Power != nil || v.Node("n1").Power.On {
		t.Errorf("without programs: %+v", v.Node("n1").Power)
	}
	v := read(parts + `SuspendProgram=/bin/true
ResumeProgram=/bin/false
SuspendTime=10
SuspendExcNodes=n[1-2]:1,n4
SuspendExcStates=DOWN,DRAIN
SlurmctldParameters=idle_on_node_suspend
`)
	for name, want := range map[string]state.NodePower{
		"n1": {On: true, IdleS: 60, DownS: 30, UpS: 900},
		"n3": {On: true, IdleS: pb.Unlimited, DownS: 30, UpS: 900},
		"n4": {On: true, IdleS: pb.Unlimited, DownS: 30, UpS: 60, Stays: true},
	} {
		if got := v.Node(name).Power; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	p := v.Settings.Power
	if want := []state.PowerExcept{{Nodes: []string{"n1", "n2"}, Count: 1}, {Nodes: []string{"n4"}}}; !reflect.DeepEqual(p.Except, want) ||
		!p.ExceptDown || p.ExceptFlags != pb.NodeDrain || !p.IdleOnSuspend || p.FailProgram {
		t.Errorf("%+v", p)
	}
	if n := v.Node("c1"); n.StateFlags != pb.NodeCloud|pb.NodePoweredDown || n.State != pb.NodeState_NODE_IDLE || !n.Asleep() {
		t.Errorf("a node of the cloud: %v", n.NodeRecord)
	}
}
