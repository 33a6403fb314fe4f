package crashtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// freezable is an ext4 of its own for a user's files, which freeze stops from being written to; thaw lets it go on.
func freezable(c *cluster, u *user) (dir string, freeze, thaw func()) {
	c.t.Helper()
	for _, program := range []string{"mkfs.ext4", "fsfreeze"} {
		if _, err := exec.LookPath(program); err != nil {
			c.t.Skipf("no %s: apt-get install e2fsprogs util-linux", program)
		}
	}
	d := &disk{c.t, filepath.Join(c.dir, "frozen.image"), filepath.Join(c.dir, "frozen")}
	must(c.t, os.WriteFile(d.image, nil, 0o600))
	must(c.t, errors.Join(os.Truncate(d.image, 32<<20), os.Mkdir(d.mount, 0o755)))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		c.t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if err := daemontest.MountImage(d.image, d.mount); err != nil {
		c.t.Skipf("this machine cannot mount a loop device: %v", err)
	}
	thaw = func() { _ = exec.Command("fsfreeze", "-u", d.mount).Run() }
	c.t.Cleanup(func() {
		thaw()
		for _, j := range c.jobs() {
			if !j.State.Terminal() {
				c.cancel(j.Id)
				c.wait(j.Id)
			}
		}
		d.unmount()
	})
	must(c.t, os.Chown(d.mount, u.uid, u.uid))
	return d.mount, func() {
		if out, err := exec.Command("fsfreeze", "-f", d.mount).CombinedOutput(); err != nil {
			c.t.Skipf("this machine cannot freeze a file system: %v: %s", err, out)
		}
	}, thaw
}

// TestFrozenOutput: a file system that answers nothing holds up neither scancel nor a time limit, at the points where a shim touches it: it
// opens the output, writes its own lines into it, and closes it. Processes that are stuck in it drain the node, and end when they can.
func TestFrozenOutput(t *testing.T) {
	long(t)
	c := newCluster(t, 1)
	must(t, os.WriteFile(c.conf, []byte(c.text()+"UnkillableStepTimeout=15\n"), 0o644))
	c.start()
	u := newUser(c, "user")
	dir, freeze, thaw := freezable(c, u)
	run := func(name, script string, options ...string) (uint32, string) {
		w := c.witness(name)
		return u.sbatch(witnessed+script, append([]string{"-o", filepath.Join(dir, name)}, options...), w), w
	}
	quiet, w1 := run("quiet", "sleep 600\n")
	ends, w3 := run("ends", "while [ ! -e \"$w.go\" ]; do sleep 0.05; done\nexit 3\n")
	writer, w4 := run("writer", "while :; do echo more; sleep 0.05; done\n")
	for _, w := range []string{w1, w3, w4} {
		c.started(w)
	}
	w2 := c.witness("limited")
	limited := c.submit(witnessed+"sleep 600\n", func(s *msg.JobSpec) { s.TimeLimitS, s.StdOut = 5, filepath.Join(dir, "limited") }, w2)
	c.started(w2)
	freeze()
	opens, w5 := run("opens", "say end\n")
	c.await("a job whose output cannot be opened is started", func() bool { return c.jobs(opens)[opens].State == msg.JobState_JOB_RUNNING })
	c.cancel(quiet)
	if j := c.wait(quiet); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("cancelled: %v, %s", j.State, j.ReasonDetail)
	}
	if j := c.wait(limited); j.State != msg.JobState_JOB_TIMEOUT {
		t.Errorf("over its time limit: %v, %s", j.State, j.ReasonDetail)
	}
	open(c, w3)
	if j := c.wait(ends); j.ExitStatus != 3<<8 {
		t.Errorf("ended by itself: %v with status %#x, %s", j.State, j.ExitStatus, j.ReasonDetail)
	}
	c.cancel(opens)
	if j := c.wait(opens); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("cancelled while its output was being opened: %v, %s", j.State, j.ReasonDetail)
	}
	c.nodesUp()
	c.cancel(writer)
	c.await("the node is drained", func() bool { return drained(c.node("n1")) })
	if n := c.node("n1"); n.Reason != "Kill task failed" {
		t.Errorf("the node is drained: %q", n.Reason)
	}
	thaw()
	if j := c.wait(writer); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("the one that wrote: %v, %s", j.State, j.ReasonDetail)
	}
	if seen, err := readWitness(w5); len(seen) != 0 || err != nil {
		t.Errorf("a cancelled job ran: %v, %v", seen, err)
	}
	c.scontrol("update", "nodename=n1", "state=resume")
	free := c.witness("free")
	if j := c.wait(u.sbatch(plainJob, []string{"-o", filepath.Join(dir, "free")}, free)); j.State != msg.JobState_JOB_COMPLETED {
		t.Errorf("afterwards: %v", j.State)
	}
	c.settled()
}
