package tcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Later is a socket for an address that may be in use at first. It belongs to the network namespace of the thread that creates it,
// and may be passed to another process before it listens (FromFile).
type Later struct {
	file  *os.File
	where unix.Sockaddr
	addr  string
	bound bool
}

// NewLater creates the socket.
func NewLater(addr string) (*Later, error) {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	family := unix.AF_INET6
	var where unix.Sockaddr
	if ip := a.IP.To4(); ip != nil || a.IP == nil && !hasIPv6() {
		four := &unix.SockaddrInet4{Port: a.Port}
		copy(four.Addr[:], ip)
		family, where = unix.AF_INET, four
	} else {
		six := &unix.SockaddrInet6{Port: a.Port}
		copy(six.Addr[:], a.IP)
		if i, err := net.InterfaceByName(a.Zone); a.Zone != "" && err == nil {
			six.ZoneId = uint32(i.Index)
		}
		where = six
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	set := func(level, option, value int) {
		if err == nil {
			err = unix.SetsockoptInt(fd, level, option, value)
		}
	}
	set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	set(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(Gone.Milliseconds()))
	if family == unix.AF_INET6 && (a.IP == nil || a.IP.IsUnspecified()) { // accept IPv4 as well
		set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot set up a socket: %w", err)
	}
	return &Later{file: os.NewFile(uintptr(fd), addr), where: where, addr: addr}, nil
}

func hasIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// File returns the socket, which the Later still owns.
func (l *Later) File() *os.File { return l.file }

// Listen starts listening if the address is available. It must not be called concurrently.
func (l *Later) Listen() error {
	c, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	err2 := c.Control(func(fd uintptr) {
		if !l.bound {
			if err = unix.Bind(int(fd), l.where); err != nil {
				return
			}
			l.bound = true
		}
		err = unix.Listen(int(fd), unix.SOMAXCONN)
	})
	if err2 != nil {
		return err2
	}
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", l.addr, err)
	}
	return nil
}

// lookEvery is how often FromFile checks.
const lookEvery = 5 * time.Second

// FromFile returns a listener for a socket once its creator has made it listen (Later), or the error of ctx. The caller keeps the
// file.
func FromFile(ctx context.Context, f *os.File) (net.Listener, error) {
	for {
		is, err := listens(f)
		if err != nil {
			return nil, err
		}
		if is {
			return net.FileListener(f)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

func listens(f *os.File) (bool, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	is := 0
	if err2 := c.Control(func(fd uintptr) { is, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN) }); err2 != nil {
		return false, err2
	}
	return is == 1, err
}
