package crashtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// ext4Spool puts the spool of a node, which has not been started, on an ext4 of its own.
func ext4Spool(t *testing.T, c *cluster, node, options string) *disk {
	t.Helper()
	for _, program := range []string{"mkfs.ext4", "fsfreeze"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: apt-get install e2fsprogs util-linux", program)
		}
	}
	d := &disk{t, filepath.Join(c.dir, "spool.image"), c.spool(node)}
	must(t, os.WriteFile(d.image, nil, 0o600))
	must(t, errors.Join(os.Truncate(d.image, 64<<20), os.MkdirAll(d.mount, 0o711)))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop,"+options, d.image, d.mount).CombinedOutput(); err != nil {
		t.Skipf("this machine cannot mount a loop device: %v: %s", err, out)
	}
	t.Cleanup(d.unmount)
	t.Cleanup(func() {
		if n := c.noded[node]; n != nil && !n.Ended() {
			n.signal(unix.SIGTERM)
		}
	})
	return d
}

// gone reports whether a process has ended.
func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) || zombie(pid) }

// requeuedElsewhere waits until a job that a node could not start has run on another, once.
func (c *cluster) requeuedElsewhere(id uint32, witness, node string) {
	c.t.Helper()
	c.await(fmt.Sprintf("job %d ends", id), func() bool {
		j := c.jobs(id)[id]
		if !j.State.Terminal() && j.Reason == "BeginTime" { // rather than in two minutes; it may have started since
			cmd := exec.Command(filepath.Join(bin, "scontrol"), "update", fmt.Sprint("jobid=", id), "starttime=now")
			cmd.Env = c.clientEnv()
			_ = cmd.Run()
		}
		return j.State.Terminal()
	})
	j := c.wait(id)
	if j.State != msg.JobState_JOB_COMPLETED || j.NodeList != node || j.Restarts > 1 {
		c.t.Errorf("job %d is %v on %s after %d restarts: %s, %s", id, j.State, j.NodeList, j.Restarts, j.Reason, j.ReasonDetail)
	}
	if seen, err := readWitness(witness); len(seen) != 2 || err != nil {
		c.t.Errorf("job %d ran %v, %v", id, seen, err)
	}
}

// TestFrozenSpool: a spool that does not answer keeps no running job from being ended, by an order or by its time limit. The node is
// drained with the reason; when the spool answers again, everything that waited for it goes on, and nothing is lost or runs twice.
func TestFrozenSpool(t *testing.T) {
	c := newCluster(t, 1)
	d := ext4Spool(t, c, "n1", "rw")
	c.start()
	u := newUser(c, "user")
	run := func(name, script string, args ...string) (uint32, string) {
		w := c.witness(name)
		return u.sbatch(script, []string{"-o", "/dev/null"}, append([]string{w}, args...)...), w
	}
	thaw := func() { _ = exec.Command("fsfreeze", "-u", d.mount).Run() }
	t.Cleanup(thaw)
	ends, w1 := run("ends", gatedJob, "3")
	stays, w2 := run("stays", gatedJob, "5")
	cancelled, w3 := run("cancelled", witnessed+"sleep 600\n")
	c.started(w1)
	c.started(w2)
	toCancel := c.started(w3)
	w4 := c.witness("limited")
	limited := c.submit(witnessed+"sleep 600\n", func(s *msg.JobSpec) { s.TimeLimitS = 5 }, w4)
	overLimit := c.started(w4)
	wells := c.wells("n1")
	if out, err := exec.Command("fsfreeze", "-f", d.mount).CombinedOutput(); err != nil {
		t.Skipf("this machine cannot freeze a file system: %v: %s", err, out)
	}
	late, w5 := run("late", plainJob)
	never, w6 := run("never", plainJob)
	open(c, w1)
	c.cancel(cancelled)
	c.await("the processes of the cancelled job have ended", func() bool { return gone(toCancel.pid) })
	c.await("those of the job over its time limit have ended", func() bool { return gone(overLimit.pid) })
	c.await("the job that was told to go on has ended", func() bool { l, _ := readWitness(w1); return len(l) == 2 })
	c.cancel(never)
	c.await("the node is drained", func() bool { return drained(c.node("n1")) })
	if n := c.node("n1"); n.Reason != "SlurmdSpoolDir does not answer" {
		t.Errorf("the node is drained: %q", n.Reason)
	}
	thaw()
	c.await("the node says that it is well", func() bool { return c.wells("n1") > wells })
	if j := c.wait(cancelled); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("cancelled: %v, %s", j.State, j.ReasonDetail)
	}
	if j := c.wait(limited); j.State != msg.JobState_JOB_TIMEOUT {
		t.Errorf("over its time limit: %v, %s", j.State, j.ReasonDetail)
	}
	if j := c.wait(ends); j.ExitStatus != 3<<8 || j.Restarts != 0 {
		t.Errorf("ended by itself: %v with status %#x, %s", j.State, j.ExitStatus, j.ReasonDetail)
	}
	if j := c.wait(never); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("cancelled before it was started: %v, %s", j.State, j.ReasonDetail)
	}
	if seen, err := readWitness(w6); len(seen) != 0 || err != nil {
		t.Errorf("cancelled before it was started, it ran: %v, %v", seen, err)
	}
	c.scontrol("update", "nodename=n1", "state=resume")
	c.requeuedElsewhere(late, w5, "n1")
	open(c, w2)
	if j := c.wait(stays); j.ExitStatus != 5<<8 || j.Restarts != 0 {
		t.Errorf("it ran on: %v with status %#x, %s", j.State, j.ExitStatus, j.ReasonDetail)
	}
	c.settled()
	c.nodesUp()
}

// TestRecordsOutlastReadOnlySpool: the end of a job of which nobody can be told, neither the node daemon, which has been killed, nor the
// disk, which is read-only, is known when both are back.
func TestRecordsOutlastReadOnlySpool(t *testing.T) {
	c := newCluster(t, 1)
	d := ext4Spool(t, c, "n1", "rw")
	c.start()
	u := newUser(c, "user")
	w := c.witness("ends")
	id := u.sbatch(gatedJob, []string{"-o", "/dev/null"}, w, "3")
	first := c.started(w)
	shim := parent(t, first.pid)
	c.noded["n1"].kill()
	d.remount("ro")
	open(c, w)
	c.await("the job ends", func() bool { l, _ := readWitness(w); return len(l) == 2 && gone(first.pid) })
	c.await("its shim says that it cannot write", func() bool { return c.noded["n1"].Said("cannot write the exit record") })
	if gone(shim) {
		t.Errorf("the shim has ended, and has told nobody")
	}
	d.remount("rw")
	c.await("the exit record is on the disk", func() bool {
		found, _ := filepath.Glob(filepath.Join(c.spool("n1"), "steps", fmt.Sprintf("%d.1.*", id), "exit.pb"))
		return len(found) == 1
	})
	c.startNoded("n1")
	if j := c.wait(id); j.ExitStatus != 3<<8 || j.Restarts != 0 {
		t.Errorf("%v with status %#x, %s", j.State, j.ExitStatus, j.ReasonDetail)
	}
	c.settled()
}

// TestSpoolTurnsReadOnly: a disk with an error, which ext4 makes read-only (errors=remount-ro): jobs that come go elsewhere, and the end of
// one that runs is told all the same. What cannot be written any more keeps
// no process.
func TestSpoolTurnsReadOnly(t *testing.T) {
	c := newCluster(t, 2)
	d := ext4Spool(t, c, "n1", "errors=remount-ro")
	c.start()
	u := newUser(c, "user")
	w1 := c.witness("runs")
	runs := u.sbatch(gatedJob, []string{"-o", "/dev/null", "-w", "n1"}, w1, "3")
	c.started(w1)
	w2 := c.witness("cancelled")
	cancelled := u.sbatch(witnessed+"sleep 600\n", []string{"-o", "/dev/null", "-w", "n1"}, w2)
	c.started(w2)
	device, err := exec.Command("findmnt", "-n", "-o", "SOURCE", d.mount).Output()
	must(t, err)
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(device))), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("a test"), 0); err != nil {
		t.Skipf("this kernel cannot make an ext4 fail: %v", err)
	}
	w3 := c.witness("comes")
	comes := u.sbatch(plainJob, []string{"-o", "/dev/null"}, w3)
	c.await("n1 is drained", func() bool { return drained(c.node("n1")) })
	if n := c.node("n1"); n.Reason != "SlurmdSpoolDir is read-only" {
		t.Errorf("the node is drained: %q", n.Reason)
	}
	c.requeuedElsewhere(comes, w3, "n2")
	open(c, w1)
	if j := c.wait(runs); j.ExitStatus != 3<<8 || j.Restarts != 0 {
		t.Errorf("the job that ran: %v with status %#x, %s", j.State, j.ExitStatus, j.ReasonDetail)
	}
	c.cancel(cancelled)
	if j := c.wait(cancelled); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("cancelled: %v, %s", j.State, j.ReasonDetail)
	}
	c.noded["n1"].signal(unix.SIGTERM)
	// What the shims still have to write is known: they end when the disk has gone for good.
	must(t, exec.Command("umount", "-l", d.mount).Run())
	c.await("the shims end", func() bool { return len(c.shimProcesses("n1")) == 0 })
}

// shimProcesses are those that run, also when the spool that names them has gone.
func (c *cluster) shimProcesses(node string) (pids []int) {
	for _, pid := range daemontest.ProcessesOf(filepath.Dir(c.spool(node))) {
		if line := daemontest.CommandLine(pid); strings.Contains(line, " stepd ") && strings.Contains(line, c.spool(node)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
