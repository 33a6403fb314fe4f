package stepd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// launchCrew starts the tasks of a step, one after the other. It returns no event if the step was given up meanwhile.
func (l *launcher) launchCrew(t *task) (*event, error) {
	c := t.crew
	defer func() {
		for _, m := range c.members {
			m.files.close()
			m.closePMI()
		}
	}()
	l.keyring(t.b.Uid, t.b.Gid)
	unix.Umask(int(c.work.Umask & 0o777))
	note, err := c.asUser(l)
	if err != nil {
		return failure(err), distrust(err)
	}
	if !t.state.CompareAndSwap(taskWaiting, taskForking) {
		return nil, nil
	}
	if err := l.contain(t, c.members[0].b.Env, t.tell.write); err != nil {
		return failure(err), distrust(err)
	}
	if err := l.startPMIx(t); err != nil {
		_ = t.grp.Kill()
		l.drain()
		return failure(err), distrust(err)
	}
	for _, m := range c.members {
		if note != "" {
			t.tell.say(note)
		}
		if err := l.startMember(t, m); err != nil {
			_ = t.grp.Kill()
			l.drain()
			return failure(err), distrust(err)
		}
	}
	return &event{kind: evStarted, pid: c.members[0].pid, pidfd: -1, startNS: time.Now().UnixNano(), startUp: clock.Boot(),
		floor: l.floor}, nil
}

// startMember starts one task. A failure that is the task's own fault is its end, not an error.
func (l *launcher) startMember(t *task, m *member) error {
	mt := &task{b: m.b, dir: t.dir, grp: t.grp, tell: t.tell, member: m}
	if f := m.ownStderr(); f != nil {
		mt.tell = newTeller(f)
		defer mt.tell.close()
	}
	if !m.found {
		err := refused(m.b.Argv[0], unix.ENOENT)
		mt.tell.say(err.Error())
		m.failedExec(unix.ENOENT)
		return nil
	}
	p, err := l.start(mt, &m.files)
	var xe *execError
	var de *diedError
	switch {
	case err == nil:
		m.pid, m.pidfd = p.pid, p.pidfd
		if of := t.crew.b.Step.GetSpec().GetCpuBind(); strings.HasPrefix(of, "v,") || strings.HasPrefix(of, "verbose") || of == "v" {
			t.tell.write(m.bound(t.crew))
		}
	case errors.As(err, &xe):
		kill(p)
		mt.tell.say(xe.Error())
		m.failedExec(xe.errno)
	case errors.As(err, &de):
		kill(p)
		m.status, m.ended = de.status, true
	default:
		kill(p)
		return err
	}
	return nil
}

// ownStderr returns the task's standard error, for lines that concern it alone. Slurm writes them there, so that they are
// labelled, redirected or discarded like the task's own output. nil: a write could block on the user's FIFO or device.
func (m *member) ownStderr() *os.File {
	ours := m.setctty // a terminal or pipe that nobody has written to yet
	for _, s := range m.streams {
		ours = ours || s.kind == stepwire.Err
	}
	if !ours && !regular(m.files.err) && !isNull(m.files.err) {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(m.files.err), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "standard error of a task")
}

func isNull(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// bound returns Slurm's line about the CPUs of a task (--cpu-bind=verbose).
func (m *member) bound(c *crew) string {
	var set unix.CPUSet
	if unix.SchedGetaffinity(m.pid, &set) != nil {
		return ""
	}
	mask := strings.Builder{}
	for i := 4*len(set)*16 - 4; i >= 0; i -= 4 {
		digit := 0
		for bit := range 4 {
			if set.IsSet(i + bit) {
				digit |= 1 << bit
			}
		}
		if digit != 0 || mask.Len() > 0 || i == 0 {
			mask.WriteString(strings.ToUpper(strconv.FormatInt(int64(digit), 16)))
		}
	}
	kind := "MASK"
	if m.cpus == "" {
		kind = "NULL"
	}
	return fmt.Sprintf("cpu-bind=%s - %s, task %2d %2d [%d]: mask 0x%s set", kind, nodeName(c.b.Env), m.rank, m.local, m.pid, mask.String())
}

// epilogs are the programs still to run, by the process whose end they wait for.
type epilogs map[int]epilogsOf

type epilogsOf struct {
	task int // the task's process
	left []*epilog
}

// next starts the next program after the end of the process that it waits for.
func (e epilogs) next(pid int) (stuck bool) {
	of, ok := e[pid]
	delete(e, pid)
	for ok && len(of.left) > 0 {
		first := of.left[0]
		of.left = of.left[1:]
		started, bad := first.start(of.task)
		stuck = stuck || bad
		if started != 0 {
			e[started] = of
			break
		}
	}
	return stuck
}

// reapCrew runs beside the step's loop and returns when no descendant is left. after returns the programs that follow a task.
func reapCrew(events chan<- event, c *crew, floor uint64, after func(*member) []*epilog) {
	var sum reaped
	broken := false
	tasks, last := map[int]*member{}, epilogs{}
	for _, m := range c.members {
		if m.pid > 0 {
			tasks[m.pid] = m
		}
	}
	told, flags := false, 0
	if len(tasks) == 0 {
		told, flags = true, syscall.WNOHANG
	}
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := waitNext(&sum, &ws, flags, &ru)
		switch {
		case err != nil: // ECHILD
			events <- event{kind: evGone, use: sum, broken: broken}
			return
		case pid == 0: // all tasks have ended, others run
			events <- event{kind: evFirst}
			flags = 0
			continue
		case ws.Stopped() || ws.Continued():
			continue
		}
		sum.add(&ru, floor)
		if m := tasks[pid]; m != nil {
			delete(tasks, pid)
			events <- event{kind: evTask, member: m, status: ws}
			last[pid] = epilogsOf{pid, after(m)}
		}
		broken = last.next(pid) || broken
		if len(tasks)+len(last) == 0 && !told {
			told, flags = true, syscall.WNOHANG
		}
	}
}
