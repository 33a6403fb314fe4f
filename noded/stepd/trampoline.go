package stepd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// viaTrampoline starts the shim's own binary as the user. It waits on descriptor 3 until the launcher has placed it, then
// executes the script. It serves machines that forbid ptrace, TaskProlog, which runs as the task before the task becomes the
// script, and programs that are not near: then this process, and not the shim, may hang in execve.
//
// Until it is in all its cgroups, none of the user's code may run in it: a process that it forks would be outside them. So it has
// no environment, from which the dynamic loader would take the user's libraries, but reads the job's from descriptor 6. Where
// possible ptrace holds it as well, so that no other process of the user's can attach to it.
func (l *launcher) viaTrampoline(t *task, files *stdio, argv []string) (child, error) {
	p := child{pidfd: -1}
	env, err := environment(t.b.Env)
	if err != nil {
		return p, err
	}
	defer unix.Close(env)
	exe, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0) // its path may lead elsewhere in the step's namespace
	if err != nil {
		return p, fmt.Errorf("cannot open %s: %w", l.exe, err)
	}
	defer unix.Close(exe)
	var pipes [4]int // to the child: [0] its end, [1] ours; from the child: [2] ours, [3] its end
	if err := errors.Join(unix.Pipe2(pipes[0:2], unix.O_CLOEXEC), unix.Pipe2(pipes[2:4], unix.O_CLOEXEC)); err != nil {
		return p, fmt.Errorf("cannot make a pipe: %w", err) // out of descriptors: this shim is unusable
	}
	defer unix.Close(pipes[1])
	defer unix.Close(pipes[2])
	attr := l.attr(t, files, &p.pidfd)
	attr.Files = t.withPMI(append(attr.Files, uintptr(pipes[0]), uintptr(pipes[3]), uintptr(exe), uintptr(env)))
	attr.Env, attr.Sys.Ptrace = []string{}, !l.noTrace
	args := append([]string{l.exe, "stepd", trampolineArg, strconv.Itoa(len(t.b.TaskProlog))}, t.b.TaskProlog...)
	p.pid, err = l.forkExec(t, "/proc/self/fd/5", append(args, argv...), attr) // by descriptor: the user may lack access to its directory
	unix.Close(pipes[0])
	unix.Close(pipes[3])
	switch {
	case err == unix.EPERM && !l.noTrace && l.traceRefused():
		l.noTrace = true
		return l.viaTrampoline(t, files, argv)
	case err == unix.ENOSYS && l.cgroupFD(t) >= 0:
		l.noClone = true
		return l.viaTrampoline(t, files, argv)
	}
	if scarce(err) && l.forks(t) {
		return p, refused(argv[0], err.(syscall.Errno))
	}
	if err != nil {
		return p, fmt.Errorf("cannot start %s as uid %d (it must be executable for everybody): %w", l.exe, t.b.Uid, err)
	}
	if !l.noTrace {
		if err := l.held(t, p.pid); err != nil {
			return p, err
		}
	}
	return p, l.releaseTrampoline(t, p.pid, pipes[1], pipes[2])
}

// environment returns a descriptor from which a trampoline reads the job's environment.
func environment(env []string) (int, error) {
	fd, err := unix.MemfdCreate("environment", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("cannot make a file of the job's environment: %w", err)
	}
	for data := []byte(strings.Join(env, "\x00")); len(data) > 0; {
		n, err := unix.Write(fd, data)
		if err != nil && err != unix.EINTR {
			unix.Close(fd)
			return -1, fmt.Errorf("cannot write a file of the job's environment: %w", err)
		}
		data = data[max(n, 0):]
	}
	return fd, nil
}

// readEnvironment is the trampoline's side of environment.
func readEnvironment(fd int) ([]string, error) {
	data, err := io.ReadAll(io.NewSectionReader(os.NewFile(uintptr(fd), "environment"), 0, 1<<30))
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return strings.Split(string(data), "\x00"), nil
}

// held moves a process stopped in execve into its cgroups, and lets it run.
func (l *launcher) held(t *task, pid int) error {
	if err := awaitHeld(pid); err != nil {
		return err
	}
	if err := l.place(t, pid); err != nil {
		return err
	}
	return letGo(pid)
}

// releaseTrampoline is release for a trampoline.
func (l *launcher) releaseTrampoline(t *task, pid, to, from int) error {
	var answer [1]byte
	if n, _ := unix.Read(from, answer[:]); n != 1 { // its runtime leaves RLIMIT_NOFILE alone from here on
		return &diedError{pid, syscall.WaitStatus(unix.SIGKILL)}
	}
	if l.noTrace {
		if err := l.place(t, pid); err != nil {
			return err
		}
	}
	if err := l.limit(t, pid); err != nil {
		return err
	}
	say := byte(trampolineGo)
	if slices.ContainsFunc(t.b.Rlimits, func(r *pb.Rlimit) bool { return r.Resource == unix.RLIMIT_NOFILE }) {
		say |= trampolineKeepFiles
	}
	if t.second {
		say |= trampolineEpilog
	}
	if t.member != nil && t.member.receives {
		say |= trampolineReceive
	}
	if t.member != nil && t.member.pmi >= 0 {
		say |= trampolinePMI
	}
	if _, err := unix.Write(to, []byte{say}); err != nil {
		return fmt.Errorf("cannot release process %d: %w", pid, err)
	}
	return nil
}

const (
	trampolineArg       = "trampoline"
	trampolineGo        = 1
	trampolineKeepFiles = 2  // RLIMIT_NOFILE was set: keep it
	trampolineEpilog    = 4  // this is TaskEpilog: SLURM_TASK_PID is the ended first process
	trampolineReceive   = 8  // execute nothing: receive a file (receive)
	trampolinePMI       = 16 // the program has a descriptor beyond the first three
)

// trampoline runs in the user's process; args are the number of TaskProlog programs, these programs, the script and its
// arguments.
func trampoline(args []string) int {
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	unix.CloseOnExec(5)
	unix.CloseOnExec(6)
	unix.CloseOnExec(pmiFD)
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 0 || len(args) < n+2 {
		return 1
	}
	_, _ = unix.Write(4, []byte{0})
	var b [1]byte
	if n, _ := unix.Read(3, b[:]); n != 1 {
		return 1 // the shim is gone
	}
	if b[0]&trampolineKeepFiles != 0 {
		// Go's runtime raised the soft limit at startup and restores it on exec, unless the process sets one itself.
		var lim syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) == nil {
			_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
		}
	}
	prologs, argv := args[1:1+n], args[1+n:]
	if b[0]&trampolineReceive != 0 {
		return receive(argv, os.Stdin)
	}
	env, err := readEnvironment(6)
	if err != nil {
		complain(os.Stderr, "cannot read the job's environment: "+err.Error())
		return 1
	}
	if b[0]&trampolineEpilog == 0 {
		env = setEnv(env, "SLURM_TASK_PID", strconv.Itoa(os.Getpid()))
	}
	for _, p := range prologs {
		if env, err = taskProlog(p, env); err != nil {
			complain(os.Stderr, err.Error())
			return exitCode(err)
		}
	}
	if b[0]&trampolinePMI != 0 {
		_, _ = unix.FcntlInt(pmiFD, unix.F_SETFD, 0)
	}
	err = syscall.Exec(argv[0], argv, env)
	for try := 0; err == syscall.ETXTBSY && try < 100 || scarce(err) && try < scarceTries; try++ { // as in launcher.fork
		time.Sleep(time.Millisecond)
		err = syscall.Exec(argv[0], argv, env)
	}
	errno, _ := err.(syscall.Errno)
	complain(os.Stderr, refused(argv[0], errno).Error())
	return int(errno)
}
