package stepd

import (
	"bufio"
	"fmt"
	"os"
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

// startError tells what is wrong with the script from what is wrong with the node.
func startError(path string, err error) error {
	errno, ok := err.(syscall.Errno)
	if !ok {
		return fmt.Errorf("cannot start %s: %w", path, err)
	}
	switch errno {
	case unix.ENOENT, unix.EACCES, unix.ENOEXEC, unix.ENOTDIR, unix.ELOOP, unix.E2BIG, unix.ENAMETOOLONG, unix.ETXTBSY, unix.EISDIR, unix.ELIBBAD:
		what := path
		if i := interpreter(path); i != "" && errno != unix.E2BIG {
			what = "bad interpreter(" + i + ")"
		}
		return &execError{errno, fmt.Sprintf("execve(): %s: %s", what, sentence(errno))}
	}
	return fmt.Errorf("cannot start %s: %w", path, errno)
}

// interpreter is the program on the #! line of a script that exists.
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadString('\n')
	rest, ok := strings.CutPrefix(line, "#!")
	if f := strings.Fields(rest); ok && len(f) > 0 {
		return f[0]
	}
	return ""
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

// ownMemory is the shim's peak resident memory, KiB. A child between vfork and exec counts it as its own.
func ownMemory() uint64 {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return uint64(ru.Maxrss)
}

// traceRefused tries once with a process that does nothing.
func (l *launcher) traceRefused() bool {
	pid, err := syscall.ForkExec(l.exe, []string{l.exe, "stepd", "nothing"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return true
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	_, _ = wait4(pid, nil, 0, nil)
	return false
}
