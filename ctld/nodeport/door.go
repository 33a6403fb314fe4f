package nodeport

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
)

// Limits of the node port. Any client on the network can open connections; one without a certificate of the cluster costs a descriptor and
// a goroutine for at most the time of a handshake.
const (
	// maxHandshakes bounds those under way from addresses from which no node has come yet, in addition to one for each node of the cluster:
	// after a restart of the controller all nodes connect at once, and if some pushed others out none would ever get through.
	maxHandshakes = 256
	// maxAddrHandshakes bounds those of one address (of IPv6, one network), again in addition to one for each node. Many nodes may share an
	// address, behind a gateway or on one machine.
	maxAddrHandshakes = 32
	// maxNodeConns bounds the connections of one certificate: a node has one, and possibly one that it has lost but this side has not yet.
	maxNodeConns = 4
	// maxKnown bounds the remembered addresses and certificates.
	maxKnown = 65536
)

// Door is the listener of the node port. It keeps a flood of connections cheap and lets nodes get through it.
//
// When there are too many handshakes, a random one under way is closed for the new one: of the same address when that has too many, else of
// the address that has most. A node's handshake takes some milliseconds and is likely to be over by then; one that only occupies room is
// not. If new ones were refused instead, a client that fills the room once would keep it. Addresses from which nodes have come have room of
// their own, so that only their own neighbours can push them out.
type Door struct {
	net.Listener
	// Nodes returns the number of nodes of the cluster; nil: none.
	Nodes func() int
	// Accepts reports whether a certificate of the cluster's authority is valid; nil: all are. Set before the first Accept.
	Accepts func(name, serial string) bool
	log     *slog.Logger

	mu      sync.Mutex
	pending map[netip.Addr][]*guest
	strange int // of those pending, from unknown addresses
	known   map[netip.Addr]bool
	nodes   map[string][]*guest     // authenticated, by role and name, the oldest first
	without map[netip.Addr][]*guest // without a valid certificate
	many    int                     // of those
	shown   map[string]*Shown       // by serial

	closed int // for lack of room, since the last message
	said   time.Time
}

// NewDoor makes a Door for l's connections. The server that accepts them needs Credentials.
func NewDoor(l net.Listener, log *slog.Logger) *Door {
	return &Door{Listener: l, log: log, pending: map[netip.Addr][]*guest{}, known: map[netip.Addr]bool{}, nodes: map[string][]*guest{},
		without: map[netip.Addr][]*guest{}, shown: map[string]*Shown{}}
}

// Credentials returns creds that tell a Door the certificate of each of its connections. Connections of relays (mtls.RelayServerName) are
// passed to relays, which may be nil.
func Credentials(creds credentials.TransportCredentials, relays *Annex) credentials.TransportCredentials {
	return doorCreds{creds, relays}
}

// guest is a connection.
type guest struct {
	net.Conn
	door *Door
	from netip.Addr
	name string // role and name, once it is authenticated
	gone bool

	id      mtls.Identity // of the certificate
	serial  string        // likewise
	since   time.Time     // when it was presented
	alone   bool          // has no valid certificate
	bounded atomic.Bool   // it may only send left bytes
	left    atomic.Int64
	end     *time.Timer
}

// Accept returns the next connection.
func (d *Door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) { // gRPC waits and tries again
			d.close(d.most())
		}
		return nil, err
	}
	g := &guest{Conn: c, door: d, from: Source(c.RemoteAddr())}
	d.close(d.count(g))
	return g, nil
}

// Source returns the unit that counts as one address.
func Source(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

// count counts a connection and returns the one that has to make room for it, if any.
func (d *Door) count(g *guest) (out *guest) {
	nodes := 0
	if d.Nodes != nil {
		nodes = d.Nodes()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known[g.from]
	switch list := d.pending[g.from]; {
	case len(list) >= maxAddrHandshakes+nodes:
		out = list[rand.IntN(len(list))]
	case !known && d.strange >= maxHandshakes+nodes:
		out = d.ofMost()
	}
	d.pending[g.from] = append(d.pending[g.from], g)
	if !known {
		d.strange++
	}
	return out
}

// most returns a connection of the address with most handshakes under way.
func (d *Door) most() *guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ofMost()
}

func (d *Door) ofMost() *guest { return ofMost(d.pending, d.known) }

// close ends a connection to make room, and logs that now and then.
func (d *Door) close(g *guest) {
	if g == nil {
		return
	}
	_ = g.Close()
	d.mu.Lock()
	d.closed++
	n, now := d.closed, time.Now()
	speak := now.Sub(d.said) > time.Minute
	if speak {
		d.closed, d.said = 0, now
	}
	d.mu.Unlock()
	if speak {
		d.log.Warn("too many connections to the node port: some were closed before they presented a certificate", "closed", n, "from",
			g.from.String())
	}
}

// admitted handles a connection that has presented its certificate; out is the one that it replaces.
func (d *Door) admitted(g *guest, name string) (out *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.gone {
		return nil
	}
	d.forget(g)
	if len(d.known) < maxKnown && !d.known[g.from] {
		d.known[g.from] = true
		d.strange -= len(d.pending[g.from])
	}
	g.name = name
	list := d.nodes[name]
	if len(list) >= maxNodeConns {
		out = list[0]
	}
	d.nodes[name] = append(list, g)
	return out
}

// forget removes a connection from its list.
func (d *Door) forget(g *guest) {
	is := func(o *guest) bool { return o == g }
	if g.alone {
		d.many--
		if d.without[g.from] = slices.DeleteFunc(d.without[g.from], is); len(d.without[g.from]) == 0 {
			delete(d.without, g.from)
		}
		return
	}
	if g.name != "" {
		if d.nodes[g.name] = slices.DeleteFunc(d.nodes[g.name], is); len(d.nodes[g.name]) == 0 {
			delete(d.nodes, g.name)
		}
		return
	}
	if d.pending[g.from] = slices.DeleteFunc(d.pending[g.from], is); len(d.pending[g.from]) == 0 {
		delete(d.pending, g.from)
	}
	if !d.known[g.from] {
		d.strange--
	}
}

// Close ends the connection.
func (g *guest) Close() error {
	g.door.mu.Lock()
	if !g.gone {
		g.gone = true
		g.door.forget(g)
	}
	if g.end != nil {
		g.end.Stop()
	}
	g.door.mu.Unlock()
	return g.Conn.Close()
}

type doorCreds struct {
	credentials.TransportCredentials
	relays *Annex
}

// ServerHandshake implements credentials.TransportCredentials.
func (c doorCreds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := c.TransportCredentials.ServerHandshake(conn)
	g, ok := conn.(*guest)
	t, tls := info.(credentials.TLSInfo)
	if err != nil || !ok || !tls {
		return secure, info, err
	}
	id, err := mtls.PeerOf(t.State)
	switch {
	case errors.Is(err, mtls.ErrStranger):
		g.door.close(g.door.stranger(g))
		return secure, info, nil
	case err != nil:
		return nil, nil, err
	}
	g.id, g.serial = id, mtls.Serial(mtls.CertificateOf(t.State))
	if !g.door.accepts(g) { // it displaces no other, and gets the reason
		g.door.close(g.door.stranger(g))
		return secure, info, nil
	}
	name, relay := id.Role+" "+id.Name, c.relays != nil && t.State.ServerName == mtls.RelayServerName
	if relay {
		name += " relay"
	}
	if out := g.door.admitted(g, name); out != nil {
		_ = out.Close()
	}
	if !g.door.accepts(g) { // again, now that Cut finds it: either of the two sees a revocation meanwhile
		g.door.close(g.door.stranger(g))
		return secure, info, nil
	}
	g.door.show(g, mtls.CertificateOf(t.State))
	if relay {
		if !c.relays.take(secure, info) {
			_ = secure.Close()
		}
		return nil, nil, credentials.ErrConnDispatched
	}
	return secure, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c doorCreds) Clone() credentials.TransportCredentials {
	return doorCreds{c.TransportCredentials.Clone(), c.relays}
}
