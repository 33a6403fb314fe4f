//go:build amd64 || arm64

package confine

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// allowed are the system calls of noded-link: for Go's runtime, network sockets, and reading files, the most frequent first. Any
// other call fails with EPERM, on future kernels too. Among them are all calls that create, change or remove files, start
// programs, inspect other processes, or change this process's identity.
var allowed = append([]uint32{
	unix.SYS_FUTEX, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_EPOLL_PWAIT, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_SCHED_YIELD, unix.SYS_MADVISE, unix.SYS_TGKILL,
	unix.SYS_GETPID, unix.SYS_GETTID,
	unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	// memory and threads
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_BRK, unix.SYS_MINCORE, unix.SYS_MEMBARRIER,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SET_TID_ADDRESS, unix.SYS_EXIT,
	unix.SYS_EXIT_GROUP, unix.SYS_SCHED_GETAFFINITY, unix.SYS_PRCTL, unix.SYS_GETRANDOM, unix.SYS_SETITIMER, unix.SYS_TIMER_CREATE,
	unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
	// the network
	unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_RECVMSG,
	unix.SYS_ACCEPT4, // on an inherited socket: listen(2) is not allowed
	unix.SYS_SHUTDOWN, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT,
	unix.SYS_READV, unix.SYS_WRITEV,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_FCNTL, unix.SYS_PPOLL,
	// reading
	unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_LSEEK, unix.SYS_PREAD64, unix.SYS_GETDENTS64, unix.SYS_READLINKAT,
	unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETCWD, unix.SYS_STATFS, unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETUID,
	unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETPPID, unix.SYS_UMASK,
}, ofArch...)

// writing are the flags of openat(2) that create or change a file.
const writing = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_APPEND | unix.O_TMPFILE&^unix.O_DIRECTORY

// namespaces are the flags of clone(2) that create namespaces. clone3(2) passes its flags in memory, out of reach of a filter: it
// fails with ENOSYS, so that the C library falls back to clone(2).
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data. On the little-endian machines of this file, the low half of an argument comes first.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
	x32     = 0x40000000
)

func arg(n uint32) bpf.LoadAbsolute { return bpf.LoadAbsolute{Off: offArgs + 8*n, Size: 4} }

// filter returns the program. Each test is followed by its verdict, so jumps stay short.
func filter() []bpf.Instruction {
	allow, deny := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	is := func(v uint32, then ...bpf.Instruction) []bpf.Instruction {
		return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: uint8(len(then))}}, then...)
	}
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1}, deny,
		bpf.LoadAbsolute{Off: offNr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1}, deny,
	}
	for _, nr := range allowed {
		p = append(p, is(nr, allow)...)
	}
	p = append(p, is(unix.SYS_CLONE, arg(0), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: namespaces, SkipFalse: 1}, deny, allow)...)
	p = append(p, is(unix.SYS_CLONE3, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})...)
	p = append(p, is(unix.SYS_OPENAT, arg(2), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: writing, SkipFalse: 1}, deny, allow)...)
	p = append(p, is(unix.SYS_SOCKET, append(append([]bpf.Instruction{arg(0)}, is(unix.AF_INET, allow)...),
		append(is(unix.AF_INET6, allow), deny)...)...)...)
	// Reading limits, of this process alone.
	p = append(p, is(unix.SYS_PRLIMIT64, arg(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, deny, arg(2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, deny, bpf.LoadAbsolute{Off: offArgs + 8*2 + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, deny, allow)...)
	return append(p, deny)
}

// Calls restricts all threads of this process, and its children, to the allowed system calls.
func Calls() error {
	raw, err := bpf.Assemble(filter())
	if err != nil {
		return fmt.Errorf("cannot assemble the system call filter: %w", err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	tid, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return fmt.Errorf("cannot restrict the system calls of noded-link: %w", e)
	}
	if tid != 0 {
		return fmt.Errorf("cannot restrict the system calls of noded-link: thread %d cannot take the same filter", tid)
	}
	return nil
}
