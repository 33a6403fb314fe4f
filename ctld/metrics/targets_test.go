package metrics

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/metrics"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestTargets: Prometheus finds each node at its NodeAddr and under its name, and none that is switched off or not there yet.
func TestTargets(t *testing.T) {
	cfg := &state.Config{Settings: &state.Settings{}}
	for _, n := range []*pb.NodeRecord{{Name: "down", Addr: "10.0.0.1", State: pb.NodeState_NODE_DOWN}, {Name: "six", Addr: "fd00::6"},
		{Name: "named", Addr: "named.site"}, {Name: "later", Addr: "later", State: pb.NodeState_NODE_FUTURE},
		{Name: "off", Addr: "off", StateFlags: pb.NodeCloud | pb.NodePoweredDown},
		{Name: "ending", Addr: "ending", StateFlags: pb.NodeCloud | pb.NodePoweringDown}} {
		n.Cpus, n.Sockets, n.Cores, n.Threads, n.RealMemoryMib = 1, 1, 1, 1, 1
		cfg.Nodes = append(cfg.Nodes, n)
	}
	for want, nodes := range map[string][]*pb.NodeRecord{"[]": nil,
		`[{"targets":["10.0.0.1:9342"],"labels":{"instance":"down"}},{"targets":["[fd00::6]:9342"],"labels":{"instance":"six"}},` +
			`{"targets":["named.site:9342"],"labels":{"instance":"named"}}]`: cfg.Nodes} {
		v := state.New(&state.Config{Settings: cfg.Settings, Nodes: nodes}, "c", 1)
		p := &metrics.Page{}
		if err := (&Source{View: func() *state.View { return v }}).Pages()[TargetsPath](p, false); err != nil {
			t.Fatal(err)
		}
		if got := string(p.Bytes()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
