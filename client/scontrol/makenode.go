package scontrol

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/wire"
	"github.com/sluice-hpc/sluice/conf/hostlist"
)

// createNodes is create NodeName=… KEY=VALUE …, which is read like that line in slurm.conf. As in Slurm, nodename must come first
// and cannot be abbreviated.
func (c *control) createNodes(args []string) int {
	list := readPairs(args, func(int, string, string) bool { return false })
	if !strings.EqualFold(list[0].key, "nodename") || slices.ContainsFunc(list, func(p pair) bool { return !p.given }) {
		return c.fail("scontrol: error: Failed to parse nodeline '"+strings.Join(args, " ")+"'",
			"Error creating the node(s): Unspecified error",
			"write create NodeName=NAME State=FUTURE|CLOUD KEY=VALUE …, as on a NodeName line of slurm.conf")
	}
	req := &msg.CreateNodesRequest{Nodes: list[0].value}
	for _, p := range list[1:] {
		req.Set = append(req.Set, &msg.KeyValue{Key: p.key + p.add, Value: p.value})
	}
	conn, err := c.dial()
	if err == nil {
		_, err = conn.CreateNodes(context.Background(), req)
	}
	if err == nil {
		return 0
	}
	var r *wire.Refusal
	if errors.As(err, &r) && r.Problem.GetLead() != "" {
		c.failf("%s", r.Problem.GetLead())
	}
	return c.callFailed("Error creating the node(s)", err)
}

// deleteNodes is delete NodeName=…: it deletes the nodes that may be deleted and reports the others.
func (c *control) deleteNodes(subject pair, args []string) int {
	before := "delete_node " + args[0]
	conn, err := c.dial()
	var reply *msg.UpdateReply
	if err == nil {
		reply, err = conn.DeleteNodes(context.Background(), &msg.DeleteNodesRequest{Nodes: subject.value})
	}
	var names []string
	for _, o := range reply.GetOutcomes() {
		names = append(names, o.GetId())
	}
	if len(names) == 0 && err == nil {
		return 0
	}
	if err != nil {
		return c.callFailed(before, err)
	}
	c.failf("failed to delete nodes %s", hostlist.Fold(names))
	exit := c.callFailed(before, &wire.Refusal{Problem: reply.GetOutcomes()[0].GetProblem()})
	for _, o := range reply.GetOutcomes()[1:] {
		c.fail(o.GetProblem().GetDetail())
	}
	return exit
}
