package stepd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/internal/clock"
	"github.com/sluice-hpc/sluice/internal/inherit"
	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// task is one launch on its way from run to the launcher or, without a bundle, the end of a step. The launcher answers with at
// most four events and never blocks on them.
type task struct {
	b      *pb.Bundle
	dir    string // the step's directory
	grp    cgroup.Group
	events chan event
	tell   *teller       // the job's stderr, as in event; owned by the launcher until it has answered
	done   chan struct{} // closed when the launcher has cleaned up: a close may hang, too
	crew   *crew         // the tasks of a step; nil: one process
	member *member       // the task among them
	second bool          // TaskEpilog: other processes of the step may run, which another goroutine reaps
	hold   bool          // no process, only namespaces
	state  atomic.Int32  // taskWaiting, then exactly one of taskForking (launcher) and taskAborted (run)
}

const (
	taskWaiting = iota
	taskForking
	taskAborted
)

// abort reports whether nothing was started and nothing will be. The launcher may be stuck and must not get another task.
func (t *task) abort() bool { return t.state.CompareAndSwap(taskWaiting, taskAborted) }

type eventKind int

const (
	evStarted eventKind = iota
	evFailed            // nothing runs: verdict, detail, status
	evFirst             // the first process has ended, others have not
	evGone              // no descendant is left (with status, unless evFirst came before)
	evTask              // one of several tasks has ended, with status
	evHeld              // an allocation without a process has its namespaces
)

type event struct {
	kind       eventKind
	pid, pidfd int
	startNS    int64
	startUp    int64 // the same by CLOCK_BOOTTIME
	status     syscall.WaitStatus
	hasStatus  bool
	verdict    string
	detail     string
	tell       *teller // on the job's stderr, if that is a regular file: for the shim's own lines
	use        reaped
	floor      uint64 // see launcher
	broken     bool   // the launcher cannot be used again
	room       int    // the thread in the step's namespaces, with evStarted and evHeld; 0 = none
	member     *member
}

// reaped sums the results of wait4.
type reaped struct {
	maxRSSKiB            uint64
	userUsec, systemUsec uint64
	// faults are major page faults. Bytes read and written by children are counted when they are reaped (used.go).
	faults, readBytes, writeBytes uint64
}

type launcher struct {
	log     *slog.Logger
	tasks   chan *task
	self    creds
	noTrace bool   // PTRACE_TRACEME is refused here: use the trampoline
	noClone bool   // clone3 is refused here
	exe     string // the shim's binary
	noKeys  bool   // a session keyring was refused, and the log says so
	own     ownMemory
	floor   uint64 // the shim's own memory: a child that has not grown beyond it reports it as its own maximum
}

func newLauncher(log *slog.Logger) *launcher {
	exe, _ := os.Executable()
	return &launcher{log: log, tasks: make(chan *task, 1), self: ownCreds(), exe: exe, own: newOwnMemory()}
}

// serve runs one task. It returns an error when the thread cannot be trusted any more.
func (l *launcher) serve(th *thread, t *task) error {
	files := stdio{-1, -1, -1}
	var ev *event
	var err error
	switch {
	case t.hold:
		if t.state.CompareAndSwap(taskWaiting, taskForking) {
			ev = &event{kind: evHeld}
		}
	case t.crew != nil:
		ev, err = l.launchCrew(t)
	default:
		ev, err = l.launch(t, &files)
	}
	l.home() // before anybody learns that the step has ended
	if ev != nil {
		ev.room = th.thread()
		t.events <- *ev
	}
	files.close() // may hang; the end of the step waits a moment for it
	return err
}

// launch starts the first process. It returns no event if the task was given up meanwhile.
func (l *launcher) launch(t *task, files *stdio) (*event, error) {
	l.keyring(t.b.Uid, t.b.Gid)
	unix.Umask(int(t.b.Umask))
	var note string
	var err error
	*files, note, err = l.asUser(t.b)
	if err != nil {
		return failure(err), distrust(err)
	}
	t.tell = newTeller(dupRegular(files.err)) // the last call that may hang and be given up
	if !t.state.CompareAndSwap(taskWaiting, taskForking) {
		t.tell.close()
		return nil, nil
	}
	if note != "" {
		t.tell.say(note)
	}
	if err := l.contain(t, t.b.Env, t.intoStderr(files.err)); err != nil {
		ev := failure(err)
		ev.tell = t.tell
		return ev, distrust(err)
	}
	p, err := l.start(t, files)
	if err != nil {
		kill(p)
		if !t.second {
			l.drain()
		}
		ev := failure(err)
		ev.tell = t.tell
		return ev, distrust(err)
	}
	return &event{kind: evStarted, pid: p.pid, pidfd: p.pidfd, startNS: time.Now().UnixNano(), startUp: clock.Boot(), tell: t.tell,
		floor: l.floor}, nil
}

// home leaves the job's directory and keyring: an idle shim must not keep its file system busy, nor its keys alive.
func (l *launcher) home() {
	_ = unix.Chdir("/")
	l.keyring(uint32(os.Getuid()), uint32(os.Getgid()))
}

// keyring gives this thread, and so its next child, an empty session keyring. In Slurm jobs have the daemon's.
func (l *launcher) keyring(uid, gid uint32) {
	if err := inherit.NewKeyring(uid, gid); err != nil && !l.noKeys {
		l.noKeys = true
		l.log.Warn("cannot give jobs a session keyring", "err", err)
	}
}

// identityError means that the thread may be left with part of a user's identity, or in the step's cgroups.
type identityError struct{ error }

func distrust(err error) error {
	var broken *identityError
	if errors.As(err, &broken) {
		return err
	}
	return nil
}

// asUser does everything that involves the user's paths.
func (l *launcher) asUser(b *pb.Bundle) (files stdio, note string, err error) {
	files = stdio{-1, -1, -1}
	if err := l.self.become(b.Uid, b.Gid, b.Groups); err != nil {
		if l.self.root {
			err = &identityError{err}
		}
		return files, "", err
	}
	note, err = chdirOrTmp(b.Dir)
	if err == nil {
		missing := ""
		if note != "" {
			missing = b.Dir
		}
		files, err = openStdio(b, missing)
	}
	if lerr := l.self.leave(); lerr != nil {
		return files, note, &identityError{lerr}
	}
	return files, note, err
}

func failure(err error) *event {
	ev := &event{kind: evFailed, verdict: pb.VerdictNodeFailed, detail: err.Error()}
	var fe *fileError
	var xe *execError
	var ce *containerError
	var pe *pmixError
	var de *diedError
	switch {
	case errors.As(err, &fe):
		ev.verdict = pb.VerdictOutputFailed
		ev.status = slurmIOFailed
	case errors.As(err, &pe):
		ev.verdict, ev.status = pb.VerdictLaunchFailed, syscall.WaitStatus(1<<8)
	case errors.As(err, &xe):
		// As with Slurm's slurmstepd, the exit code is the errno of execve.
		ev.verdict, ev.status = pb.VerdictExited, syscall.WaitStatus(uint32(xe.errno)<<8)
	case errors.As(err, &ce):
		ev.verdict, ev.status = pb.VerdictLaunchFailed, syscall.WaitStatus(1<<8)
	case errors.As(err, &de):
		ev.verdict, ev.status = pb.VerdictSignaled, de.status
	}
	ev.hasStatus = true
	ev.broken = distrust(err) != nil
	return ev
}

// slurmIOFailed is Slurm's status of a job whose output cannot be opened: ExitCode 0:53.
const slurmIOFailed = syscall.WaitStatus(53)

// child is the first process, running.
type child struct{ pid, pidfd int }

// start forks the first process and lets it run in its cgroup, under its limits.
func (l *launcher) start(t *task, files *stdio) (child, error) {
	argv := t.b.Argv
	if len(argv) == 0 {
		argv = []string{folder.Script}
	}
	path := argv[0]
	if !filepath.IsAbs(path) && t.member == nil { // a task's path is relative to its working directory
		path = filepath.Join(t.dir, path)
	}
	argv = append([]string{path}, argv[1:]...)
	if t.member != nil && t.member.receives {
		return l.viaTrampoline(t, files, argv)
	}
	if t.b.Container != nil {
		argv, err := inContainer(t, argv)
		if err != nil {
			return child{pidfd: -1}, err
		}
		return l.viaTrampoline(t, files, argv)
	}
	own := filepath.Dir(path) == t.dir
	if l.noTrace || len(t.b.TaskProlog) > 0 || !near(path, own) {
		if own {
			if err := l.reachable(t, path); err != nil {
				return child{pidfd: -1}, fmt.Errorf("cannot start %s: %w", path, err)
			}
		}
		return l.viaTrampoline(t, files, argv)
	}
	p, err := l.fork(t, files, path, argv)
	switch {
	case err == unix.ENOSYS && l.cgroupFD(t) >= 0:
		l.noClone = true
		l.log.Warn("clone3 is refused on this machine (a seccomp filter?): moving processes into their cgroup after the clone")
		return l.start(t, files)
	case err == unix.EPERM && l.traceRefused():
		l.noTrace = true
		l.log.Warn(
			"ptrace is refused on this machine (kernel.yama.ptrace_scope=3?): each job starts through one more exec, which costs " +
				"about 2 ms")
		return l.viaTrampoline(t, files, argv)
	case err != nil:
		return p, l.startError(t, path, err)
	}
	return p, l.release(t, p)
}

func (l *launcher) cgroupFD(t *task) int {
	if l.noClone {
		return -1
	}
	return t.grp.FD()
}

// attr returns the attributes of the first process; pidfd receives its descriptor.
func (l *launcher) attr(t *task, files *stdio, pidfd *int) *syscall.ProcAttr {
	attr := &syscall.ProcAttr{
		Env:   t.b.Env,
		Files: []uintptr{uintptr(files.in), uintptr(files.out), uintptr(files.err)},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: pidfd, Setctty: t.member != nil && t.member.setctty},
	}
	if l.self.root {
		attr.Sys.Credential = &syscall.Credential{Uid: t.b.Uid, Gid: t.b.Gid, Groups: t.b.Groups}
	}
	if fd := l.cgroupFD(t); fd >= 0 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
	}
	return attr
}

// withPMI adds the PMI socket of a task to its files, at its number.
func (t *task) withPMI(files []uintptr) []uintptr {
	if t.member == nil || t.member.pmi < 0 {
		return files
	}
	for len(files) < pmiFD {
		files = append(files, ^uintptr(0)) // none
	}
	return append(files, uintptr(t.member.pmi))
}

// fork clones into the cgroup where the kernel supports it, and retries on ETXTBSY: another thread's fork may hold the script's
// writable descriptor between its clone and its exec.
func (l *launcher) fork(t *task, files *stdio, path string, argv []string) (child, error) {
	p := child{pidfd: -1}
	attr := l.attr(t, files, &p.pidfd)
	attr.Sys.Ptrace = true
	attr.Env, attr.Files = withTaskPID(attr.Env), t.withPMI(attr.Files)
	for try := 0; ; try++ {
		pid, err := l.forkExec(t, path, argv, attr)
		if err == syscall.ETXTBSY && try < 100 || scarce(err) && try < scarceTries {
			time.Sleep(time.Millisecond)
			continue
		}
		p.pid = pid
		return p, err
	}
}

// forkExec creates a process in the step's cgroup, except where place must move it there.
func (l *launcher) forkExec(t *task, path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	if attr.Sys.UseCgroupFD {
		err = t.grp.Enter()
	}
	if err == nil {
		pid, err = syscall.ForkExec(path, argv, attr)
		l.floor = l.own.peak() // after the exec: until then the child shares this memory, which may grow
	}
	if attr.Sys.UseCgroupFD {
		if lerr := t.grp.Leave(); lerr != nil {
			return pid, &identityError{lerr}
		}
	}
	return pid, err
}

// place moves a held child into the step's cgroup, unless it was created there.
func (l *launcher) place(t *task, pid int) error {
	if l.cgroupFD(t) >= 0 {
		return nil
	}
	return died(t.grp.Add(pid))
}

// release places a held child and lets it run. Until then it dies with the shim, since it would run outside its limits.
func (l *launcher) release(t *task, p child) error {
	if err := awaitHeld(p.pid); err != nil {
		return err
	}
	if err := l.place(t, p.pid); err != nil {
		return err
	}
	if err := l.limit(t, p.pid); err != nil {
		return err
	}
	fillTaskPID(p.pid)
	return letGo(p.pid)
}

// awaitHeld waits until a traced child has stopped in execve. From then on it dies with this process.
func awaitHeld(pid int) error {
	var ws syscall.WaitStatus
	if _, err := wait4(pid, &ws, 0, nil); err != nil {
		return fmt.Errorf("cannot wait for process %d to stop in execve: %w", pid, err)
	}
	if !ws.Stopped() {
		return &diedError{pid, ws}
	}
	_ = syscall.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL)
	return nil
}

func letGo(pid int) error {
	if err := syscall.PtraceDetach(pid); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("cannot detach from process %d: %w", pid, err)
	}
	return nil
}

// limit sets the limits of a held process.
func (l *launcher) limit(t *task, pid int) error {
	limits := t.b.Rlimits
	if l.self.root {
		limits = append(limits[:len(limits):len(limits)], processShare(pid, limits))
		resetOOM(pid)
	}
	for _, r := range limits {
		err := setRlimit(pid, r)
		if err == unix.EPERM && l.self.root {
			// Root without CAP_SYS_RESOURCE, in a container: the process's own user may lower limits.
			err = l.self.really(t.b.Uid, t.b.Gid, func() error { return setRlimit(pid, r) })
		}
		if err != nil {
			return fmt.Errorf("cannot set resource limit %d to %d:%d: %w", r.Resource, r.Soft, r.Hard, err)
		}
	}
	if t.member != nil && t.member.cpus != "" {
		bind(pid, t.member.cpus)
	}
	return nil
}

// processShare caps the limit of processes, which counts all of the user's processes on this machine. The kernel exempts root's.
func processShare(pid int, asked []*pb.Rlimit) *pb.Rlimit {
	share := &pb.Rlimit{Resource: unix.RLIMIT_NPROC, Soft: unix.RLIM_INFINITY, Hard: cgroup.PidsShare()}
	var own unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &own) == nil {
		share.Soft, share.Hard = own.Cur, min(own.Max, share.Hard)
	}
	for _, r := range asked {
		if r.Resource == unix.RLIMIT_NPROC {
			share.Soft, share.Hard = r.Soft, min(r.Hard, share.Hard)
		}
	}
	share.Soft = min(share.Soft, share.Hard)
	return share
}

// setRlimit sets a limit. An ordinary user can only lower hard limits: a higher value is cut to the current limit, as in Slurm's
// propagation.
func setRlimit(pid int, r *pb.Rlimit) error {
	lim := unix.Rlimit{Cur: r.Soft, Max: r.Hard}
	err := unix.Prlimit(pid, int(r.Resource), &lim, nil)
	if err == unix.EPERM {
		var old unix.Rlimit
		if err = unix.Prlimit(pid, int(r.Resource), nil, &old); err == nil {
			lim.Max = min(lim.Max, old.Max)
			lim.Cur = min(lim.Cur, lim.Max)
			err = unix.Prlimit(pid, int(r.Resource), &lim, nil)
		}
	}
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// drain reaps the children of a failed start.
func (l *launcher) drain() {
	for {
		if _, err := wait4(-1, nil, 0, nil); err != nil {
			return
		}
	}
}

func (r *reaped) add(ru *syscall.Rusage, floor uint64) {
	if m := uint64(ru.Maxrss); m > floor {
		r.maxRSSKiB = max(r.maxRSSKiB, m)
	}
	r.userUsec += uint64(ru.Utime.Sec)*1e6 + uint64(ru.Utime.Usec)
	r.systemUsec += uint64(ru.Stime.Sec)*1e6 + uint64(ru.Stime.Usec)
	r.faults += uint64(ru.Majflt)
}

func wait4(pid int, ws *syscall.WaitStatus, flags int, ru *syscall.Rusage) (int, error) {
	for {
		got, err := syscall.Wait4(pid, ws, flags, ru)
		if err != syscall.EINTR {
			return got, err
		}
	}
}

func kill(p child) {
	if p.pid > 0 {
		// Not reaped yet, so the pid is still ours.
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
}

func dupRegular(fd int) *os.File {
	if !regular(fd) {
		return nil
	}
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(d), "job stderr")
}
