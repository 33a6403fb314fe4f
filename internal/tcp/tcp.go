// Package tcp has the settings of connections between the cluster's hosts. They let the kernel find out that the other
// host is gone, also when nothing is sent: a kernel does that for ten thousand connections without waking a process,
// which gRPC's pings would do for each.
package tcp

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Gone is about how long it takes until a host that does not answer any more counts as gone: what was sent to it is not confirmed
// (tcp(7), TCP_USER_TIMEOUT), or where nothing was sent the kernel's own questions are not.
const Gone = 20 * time.Second

var questions = net.KeepAliveConfig{Enable: true, Idle: Gone / 2, Interval: Gone / 8, Count: 4}

// Listen listens for other hosts.
func Listen(addr string) (net.Listener, error) {
	l := net.ListenConfig{Control: control, KeepAliveConfig: questions}
	return l.Listen(context.Background(), "tcp", addr)
}

// Dialer connects with another host; timeout bounds the connecting.
func Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: control, KeepAliveConfig: questions}
}

// control sets what connections take over from the socket that listens.
func control(_, _ string, c syscall.RawConn) (err error) {
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(Gone.Milliseconds()))
	}); cerr != nil {
		return cerr
	}
	return err
}
