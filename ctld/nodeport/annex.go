package nodeport

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// Annex is a listener for connections that have come in through the Door and have presented their certificates: those of relays, which have
// a server of their own behind the same port. gRPC's limits apply to a server and not to a method: messages of nodes may be large, and
// pieces must not be, or a host could make this process read megabytes for each of its thousand streams.
type Annex struct {
	addr   net.Addr
	in     chan *visitor
	closed chan struct{}
	once   sync.Once
}

// visitor is a connection with the result of its handshake.
type visitor struct {
	net.Conn
	info credentials.AuthInfo
}

// NewAnnex makes an Annex. addr is only for logs.
func NewAnnex(addr net.Addr) *Annex {
	return &Annex{addr: addr, in: make(chan *visitor), closed: make(chan struct{})}
}

// take waits until the connection is accepted; false: the listener is closed.
func (a *Annex) take(c net.Conn, info credentials.AuthInfo) bool {
	select {
	case a.in <- &visitor{c, info}:
		return true
	case <-a.closed:
		return false
	}
}

// Accept returns the next connection.
func (a *Annex) Accept() (net.Conn, error) {
	select {
	case v := <-a.in:
		return v, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (a *Annex) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// Addr returns the address of the node port.
func (a *Annex) Addr() net.Addr { return a.addr }

// AnnexCredentials are the credentials of the server for connections of an Annex: the handshake is over.
func AnnexCredentials() credentials.TransportCredentials { return annexCreds{} }

type annexCreds struct{}

func (annexCreds) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	v, ok := c.(*visitor)
	if !ok {
		return nil, nil, errors.New("the connection was not accepted by the node port")
	}
	return v.Conn, v.info, nil
}

func (annexCreds) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a server's credentials")
}

func (annexCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (a annexCreds) Clone() credentials.TransportCredentials { return a }

func (annexCreds) OverrideServerName(string) error { return nil }
