// Package terminal controls the user's terminal for srun and salloc, and keeps text from other users from controlling it.
package terminal

import (
	"os/signal"
	"syscall"
	"unsafe"

	"github.com/sluice-hpc/sluice/client/msg"
)

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		return nil
	}
}

// Foreground returns the foreground process group of a terminal.
func Foreground(fd int) (int, error) {
	var group int32
	err := ioctl(fd, syscall.TIOCGPGRP, unsafe.Pointer(&group))
	return int(group), err
}

// SetForeground gives the terminal to a process group, even from the background.
func SetForeground(fd, group int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	g := int32(group)
	_ = ioctl(fd, syscall.TIOCSPGRP, unsafe.Pointer(&g))
}

// WindowSize returns the size of a terminal; nil if it is not a terminal.
func WindowSize(fd int) *msg.StepWindow {
	var size struct{ rows, columns, x, y uint16 }
	if ioctl(fd, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) != nil {
		return nil
	}
	return &msg.StepWindow{Rows: uint32(size.rows), Columns: uint32(size.columns)}
}

// Raw puts a terminal into raw mode; restore undoes that.
func Raw(fd int) (restore func(), err error) {
	var was syscall.Termios
	if err := ioctl(fd, syscall.TCGETS, unsafe.Pointer(&was)); err != nil {
		return nil, err
	}
	raw := was
	raw.Iflag &^= syscall.IGNBRK | syscall.BRKINT | syscall.PARMRK | syscall.ISTRIP | syscall.INLCR |
		syscall.IGNCR | syscall.ICRNL | syscall.IXON
	raw.Oflag &^= syscall.OPOST
	raw.Lflag &^= syscall.ECHO | syscall.ECHONL | syscall.ICANON | syscall.ISIG | syscall.IEXTEN
	raw.Cflag = raw.Cflag&^(syscall.CSIZE|syscall.PARENB) | syscall.CS8
	raw.Cc[syscall.VMIN], raw.Cc[syscall.VTIME] = 1, 0
	const tcsetsw = 0x5403
	if err := ioctl(fd, tcsetsw, unsafe.Pointer(&raw)); err != nil {
		return nil, err
	}
	return func() { _ = ioctl(fd, tcsetsw, unsafe.Pointer(&was)) }, nil
}

// IsTerminal reports whether a descriptor is a terminal.
func IsTerminal(fd int) bool {
	var t syscall.Termios
	return ioctl(fd, syscall.TCGETS, unsafe.Pointer(&t)) == nil
}

// Of returns the descriptor of a stream that is a terminal.
func Of(stream any) (fd int, ok bool) {
	f, isFile := stream.(interface {
		SyscallConn() (syscall.RawConn, error)
	})
	if !isFile {
		return 0, false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = conn.Control(func(d uintptr) {
		fd = int(d)
		ok = IsTerminal(fd)
	})
	return fd, ok
}
