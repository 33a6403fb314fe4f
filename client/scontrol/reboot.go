package scontrol

import (
	"context"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/wire"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// reboot is scontrol reboot [ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] ALL|NODES: the nodes run RebootProgram when nothing runs
// on them any more.
func (c *control) reboot(args []string) int {
	const failure = "scontrol_reboot_nodes error"
	state, nodes := "REBOOT", ""
	var more []*msg.KeyValue
	for _, word := range args {
		key, value, given := strings.Cut(word, "=")
		switch {
		case strings.EqualFold(word, "ASAP"):
			state = "REBOOT_ASAP"
		case given && strings.EqualFold(key, "nextstate"):
			if value = strings.ToUpper(value); value != "RESUME" && value != "DOWN" {
				return c.fail("Invalid state: "+format.Escape(word[len(key)+1:]), "Valid states: DOWN, RESUME")
			}
			more = append(more, &msg.KeyValue{Key: "NextState", Value: value})
		case given && strings.EqualFold(key, "reason"):
			more = append(more, &msg.KeyValue{Key: "Reason", Value: value})
		case nodes == "":
			nodes = word
		default:
			return c.fail("too many arguments for keyword:reboot")
		}
	}
	req := &msg.UpdateNodeRequest{Nodes: nodes, Set: append([]*msg.KeyValue{{Key: "State", Value: state}}, more...)}
	err := c.sendNodes(req)
	switch p := client.ProblemOf(err); {
	case err == nil:
		return 0
	case p.GetCode() == uint32(msg.CodeDisabled):
		return c.fail(withDiagnosis("scontrol: error: RebootProgram isn't defined\n"+failure+": Unspecified error", p)...)
	case nodes == "":
		return c.fail("too few arguments for keyword:reboot", "expected ALL or a list of nodes")
	}
	return c.callFailed(failure, err)
}

// cancelReboot is scontrol cancel_reboot NODES.
func (c *control) cancelReboot(args []string) int {
	if len(args) == 0 {
		return c.fail("missing argument for keyword:cancel_reboot")
	}
	if err := c.sendNodes(&msg.UpdateNodeRequest{Nodes: args[0],
		Set: []*msg.KeyValue{{Key: "State", Value: "CANCEL_REBOOT"}}}); err != nil {
		return c.callFailed("slurm_update error", err)
	}
	return 0
}

func (c *control) sendNodes(req *msg.UpdateNodeRequest) error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	r, err := conn.UpdateNode(context.Background(), req)
	if err != nil {
		return err
	}
	return leftAlone(r.GetOutcomes())
}

// leftAlone returns the error for nodes that were not changed while others were: the first reason, and the nodes.
func leftAlone(list []*msg.JobOutcome) error {
	if len(list) == 0 {
		return nil
	}
	var names []string
	for _, o := range list {
		names = append(names, o.GetId())
	}
	p := *list[0].GetProblem()
	if p.Hint == "" {
		p.Hint = "all nodes except " + hostlist.Fold(names) + " were updated"
	}
	return &wire.Refusal{Problem: &p}
}
