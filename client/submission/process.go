package submission

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/nofile"
)

// Properties that a job takes from the submitting process.

// Umask reads the mask, which the kernel reports only when it is changed.
func Umask() uint32 {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return uint32(mask)
}

// SessionID returns the session id of this process.
func SessionID() uint32 {
	sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	return uint32(sid)
}

// NiceValue is the nice value of this process, for SLURM_PRIO_PROCESS.
func NiceValue() int {
	const offset = 20 // getpriority(2): the system call answers 20 - nice
	n, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return 0
	}
	return offset - n
}

// Limits returns the resource limits of this process with the given numbers.
func Limits(numbers []uint32, asked bool) []*msg.Rlimit {
	out := make([]*msg.Rlimit, 0, len(numbers))
	for _, n := range numbers {
		if soft, hard, ok := nofile.AtStart(); ok && n == syscall.RLIMIT_NOFILE {
			out = append(out, &msg.Rlimit{Resource: n, Soft: soft, Hard: hard, Asked: asked})
			continue
		}
		var l syscall.Rlimit
		if syscall.Getrlimit(int(n), &l) == nil {
			out = append(out, &msg.Rlimit{Resource: n, Soft: l.Cur, Hard: l.Max, Asked: asked})
		}
	}
	return out
}

// RandomID returns 16 random bytes in hex. It calls getrandom(2) directly, because crypto/rand would add its self-tests to every
// command.
func RandomID() (string, error) {
	var b [16]byte
	for got := 0; got < len(b); {
		n, _, errno := syscall.Syscall(sysGetrandom, uintptr(unsafe.Pointer(&b[got])), uintptr(len(b)-got), 0)
		if errno != 0 && errno != syscall.EINTR {
			return "", fmt.Errorf("cannot get random bytes: %w", errno)
		}
		if errno == 0 {
			got += int(n)
		}
	}
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(b))
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out), nil
}
