package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// ofArch are calls that only this architecture has, or that have another name elsewhere.
var ofArch = []uint32{unix.SYS_FSTATAT}
