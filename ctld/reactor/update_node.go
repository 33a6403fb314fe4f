package reactor

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// UpdateNode is scontrol update NodeName=….
type UpdateNode struct {
	Caller   Caller
	UserName string // of the caller, for the reason
	Nodes    []string
	Set      []*pb.KeyValue
}

// Handle changes each existing node whose state allows it, as Slurm does, and lists those that it does not change. If that is all of them,
// or the request is invalid for any node, nothing changes.
func (c UpdateNode) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeAccessDenied, "only root and SlurmUser may change nodes")
	}
	if len(c.Nodes) == 0 {
		return pb.NewProblem(pb.CodeInvalidNodeName, "no node was named")
	}
	for _, kv := range c.Set {
		if strings.HasPrefix(strings.ToUpper(kv.Value), "REBOOT") && strings.EqualFold(kv.Key, "state") &&
			tx.Settings().RebootProgram == "" {
			return pb.NewProblem(pb.CodeDisabled,
				"slurm.conf has no RebootProgram").WithHint("set RebootProgram, and run scontrol reconfigure")
		}
	}
	out := Outcomes{Seq: tx.Seq}
	changed := make([]*state.Node, 0, len(c.Nodes))
	down, force := map[string]bool{}, map[string]bool{}
	for _, name := range c.Nodes {
		n, p := c.changed(tx, name, down, force)
		switch {
		case p == nil:
			changed = append(changed, n)
		case p.Code == uint32(pb.CodeInvalidNodeName), p.Code == uint32(pb.CodeInvalidNodeState) && !c.reboots():
			out.List = append(out.List, &pb.JobOutcome{Id: name, Problem: p})
		default:
			return p
		}
	}
	if len(out.List) > 0 && (len(changed) == 0 || c.reboots()) {
		return out.List[0].Problem
	}
	for _, n := range changed {
		what := updated(tx.Node(n.Name), n)
		issue(tx, n)
		tx.Emit(state.NodeChanged{Node: n, What: what, Durable: true})
		if force[n.Name] {
			c.forceDown(tx, n.Name)
		}
		if down[n.Name] {
			nodeDown(tx, n.Name, reasonOf(n), c.Caller, c.UserName)
		}
	}
	return out
}

// updated returns the log's word for an update.
func updated(was, is *state.Node) string {
	switch {
	case is.StateFlags&^was.StateFlags&pb.NodeDrain != 0:
		return "drained"
	case was.StateFlags&^is.StateFlags&pb.NodeDrain != 0, was.State == pb.NodeState_NODE_DOWN && is.State != was.State:
		return "resumed"
	}
	return "updated"
}

// changed returns a node as it would be after the update.
func (c UpdateNode) changed(tx *state.Tx, name string, down, force map[string]bool) (*state.Node, *pb.Problem) {
	old := tx.Node(name)
	if old == nil {
		return nil, pb.NewProblem(pb.CodeInvalidNodeName, "there is no node %s", name)
	}
	n := change(old)
	for _, kv := range c.Set {
		if p := c.apply(tx, n, kv, down, force); p != nil {
			return nil, p
		}
	}
	return n, c.checkFeatures(n)
}

// reboots reports whether nodes are asked to reboot, which applies to all of them or none.
func (c UpdateNode) reboots() bool {
	return slices.ContainsFunc(c.Set, func(kv *pb.KeyValue) bool {
		return strings.EqualFold(kv.Key, "state") && strings.Contains(strings.ToUpper(kv.Value), "REBOOT")
	})
}

// checkFeatures refuses active features that are not available.
func (c UpdateNode) checkFeatures(n *state.Node) *pb.Problem {
	if !c.sets("availablefeatures") && !c.sets("availfeatures") && !c.sets("activefeatures") {
		return nil
	}
	available := strings.Split(n.Features, ",")
	for _, f := range strings.Split(n.ActiveFeatures, ",") {
		if f != "" && !slices.Contains(available, f) {
			return pb.NewProblem(pb.CodeActiveFeatures, "%q is not among the features of node %s, %q", f, n.Name, n.Features)
		}
	}
	return nil
}

func reasonOf(n *state.Node) string {
	if n.Reason == "" {
		return "none"
	}
	return n.Reason
}

func (c UpdateNode) apply(tx *state.Tx, n *state.Node, kv *pb.KeyValue, down, force map[string]bool) *pb.Problem {
	switch strings.ToLower(kv.Key) {
	case "state":
		if up := strings.ToUpper(kv.Value); strings.HasPrefix(up, "POWER_") {
			return c.setPower(tx, n, up, force)
		}
		return c.setState(tx, n, kv.Value, down)
	case "reason":
		n.Reason, n.ReasonNs, n.ReasonUid, n.ReasonUser = kv.Value, tx.NowNS, c.Caller.UID, c.UserName
		if kv.Value == "" {
			n.ReasonNs, n.ReasonUid, n.ReasonUser = 0, 0, ""
		}
	case "weight":
		w, err := strconv.ParseUint(kv.Value, 10, 32)
		if err != nil {
			return pb.NewProblem(pb.CodeInvalidSpec, "Weight=%q is not a number", kv.Value)
		}
		n.Weight = uint32(w)
	case "comment":
		n.Comment = kv.Value
	case "extra":
		n.Extra = kv.Value
	case "features":
		n.Features, n.ActiveFeatures = kv.Value, kv.Value
	case "availablefeatures", "availfeatures":
		n.Features = kv.Value
	case "activefeatures":
		n.ActiveFeatures = kv.Value
	case "nextstate": // applied with the State=REBOOT that it belongs to
		if n.RebootNext = strings.ToUpper(kv.Value); n.RebootNext != "RESUME" && n.RebootNext != "DOWN" {
			return pb.NewProblem(pb.CodeInvalidNodeState, "NextState=%q", kv.Value).WithHint("one of DOWN, RESUME")
		}
	case "nodeaddr":
		n.Addr = kv.Value
	case "nodehostname":
		n.Hostname = kv.Value
	default:
		return pb.NewProblem(pb.CodeNotSupported, "cannot set %s of a node",
			kv.Key).WithHint(
			"can be set: State, Reason, Weight, Comment, Extra, AvailableFeatures, ActiveFeatures, NodeAddr, NodeHostname")
	}
	return nil
}
