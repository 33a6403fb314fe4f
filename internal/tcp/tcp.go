// Package tcp has the settings of connections between the cluster's hosts. They make the kernel detect that the other host is gone,
// even on an idle connection: the kernel does that for ten thousand connections without waking a process, which gRPC's pings would
// do for each.
package tcp

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Gone is about how long it takes to detect that a host no longer answers: data is not acknowledged (tcp(7), TCP_USER_TIMEOUT), or
// keep-alive probes of an idle connection are not.
const Gone = 20 * time.Second

var questions = net.KeepAliveConfig{Enable: true, Idle: Gone / 2, Interval: Gone / 8, Count: 4}

// Listen listens for connections from other hosts.
func Listen(addr string) (net.Listener, error) {
	l := net.ListenConfig{Control: control, KeepAliveConfig: questions}
	return l.Listen(context.Background(), "tcp", addr)
}

// Dialer returns a dialer for other hosts; timeout bounds connecting.
func Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: control, KeepAliveConfig: questions}
}

// control sets options that accepted connections inherit from the listening socket.
func control(_, _ string, c syscall.RawConn) (err error) {
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(Gone.Milliseconds()))
	}); cerr != nil {
		return cerr
	}
	return err
}
