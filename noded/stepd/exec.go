package stepd

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// execError is an execve that the kernel refused: the job's fault, shown in its stderr and exit code.
type execError struct {
	errno syscall.Errno
	line  string
}

func (e *execError) Error() string { return e.line }

// diedError is a first process that died before its first instruction. Somebody killed it, or the kernel did because the program
// is damaged: the job's fault.
type diedError struct {
	pid    int
	status syscall.WaitStatus
}

func (e *diedError) Error() string {
	return fmt.Sprintf("process %d ended before its first instruction (wait status %#x)", e.pid, uint32(e.status))
}

// died converts "no such process" to a diedError: the first process was killed.
func died(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return &diedError{status: syscall.WaitStatus(unix.SIGKILL)}
	}
	return err
}

// scarceTries is how often to retry a start for lack of a resource.
const scarceTries = 20

// scarce reports whether an error of clone or execve may be the node's: out of processes, memory or descriptors. It may also be
// the job's: its user has too many processes, or its interpreter needs more memory than the address space has.
func scarce(err error) bool {
	switch err {
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EBUSY, unix.ENODEV:
		return true
	}
	return false
}

// startError decides whether the job or the node is at fault. An error that the user could cause counts as the job's, so that bad
// scripts cannot drain a node.
func (l *launcher) startError(t *task, path string, err error) error {
	errno, ok := err.(syscall.Errno)
	switch {
	case !ok, scarce(err) && !l.forks(t):
		return fmt.Errorf("cannot start %s: %w", path, err)
	case filepath.Dir(path) == t.dir:
		if rerr := l.reachable(t, path); rerr != nil {
			return fmt.Errorf("cannot start %s: %w (%v)", path, err, rerr)
		}
	}
	return refused(path, errno)
}

// refused returns the error of an execve that failed because of the job.
func refused(path string, errno syscall.Errno) error {
	what := path
	if i := interpreter(path); filepath.IsAbs(path) && i != "" && errno != unix.E2BIG {
		what = "bad interpreter(" + i + ")"
	}
	// The first line may hold any bytes, and a job's stderr is shown on terminals.
	return &execError{errno, strings.ToValidUTF8(fmt.Sprintf("execve(): %s: %s", what, sentence(errno)), "?")}
}

// forks checks whether a process can be created at all, by root and with a sound program. A job that has used up its processes or
// memory is its own fault, hence the second try outside its cgroup.
func (l *launcher) forks(t *task) bool {
	sys := &syscall.SysProcAttr{}
	if fd := l.cgroupFD(t); fd >= 0 {
		sys.UseCgroupFD, sys.CgroupFD = true, fd
	}
	nothing := []string{l.exe, "stepd", "nothing"}
	pid, err := l.forkExec(t, l.exe, nothing, &syscall.ProcAttr{Sys: sys})
	if err == unix.EAGAIN || err == unix.ENOMEM {
		pid, err = syscall.ForkExec(l.exe, nothing, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{}})
	}
	if err != nil {
		return false
	}
	_, _ = wait4(pid, nil, 0, nil)
	return true
}

// reachable returns why the job's user cannot read or execute the script in the spool: it has gone, its disk is broken, or
// somebody has closed a directory above it.
func (l *launcher) reachable(t *task, path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return err
	}
	if fs.Flags&unix.ST_NOEXEC != 0 {
		return errors.New("SlurmdSpoolDir is mounted noexec")
	}
	if err := l.self.become(t.b.Uid, t.b.Gid, t.b.Groups); err != nil {
		return &identityError{err}
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == nil {
		_, err = unix.Read(fd, make([]byte, 256))
		unix.Close(fd)
	}
	if lerr := l.self.leave(); lerr != nil {
		return &identityError{lerr}
	}
	return err
}

// near reports whether the kernel starts a program without access to a file system of the user's, which may hang. Until the first
// instruction the whole shim is blocked (vfork: the child shares its memory and holds the runtime's only processor), and nobody
// could end the step. With own, the program is the script in the spool and its interpreter counts. Names decide: resolving a path
// may hang, too, and a user's path may lead elsewhere when it is executed.
func near(path string, own bool) bool {
	if own {
		path = interpreter(path)
	}
	switch dir, name := filepath.Split(path); dir {
	case "/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/":
		return name != "" && name != "." && name != ".."
	}
	return false
}

// interpreter returns the program on the #! line of a script, by the kernel's rules.
func interpreter(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var buf [256]byte // as much as the kernel reads
	n, err := unix.Read(fd, buf[:])
	for err == unix.EINTR {
		n, err = unix.Read(fd, buf[:])
	}
	line, ok := bytes.CutPrefix(buf[:max(n, 0)], []byte("#!"))
	if !ok {
		return ""
	}
	if end := bytes.IndexAny(line, "\n\x00"); end >= 0 {
		line = line[:end]
	}
	line = bytes.TrimLeft(line, " \t")
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		line = line[:end]
	}
	return string(line)
}

// resetOOM resets the OOM score adjustment: a job inherits the shim's protection.
func resetOOM(pid int) { writeOOM(strconv.Itoa(pid), "0") }

func writeOOM(pid, adj string) {
	fd, err := unix.Open("/proc/"+pid+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(adj))
	unix.Close(fd)
}

// ownMemory reads the peak resident memory of this address space. A child between vfork and exec shares it, and wait4 counts it
// as the child's. (getrusage does not help: its maximum includes what ran in this process before its own exec.) It is read for
// each job, and the file stays open because opening it costs more than reading it.
type ownMemory struct{ status int }

func newOwnMemory() ownMemory {
	fd, err := unix.Open("/proc/self/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	return ownMemory{fd}
}

func (m ownMemory) close() { unix.Close(m.status) }

// peak returns KiB, 0 if /proc does not tell.
func (m ownMemory) peak() uint64 {
	var buf [4096]byte
	n, err := unix.Pread(m.status, buf[:], 0)
	for err == unix.EINTR {
		n, err = unix.Pread(m.status, buf[:], 0)
	}
	if err != nil {
		return 0
	}
	_, peak, _ := bytes.Cut(buf[:n], []byte("\nVmHWM:"))
	peak, _, _ = bytes.Cut(peak, []byte(" kB"))
	kib, _ := strconv.ParseUint(string(bytes.TrimSpace(peak)), 10, 64)
	return kib
}

// traceRefused tries tracing with a process that does nothing.
func (l *launcher) traceRefused() bool {
	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{l.exe, "stepd", "nothing"}, attr)
	if err != nil {
		return true
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	_, _ = wait4(pid, nil, 0, nil)
	return false
}
