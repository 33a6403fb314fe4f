package crashtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// TestDirectoryFails: a node whose directory of users hangs, or fails, is drained with the reason; no job fails for it, and it works again
// when the directory does.
func TestDirectoryFails(t *testing.T) {
	long(t)
	c := newCluster(t, 2)
	dir, mode := filepath.Join(c.dir, "own"), filepath.Join(c.dir, "mode")
	must(t, os.Mkdir(dir, 0o755))
	getent := "#!/bin/sh\nread mode <" + mode + "\ncase $mode in\nhang) exec sleep 86400 ;;\nfail) exit 1 ;;\nesac\nexec " +
		filepath.Join(c.dir, "directory/getent") + " \"$@\"\n"
	must(t, os.WriteFile(filepath.Join(dir, "getent"), []byte(getent), 0o755))
	say := func(text string) { // at once: it is read meanwhile
		must(t, os.WriteFile(mode+".new", []byte(text+"\n"), 0o644))
		must(t, os.Rename(mode+".new", mode))
	}
	say("answer")
	c.startCtld()
	c.issue()
	args := slices.DeleteFunc(c.nodedArgs("n1"), func(a string) bool { return a == "--allow-root-jobs" })
	c.noded["n1"] = c.launch("noded.n1", []string{"PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin"}, "sluice-noded", args...)
	c.startNoded("n2")
	c.awaitNodes()
	known := newUser(c, "known")
	w := c.witness("runs")
	runs := known.sbatch(gatedJob, []string{"-o", "/dev/null", "-w", "n1"}, w, "3")
	c.started(w)
	for _, how := range []string{"hang", "fail"} {
		t.Run(how, func(t *testing.T) {
			c := c.in(t)
			u, later := newUser(c, "user."+how), newUser(c, "later."+how) // whom the node has not asked about
			wells := c.wells("n1")
			say(how)
			w := c.witness(how)
			id := u.sbatch(plainJob, []string{"-o", "/dev/null"}, w) // n1 is the first that is chosen
			c.await("n1 is drained", func() bool { return drained(c.node("n1")) })
			if n := c.node("n1"); n.Reason != "the name service does not answer (getent passwd)" {
				t.Errorf("the node is drained: %q", n.Reason)
			}
			c.requeuedElsewhere(id, w, "n2")
			say("answer")
			c.await("n1 says that it is well", func() bool { return c.wells("n1") > wells })
			c.scontrol("update", "nodename=n1", "state=resume")
			w = c.witness(how + ".after")
			j := c.wait(later.sbatch(plainJob, []string{"-o", "/dev/null", "-w", "n1"}, w))
			if j.State != msg.JobState_JOB_COMPLETED || j.Restarts != 0 {
				t.Errorf("afterwards: %v, %s", j.State, j.ReasonDetail)
			}
		})
	}
	open(c, w)
	if j := c.wait(runs); j.ExitStatus != 3<<8 || j.Restarts != 0 {
		t.Errorf("the job that ran: %v with status %#x, %s", j.State, j.ExitStatus, j.ReasonDetail)
	}
	c.settled()
	c.nodesUp()
}
