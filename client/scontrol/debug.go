package scontrol

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/format"
	"github.com/sluice-hpc/sluice/client/msg"
)

// setDebug is scontrol setdebug LEVEL [nodes=NODES]: the log level of the controller, or of the node daemons of these nodes.
func (c *control) setDebug(args []string) int {
	levels := []string{"quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"}
	digit := len(args[0]) == 1 && args[0][0] >= '0' && args[0][0] <= '9'
	if !digit && !slices.ContainsFunc(levels, func(l string) bool { return strings.EqualFold(l, args[0]) }) {
		return c.fail("invalid debug level: " + format.Escape(args[0]))
	}
	req := &msg.SetDebugRequest{Level: args[0]}
	if len(args) == 2 {
		key, nodes, given := strings.Cut(args[1], "=")
		if !given || !strings.EqualFold(key, "nodes") || nodes == "" {
			return c.fail("too many arguments for keyword:setdebug", "after the level only nodes=NODES is allowed")
		}
		req.Nodes = nodes
	}
	return c.debugExit("slurm_set_debug_level error", c.sendDebug(req))
}

// setDebugFlags is scontrol setdebugflags +FLAG and -FLAG.
func (c *control) setDebugFlags(args []string) int {
	req := &msg.SetDebugRequest{}
	for _, word := range args {
		switch {
		case len(word) > 1 && word[0] == '+':
			req.AddFlags = append(req.AddFlags, strings.Split(word[1:], ",")...)
		case len(word) > 1 && word[0] == '-':
			req.RemoveFlags = append(req.RemoveFlags, strings.Split(word[1:], ",")...)
		default:
			return c.fail("invalid debug flag: "+format.Escape(word), "Usage: setdebugflags [+|-]NAME")
		}
	}
	err := c.sendDebug(req)
	if p := client.ProblemOf(err); p.GetCode() == uint32(msg.CodeInvalidSpec) {
		word := format.Escape(args[0])
		return c.fail(withDiagnosis("scontrol: error: Invalid DebugFlag: "+word[1:]+"\ninvalid debug flag: "+word, p)...)
	}
	return c.debugExit("slurm_set_debug_flags error", err)
}

// debugExit reports an error; Slurm's message about permissions differs from that of other commands.
func (c *control) debugExit(failure string, err error) int {
	switch p := client.ProblemOf(err); {
	case err == nil:
		return 0
	case p.GetCode() == uint32(msg.CodeUserID):
		return c.fail(withDiagnosis(failure+": Permission denied", p)...)
	}
	return c.callFailed(failure, err)
}

func (c *control) sendDebug(req *msg.SetDebugRequest) error {
	conn, err := c.dial()
	if err == nil {
		_, err = conn.SetDebug(context.Background(), req)
	}
	return err
}
