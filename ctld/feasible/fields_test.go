package feasible

import (
	"testing"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/test/fieldtest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/sched/record"
)

// judged holds the facts about a node on which verdicts rest.
type judged struct {
	Node  *record.Node
	Names Names
}

// TestVerdictsFollowTheNodes: verdicts are cached with the layout, so a change to any node fact that they rest on must change the layout.
func TestVerdictsFollowTheNodes(t *testing.T) {
	bench := newLayoutBench()
	configured := "only a new configuration changes it, and that is a new layout"
	fieldtest.Follows(t, bench.node, func(n *state.Node) any {
		features, gres := map[string]bool{}, map[string]bool{}
		idle := idleNode(n, features, gres)
		return judged{idle, namesOf(features, gres)}
	}, func(n *state.Node) any { return bench.sameLayout(n) }, fieldtest.LeftOut{
		"Name": "a node keeps its name", "Switches": configured, "GresConf": configured,
		"Weight": "it says which nodes are taken first, and an idle cluster has them all",
	})
}

// TestLayoutLasts: frequent changes to a node do not discard verdicts.
func TestLayoutLasts(t *testing.T) {
	bench := newLayoutBench()
	for name, change := range map[string]func(*state.Node){
		"jobs":     func(n *state.Node) { n.Jobs = []uint32{7} },
		"CPUs":     func(n *state.Node) { n.AllocCpus++ },
		"load":     func(n *state.Node) { n.CpuLoad++ },
		"draining": func(n *state.Node) { n.StateFlags |= pb.NodeDrain },
		"down":     func(n *state.Node) { n.State = pb.NodeState_NODE_DOWN },
		"link":     func(n *state.Node) { n.LinkUp = !n.LinkUp },
		"reason":   func(n *state.Node) { n.Reason = "x" },
		"comment":  func(n *state.Node) { n.Comment = "x" },
	} {
		n := bench.node()
		if change(n); !bench.sameLayout(n) {
			t.Errorf("%s: the layout is another one", name)
		}
	}
}

// layoutBench has a state with one node.
type layoutBench struct {
	view *state.View
	inv  *state.Inventory
}

func newLayoutBench() *layoutBench {
	b := &layoutBench{inv: fieldtest.Filled[state.Inventory]()}
	kind := &b.inv.Kinds[0]
	kind.NoConsume, kind.Shared = false, false
	kind.Devices = []*pb.Device{{Name: "gpu", Id: "G", MigProfiles: []*pb.MigProfile{{Name: "1g", Size: 1, Starts: []uint32{0}}}}}
	name := fieldtest.Filled[pb.NodeRecord]().Name
	tx := state.Begin(state.New(&state.Config{Settings: &state.Settings{}, Nodes: []*pb.NodeRecord{{Name: name}}}, "c", 1), 1)
	tx.Emit(state.NodeChanged{Node: b.node(), What: "test"})
	b.view, _ = tx.Freeze()
	return b
}

// node is the node as the view has it.
func (b *layoutBench) node() *state.Node {
	n := fieldtest.Filled[state.Node]()
	n.Inv, n.State, n.Partitions = b.inv, pb.NodeState_NODE_IDLE, nil
	return n
}

func (b *layoutBench) sameLayout(n *state.Node) bool {
	tx := state.Begin(b.view, 1)
	tx.Emit(state.NodeChanged{Node: n, What: "test"})
	next, _ := tx.Freeze()
	return next.Layout == b.view.Layout
}

// TestVerdictsFollowPartitionsAndReservations: any change to one of them makes a new layout.
func TestVerdictsFollowPartitionsAndReservations(t *testing.T) {
	view := newLayoutBench().view
	for name, e := range map[string]state.Event{
		"partition":   state.PartitionChanged{Partition: &pb.PartitionRecord{Name: "p"}, Nodes: []string{"1"}},
		"reservation": state.ReservationChanged{Reservation: &pb.ReservationRecord{Name: "r", Nodes: "1"}},
		"settings":    state.Reconfigured{Config: &state.Config{Settings: &state.Settings{}, Nodes: []*pb.NodeRecord{{Name: "1"}}}},
	} {
		tx := state.Begin(view, 1)
		tx.Emit(e)
		if next, _ := tx.Freeze(); next.Layout == view.Layout {
			t.Errorf("%s: the layout is the same", name)
		}
	}
}
