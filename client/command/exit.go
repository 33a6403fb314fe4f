package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/sluice-hpc/sluice/client/opt"
	"github.com/sluice-hpc/sluice/internal/version"
)

// Exit prints the error of a verb, or of a view before its first request, and returns the exit code.
func (e *Env) Exit(err error) int {
	var early ExitCode
	var usage *opt.UsageError
	var value *opt.ValueError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &early):
		return int(early)
	case errors.As(err, &usage):
		return e.UsageError(err, 1)
	case errors.As(err, &value):
		e.Lines(value.Lines, value.Hint, value.Fatal)
		return 1
	}
	e.Errorf("%s", said(err))
	return 1
}

// Print writes the text of --help and the like and returns the exit code as an error.
func (e *Env) Print(text string) error {
	fmt.Fprint(e.Stdout, text)
	return ExitCode(0)
}

func (e *Env) PrintVersion() error { return e.Print(version.Interface()) }

// Failf prints an error and returns the exit code as an error.
func (e *Env) Failf(text string, args ...any) error {
	e.Errorf(text, args...)
	return ExitCode(1)
}

// Fatalf prints an error as Slurm does if it is fatal, and returns the exit code as an error.
func (e *Env) Fatalf(text string, args ...any) error {
	fmt.Fprintf(e.Stderr, "%s: fatal: %s\n", e.Name, fmt.Sprintf(text, args...))
	return ExitCode(1)
}

// List splits s at commas and drops empty elements.
func List(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// IsTerminal reports whether a stream of the process is a terminal. /dev/null is a character device, but not a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(interface {
		SyscallConn() (syscall.RawConn, error)
	})
	if !ok {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	terminal := false
	err = conn.Control(func(fd uintptr) {
		var t syscall.Termios
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&t)))
		terminal = errno == 0
	})
	return err == nil && terminal
}

// Columns returns the width of the terminal that a stream of the process writes to, 0 if it is not a terminal or has no size.
func Columns(stream any) (columns int) {
	f, ok := stream.(interface {
		SyscallConn() (syscall.RawConn, error)
	})
	if !ok {
		return 0
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = conn.Control(func(fd uintptr) {
		var size struct{ rows, columns, x, y uint16 }
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size))); errno == 0 {
			columns = int(size.columns)
		}
	})
	return columns
}

// ExitCode is an error that has already been reported, or the answer to --help and the like: the command exits with it.
type ExitCode int

func (e ExitCode) Error() string { return "exit " + strconv.Itoa(int(e)) }

// OwnCluster reports whether -M names this cluster. Other clusters have no jobs here.
func (e *Env) OwnCluster(names string) bool {
	own := e.ClusterName()
	return slices.ContainsFunc(List(names), func(s string) bool { return strings.EqualFold(s, own) || strings.EqualFold(s, "all") })
}
