package service

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// manager listens as systemd does.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

func next(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestStates(t *testing.T) {
	c := manager(t)
	m := New(slog.Default())
	m.Ready("4 nodes")
	m.Reloading()
	m.Stopping()
	if got := next(t, c); got != "READY=1\nSTATUS=4 nodes" {
		t.Errorf("ready: %q", got)
	}
	if got, want := next(t, c), "RELOADING=1\nMONOTONIC_USEC="; !strings.HasPrefix(got, want) || len(got) == len(want) {
		t.Errorf("reloading: %q", got)
	}
	if got := next(t, c); got != "STOPPING=1" {
		t.Errorf("stopping: %q", got)
	}
}

// TestWatch: signs of life while there is life, and none where the unit does not want any.
func TestWatch(t *testing.T) {
	c := manager(t)
	t.Setenv("WATCHDOG_USEC", "3000")
	looks := 0
	ctx, cancel := context.WithCancel(t.Context())
	New(slog.New(slog.DiscardHandler)).Watch(ctx, func() bool {
		looks++
		if looks == 5 {
			cancel()
		}
		return looks%2 == 1
	}, func() string { return strconv.Itoa(looks) + " nodes" })
	New(slog.Default()).Stopping()
	for _, nodes := range []string{"1", "3", "5"} {
		if got := next(t, c); got != "WATCHDOG=1\nSTATUS="+nodes+" nodes" {
			t.Fatalf("got %q", got)
		}
	}
	if got := next(t, c); got != "STOPPING=1" {
		t.Errorf("a sign of life too many: %q", got)
	}

	t.Setenv("WATCHDOG_USEC", "")
	New(slog.Default()).Watch(t.Context(), func() bool { t.Error("somebody looks"); return true }, nil)
	(*Manager)(nil).Watch(t.Context(), func() bool { t.Error("somebody looks"); return true }, nil)
	(*Manager)(nil).Ready("")
}
