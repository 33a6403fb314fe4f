package client

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/client/wire"
)

// idleConns is the number of connections kept for later calls, idleFor for how long: the controller closes connections that are
// idle for longer.
const (
	idleConns = 4
	idleFor   = 10 * time.Second
)

type idleConn struct {
	*wire.Conn
	since time.Time
}

// calls makes the calls of the ControllerAPI (calls.gen.go). Each has exclusive use of a connection until its answer has been read;
// then the next call takes over the connection, so sequential calls share one. Concurrent calls on one connection, as ttrpc allows,
// would require a goroutine that dispatches the answers, which a command should not pay for.
type calls struct {
	socket string

	mu     sync.Mutex
	idle   []idleConn
	busy   map[*wire.Conn]bool
	closed bool
	told   func(*msg.Problem) // Client.Waiting
}

func newCalls(socket string, first *wire.Conn) *calls {
	return &calls{socket: socket, idle: []idleConn{{first, time.Now()}}, busy: map[*wire.Conn]bool{}}
}

// take returns a connection that no other call uses.
func (c *calls) take() (*wire.Conn, error) {
	if conn, err := c.takeIdle(); conn != nil || err != nil {
		return conn, err
	}
	conn, err := wire.Dial(c.socket)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return nil, wire.ErrClosed
	}
	c.busy[conn] = true
	return conn, nil
}

func (c *calls) takeIdle() (*wire.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, wire.ErrClosed
	}
	for n := len(c.idle); n > 0; n = len(c.idle) {
		last := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if time.Since(last.since) < idleFor {
			c.busy[last.Conn] = true
			return last.Conn, nil
		}
		_ = last.Close()
	}
	return nil, nil
}

// give returns a connection after its call has ended.
func (c *calls) give(conn *wire.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, conn)
	if c.closed || !conn.Usable() || len(c.idle) == idleConns {
		_ = conn.Close()
		return
	}
	c.idle = append(c.idle, idleConn{conn, time.Now()})
}

func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.idle {
		_ = conn.Close()
	}
	for conn := range c.busy {
		_ = conn.Close()
	}
	c.idle, c.busy = nil, nil
}

// pointer is a *M that implements msg.Message.
type pointer[M any] interface {
	*M
	msg.Message
}

// unary makes a call with one request and one answer.
func unary[R any, P pointer[R]](ctx context.Context, c *calls, method string, req msg.Message) (*R, error) {
	var answer string
	err := c.patiently(ctx, func() error {
		conn, err := c.take()
		if err != nil {
			return err
		}
		defer c.give(conn)
		answer, err = conn.Call(ctx, method, req.AppendTo(nil))
		return err
	})
	return decoded[R, P](answer, err)
}

func decoded[R any, P pointer[R]](answer string, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	r := new(R)
	if err := P(r).Merge(answer); err != nil {
		return nil, err
	}
	return r, nil
}

// download makes a call that is answered by several messages. It waits for the first one, which may be an error.
func download[R any, P pointer[R]](ctx context.Context, c *calls, method string, req msg.Message) (msg.Stream[R], error) {
	var s *stream[R, P]
	err := c.patiently(ctx, func() error {
		conn, err := c.take()
		if err != nil {
			return err
		}
		x, err := conn.Open(ctx, method, req.AppendTo(nil))
		if err != nil {
			c.give(conn)
			return err
		}
		s = &stream[R, P]{calls: c, conn: conn, exchange: x}
		if s.first, err = s.receive(); isBusy(err) {
			return err
		}
		s.ahead = err == nil
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// stream returns its connection at the end.
type stream[R any, P pointer[R]] struct {
	calls    *calls
	conn     *wire.Conn
	exchange *wire.Exchange
	first    string // while ahead
	ahead    bool
	end      error
}

func (s *stream[R, P]) Recv() (*R, error) { return decoded[R, P](s.RecvEncoded()) }

func (s *stream[R, P]) RecvEncoded() (m string, err error) {
	if s.ahead {
		m, s.first, s.ahead = s.first, "", false
		return m, nil
	}
	return s.receive()
}

func (s *stream[R, P]) receive() (string, error) {
	if s.end != nil {
		return "", s.end
	}
	m, err := s.exchange.Next()
	if err != nil {
		s.end = err
		s.calls.give(s.conn)
	}
	return m, err
}

// upload makes a call with a request of several messages.
func upload[M, R any, PM pointer[M], P pointer[R]](ctx context.Context, c *calls, method string) (msg.Upload[M, R], error) {
	conn, err := c.take()
	if err != nil {
		return nil, err
	}
	x, err := conn.OpenUpload(ctx, method)
	if err != nil {
		c.give(conn)
		return nil, err
	}
	return &uploading[M, R, PM, P]{calls: c, conn: conn, exchange: x}, nil
}

type uploading[M, R any, PM pointer[M], P pointer[R]] struct {
	calls    *calls
	conn     *wire.Conn
	exchange *wire.Exchange
	ended    bool
}

func (u *uploading[M, R, PM, P]) Send(m *M) error {
	if u.ended {
		return io.EOF
	}
	err := u.exchange.Send(PM(m).AppendTo(nil))
	if err != nil {
		u.giveBack()
	}
	return err
}

func (u *uploading[M, R, PM, P]) CloseAndRecv() (*R, error) {
	if u.ended {
		return nil, io.EOF
	}
	defer u.giveBack()
	if err := u.exchange.CloseSend(); err != nil {
		return nil, err
	}
	return decoded[R, P](u.exchange.Answer())
}

func (u *uploading[M, R, PM, P]) giveBack() {
	u.ended = true
	u.calls.give(u.conn)
}
