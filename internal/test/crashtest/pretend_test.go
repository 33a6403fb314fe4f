package crashtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// pretended makes the nodes of a cluster such as have addresses of their own, and starts the process that speaks for them.
func (c *cluster) pretended() {
	c.t.Helper()
	text := c.text()
	at := strings.Index(text, "NodeName=")
	text = strings.Replace(text[:at], "SlurmdParameters=config_overrides\n", "", 1) + fmt.Sprintf("GresTypes=gpu\n"+
		"NodeName=n[1-%d] CPUs=8 RealMemory=4096 Gres=gpu:h100:2\nPartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
		len(c.nodes))
	must(c.t, os.WriteFile(c.conf, []byte(text), 0o644))
	d := c.launch("pretend", nil, "sluice-noded", "pretend", "--conf", c.conf, "--state", c.state, "--controller",
		fmt.Sprintf("127.0.0.1:%d", c.port))
	for _, n := range c.nodes {
		c.noded[n] = d
	}
}

// TestPretendedNodes: one process speaks for two hundred nodes, each over a connection of its own. Their jobs end as the scripts say, also
// those that end while there is no controller, and none is lost or runs again.
func TestPretendedNodes(t *testing.T) {
	c := newCluster(t, 200)
	c.pretended()
	c.startCtld()
	t.Cleanup(func() { c.noded = map[string]*daemon{c.nodes[0]: c.noded[c.nodes[0]]} }) // one process, to be ended once
	c.slowly("all nodes are linked", c.linked)
	script := func(seconds, status int) string {
		return fmt.Sprintf("#!/bin/sh\nsleep %d\nexit %d\n", seconds, status)
	}
	long := c.submit(script(86400, 0), func(s *msg.JobSpec) { s.MinNodes, s.MaxNodes, s.NumTasks = 150, 150, 150 })
	gpus := c.submit(script(86400, 0), func(s *msg.JobSpec) { s.TresPerNode = "gres/gpu:2" })
	limited := c.submit(script(86400, 0), func(s *msg.JobSpec) { s.TimeLimitS = 1 })
	status := map[uint32]uint32{}
	for i := range 60 {
		status[c.submit(script(i%4, i%3), nil)] = uint32(i%3) << 8
	}
	c.slowly("the long jobs run", func() bool {
		all := c.jobs(long, gpus)
		return all[long].State == msg.JobState_JOB_RUNNING && all[gpus].State == msg.JobState_JOB_RUNNING
	})
	began := c.jobs(long)[long].StartNs
	c.ctld.kill()
	c.startCtld()
	c.slowly("all nodes are linked again", c.linked)
	c.slowly("the short jobs have ended", func() bool {
		for id, j := range c.jobs() {
			if id != long && id != gpus && (j.State == msg.JobState_JOB_PENDING || j.State == msg.JobState_JOB_RUNNING) {
				return false
			}
		}
		return true
	})
	for id, j := range c.jobs() {
		want, state := status[id], msg.JobState_JOB_COMPLETED
		switch {
		case id == limited:
			state, want = msg.JobState_JOB_TIMEOUT, j.ExitStatus
		case id == long || id == gpus:
			state = msg.JobState_JOB_RUNNING
		case want != 0:
			state = msg.JobState_JOB_FAILED
		}
		if j.State != state || j.ExitStatus != want || j.Restarts != 0 {
			t.Errorf("job %d is %v with status %d after %d restarts, want %v and %d", id, j.State, j.ExitStatus, j.Restarts, state, want)
		}
	}
	if j := c.jobs(long)[long]; j.StartNs != began || len(j.Alloc) != 150 {
		t.Errorf("the long job runs since %d on %d nodes, want %d and 150", j.StartNs, len(j.Alloc), began)
	}
	c.cancel(long)
	c.cancel(gpus)
	c.slowly("they have been cancelled", func() bool {
		all := c.jobs(long, gpus)
		return all[long].State == msg.JobState_JOB_CANCELLED && all[gpus].State == msg.JobState_JOB_CANCELLED
	})
}

// slowly is await for what two hundred nodes have to do.
func (c *cluster) slowly(what string, cond func() bool) {
	c.t.Helper()
	if !daemontest.Poll(5*patience, func() bool { time.Sleep(50 * time.Millisecond); return cond() }) {
		c.t.Fatalf("waited %v in vain: %s", 5*patience, what)
	}
}

// linked: every node has registered with the controller that runs now.
func (c *cluster) linked() bool {
	for _, n := range c.nodeRecords() {
		if n.LastSeenNs < c.ctld.started.UnixNano() || n.StateFlags&msg.NodeNoRespond != 0 {
			return false
		}
	}
	return true
}
