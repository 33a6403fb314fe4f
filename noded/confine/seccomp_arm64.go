package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// ofArch are calls that only this machine has, or that have another name on others.
var ofArch = []uint32{unix.SYS_FSTATAT}
