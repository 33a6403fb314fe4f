package crashtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// ownSpool puts the spool of a node, which has not been started, on a tmpfs of its own.
func ownSpool(t *testing.T, c *cluster, node string) *disk {
	t.Helper()
	d := &disk{t, "", c.spool(node)}
	must(t, os.MkdirAll(d.mount, 0o711))
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=48m,nr_inodes=2000,mode=711", "none", d.mount)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("this machine cannot mount a tmpfs: %v: %s", err, out)
	}
	t.Cleanup(d.unmount)
	t.Cleanup(func() {
		if n := c.noded[node]; n != nil && !n.Ended() {
			n.signal(unix.SIGTERM)
		}
	})
	return d
}

// remount changes the options of the mount. It waits until nothing is being written: a file that is open for that keeps it from being
// read-only.
func (d *disk) remount(options string) {
	d.t.Helper()
	var out []byte
	var err error
	if !daemontest.Poll(patience, func() bool {
		out, err = exec.Command("mount", "-o", "remount,"+options, d.mount).CombinedOutput()
		return err == nil || !strings.Contains(string(out), "busy")
	}) || err != nil {
		d.t.Fatalf("remount with %s: %v: %s", options, err, out)
	}
}

// readOnly covers the mount with a read-only one of the same files: the node daemon's own, which are open for writing, keep it from being
// that itself.
func (d *disk) readOnly() (uncover func()) {
	d.t.Helper()
	run := func(args ...string) {
		if out, err := exec.Command(args[0], append(args[1:], d.mount)...).CombinedOutput(); err != nil {
			d.t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	run("mount", "--bind", d.mount)
	run("mount", "-o", "remount,bind,ro")
	return func() { run("umount", "--lazy") }
}

func drained(n *msg.NodeRecord) bool { return n.StateFlags&msg.NodeDrain != 0 }

// limitFiles takes all descriptors but some from processes, and gives them back.
func limitFiles(t *testing.T, pids ...int) (restore func()) {
	t.Helper()
	old := map[int]unix.Rlimit{}
	for _, pid := range pids {
		var had unix.Rlimit
		must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &had))
		must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4, Max: had.Max}, nil))
		old[pid] = had
	}
	return func() {
		for pid, had := range old {
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &had, nil); err != nil && !errors.Is(err, unix.ESRCH) {
				t.Error(err)
			}
		}
	}
}

// shims are the processes that a node daemon keeps for steps.
func (c *cluster) shims(node string) (pids []int) {
	entries, _ := os.ReadDir(filepath.Join(c.spool(node), "shims"))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// wells counts how often a node has said that it can start jobs again.
func (c *cluster) wells(node string) int {
	text, _ := os.ReadFile(c.noded[node].Log)
	return strings.Count(string(text), "can start jobs again")
}

// faults are ways in which a node cannot start jobs any more. break returns what mends it.
var faults = []struct {
	name   string
	reason string // begins with
	spoil  func(c *cluster, d *disk) (mend func())
}{
	{"the spool is full", "SlurmdSpoolDir is full", func(c *cluster, d *disk) func() { return d.fill() }},
	{"no inodes are left", "SlurmdSpoolDir is full", func(c *cluster, d *disk) func() {
		hog := filepath.Join(d.mount, "inodes")
		must(d.t, os.Mkdir(hog, 0o700))
		for i := 0; ; i++ {
			if os.WriteFile(filepath.Join(hog, strconv.Itoa(i)), nil, 0o600) != nil {
				break
			}
		}
		return func() { must(d.t, os.RemoveAll(hog)) }
	}},
	{"the spool is mounted read-only", "SlurmdSpoolDir is read-only", func(c *cluster, d *disk) func() {
		return d.readOnly()
	}},
	{"the spool is mounted noexec", "SlurmdSpoolDir is mounted noexec", func(c *cluster, d *disk) func() {
		d.remount("noexec")
		return func() { d.remount("exec") }
	}},
	{"the spool has gone", "SlurmdSpoolDir is missing", func(c *cluster, d *disk) func() {
		steps, away := filepath.Join(d.mount, "steps"), filepath.Join(d.mount, "away")
		must(d.t, os.Rename(steps, away))
		return func() { must(d.t, os.Rename(away, steps)) }
	}},
	{"the daemon has no descriptors left", "SlurmdSpoolDir: too many open files", func(c *cluster, d *disk) func() {
		return limitFiles(d.t, c.noded["n1"].Cmd.Process.Pid)
	}},
	{"nothing has descriptors left", "SlurmdSpoolDir: too many open files", func(c *cluster, d *disk) func() {
		return limitFiles(d.t, append(c.shims("n1"), c.noded["n1"].Cmd.Process.Pid)...)
	}},
}

// TestNodeFaults: what is wrong with a node is no job's fault. Five jobs that come while one of two nodes can start none all run, once; the
// node is drained by the first of them, with the reason, and works again when that has been mended and scontrol has resumed it.
func TestNodeFaults(t *testing.T) {
	long(t)
	c := newCluster(t, 2)
	d := ownSpool(t, c, "n1")
	c.start()
	u := newUser(c, "user")
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			c := c.in(t)
			before := c.witness(fmt.Sprint("before", i))
			running := u.sbatch(gatedJob, []string{"-o", "/dev/null", "-w", "n1"}, before, "3")
			c.started(before)
			wells := c.wells("n1")
			mend := f.spoil(c, &disk{t, "", d.mount})
			var ids []uint32
			var paths []string
			for k := range 5 {
				w := c.witness(fmt.Sprintf("fault%d.%d", i, k))
				ids, paths = append(ids, u.sbatch(plainJob, []string{"-o", "/dev/null"}, w)), append(paths, w)
			}
			c.await("n1 is drained", func() bool { return drained(c.node("n1")) })
			if n := c.node("n1"); !strings.HasPrefix(n.Reason, f.reason) || n.ReasonUser != "slurm" {
				t.Errorf("the node is drained by %s: %q", n.ReasonUser, n.Reason)
			}
			c.await("the jobs end", func() bool {
				ended := 0
				for id, j := range c.jobs(ids...) {
					if j.State.Terminal() {
						ended++
					} else if j.Reason == "BeginTime" {
						// Rather than in two minutes. It may have started since.
						cmd := exec.Command(filepath.Join(bin, "scontrol"), "update", fmt.Sprint("jobid=", id), "starttime=now")
						cmd.Env = c.clientEnv()
						_ = cmd.Run()
					}
				}
				return ended == len(ids)
			})
			for k, id := range ids {
				j := c.wait(id)
				if j.State != msg.JobState_JOB_COMPLETED || j.NodeList != "n2" || j.Restarts > 1 {
					t.Errorf("job %d is %v on %s after %d restarts: %s, %s", id, j.State, j.NodeList, j.Restarts, j.Reason, j.ReasonDetail)
				}
				if seen, err := readWitness(paths[k]); len(seen) != 2 || err != nil {
					t.Errorf("job %d ran %v, %v", id, seen, err)
				}
			}
			// Where the record of the job that runs has gone, or its shim can do nothing, it ends when that has been mended.
			first := f.name == "the spool has gone" || f.name == "nothing has descriptors left"
			if first {
				mend()
			}
			open(c, before)
			if j := c.wait(running); j.ExitStatus != 3<<8 {
				t.Errorf("the job that ran before is %v with status %#x: %s", j.State, j.ExitStatus, j.ReasonDetail)
			}
			if !first {
				mend()
			}
			c.await("n1 says that it is well", func() bool { return c.wells("n1") > wells })
			c.scontrol("update", "nodename=n1", "state=resume")
			w := c.witness(fmt.Sprint("after", i))
			if j := c.wait(u.sbatch(plainJob, []string{"-o", "/dev/null", "-w", "n1"}, w)); j.State != msg.JobState_JOB_COMPLETED {
				t.Errorf("afterwards: %v, %s", j.State, j.ReasonDetail)
			}
			if drained(c.node("n1")) {
				t.Errorf("drained again: %s", c.node("n1").Reason)
			}
		})
	}
	c.settled()
}

// TestJobFaultsDrainNoNode: what is wrong with a job stays its own, whoever submits it and however often.
func TestJobFaultsDrainNoNode(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	u := newUser(c, "user")
	ids := map[uint32]string{}
	for what, script := range map[string]string{
		"no such interpreter":    "#!/no/such/interpreter\n",
		"a folder":               "#!/etc\n",
		"not executable":         "#!/etc/passwd\n",
		"another user's":         "#!/root/.profile\n",
		"not a program":          "#!" + u.file("garbage", "\x7fELF garbage", 0o755) + "\n",
		"an empty interpreter":   "#!" + u.file("empty", "", 0o755) + "\n",
		"interpreter of itself":  "#!" + u.file("itself", "#!"+filepath.Join(u.home, "itself")+"\n", 0o755) + "\n",
		"an interpreter in /dev": "#!/dev/null\n",
	} {
		for _, dir := range []string{u.home, "/no/such/folder"} {
			ids[u.sbatch(script, []string{"-o", "/dev/null", "-D", dir})] = what
		}
	}
	for id, what := range ids {
		if j := c.wait(id); j.State != msg.JobState_JOB_FAILED || j.Restarts != 0 || j.Reason != "NonZeroExitCode" {
			t.Errorf("%s: %v, %s (%s) after %d restarts", what, j.State, j.Reason, j.ReasonDetail, j.Restarts)
		}
	}
	c.nodesUp()
	c.settled()
}
