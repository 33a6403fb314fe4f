package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// ofArch are calls that only this architecture has, or that have another name elsewhere.
var ofArch = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT, unix.SYS_READLINK, unix.SYS_STAT, unix.SYS_LSTAT,
	unix.SYS_ACCESS, unix.SYS_POLL, unix.SYS_GETRLIMIT}
