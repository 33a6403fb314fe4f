package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A socket on which a controller answers is not taken over; one that is left over is.
func TestListen(t *testing.T) {
	s := serve(t)
	if l, err := Listen(s.socket); err == nil {
		_ = l.Close()
		t.Error("two controllers listen on one socket")
	}
	old := filepath.Join(t.TempDir(), "old")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: old, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	again, err := Listen(old)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// TestConnectionsTooManyAreForgotten: whoever had too many connections, and closed them, can connect again. A connection that this
// side closes ends its server too.
func TestConnectionsTooManyAreForgotten(t *testing.T) {
	t.Parallel()
	local := NewLocal(&Service{}, func(uint32) bool { return false }, slog.New(slog.DiscardHandler))
	listener, err := Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	uid := uint32(os.Getuid())
	local.hold(uid, maxUserConns)
	client, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); local.serveConn(t.Context(), conn, &Peer{UID: uid}) }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("a connection that was closed for being one too many is served on")
	}
	if n := local.hold(uid, 0); n != maxUserConns {
		t.Errorf("%d connections are counted, want %d", n, maxUserConns)
	}
}

// TestOperatorsHavePlacesOfTheirOwn: ordinary users, however many, leave room for root.
func TestOperatorsHavePlacesOfTheirOwn(t *testing.T) {
	var operator atomic.Bool
	local := NewLocal(&Service{}, func(uint32) bool { return operator.Load() }, slog.New(slog.DiscardHandler))
	local.places = 2
	listener, err := Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = local.Serve(ctx, listener) })
	defer wg.Wait()
	defer cancel()
	// connect says whether the connection has been closed by the other side.
	connect := func(patience time.Duration) (closed bool) {
		c, err := net.Dial("unix", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err = c.Read(make([]byte, 1))
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	for range local.places {
		if connect(50 * time.Millisecond) {
			t.Fatal("a connection within the bound was closed")
		}
	}
	if !connect(10 * time.Second) {
		t.Error("a connection too many was taken")
	}
	operator.Store(true)
	if connect(50 * time.Millisecond) {
		t.Error("an operator was shut out by ordinary users")
	}
}
