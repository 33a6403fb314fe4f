package stepd

import (
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// epilogStart bounds the start of TaskEpilog: a working directory on a dead file server could block it for ever.
const epilogStart = 30 * time.Second

// epilog starts TaskEpilog (slurm.conf(5)), or another program that follows a task, when the first process has ended. It runs
// with that process's user, cgroup, limits, directory and environment, but without its files. The launcher starts it, so the
// caller must not be in wait4. An end of the step, for instance by its time limit, ends it too. start returns 0 if nothing was
// started, and stuck if the launcher does not answer.
type epilog struct {
	t       *task
	launch  chan<- *task
	argv    []string
	ofFirst bool // the pid of the ended process is its last argument
}

func (e *epilog) start(first int) (pid int, stuck bool) {
	b := outside(e.t.b)
	b.Argv, b.TaskProlog, b.TaskEpilog = slices.Clone(e.argv), nil, ""
	if e.ofFirst {
		b.Argv = append(b.Argv, strconv.Itoa(first))
	}
	b.Env = setEnv(b.Env, "SLURM_TASK_PID", strconv.Itoa(first))
	null := &pb.StdFile{Path: os.DevNull}
	b.StdIn, b.StdOut, b.StdErr = null, null, null
	t := &task{b: b, dir: e.t.dir, grp: e.t.grp, events: make(chan event, 4), done: make(chan struct{}), second: true}
	e.launch <- t
	select {
	case ev := <-t.events:
		if ev.pidfd > 0 {
			unix.Close(ev.pidfd)
		}
		return ev.pid, ev.broken
	case <-time.After(epilogStart):
		return 0, t.abort()
	}
}
