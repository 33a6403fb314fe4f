package crashtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// TestRebootTimesOut: RebootProgram runs once; a node that does not come back in time is DOWN and says so, and when it comes back after all
// it is drained as it was before.
func TestRebootTimesOut(t *testing.T) {
	c := newCluster(t, 1)
	program, ran := filepath.Join(c.dir, "reboot"), filepath.Join(c.dir, "ran")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$SLURMD_NODENAME $*\" >>"+ran+"\n"), 0o755))
	must(t, os.WriteFile(c.conf, []byte(c.text()+"RebootProgram=\""+program+" -f now\"\nResumeTimeout=10\n"), 0o644))
	c.start()
	c.scontrol("update", "nodename=n1", "state=drain", "reason=mine")
	c.scontrol("reboot", "n1")
	if n := c.node("n1"); n.State != msg.NodeState_NODE_DOWN || n.StateFlags != msg.NodeRebootIssued|msg.NodeDrain ||
		n.Reason != "mine : reboot issued" {
		t.Errorf("a node that reboots is %v, flags %#x, %q", n.State, n.StateFlags, n.Reason)
	}
	c.await("ResumeTimeout", func() bool { return c.node("n1").StateFlags&msg.NodeRebootIssued == 0 })
	if n := c.node("n1"); n.State != msg.NodeState_NODE_DOWN || n.Reason != "mine : reboot issued : reboot timed out" {
		t.Errorf("a node that has not come back is %v, %q", n.State, n.Reason)
	}
	if b, err := os.ReadFile(ran); string(b) != "n1 -f now\n" {
		t.Errorf("RebootProgram: %q, %v", b, err)
	}
	c.noded["n1"].kill()
	c.rebooted("n1")
	c.await("the node is back", func() bool { return c.node("n1").State == msg.NodeState_NODE_IDLE })
	if n := c.node("n1"); n.StateFlags != msg.NodeDrain || n.Reason != "mine : reboot issued : reboot timed out" {
		t.Errorf("late: flags %#x, %q", n.StateFlags, n.Reason)
	}
	c.scontrol("update", "nodename=n1", "state=resume")
	c.nodesUp()
}
