package crashtest

import (
	"fmt"
	"testing"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/test/daemontest"
)

// escapes are ways in which processes try to outlive their job. Each has said "up" before the script ends.
var escapes = []struct{ name, script string }{
	{"background", `sleep 600 &`},
	{"setsid", `setsid sleep 600 & setsid -f sleep 600`},
	{"double fork", `(setsid sh -c 'sleep 600 & exit 0' &)
(sh -c '(sleep 600 &) & exit 0' &)`},
	{"nohup", `nohup sleep 600 >/dev/null 2>&1 &
nohup setsid sleep 600 >/dev/null 2>&1 </dev/null & disown 2>/dev/null`},
	{"deaf to signals", `setsid sh -c 'trap "" TERM HUP INT QUIT USR1 USR2; while :; do sleep 0.1; done' >/dev/null 2>&1 &`},
	{"without environment", `env -i setsid -f /bin/sleep 600`},
	{"always another process", `cat >h.sh <<'END'
sleep 0.01
sh h.sh & exit 0
END
for i in 1 2 3 4 5; do sh h.sh >/dev/null 2>&1 & done`},
	{"stopped", `setsid sh -c 'kill -STOP $$; sleep 600' & sleep 0.2`},
	{"daemon", `/usr/bin/python3 - <<'END'
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/"); os.umask(0); os.closerange(0, 64)
        for s in range(1, 65):
            try: signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError): pass
        os.execve("/bin/sleep", ["kworker/0:1"[:11], "600"], {})
    os._exit(0)
END`},
}

// waitAndEnd keeps the script until it has been seen that something runs beside it.
const waitAndEnd = `
say up
while [ ! -e "$w.go" ]; do sleep 0.05; done
say end
exit 3
`

// runsBeside: the user has a process that is neither his script nor its pause.
func (u *user) runsBeside(script int) bool {
	for _, pid := range daemontest.ProcessesOfUser(u.uid) {
		if pid != script && daemontest.CommandLine(pid) != "sleep 0.05" {
			return true
		}
	}
	return false
}

// TestEscapes: whatever a job leaves behind is killed at once when the script ends, and when the job has ended nothing of it runs.
func TestEscapes(t *testing.T) {
	c := newPatientCluster(t, 1)
	c.start()
	for i, e := range escapes {
		t.Run(e.name, func(t *testing.T) {
			c := c.in(t)
			u := newUser(c, fmt.Sprint("user", i))
			w := c.witness(fmt.Sprint("escape", i))
			id := u.sbatch(witnessed+e.script+waitAndEnd, []string{"-o", "/dev/null"}, w)
			script := c.line(w, 1).pid
			c.await("the escaped process", func() bool { return u.runsBeside(script) })
			open(c, w)
			j := c.wait(id)
			if left := daemontest.ProcessesOfUser(u.uid); len(left) > 0 {
				t.Errorf("the job has ended, %d processes are left: %s", len(left), daemontest.CommandLine(left[0]))
			}
			if left := c.groupsOfJob(id); len(left) > 0 {
				t.Errorf("the job has ended, its cgroups are left: %v", left)
			}
			if j.State != msg.JobState_JOB_FAILED || j.ExitStatus != 3<<8 {
				t.Errorf("the job is %v with status %#x: what it left behind does not change how it ended", j.State, j.ExitStatus)
			}
		})
	}
	c.settled()
	c.nodesUp()
}

// TestEscapesCancelled is the same when jobs are cancelled in the middle: SIGTERM, KillWait, SIGKILL.
func TestEscapesCancelled(t *testing.T) {
	c := newCluster(t, 2)
	c.start()
	var users []*user
	var ids []uint32
	for i, e := range escapes {
		u := newUser(c, fmt.Sprint("user", i))
		w := c.witness("cancel" + fmt.Sprint(i))
		users, ids = append(users, u), append(ids, u.sbatch(witnessed+e.script+"\nsay up\nsleep 600\n", []string{"-o", "/dev/null"}, w))
		c.line(w, 1)
	}
	for _, id := range ids {
		c.cancel(id)
	}
	for i, e := range escapes {
		j := c.wait(ids[i])
		if left := daemontest.ProcessesOfUser(users[i].uid); len(left) > 0 {
			t.Errorf("%s: the job has ended, %d processes are left: %s", e.name, len(left), daemontest.CommandLine(left[0]))
		}
		if j.State != msg.JobState_JOB_CANCELLED {
			t.Errorf("%s: the job is %v", e.name, j.State)
		}
	}
	c.settled()
	c.nodesUp()
}
