package crashtest

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
)

// TestControllerWithoutDescriptors: a controller that cannot open anything any more loses nothing. What is connected is served, jobs end
// and begin on nodes that are connected, and when there are descriptors again everybody else gets through.
func TestControllerWithoutDescriptors(t *testing.T) {
	c := newCluster(t, 2)
	must(t, os.WriteFile(c.conf, []byte(c.text()+"PrologSlurmctld=/bin/true\nEpilogSlurmctld=/bin/true\n"), 0o644))
	c.start()
	w := [...]string{c.witness("before"), c.witness("during"), c.witness("after")}
	before := c.submit(gatedJob, nil, w[0], "3")
	c.started(w[0])
	cl := c.dial()
	defer cl.Close()
	_, err := cl.Ping(context.Background(), &msg.PingRequest{})
	must(t, err)

	pid := c.ctld.Cmd.Process.Pid
	restore := limitFiles(t, pid)
	r, err := cl.SubmitJob(context.Background(), request(c, plainJob, w[1]))
	if err != nil {
		t.Fatalf("who is connected cannot submit: %s", client.Text(err))
	}
	c.await("the job's PrologSlurmctld cannot be started", func() bool { return c.ctld.Said("PrologSlurmctld") })
	late, err := net.Dial("unix", c.sock) // the kernel connects it; nobody can accept it yet
	must(t, err)
	defer late.Close()
	open(c, w[0])
	c.noded["n2"].kill()
	c.startNoded("n2")
	c.await("it says what it lacks", func() bool { return c.ctld.Said("out of file descriptors") })
	if c.ctld.Ended() {
		t.Fatal("the controller has ended")
	}
	restore()
	for id, status := range map[uint32]uint32{before: 3 << 8, r.JobId: 0, c.submit(plainJob, nil, w[2]): 0} {
		if j := c.wait(id); j.ExitStatus != status || j.Restarts != 0 {
			t.Errorf("job %d is %v with status %#x after %d restarts: %s, %s", id, j.State, j.ExitStatus, j.Restarts, j.Reason,
				j.ReasonDetail)
		}
	}
	c.awaitNodes()
	all := c.jobs()
	c.accounted(all)
	c.settled()
	c.nodesUp()
}
