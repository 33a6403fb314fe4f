package step_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestLayouts runs what differs between cgroup layouts in each that this machine can be made to use.
func TestLayouts(t *testing.T) {
	for _, plugin := range []string{cgroup.PluginV1, cgroup.PluginV2, cgroup.PluginDisabled} {
		t.Run(strings.ReplaceAll(plugin, "/", "-"), func(t *testing.T) {
			n := newNodeWith(t, plugin)
			if n.r.Layout() == cgroup.Tree && plugin != cgroup.PluginDisabled {
				t.Skip("this machine has no ", plugin)
			}
			t.Log("layout: ", n.r.Layout())
			layoutJobs(n, t)
			layoutKills(n, t)
		})
	}
}

func layoutJobs(n *node, t *testing.T) {
	b := n.bundle()
	b.Limits = &pb.Limits{Pids: 100, MemoryMib: 200}
	if rec := n.run(b, "id -u; exit 3"); rec.WaitStatus != 3<<8 || n.output(b) != fmt.Sprintln(n.uid) {
		t.Errorf("record %v, output %q", rec, n.output(b))
	}
	rec := n.run(n.bundle(), "(setsid sleep 600 >/dev/null 2>&1 &)\nnohup sleep 600 >/dev/null 2>&1 &\nexit 1")
	if left := ofUser(n.uid); rec.WaitStatus != 1<<8 || len(left) > 0 {
		t.Errorf("record %v, left running: %v", rec, left)
	}
	rec = n.run(n.bundle(),
		"#!/usr/bin/python3 -IS\nimport os,time\nif os.fork(): os._exit(0)\nwhile True:\n  if os.fork(): os._exit(0)\n  "+
			"time.sleep(0.001)\n")
	if left := ofUser(n.uid); rec.WaitStatus != 0 || len(left) > 0 {
		t.Errorf("fork loop: %v, left running: %v", rec, left)
	}
	b = n.bundle()
	k := n.launch(b, "while :; do echo x; sleep 0.01; done")
	n.awaitOutput(b, "x\nx\n")
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, Suspended: true})
	size := len(n.output(b))
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN})
	awaitFile(t, b.StdOut.Path, func(s string) bool { return len(s) > size })
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_RUN, Suspended: true})
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_KILL})
	if rec := n.ended(k); rec.Verdict != "cancelled" || rec.WaitStatus != 9 && rec.WaitStatus != 15 {
		t.Errorf("killed while suspended: %v", rec)
	}
}

func layoutKills(n *node, t *testing.T) {
	b := n.bundle()
	k := n.launch(b, deaf)
	n.awaitOutput(b, "ready")
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	if rec := n.ended(k); rec.Verdict != "cancelled" || rec.WaitStatus != 9 {
		t.Errorf("stopped: %v", rec)
	}
	k = n.launch(n.bundle(), "(setsid sleep 600 &)\nsleep 600")
	first := int(n.running(k).Pid)
	must(t, unix.Kill(n.shimOf(k), unix.SIGKILL))
	rec := n.ended(k)
	awaitDeath(t, first)
	if left := ofUser(n.uid); rec.Verdict != "lost" || len(left) > 0 {
		t.Errorf("shim killed: %v, left running: %v", rec, left)
	}
}
