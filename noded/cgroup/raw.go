package cgroup

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of this file bypass Go's scheduler. Calls on a cgroup take tens of microseconds: long enough for the runtime
// to give the processor to another thread, and short enough that this costs more than the call. They cannot hang, because a
// cgroup is kernel memory.

func at(nr uintptr, path string, arg uintptr, mode uintptr) (int, error) {
	if fd, rest := near(path); fd >= 0 {
		if n, err := from(fd, nr, rest, arg, mode); err != unix.ENOENT && err != unix.ENODEV {
			return n, err
		}
		// The file is missing, or the directory was recreated since it was opened: the path decides.
	}
	return from(unix.AT_FDCWD, nr, path, arg, mode)
}

func from(fd int, nr uintptr, path string, arg uintptr, mode uintptr) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, unix.EINVAL
	}
	for {
		n, _, e := unix.RawSyscall6(nr, uintptr(fd), uintptr(unsafe.Pointer(p)), arg, mode, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return -1, e
	}
}

func open(path string, flags int) (int, error) {
	return at(unix.SYS_OPENAT, path, uintptr(flags|unix.O_CLOEXEC), 0)
}

func mkdir(path string) error {
	_, err := at(unix.SYS_MKDIRAT, path, 0o755, 0)
	return err
}

func rmdir(path string) error {
	_, err := at(unix.SYS_UNLINKAT, path, unix.AT_REMOVEDIR, 0)
	return err
}

func closeFD(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// transfer reads or writes a non-empty buffer once.
func transfer(nr uintptr, fd int, b []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall(nr, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return -1, e
	}
}
