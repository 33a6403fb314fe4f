package stepd

import (
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// epilogStart bounds how long TaskEpilog may take to start: a working folder on a dead file server could hold it up for ever.
const epilogStart = 30 * time.Second

// epilog starts the program of TaskEpilog (slurm.conf(5)), or another that follows a task, when the first process has ended: as that
// process was, with its user, cgroup, limits, folder and environment, and without its files. The launcher does it, so the caller must not
// be in wait4. What ends the step, its time limit for instance, ends it too. It returns 0 when nothing was started, and stuck when the
// launcher does not answer.
type epilog struct {
	t       *task
	launch  chan<- *task
	argv    []string
	ofFirst bool // the number of the process that has ended is its last argument
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
