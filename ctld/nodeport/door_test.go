package nodeport

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeConn is a connection from somewhere.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1} }
func (c *fakeConn) Close() error         { c.closed = true; return nil }

type fakeListener struct {
	net.Listener
	next func() (net.Conn, error)
}

func (l fakeListener) Accept() (net.Conn, error) { return l.next() }

// house is a door and the connections that have come.
type house struct {
	t    *testing.T
	door *Door
	from string
	err  error
}

func newHouse(t *testing.T, log *slog.Logger) *house {
	h := &house{t: t}
	h.door = NewDoor(fakeListener{next: func() (net.Conn, error) {
		if h.err != nil {
			return nil, h.err
		}
		return &fakeConn{from: h.from}, nil
	}}, log)
	return h
}

func (h *house) come(from string) *guest {
	h.t.Helper()
	h.from = from
	c, err := h.door.Accept()
	if err != nil {
		h.t.Fatal(err)
	}
	return c.(*guest)
}

func open(list []*guest) (n int) {
	for _, g := range list {
		if !g.gone {
			n++
		}
		if g.gone != g.Conn.(*fakeConn).closed {
			panic("counted and not closed")
		}
	}
	return n
}

// TestFloodOfHandshakes: one address has few under way, all together not many, and each new one gets in.
func TestFloodOfHandshakes(t *testing.T) {
	var log strings.Builder
	h := newHouse(t, slog.New(slog.NewTextHandler(&log, nil)))
	flood := make([]*guest, 0, 5000)
	for range 1000 {
		flood = append(flood, h.come("10.0.0.1"))
		if flood[len(flood)-1].gone {
			t.Fatal("a new one was refused")
		}
	}
	if n := open(flood); n != maxAddrHandshakes {
		t.Errorf("%d of one address are open", n)
	}
	for i := range 1000 { // of one network
		flood = append(flood, h.come(fmt.Sprintf("2001:db8::%x", i+1)))
	}
	if n := open(flood); n != 2*maxAddrHandshakes {
		t.Errorf("%d of two addresses are open", n)
	}
	for i := range 3000 {
		flood = append(flood, h.come(fmt.Sprintf("10.1.%d.%d", i/250, i%250)))
	}
	if n := open(flood); n != maxHandshakes || h.door.strange != n {
		t.Errorf("%d are open, %d counted", n, h.door.strange)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	for _, g := range flood {
		_, _ = g.Close(), g.Close()
	}
	if len(h.door.pending) != 0 || h.door.strange != 0 {
		t.Errorf("left: %v, %d", h.door.pending, h.door.strange)
	}
}

// TestAllNodesAtOnce: when all nodes of a cluster come at the same time, from addresses of their own or from one, none makes room
// for another.
func TestAllNodesAtOnce(t *testing.T) {
	for _, from := range []string{"10.0.%d.%d", "10.0.0.1"} {
		h := newHouse(t, slog.New(slog.DiscardHandler))
		h.door.Nodes = func() int { return 5000 }
		var all []*guest
		for i := range 5000 {
			address := from
			if strings.Contains(from, "%") {
				address = fmt.Sprintf(from, i/250, i%250)
			}
			all = append(all, h.come(address))
		}
		if n := open(all); n != len(all) {
			t.Errorf("%s: %d of %d are open", from, n, len(all))
		}
	}
}

// TestKnownNodesHaveRoom: an address from which a node has come is not pushed out by others.
func TestKnownNodesHaveRoom(t *testing.T) {
	h := newHouse(t, slog.New(slog.DiscardHandler))
	node := h.come("10.0.0.1")
	if out := h.door.admitted(node, "node n1"); out != nil {
		t.Error("somebody had to go")
	}
	again := h.come("10.0.0.1")
	for i := range 3000 {
		h.come(fmt.Sprintf("10.1.%d.%d", i/250, i%250))
	}
	if node.gone || again.gone {
		t.Error("a node was pushed out")
	}
	for range 5 * maxAddrHandshakes {
		h.come("10.0.0.1")
	}
	if n := len(h.door.pending[node.from]); n != maxAddrHandshakes || node.gone {
		t.Errorf("%d are under way from a node's address", n)
	}
}

// TestConnectionsOfOneCertificate: the oldest makes room.
func TestConnectionsOfOneCertificate(t *testing.T) {
	h := newHouse(t, slog.New(slog.DiscardHandler))
	var all []*guest
	for i := range 3 * maxNodeConns {
		g := h.come(fmt.Sprintf("10.0.0.%d", i))
		if out := h.door.admitted(g, "node n1"); out != nil {
			_ = out.Close()
		}
		all = append(all, g)
	}
	if n := open(all); n != maxNodeConns || all[len(all)-1].gone || !all[0].gone {
		t.Errorf("%d are open", n)
	}
	other := h.come("10.0.1.1")
	_ = other.Close() // before its certificate has been looked at
	if out := h.door.admitted(other, "node n1"); out != nil || len(h.door.nodes["node n1"]) != maxNodeConns {
		t.Error("a connection that has ended was counted")
	}
}

// TestNoDescriptors: when there are none left, a handshake ends.
func TestNoDescriptors(t *testing.T) {
	h := newHouse(t, slog.New(slog.DiscardHandler))
	g := h.come("10.0.0.1")
	h.err = &net.OpError{Op: "accept", Err: unix.EMFILE}
	for range 2 {
		if _, err := h.door.Accept(); !errors.Is(err, unix.EMFILE) {
			t.Error(err)
		}
	}
	if !g.gone {
		t.Error("nobody made room")
	}
}
