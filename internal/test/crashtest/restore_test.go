package crashtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
)

// TestRestoredBackup: a backup is made while jobs run and others wait for them; they end, their node's daemon is restarted, and the backup
// is restored. What has ended keeps its end and does not run again, nor does what would be requeued, nor what had waited in the backup and
// ended since, which does not even while a node is not there. A job that was submitted since is killed; accounting has that, and how one
// ended that was submitted since and is over. Then the earlier state is started
// again, as on an old controller that comes back: no node follows it.
func TestRestoredBackup(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	ended, runs, lost := c.witness("ended"), c.witness("runs"), c.witness("lost")
	on := func(node string) func(*msg.JobSpec) {
		return func(s *msg.JobSpec) { s.ReqNodes, s.Requeue = node, msg.Yes }
	}
	first, second := c.submit(gatedJob, on("n2"), ended, "0"), c.submit(gatedJob, on("n1"), runs, "3")
	c.started(ended)
	c.started(runs)
	afterFirst := func(s *msg.JobSpec) {
		s.ReqNodes, s.Requeue, s.Dependency = "n2", msg.Yes, fmt.Sprintf("afterany:%d", first)
	}
	waits, tasks := c.witness("waits"), c.witness("tasks")
	waited := c.submit(plainJob, afterFirst, waits, "5")
	array := c.submit(plainJob, func(s *msg.JobSpec) { afterFirst(s); s.Array = "3,4" }, tasks, "0")
	c.stopCtld()
	backup, old := filepath.Join(c.dir, "backup.db"), filepath.Join(c.dir, "old")
	copyOf(t, filepath.Join(c.state, "sluice.db"), backup)
	c.startCtld()
	c.awaitNodes()
	open(c, ended)
	if j := c.wait(first); j.State != msg.JobState_JOB_COMPLETED {
		t.Fatal(j)
	}
	c.wait(waited)
	c.await("both tasks have run", func() bool { seen, _ := readWitness(tasks); return len(seen) == 4 })
	unknown := c.submit(plainJob, func(s *msg.JobSpec) { on("n2")(s); s.Name = "unknown" }, c.witness("unknown"), "4")
	c.wait(unknown)
	third := c.submit(gatedJob, func(s *msg.JobSpec) { on("n2")(s); s.Name = "lost" }, lost, "0")
	stranger := c.started(lost).pid
	c.await("the node forgets what has ended", func() bool { return len(c.steps("n2")) == 1 })
	c.noded["n2"].kill()
	c.startNoded("n2")
	c.stopCtld()
	copyOf(t, c.state, old)
	out, err := exec.Command(filepath.Join(bin, "sluice-ctld"), "restore", "--state", c.state, "--from", backup).CombinedOutput()
	if err != nil {
		t.Fatalf("restore: %v: %s", err, out)
	}
	c.noded["n1"].kill()
	for _, db := range []string{"acct.db", "acct.db-wal", "acct.db-shm"} { // as on another host
		if err := os.Remove(filepath.Join(c.state, db)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	c.startCtld()
	if j := c.wait(first); j.State != msg.JobState_JOB_COMPLETED || j.Attempt != 1 || j.Restarts != 0 {
		t.Errorf("the job that had ended: %v", j)
	}
	c.await("what waited in the backup waits for n1", func() bool {
		j := c.jobs(waited)[waited]
		return j.State == msg.JobState_JOB_PENDING && j.Reason == "Restored"
	})
	c.startNoded("n1")
	if j := c.wait(waited); j.State != msg.JobState_JOB_FAILED || j.ExitStatus != 5<<8 || j.Attempt != 1 {
		t.Errorf("the job that waited in the backup: %v", j)
	}
	c.await("both tasks have their ends", func() bool {
		n := 0
		for _, j := range c.jobs() {
			if j.ArrayJobId == array && j.State == msg.JobState_JOB_COMPLETED && j.Attempt == 1 {
				n++
			}
		}
		return n == 2
	})
	c.await("the job that the state does not know is killed", func() bool { return syscall.Kill(stranger, 0) != nil })
	if c.jobs(third)[third] != nil || !c.ctld.Said("does not contain") {
		t.Error("the job of after the backup is not recorded as lost")
	}
	c.recalled(unknown, "unknown|FAILED|4:0")
	c.recalled(third, "lost|NODE_FAIL|0:0")
	if next := c.submit(plainJob, nil, c.witness("next"), "0"); next <= third {
		t.Errorf("job %d was given the id %d", third, next)
	} else {
		c.wait(next)
	}
	open(c, runs)
	if j := c.wait(second); j.ExitStatus != 3<<8 || j.Attempt != 1 {
		t.Errorf("the job that ran all the time: %v", j)
	}
	if seen, err := readWitness(tasks); err != nil || len(seen) != 4 {
		t.Errorf("the tasks of the array: %v, %v", seen, err)
	}
	for _, w := range []string{ended, runs, waits} {
		seen, err := readWitness(w)
		must(t, err)
		if err := ranOnce(seen); err != nil {
			t.Errorf("%s: %v", w, err)
		}
	}
	c.settled()

	c.stopCtld()
	restored := c.state
	c.state = old
	c.startCtld()
	for _, n := range c.nodes {
		c.await(n+" refuses the old controller", func() bool {
			return c.noded[n].Said("has followed a controller of generation") && strings.Contains(c.node(n).Reason, "Generation: ")
		})
	}
	c.stopCtld()
	c.state = restored
	c.startCtld()
	c.awaitNodes()
}

// recalled waits until sacct shows a job of n2 that the restored state does not know: name, state and exit code.
func (c *cluster) recalled(id uint32, want string) {
	c.t.Helper()
	var out []byte
	c.await(fmt.Sprintf("sacct has job %d", id), func() bool {
		cmd := exec.Command(filepath.Join(bin, "sacct"), "-XnP", "-j", fmt.Sprint(id), "-o",
			"JobName,State,ExitCode,NodeList,NNodes,AllocCPUS,Partition,Start,End,SystemComment")
		cmd.Env = c.clientEnv()
		out, _ = cmd.CombinedOutput()
		return len(out) > 0
	})
	f := strings.Split(string(out), "|")
	if len(f) != 10 || strings.Join(f[:6], "|") != want+"|n2|1|1" || f[6] == "" || strings.Contains(f[7]+f[8], "Unknown") ||
		!strings.Contains(f[9], "without this job") {
		c.t.Errorf("sacct says of job %d, which the restored state does not know: %s", id, out)
	}
}

func (c *cluster) stopCtld() {
	c.t.Helper()
	if !c.ctld.signal(syscall.SIGTERM) {
		c.t.Fatal("the controller does not end")
	}
}

// copyOf copies a file or a folder.
func copyOf(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	_ = os.Remove(filepath.Join(to, "sluice.lock"))
}
