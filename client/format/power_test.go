package format

import (
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// TestPowerStates: what scontrol show node, sinfo's %t and %T of Slurm 22.05.8 said of nodes that were powered down and up.
func TestPowerStates(t *testing.T) {
	const up = msg.NodePoweringUp | msg.NodeNoRespond
	idle, down := msg.NodeState_NODE_IDLE, msg.NodeState_NODE_DOWN
	for _, c := range []struct {
		state         msg.NodeState
		cpus          uint32 // allocated, of 4
		flags         uint32
		complete      string
		compact, long string
	}{
		{idle, 0, msg.NodePowerDownPending, "IDLE+POWER_DOWN", "idle!", "idle!"},
		{idle, 0, msg.NodePoweringDown, "IDLE+POWERING_DOWN", "idle%", "idle%"},
		{idle, 0, msg.NodePoweredDown, "IDLE+POWERED_DOWN", "idle~", "idle~"},
		{idle, 0, msg.NodePoweredDown | msg.NodePowerUpPending, "IDLE+POWER_UP+POWERED_DOWN", "idle~", "idle~"},
		{idle, 1, msg.NodePoweredDown, "MIXED+POWERED_DOWN", "mix~", "mixed~"},
		{idle, 0, up, "IDLE+NOT_RESPONDING+POWERING_UP", "idle#", "idle#"},
		{idle, 1, up, "MIXED+NOT_RESPONDING+POWERING_UP", "mix#", "mixed#"},
		{idle, 1, up | msg.NodePowerDownPending, "MIXED+POWER_DOWN+NOT_RESPONDING+POWERING_UP", "mix#", "mixed#"},
		{idle, 1, up | msg.NodePowerDownPending | msg.NodeDrain, "MIXED+DRAIN+POWER_DOWN+NOT_RESPONDING+POWERING_UP", "drng#", "draining#"},
		{idle, 0, up | msg.NodePowerDownPending | msg.NodeDrain, "IDLE+DRAIN+POWER_DOWN+NOT_RESPONDING+POWERING_UP", "drain#", "drained#"},
		{idle, 0, msg.NodePoweredDown | msg.NodeDrain, "IDLE+DRAIN+POWERED_DOWN", "drain~", "drained~"},
		{down, 0, msg.NodePoweredDown | msg.NodeNoRespond, "DOWN+POWERED_DOWN+NOT_RESPONDING", "down~", "down~"},
		{down, 0, msg.NodePowerDownPending | msg.NodeNoRespond, "DOWN+POWER_DOWN+NOT_RESPONDING", "down!", "down!"},
		{idle, 1, msg.NodeCloud, "MIXED+CLOUD", "mix", "mixed"},
	} {
		n := &msg.NodeRecord{State: c.state, StateFlags: c.flags, Cpus: 4, AllocCpus: c.cpus}
		if a, b, long := NodeStateComplete(n), nodeState(n, 1), nodeState(n, 0); a != c.complete || b != c.compact || long != c.long {
			t.Errorf("flags %#x: %s %s %s, want %s %s %s", c.flags, a, b, long, c.complete, c.compact, c.long)
		}
	}
}
