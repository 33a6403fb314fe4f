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

// Bounds of the node port. Whoever reaches it over the network can open connections; who has no certificate of the cluster costs a
// descriptor and a goroutine for as long as a handshake may take.
const (
	// maxHandshakes are those under way from addresses that no node has come from yet, besides one for each node of the cluster: after a
	// restart of the controller all of them come at once, and if some pushed others out none would ever get through.
	maxHandshakes = 256
	// maxAddrHandshakes are those of one address (of IPv6, one network), again besides one for each node. Many nodes may share an address,
	// behind a gateway or on one machine.
	maxAddrHandshakes = 32
	// maxNodeConns are the connections of one certificate: a node has one, and perhaps one that it has lost and this side not yet.
	maxNodeConns = 4
	// maxKnown bounds the addresses and the certificates that are remembered.
	maxKnown = 65536
)

// Door is the listener of the node port, and sees to it that a flood of connections costs little and that nodes get through it.
//
// Where there are too many handshakes, one that is under way makes room for the new one, whichever chance picks: of the same address when
// that has too many, else of the address that has most. A handshake takes a node some milliseconds and is likely to be over by then; one
// that is there to take up room is not. Refusing the new ones would mean that who fills the room once keeps it. Addresses from which nodes
// have come have room of their own, so that only their own neighbours can push them out.
type Door struct {
	net.Listener
	// Nodes gives how many nodes the cluster has; nil: none.
	Nodes func() int
	// Accepts says, before Accept is called first, whether a certificate of the cluster's authority counts; nil: all do.
	Accepts func(name, serial string) bool
	log     *slog.Logger

	mu      sync.Mutex
	pending map[netip.Addr][]*guest
	strange int // of those pending, from addresses that are not known
	known   map[netip.Addr]bool
	nodes   map[string][]*guest     // authenticated, by role and name, the oldest first
	without map[netip.Addr][]*guest // with no certificate that counts
	many    int                     // of those
	shown   map[string]*Shown       // by serial

	closed int // for want of room, since it was said last
	said   time.Time
}

// NewDoor is the listener of l's connections. The server that takes them needs Credentials.
func NewDoor(l net.Listener, log *slog.Logger) *Door {
	return &Door{Listener: l, log: log, pending: map[netip.Addr][]*guest{}, known: map[netip.Addr]bool{}, nodes: map[string][]*guest{},
		without: map[netip.Addr][]*guest{}, shown: map[string]*Shown{}}
}

// Credentials are creds that tell a Door whose certificate a connection of its has shown. Connections of relays (mtls.RelayServerName)
// are handed to relays, which may be nil.
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
	since   time.Time     // when it was shown
	alone   bool          // has no certificate that counts
	bounded atomic.Bool   // it may send no more than left
	left    atomic.Int64
	end     *time.Timer
}

// Accept gives the next connection.
func (d *Door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) { // gRPC waits and asks again
			d.close(d.most())
		}
		return nil, err
	}
	g := &guest{Conn: c, door: d, from: Source(c.RemoteAddr())}
	d.close(d.count(g))
	return g, nil
}

// Source is what counts as one address.
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

// count counts a connection and gives the one that makes room for it, if one must.
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

// most is a connection of the address that has most under way.
func (d *Door) most() *guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ofMost()
}

func (d *Door) ofMost() *guest { return ofMost(d.pending, d.known) }

// close ends a connection that makes room, and says so now and then.
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

// admitted is for a connection that has shown its certificate; out is the one that it replaces.
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

// forget takes a connection off the list that it is on.
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

// ServerHandshake is for gRPC.
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
	if !g.door.accepts(g) { // it pushes nobody out, and is told why
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
	if !g.door.accepts(g) { // once more, now that Cut finds it: what is revoked meanwhile is seen by one or the other
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

// Clone is for gRPC.
func (c doorCreds) Clone() credentials.TransportCredentials {
	return doorCreds{c.TransportCredentials.Clone(), c.relays}
}
