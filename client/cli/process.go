package cli

import (
	"bytes"
	"fmt"
	"syscall"
	"unsafe"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// What a job takes from the process that submits it.

// umask reads the mask; the kernel only tells it when it is changed.
func umask() uint32 {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return uint32(mask)
}

func sessionID() uint32 {
	sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	return uint32(sid)
}

// niceValue is the scheduling priority of this process, SLURM_PRIO_PROCESS of the job.
func niceValue() int {
	const offset = 20 // getpriority(2): the system call answers 20 - nice
	n, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return 0
	}
	return offset - n
}

// shortHostname is the node name of uname(2) up to the first dot.
func shortHostname() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return ""
	}
	name := make([]byte, 0, len(u.Nodename))
	for _, c := range u.Nodename {
		if c == 0 || c == '.' {
			break
		}
		name = append(name, byte(c))
	}
	return string(name)
}

func limits(numbers []uint32) []*pb.Rlimit {
	out := make([]*pb.Rlimit, 0, len(numbers))
	for _, n := range numbers {
		var l syscall.Rlimit
		if syscall.Getrlimit(int(n), &l) == nil {
			out = append(out, &pb.Rlimit{Resource: n, Soft: l.Cur, Hard: l.Max})
		}
	}
	return out
}

// randomID is 16 random bytes in hex. getrandom(2) directly: crypto/rand would bring its self tests into every command.
func randomID() (string, error) {
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

// account is a line of passwd(5) or group(5).
type account struct {
	name, home, shell string
	uid, gid          uint32
}

// passwdLine reads "name:x:uid:gid:gecos:home:shell".
func passwdLine(line []byte) (account, bool) {
	f := bytes.Split(line, []byte(":"))
	if len(f) < 7 {
		return account{}, false
	}
	uid, okUID := decimal(f[2])
	gid, okGID := decimal(f[3])
	return account{name: string(f[0]), home: string(f[5]), shell: string(f[6]), uid: uid, gid: gid}, okUID && okGID
}

func decimal(b []byte) (uint32, bool) {
	n := uint64(0)
	for _, c := range b {
		if c < '0' || c > '9' || n > 1<<32 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return uint32(n), len(b) > 0 && n < 1<<32-1
}
