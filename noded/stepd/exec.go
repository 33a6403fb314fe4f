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

// diedError is a first process that did not live to see its first instruction: somebody killed it, or the kernel, because the program is
// not sound. That is the job's to know.
type diedError struct {
	pid    int
	status syscall.WaitStatus
}

func (e *diedError) Error() string {
	return fmt.Sprintf("process %d ended before its first instruction (wait status %#x)", e.pid, uint32(e.status))
}

// died makes of "no such process" that the first process has been killed.
func died(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return &diedError{status: syscall.WaitStatus(unix.SIGKILL)}
	}
	return err
}

// scarceTries is how often a start is tried that something was too scarce for.
const scarceTries = 20

// scarce tells errors of clone and execve that may be the node's: it has no more processes, memory or descriptors to give. They may be the
// job's, too: its user has too many processes, or its interpreter needs more memory than there is address space.
func scarce(err error) bool {
	switch err {
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EBUSY, unix.ENODEV:
		return true
	}
	return false
}

// startError tells what is wrong with the job from what is wrong with the node. What the user could bring about counts as the job's, so
// that nobody takes a node out of use with bad scripts.
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

// refused is an execve that failed for reasons of the job's.
func refused(path string, errno syscall.Errno) error {
	what := path
	if i := interpreter(path); filepath.IsAbs(path) && i != "" && errno != unix.E2BIG {
		what = "bad interpreter(" + i + ")"
	}
	// A first line may hold any bytes, and a job's stderr is shown on terminals.
	return &execError{errno, strings.ToValidUTF8(fmt.Sprintf("execve(): %s: %s", what, sentence(errno)), "?")}
}

// forks tries whether a process can be made in the step's cgroup, by root and of a program that is sound. That the job has all processes
// or all memory that it may have is its own fault.
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

// reachable says why the job's user cannot read or execute the script that lies in the spool: it has gone, its disk is broken, or somebody
// has closed a folder above it.
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

// near says that the kernel, on the way to a program's first instruction, asks no file system of a user's, which may never answer: until
// then this whole process stands still (vfork: the child has its memory, and the runtime its only processor), and nobody could end the
// step. own: it is the script in the spool, and what counts is its interpreter. Names decide, since asking where a path leads may hang,
// too, and what a user's path says now it need not say when it is executed.
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

// interpreter is the program on the #! line of a script that exists, by the kernel's rules.
func interpreter(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var buf [256]byte // what the kernel looks at
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

// resetOOM gives a job the default: it inherits the shim's own protection.
func resetOOM(pid int) { writeOOM(strconv.Itoa(pid), "0") }

func writeOOM(pid, adj string) {
	fd, err := unix.Open("/proc/"+pid+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(adj))
	unix.Close(fd)
}

// ownMemory tells the peak resident memory of this address space. A child between vfork and exec lives in it, and wait4 counts it
// as the child's own. (getrusage does not say: its maximum includes what ran in this process before its own exec.) It is read for each
// job, and the file stays open because finding it costs more than reading it.
type ownMemory struct{ status int }

func newOwnMemory() ownMemory {
	fd, err := unix.Open("/proc/self/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	return ownMemory{fd}
}

func (m ownMemory) close() { unix.Close(m.status) }

// peak is in KiB, 0 where /proc does not say.
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

// traceRefused tries once with a process that does nothing.
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
