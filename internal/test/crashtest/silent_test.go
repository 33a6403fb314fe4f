package crashtest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/client/msg"
)

// touch is a place where a file system of the user's is asked something, by the shim or by the job.
type touch struct {
	name    string
	op      uint32
	exists  bool // the file is there before
	workdir bool // it is the working folder, else the output
	program bool // it is the script's interpreter
	script  string
}

// ofShim are those in which only a thread of the shim's can hang.
var ofShim = []touch{
	{name: "chdir", op: fuseLookup, workdir: true},
	{name: "find", op: fuseLookup},
	{name: "create", op: fuseCreate},
	{name: "stat", op: fuseGetattr, exists: true},
	{name: "truncate", op: fuseSetattr, exists: true},
	{name: "open", op: fuseOpen, exists: true},
	{name: "line", op: fuseWrite}, // that the job has been cancelled
}

// ofJob are those in which a process of the job's hangs, which nothing can kill.
var ofJob = []touch{
	{name: "write", op: fuseWrite, script: "echo text\n"},
	{name: "close", op: fuseFlush, script: "exit 0\n"}, // execve closes what the shim had open for it
	{name: "find", op: fuseLookup, program: true},
	{name: "open", op: fuseOpen, exists: true, program: true},
	{name: "read", op: fuseRead, exists: true, program: true},
}

// place is the script of a job that touches a file of this name there, with its output and working folder.
func (p touch) place(s *server, file string) (script, out, dir string) {
	if p.exists {
		s.file(file, "#!/bin/sh\n", 0o755)
	}
	script, out, dir = "#!/bin/sh\n", "/dev/null", "/"
	path := filepath.Join(s.dir, file)
	switch {
	case p.workdir:
		dir = path
	case p.program:
		script = "#!" + path + "\n"
	default:
		out = path
	}
	return script + cmp.Or(p.script, "sleep 600\n"), out, dir
}

// submit submits such a job of the user's.
func (p touch) submit(s *server, u *user, file string) uint32 {
	script, out, dir := p.place(s, file)
	return u.sbatch(script, []string{"-o", out, "-D", dir})
}

// limited submits one with a time limit of some seconds, which sbatch would round up to a minute.
func (p touch) limited(c *cluster, s *server, file string) uint32 {
	script, out, dir := p.place(s, file)
	return c.submit(script, func(spec *msg.JobSpec) { spec.TimeLimitS, spec.StdOut, spec.WorkDir = 3, out, dir })
}

// TestSilentServer: a server that answers nothing any more holds up neither scancel nor a time limit, wherever a shim asks it something;
// other jobs go on, the node is not drained, and nothing is left when the server has been given up.
func TestSilentServer(t *testing.T) {
	long(t)
	c := newCluster(t, 1)
	must(t, os.WriteFile(c.conf, []byte(c.text()+"UnkillableStepTimeout=600\nOverTimeLimit=0\n"), 0o644))
	c.start()
	u := newUser(c, "user")
	for _, p := range ofShim {
		t.Run(p.name, func(t *testing.T) {
			c := c.in(t)
			u := &user{c, u.uid, u.home}
			hung, limited := p.name+".hung", p.name+".limited"
			// Two, because the kernel makes one file at a time in a folder.
			s, s2 := newServer(c, hung, u), newServer(c, limited, u)
			s.rule(fuseRule{op: p.op, name: hung})
			s2.rule(fuseRule{op: p.op, name: limited})
			id := p.submit(s, u, hung)
			over := p.limited(c, s2, limited)
			c.await("the job is started", func() bool { return c.jobs(id)[id].State == msg.JobState_JOB_RUNNING })
			if p.op != fuseWrite {
				c.await("the server is asked", func() bool { return s.holds(hung) })
			}
			beside := c.witness(p.name)
			if j := c.wait(u.sbatch(plainJob, []string{"-o", "/dev/null"}, beside)); j.State != msg.JobState_JOB_COMPLETED {
				t.Errorf("a job beside it: %v, %s", j.State, j.ReasonDetail)
			}
			c.cancel(id)
			if j := c.wait(id); j.State != msg.JobState_JOB_CANCELLED || j.Restarts != 0 {
				t.Errorf("cancelled: %v, %s", j.State, j.ReasonDetail)
			}
			if j := c.wait(over); j.State != msg.JobState_JOB_TIMEOUT || j.Restarts != 0 {
				t.Errorf("over its time limit: %v, %s", j.State, j.ReasonDetail)
			}
			if !s.holds(hung) || !s2.holds(limited) {
				t.Errorf("the server has not been asked")
			}
			c.nodesUp()
		})
	}
	c.settled()
	c.nodesUp()
}

// TestUnkillable: processes that wait for a server that does not answer cannot be killed. Their node is drained with the reason, other
// jobs there go on, and they end with the server.
func TestUnkillable(t *testing.T) {
	long(t)
	c := newCluster(t, 1)
	must(t, os.WriteFile(c.conf, []byte(c.text()+"UnkillableStepTimeout=5\n"), 0o644))
	c.start()
	u := newUser(c, "user")
	for _, p := range ofJob {
		t.Run(p.name, func(t *testing.T) {
			c := c.in(t)
			u := &user{c, u.uid, u.home}
			s := newServer(c, p.name, u)
			beside := c.witness(p.name)
			other := u.sbatch(gatedJob, []string{"-o", "/dev/null"}, beside, "3")
			c.started(beside)
			s.rule(fuseRule{op: p.op, name: "hung"}, fuseRule{op: p.op, name: "limited"})
			id := p.submit(s, u, "hung")
			over := p.limited(c, s, "limited")
			c.await("the server is asked", func() bool { return s.holds("hung") && s.holds("limited") })
			c.cancel(id)
			c.await("the node is drained", func() bool { return drained(c.node("n1")) })
			if n := c.node("n1"); n.Reason != "Kill task failed" {
				t.Errorf("the node is drained: %q", n.Reason)
			}
			open(c, beside)
			if j := c.wait(other); j.ExitStatus != 3<<8 {
				t.Errorf("the job beside it: %v with status %#x, %s", j.State, j.ExitStatus, j.ReasonDetail)
			}
			for _, n := range []uint32{id, over} {
				c.await(fmt.Sprintf("job %d cannot be killed", n), func() bool {
					return c.noded["n1"].Said(fmt.Sprintf(`"a step cannot be killed" node=n1 job=%d `, n))
				})
			}
			s.kill()
			if j := c.wait(id); j.State != msg.JobState_JOB_CANCELLED || j.Restarts != 0 {
				t.Errorf("cancelled: %v, %s", j.State, j.ReasonDetail)
			}
			if j := c.wait(over); j.State != msg.JobState_JOB_TIMEOUT || j.Restarts != 0 {
				t.Errorf("over its time limit: %v, %s", j.State, j.ReasonDetail)
			}
			c.scontrol("update", "nodename=n1", "state=resume")
			j := c.wait(u.sbatch(plainJob, []string{"-o", "/dev/null"}, c.witness(p.name+".after")))
			if j.State != msg.JobState_JOB_COMPLETED {
				t.Errorf("afterwards: %v, %s", j.State, j.ReasonDetail)
			}
		})
	}
	c.settled()
	c.nodesUp()
}

// TestServerErrors: what a file system of the user's answers, his quota above all, is the job's to know, wherever it comes from: also what
// would say, from the node's own, that the node has too little of something.
func TestServerErrors(t *testing.T) {
	c := newCluster(t, 1)
	c.start()
	u := newUser(c, "user")
	s := newServer(c, "errors", u)
	const wrote = "if echo text; then exit 9; fi\nexit 4\n"
	points := []struct {
		touch
		state  msg.JobState
		status func(unix.Errno) uint32
	}{
		{touch{name: "chdir", op: fuseLookup, workdir: true, script: "exit 0\n"}, msg.JobState_JOB_COMPLETED,
			func(unix.Errno) uint32 { return 0 }},
		{touch{name: "find", op: fuseLookup}, msg.JobState_JOB_FAILED, func(unix.Errno) uint32 { return 53 }},
		{touch{name: "create", op: fuseCreate}, msg.JobState_JOB_FAILED, func(unix.Errno) uint32 { return 53 }},
		{touch{name: "open", op: fuseOpen, exists: true}, msg.JobState_JOB_FAILED, func(unix.Errno) uint32 { return 53 }},
		{touch{name: "write", op: fuseWrite, script: wrote}, msg.JobState_JOB_FAILED, func(unix.Errno) uint32 { return 4 << 8 }},
		{touch{name: "close", op: fuseFlush, script: "exit 0\n"}, msg.JobState_JOB_COMPLETED, func(unix.Errno) uint32 { return 0 }},
		{touch{name: "exec", op: fuseLookup, program: true}, msg.JobState_JOB_FAILED,
			func(e unix.Errno) uint32 { return uint32(e) << 8 }},
	}
	for _, p := range points {
		for _, errno := range []unix.Errno{unix.EDQUOT, unix.EIO, unix.ENOSPC, unix.EROFS, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
			t.Run(fmt.Sprint(p.name, " ", unix.ErrnoName(errno)), func(t *testing.T) {
				c := c.in(t)
				file := fmt.Sprint(p.name, ".", unix.ErrnoName(errno))
				s.rule(fuseRule{op: p.op, name: file, errno: errno})
				j := c.wait(p.submit(s, &user{c, u.uid, u.home}, file))
				if j.State != p.state || j.ExitStatus != p.status(errno) || j.Restarts != 0 {
					t.Errorf("%v with status %#x after %d restarts: %s, %s", j.State, j.ExitStatus, j.Restarts, j.Reason, j.ReasonDetail)
				}
				c.nodesUp()
			})
		}
	}
	s.kill()
	c.settled()
}
