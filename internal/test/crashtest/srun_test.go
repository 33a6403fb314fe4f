package crashtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// TestFailpointsOfSrun ends the controller at each commit of an srun that brings its own job, from the one that submits and starts it to
// the last. The task runs once, srun and accounts have its exit code, and nothing is left.
func TestFailpointsOfSrun(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	u := newUser(c, "user")
	for _, point := range []string{"commit.before", "commit.redo", "commit.after"} {
		n := 1
		for c.killedDuring(u, point, n) {
			n++
		}
		fmt.Printf("%s: %s, %d commits\n", t.Name(), point, n-1)
		if n <= 4 { // submission and start, end of the task, end of the job
			t.Errorf("%s was reached only %d times", point, n-1)
		}
	}
	c.settled()
	c.nodesUp()
}

// killedDuring runs an srun under a controller that ends at the n-th commit of its life, and reports whether it came to that.
func (c *cluster) killedDuring(u *user, point string, n int) bool {
	c.t.Helper()
	at := fmt.Sprintf("%s:%d", point, n)
	c.ctld.kill()
	d := c.launchCtld("SLUICE_FAILPOINT=" + at)
	again := func() {
		if c.ctld == d && d.Ended() {
			c.died(d, at)
			c.startCtld()
		}
	}
	c.await("the controller answers", func() bool { return d.Ended() || c.ping() })

	name := fmt.Sprintf("%s.%d", point, n)
	marks := filepath.Join(u.home, name)
	cmd := u.command(filepath.Join(bin, "srun"), "-J", name, "-n1", "sh", "-c", "echo ran >>"+marks+"; exit 3")
	srun := daemontest.Launch(c.t, c.dir, "srun."+name, *cmd.SysProcAttr, cmd.Env, cmd.Path, cmd.Args[1:]...)
	c.await("srun ends", func() bool {
		again()
		return srun.Ended()
	})
	c.await("the job is over", func() bool {
		again()
		squeue := exec.Command(filepath.Join(bin, "squeue"), "-h", "-t", "all", "-n", name, "-o", "%T")
		squeue.Env = c.clientEnv()
		state, err := squeue.Output() // the controller may end meanwhile
		return err == nil && string(state) == "FAILED\n" && c.forgotten()
	})
	killed := c.ctld != d
	if !killed {
		c.ctld.kill() // at rest, and not while it is asked
		c.startCtld()
	}

	if code := srun.Cmd.ProcessState.ExitCode(); code != 3 {
		c.t.Errorf("%s: srun has ended with %d: %s", at, code, srun.Text())
	}
	if ran, err := os.ReadFile(marks); string(ran) != "ran\n" {
		c.t.Errorf("%s: the task wrote %q: %v", at, ran, err)
	}
	for id, j := range c.jobs() {
		if j.GetSpec().GetName() != name {
			continue
		}
		if j.State != msg.JobState_JOB_FAILED || j.ExitStatus != 3<<8 || j.Attempt != 1 {
			c.t.Errorf("%s: job %d is %v, %#x, attempt %d", at, id, j.State, j.ExitStatus, j.Attempt)
		}
		steps := c.stepsOf(id)
		if len(steps) != 1 {
			c.t.Errorf("%s: %d steps, not one", at, len(steps))
		}
		for _, s := range steps {
			if s.State != msg.JobState_JOB_FAILED || s.ExitStatus != 3<<8 {
				c.t.Errorf("%s: the step of job %d is %v, %#x", at, id, s.State, s.ExitStatus)
			}
		}
		if left := c.groupsOfJob(id); len(left) > 0 {
			c.t.Errorf("%s: cgroups are left: %v", at, left)
		}
	}
	return killed
}
