package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client/msg"
)

// outputs are places where a user may point --output, that are not his to write to.
var outputs = []struct {
	name string
	path func(u, other *user) string
}{
	{"a symbolic link to another user's file", func(u, other *user) string { return link(u, "link", filepath.Join(other.home, "diary")) }},
	{"a symbolic link to root's file", func(u, other *user) string { return link(u, "rootlink", filepath.Join(u.c.dir, "roots")) }},
	{"a symbolic link to a link", func(u, other *user) string {
		return link(u, "twice", link(u, "once", filepath.Join(other.home, "diary")))
	}},
	{"a link to itself", func(u, other *user) string { return link(u, "loop", filepath.Join(u.home, "loop")) }},
	{"a hard link to another user's file", func(u, other *user) string {
		path := filepath.Join(u.home, "hardlink")
		must(u.c.t, os.Link(filepath.Join(other.home, "diary"), path))
		return path
	}},
	{"another user's file", func(u, other *user) string { return filepath.Join(other.home, "diary") }},
	{"a new file in another user's folder", func(u, other *user) string { return filepath.Join(other.home, "new") }},
	{"a link to a new file in another user's folder",
		func(u, other *user) string { return link(u, "newlink", filepath.Join(other.home, "new")) }},
	{"root's file", func(u, other *user) string { return filepath.Join(u.c.dir, "roots") }},
	{"a file of the node daemon", func(u, other *user) string { return filepath.Join(u.c.spool("n1"), "settings.pb") }},
	{"a new file in the spool", func(u, other *user) string { return filepath.Join(u.c.spool("n1"), "steps", "9999.1.4294967291") }},
	{"a folder", func(u, other *user) string { return u.home }},
	{"below a file", func(u, other *user) string { return filepath.Join(u.file("plain", "", 0o644), "out") }},
	{"a device", func(u, other *user) string { return "/dev/mem" }},
	{"the password file", func(u, other *user) string { return "/etc/passwd" }},
	{"a link to the password file", func(u, other *user) string { return link(u, "passwd", "/etc/passwd") }},
}

// link makes a symbolic link of the user's.
func link(u *user, name, to string) string {
	path := filepath.Join(u.home, name)
	must(u.c.t, os.Symlink(to, path))
	must(u.c.t, os.Lchown(path, u.uid, u.uid))
	return path
}

// TestOutputElsewhere: a job whose output may not be written to fails and says which file and why; the file is not touched, and the
// node goes on.
func TestOutputElsewhere(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	u, other := newUser(c, "mallory"), newUser(c, "alice")
	precious := map[string]string{
		other.file("diary", "dear diary\n", 0o644):  "",
		filepath.Join(c.dir, "roots"):               "",
		filepath.Join(c.spool("n1"), "settings.pb"): "",
		"/etc/passwd": "",
	}
	must(t, os.WriteFile(filepath.Join(c.dir, "roots"), []byte("root's own\n"), 0o644))
	c.await("n1 keeps its settings", func() bool { _, err := os.Stat(filepath.Join(c.spool("n1"), "settings.pb")); return err == nil })
	for path := range precious {
		precious[path] = readFile(t, path)
	}
	defer func() { // should it come to that: the password file is not this test's to lose
		if readFile(t, "/etc/passwd") != precious["/etc/passwd"] {
			must(t, os.WriteFile("/etc/passwd", []byte(precious["/etc/passwd"]), 0o644))
		}
	}()
	for i, o := range outputs {
		path := o.path(u, other)
		for _, options := range [][]string{{"-o", path, "--open-mode=append"}, {"-o", "/dev/null", "-e", path, "--open-mode=append"},
			{"-o", path}} {
			w := c.witness(fmt.Sprintf("out%d.%d", i, len(options)))
			j := c.wait(u.sbatch(witnessed+"echo harm; echo harm >&2; say end\n", options, w))
			if j.State != msg.JobState_JOB_FAILED || j.Reason != "JobLaunchFailure" || !strings.Contains(j.ReasonDetail, path) ||
				!strings.Contains(j.ReasonDetail, "cannot open") {
				t.Errorf("%s, %v: the job is %v, reason %s: %q", o.name, options, j.State, j.Reason, j.ReasonDetail)
			}
			if seen, err := readWitness(w); len(seen) > 0 || err != nil {
				t.Errorf("%s, %v: the script ran: %v, %v", o.name, options, seen, err)
			}
			for path, text := range precious {
				if readFile(t, path) != text {
					t.Fatalf("%s, %v: %s has been changed", o.name, options, path)
				}
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(other.home, "new")); err == nil {
		t.Error("a file was made in another user's folder")
	}
	c.nodesUp()
	own := filepath.Join(u.home, "deep", "er", "%j.out")
	id := u.sbatch("#!/bin/sh\necho fine\n", []string{"-o", own})
	if j := c.wait(id); j.State != msg.JobState_JOB_COMPLETED || readFile(t, strings.ReplaceAll(own, "%j", fmt.Sprint(id))) != "fine\n" {
		t.Errorf("a job with a file of its own is %v", j)
	}
	c.settled()
}

// TestOutputBlocks: a FIFO that nobody reads holds up its job and nothing else; the job can be cancelled, has its time limit, and
// goes on when a reader comes. The node daemon may be killed meanwhile.
func TestOutputBlocks(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	u := newUser(c, "user")
	fifo := func(name string) string {
		path := filepath.Join(u.home, name)
		must(t, unix.Mkfifo(path, 0o600))
		must(t, os.Chown(path, u.uid, u.uid))
		return path
	}
	submit := func(name string) (uint32, string, string) {
		pipe, w := fifo(name), c.witness(name)
		return u.sbatch(plainJob+"echo never read\n", []string{"-o", pipe}, w), pipe, w
	}
	cancelled, _, w1 := submit("cancelled")
	inTime, readPipe, w2 := submit("intime")
	nodeKilled, _, w3 := submit("nodekilled")
	limited := c.submit(plainJob, func(s *msg.JobSpec) { s.TimeLimitS, s.StdOut = 1, fifo("limited") }, c.witness("limited"))
	c.await("the jobs are started", func() bool {
		for _, j := range c.jobs(cancelled, inTime, nodeKilled) {
			if j.State != msg.JobState_JOB_RUNNING {
				return false
			}
		}
		return true
	})
	free := c.witness("free")
	if j := c.wait(u.sbatch(plainJob, []string{"-o", "/dev/null"}, free)); j.State != msg.JobState_JOB_COMPLETED {
		t.Errorf("a job beside them is %v", j.State)
	}
	c.cancel(cancelled)
	if j := c.wait(cancelled); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("cancelled: %v", j.State)
	}
	if j := c.wait(limited); j.State != msg.JobState_JOB_TIMEOUT {
		t.Errorf("over its time limit: %v, %s", j.State, j.ReasonDetail)
	}
	c.noded["n1"].kill()
	c.startNoded("n1")
	c.awaitNodes()
	r, err := os.OpenFile(readPipe, os.O_RDONLY, 0) // blocks until the other side has opened too
	must(t, err)
	must(t, r.SetReadDeadline(time.Now().Add(patience)))
	if j := c.wait(inTime); j.State != msg.JobState_JOB_COMPLETED {
		t.Errorf("the job that found its reader is %v, %s", j.State, j.ReasonDetail)
	}
	r.Close()
	c.cancel(nodeKilled)
	if j := c.wait(nodeKilled); j.State != msg.JobState_JOB_CANCELLED {
		t.Errorf("cancelled after the node daemon was killed: %v", j.State)
	}
	for w, want := range map[string]int{w1: 0, w2: 2, w3: 0, free: 2} {
		if seen, err := readWitness(w); len(seen) != want || err != nil {
			t.Errorf("%s: %v, %v", w, seen, err)
		}
	}
	c.settled()
	c.nodesUp()
}
