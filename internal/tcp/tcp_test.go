package tcp

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBothEnds: the kernel watches over both ends of a connection, the accepted one as well.
func TestBothEnds(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := Dialer(time.Minute).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for end, c := range map[string]net.Conn{"dialled": out, "accepted": in} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for option, want := range map[int]int{unix.TCP_USER_TIMEOUT: int(Gone.Milliseconds()),
			unix.TCP_KEEPIDLE: int((Gone / 2).Seconds())} {
			var got int
			cerr := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option) })
			if cerr != nil || err != nil {
				t.Fatal(cerr, err)
			}
			if got != want {
				t.Errorf("%s: option %d is %d, want %d", end, option, got, want)
			}
		}
	}
}
