package frames

import (
	"io"
	"net"
	"sync"
)

// oneConn is a listener for one connection: Accept returns it once and then waits until it is closed.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

// Listener passes a connection to a server, which then waits until it has ended.
func Listener(c *Conn) net.Listener {
	o := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{}), addr: c.LocalAddr()}
	o.conn <- &watchedConn{Conn: c, onClose: o.shut}
	return o
}

func (o *oneConn) shut() { o.once.Do(func() { close(o.closed) }) }

func (o *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-o.conn:
		return c, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

func (o *oneConn) Close() error   { o.shut(); return nil }
func (o *oneConn) Addr() net.Addr { return o.addr }

// watchedConn reports when it is closed.
type watchedConn struct {
	net.Conn
	onClose func()
}

// Read ends with io.EOF however the connection ended: after any other error ttrpc's server waits forever, and the connection would count
// against its user for as long as the controller runs.
func (w *watchedConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

func (w *watchedConn) Close() error {
	w.onClose()
	return w.Conn.Close()
}
