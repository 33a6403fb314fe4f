package tcp

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLater: a socket whose address somebody has listens when he has gone, for whom it was handed to before.
func TestLater(t *testing.T) {
	for _, network := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		t.Run(network, func(t *testing.T) {
			holder, err := Listen(network)
			if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
				t.Skip("this machine has no IPv6 on its loopback device: ip link set lo up")
			}
			if err != nil {
				t.Fatal(err)
			}
			addr := holder.Addr().String()
			l, err := NewLater(addr)
			if err != nil {
				t.Fatal(err)
			}
			defer l.File().Close()
			if err := l.Listen(); !errors.Is(err, unix.EADDRINUSE) {
				t.Fatalf("somebody else has the address: %v", err)
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := FromFile(over, l.File()); !errors.Is(err, context.Canceled) {
				t.Errorf("it does not listen: %v", err)
			}
			if err := holder.Close(); err != nil {
				t.Fatal(err)
			}
			if err := l.Listen(); err != nil {
				t.Fatal(err)
			}
			got, err := FromFile(t.Context(), l.File())
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			if got.Addr().String() != addr {
				t.Errorf("it listens on %s, not %s", got.Addr(), addr)
			}
			_, port, _ := net.SplitHostPort(addr)
			host := "127.0.0.1"
			if network == "[::1]:0" {
				host = "::1"
			}
			c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			if a, err := got.Accept(); err != nil {
				t.Error(err)
			} else {
				_ = a.Close()
			}
		})
	}
}
