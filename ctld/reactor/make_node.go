package reactor

import (
	"fmt"
	"slices"

	"github.com/sluice-hpc/sluice/conf/hostlist"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Nodes that come and go while the controller runs: scontrol create and delete, and hosts that join by themselves (sluice-noded -Z).
// MaxNodeCount bounds all nodes, those of slurm.conf included; without it there are no dynamic nodes.

// CreateNodes is scontrol create NodeName=…: all of them or none.
type CreateNodes struct {
	Caller Caller
	Nodes  []*pb.NodeRecord // as a NodeName line would make them
}

// Handle makes the nodes.
func (c CreateNodes) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeUserID, "only root and SlurmUser may create nodes")
	}
	for _, n := range c.Nodes {
		if old := tx.Node(n.Name); old != nil {
			where := "slurm.conf names it"
			if old.Dynamic() {
				where = "scontrol delete nodename=" + n.Name + " takes it away"
			}
			return pb.NewProblem(pb.CodeInvalidNodeName, "node %s already exists", n.Name).WithHint("%s", where)
		}
	}
	if p := roomForNodes(tx, len(c.Nodes)); p != nil {
		return p
	}
	made := make([]*pb.NodeRecord, len(c.Nodes))
	for i, n := range c.Nodes {
		made[i] = state.CloneNode(n)
		made[i].Origin = madeByScontrol
	}
	tx.Emit(state.NodesAdded{Nodes: made})
	return Outcomes{Seq: tx.Seq}
}

// Origins of dynamic nodes.
const (
	madeByScontrol = "scontrol"
	joined         = "joined"
)

// roomForNodes returns the reason why no more nodes can be added, or nil.
func roomForNodes(tx *state.Tx, more int) *pb.Problem {
	most, have := int(tx.Settings().MaxNodeCount), len(tx.Nodes())
	switch {
	case most == 0:
		return pb.NewProblem(pb.CodeNotSupported, "slurm.conf has no MaxNodeCount, so nodes that it does not define cannot be "+
			"added").WithHint(
			"set MaxNodeCount to the largest number of nodes, and run scontrol reconfigure")
	case have+more > most:
		return pb.NewProblem(pb.CodeNotSupported, "there are %d nodes, and MaxNodeCount=%d in slurm.conf does not allow %d "+
			"more", have, most,
			more).WithHint("raise MaxNodeCount, and run scontrol reconfigure, or delete nodes")
	}
	return nil
}

// DeleteNodes is scontrol delete NodeName=…. It deletes the nodes that it can, as Slurm does, and lists the others.
type DeleteNodes struct {
	Caller Caller
	Nodes  []string
}

// Handle deletes the nodes.
func (c DeleteNodes) Handle(tx *state.Tx) any {
	if !c.Caller.Operator {
		return pb.NewProblem(pb.CodeUserID, "only root and SlurmUser may delete nodes")
	}
	if len(c.Nodes) == 0 {
		return pb.NewProblem(pb.CodeInvalidNodeName, "no node was named")
	}
	out := Outcomes{Seq: tx.Seq}
	var gone []string
	for _, name := range c.Nodes {
		if p := mayDelete(tx, name); p != nil {
			out.List = append(out.List, &pb.JobOutcome{Id: name, Problem: p})
		} else if !slices.Contains(gone, name) {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		tx.Emit(state.NodesRemoved{Names: gone})
	}
	return out
}

// mayDelete returns the reason why a node cannot be deleted, or nil.
func mayDelete(tx *state.Tx, name string) *pb.Problem {
	n := tx.Node(name)
	switch {
	case n == nil:
		return pb.NewProblem(pb.CodeInvalidNodeName, "there is no node %s", name)
	case !n.Dynamic():
		return pb.NewProblem(pb.CodeNotSupported, "node %s is defined in slurm.conf", name).WithHint(
			"remove it from slurm.conf, and run scontrol reconfigure")
	case len(n.Jobs) > 0:
		return pb.NewProblem(pb.CodeNodesBusy, "node %s has %s", name, jobNames(tx, n.Jobs)).WithHint(
			"scontrol update nodename=%s state=drain reason=…, and delete it when they have ended", name)
	}
	for _, r := range tx.Reservations() {
		if nodes, err := hostlist.Expand(r.Nodes); err == nil && slices.Contains(nodes, name) {
			return pb.NewProblem(pb.CodeNodesBusy, "reservation %s has node %s", r.Name, name).WithHint(
				"scontrol delete reservation=%s", r.Name)
		}
	}
	return nil
}

// join adds a host that asks to be a node; nil: it is one. The host's description of itself counts when it joins, and again whenever its
// daemon is started and no job is on it. For a node that scontrol has made, scontrol's description counts.
func (c NodeHello) join(tx *state.Tx) *pb.Problem {
	name := c.Hello.Node
	old := tx.Node(name)
	rec := state.CloneNode(c.Join)
	rec.Origin = joined
	switch {
	case old == nil:
		if p := roomForNodes(tx, 1); p != nil {
			p.Code, p.Phrase = uint32(pb.CodeInvalidNodeName), pb.CodeInvalidNodeName.Phrase()
			p.Detail = fmt.Sprintf("node %s cannot join: %s", name, p.Detail)
			return p
		}
		for _, s := range c.Steps { // of a deleted node of that name: nothing starts beside them
			if s.GetPhase() != pb.StepPhase_STEP_ENDED {
				rec.Strays = append(rec.Strays, s.GetKey())
			}
		}
	case !old.Dynamic():
		return pb.NewProblem(pb.CodeInvalidNodeName, "node %s is defined in slurm.conf, so it cannot join as a dynamic "+
			"node", name).WithHint(
			"start sluice-noded without -Z there, or remove the node from slurm.conf")
	default:
		if old.Origin == joined && len(old.Jobs) == 0 && !old.Is(rec) {
			tx.Emit(state.NodeRedefined{Node: rec})
		}
		return nil
	}
	tx.Emit(state.NodesAdded{Nodes: []*pb.NodeRecord{rec}})
	return nil
}
