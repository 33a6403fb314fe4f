package rpc

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/mtls"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/protobuf/proto"
)

// TestComputeHostDrainsItself: root of a compute host may only set the host to take no more jobs. The reason of a node that is already
// drained stays.
func TestComputeHostDrainsItself(t *testing.T) {
	p := servePort(t)
	node, admin := p.connect(mtls.RoleNode, "n1", mtls.RelayServerName), p.as(0, 0)
	update := func(c pb.ControllerAPIClient, nodes string, pairs ...string) error {
		r := &pb.UpdateNodeRequest{Nodes: nodes}
		for i := 0; i < len(pairs); i += 2 {
			r.Set = append(r.Set, &pb.KeyValue{Key: pairs[i], Value: pairs[i+1]})
		}
		_, err := c.UpdateNode(ctx, r)
		return err
	}
	drained := func(node, reason string) {
		t.Helper()
		n := p.loop.View().Node(node)
		if is := n.StateFlags&pb.NodeDrain != 0; is != (reason != "") || n.Reason != reason {
			t.Errorf("node %s is drained: %v, with the reason %q; want %q", node, is, n.Reason, reason)
		}
	}
	for name, asked := range map[string][]string{
		"another node":    {"n2", "State", "DRAIN", "Reason", "x"},
		"all nodes":       {"ALL", "State", "DRAIN", "Reason", "x"},
		"a list":          {"n[1-65536]", "State", "DRAIN", "Reason", "x"},
		"a list of one":   {"n[1]", "State", "DRAIN", "Reason", "x"},
		"without reason":  {"n1", "State", "DRAIN"},
		"an empty reason": {"n1", "State", "DRAIN", "Reason", ""},
		"down":            {"n1", "State", "DOWN", "Reason", "x"},
		"reboot":          {"n1", "State", "REBOOT", "Reason", "x"},
		"a weight":        {"n1", "State", "DRAIN", "Reason", "x", "Weight", "1"},
		"the weight":      {"n1", "Weight", "1"},
		"a later state":   {"n1", "State", "DRAIN", "State", "DOWN"},
	} {
		err := update(p.client(node, 0, "root"), asked[0], asked[1:]...)
		if err == nil || !strings.Contains(err.Error(), "host n1 may not change nodes, except to drain itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
	drained("n1", "")
	drained("n2", "")
	if !strings.Contains(p.log.String(), "refused a relayed connection") {
		t.Errorf("what was refused is not in the log:\n%s", p.log)
	}
	for who, c := range map[string]pb.ControllerAPIClient{
		"a user":               p.client(node, nobody, "nobody"),
		"root of a login host": p.client(p.connect(mtls.RoleLogin, "n1", mtls.RelayServerName), 0, "root"),
	} {
		if err := update(c, "n1", "State", "DRAIN", "Reason", "x"); err == nil {
			t.Errorf("%s may drain n1", who)
		}
	}
	drained("n1", "")

	root := p.client(node, 0, "root")
	if err := update(root, "n1", "State", "DRAIN", "Reason", "the disk is full"); err != nil {
		t.Fatal(err)
	}
	drained("n1", "the disk is full")
	if u := p.loop.View().Node("n1").ReasonUser; u != "root" {
		t.Errorf("the reason is that of %q", u)
	}
	if err := update(admin, "n1", "Reason", "mine"); err != nil {
		t.Fatal(err)
	}
	if err := update(root, "n1", "State", "DRAIN", "Reason", "the disk is full"); err != nil {
		t.Fatal(err)
	}
	drained("n1", "mine")
	if err := update(root, "n1", "State", "RESUME"); err == nil {
		t.Error("a host may resume itself")
	}
	drained("n1", "mine")
	if err := update(admin, "n1", "State", "UNDRAIN"); err != nil {
		t.Fatal(err)
	}
	drained("n1", "")

	// Each change is written to the journal, so there is a bound; requests that change nothing do not count.
	for i := 1; i < drainBurst; i++ {
		for range 2 {
			if err := update(root, "n1", "State", "DRAIN", "Reason", "the disk is full"); err != nil {
				t.Fatalf("the %dth time: %v", i, err)
			}
		}
		if err := update(admin, "n1", "State", "UNDRAIN"); err != nil {
			t.Fatal(err)
		}
	}
	p.relays.mu.Lock()
	p.relays.drains["n1"].SetLimit(0) // nothing comes back meanwhile, however slow this machine is
	p.relays.mu.Unlock()
	for p.relays.drains["n1"].Allow() {
	}
	if err := update(root, "n1", "State", "DRAIN", "Reason", "x"); err == nil || !strings.Contains(err.Error(), "more often") {
		t.Errorf("one time more than it has: %v", err)
	}
	drained("n1", "")
}

// TestPowerDownIsNoDrain: POWER_DOWN_ASAP drains a node until it is powered down; one that says that it is ill stays drained after that.
func TestPowerDownIsNoDrain(t *testing.T) {
	const asap = pb.NodeDrain | pb.NodePowerDrain
	p := servePort(t)
	if _, err := p.loop.Do(ctx, poweringDown{}); err != nil {
		t.Fatal(err)
	}
	_, err := p.client(p.connect(mtls.RoleNode, "n1", mtls.RelayServerName), 0, "root").UpdateNode(ctx, drainRequest("n1"))
	if n := p.loop.View().Node("n1"); err != nil || n.StateFlags&asap != pb.NodeDrain || n.Reason != "ill" {
		t.Errorf("%v; the node has the flags %x and the reason %q", err, n.StateFlags, n.Reason)
	}
}

// poweringDown is a command with the effect of POWER_DOWN_ASAP on n1.
type poweringDown struct{}

func (poweringDown) Handle(tx *state.Tx) any {
	n := *tx.Node("n1")
	n.NodeRecord = proto.CloneOf(n.NodeRecord)
	n.StateFlags |= pb.NodeDrain | pb.NodePowerDrain
	n.Reason = "powering down"
	tx.Emit(state.NodeChanged{Node: &n, What: "powering down"})
	return nil
}

func drainRequest(node string) *pb.UpdateNodeRequest {
	return &pb.UpdateNodeRequest{Nodes: node, Set: []*pb.KeyValue{{Key: "State", Value: "DRAIN"}, {Key: "Reason", Value: "ill"}}}
}

// TestDrainOutlivesRefusals: a host may drain itself although the connections of others that are refused have ended long since.
func TestDrainOutlivesRefusals(t *testing.T) {
	p := servePort(t, func(l *Local) { l.crowdedFor = 1 })
	if _, err := p.client(p.connect(mtls.RoleNode, "n1", mtls.RelayServerName), 0, "root").UpdateNode(ctx, drainRequest("n1")); err != nil {
		t.Error(err)
	}
	l := NewLocal(&Service{}, nil, nil)
	refused, drains := &pb.Problem{}, &drainer{}
	for want, peer := range map[time.Duration]*Peer{0: {}, crowdedFor: {refused: refused}, drainsFor: {refused: refused, drains: drains}} {
		if got := l.servedFor(peer); got != want {
			t.Errorf("a connection of %+v lives for %v, want %v", peer, got, want)
		}
	}
	if got := l.servedFor(&Peer{crowded: true}); got != crowdedFor {
		t.Errorf("a connection too many lives for %v", got)
	}
}
