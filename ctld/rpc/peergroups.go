package rpc

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is NGROUPS_MAX of Linux.
const maxGroups = 65536

// peerGroups reads SO_PEERGROUPS (Linux 4.13), which golang.org/x/sys/unix has no wrapper for: the supplementary groups of the
// process at the other end of a unix socket.
func peerGroups(fd int) ([]uint32, error) {
	buf := make([]uint32, 64)
	for {
		size := uint32(len(buf) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return slices.Clone(buf[:size/4]), nil // jobs keep it: no larger than needed
		case errors.Is(errno, unix.ERANGE) && len(buf) < maxGroups:
			buf = make([]uint32, min(int(size/4), maxGroups))
		default:
			return nil, fmt.Errorf("cannot read the groups of a peer: %w", errno)
		}
	}
}
