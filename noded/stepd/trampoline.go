package stepd

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// viaTrampoline starts the shim's own binary as the user; it waits on descriptor 3 until the launcher has placed it, then
// executes the script. Only for machines that forbid ptrace.
func (l *launcher) viaTrampoline(t *task, files *stdio, argv []string) (child, error) {
	var go3, back [2]int
	if err := unix.Pipe2(go3[:], unix.O_CLOEXEC); err != nil {
		return child{pidfd: -1}, fmt.Errorf("cannot make a pipe: %w", err)
	}
	if err := unix.Pipe2(back[:], unix.O_CLOEXEC); err != nil {
		unix.Close(go3[0])
		unix.Close(go3[1])
		return child{pidfd: -1}, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer unix.Close(back[0])
	defer unix.Close(go3[1])
	p := child{pidfd: -1}
	attr := l.attr(t, files, &p.pidfd)
	attr.Files = append(attr.Files, uintptr(go3[0]), uintptr(back[1]))
	l.floor = ownMemory()
	pid, err := syscall.ForkExec(l.exe, append([]string{l.exe, "stepd", trampolineArg}, argv...), attr)
	unix.Close(go3[0])
	unix.Close(back[1])
	if err != nil {
		return p, fmt.Errorf("cannot start %s as uid %d (the jobs' users must be able to execute it): %w", l.exe, t.b.Uid, err)
	}
	p.pid = pid
	var answer [1]byte
	if n, _ := unix.Read(back[0], answer[:]); n != 1 { // from here on its runtime leaves RLIMIT_NOFILE alone
		return p, fmt.Errorf("cannot start %s as uid %d: it ended at once", l.exe, t.b.Uid)
	}
	if err := l.place(t, pid); err != nil {
		return p, err
	}
	say := byte(trampolineGo)
	if slices.ContainsFunc(t.b.Rlimits, func(r *pb.Rlimit) bool { return r.Resource == unix.RLIMIT_NOFILE }) {
		say = trampolineKeepFiles
	}
	if _, err := unix.Write(go3[1], []byte{say}); err != nil {
		return p, fmt.Errorf("cannot release process %d: %w", pid, err)
	}
	if n, _ := unix.Read(back[0], answer[:]); n == 1 { // else: closed by a successful execve
		return p, startError(argv[0], syscall.Errno(answer[0]))
	}
	return p, nil
}

const (
	trampolineArg       = "trampoline"
	trampolineGo        = 1
	trampolineKeepFiles = 2 // RLIMIT_NOFILE has been set: keep it
)

// trampoline is the other side: argv is the script and its arguments.
func trampoline(argv []string) int {
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	_, _ = unix.Write(4, []byte{0})
	var b [1]byte
	if n, _ := unix.Read(3, b[:]); n != 1 {
		return 1 // the shim is gone
	}
	if b[0] == trampolineKeepFiles {
		// Go's runtime raised the soft limit at its start and would put back on exec what it was then, unless it is told of a new one.
		var lim syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) == nil {
			_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
		}
	}
	err := syscall.Exec(argv[0], argv, os.Environ())
	errno, _ := err.(syscall.Errno)
	_, _ = unix.Write(4, []byte{byte(errno)})
	return int(errno)
}
