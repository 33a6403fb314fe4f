package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// Rates of calls by ordinary users: sustained per second, and at once. Operators are not limited. A call over the rate waits.
const (
	callRate  = 50
	callBurst = 200
	// maxCallWait bounds how long a call over the rate waits, and with it how many do.
	maxCallWait = 5 * time.Second
	// maxLocalConns bounds open connections of the unix socket, maxUserConns those of one ordinary user: nobody shuts the others out.
	maxLocalConns = 4096
	maxUserConns  = 1024
	// maxOperatorConns are on top of them: several users together do not shut out root either.
	maxOperatorConns = 256
	// crowdedFor is how long a connection too many lives: long enough to be told so.
	crowdedFor = 2 * time.Second
)

// Local serves ControllerAPI on a unix socket.
//
// Why one ttrpc.Server per connection: ttrpc hands a handler no data of its connection but the context that Serve was given.
// A server is a small map; making one costs microseconds, and the peer's identity is then in every context of the connection.
type Local struct {
	service  *Service
	operator func(uid uint32) bool
	log      *slog.Logger
	places   int // maxLocalConns

	mu       sync.Mutex
	limiters map[uint32]*rate.Limiter
	conns    map[uint32]int // open, by uid
	servers  map[*ttrpc.Server]struct{}
}

// NewLocal makes the server. operator says who may act on everything.
func NewLocal(s *Service, operator func(uid uint32) bool, log *slog.Logger) *Local {
	l := &Local{service: s, operator: operator, log: log, places: maxLocalConns, limiters: map[uint32]*rate.Limiter{}, conns: map[uint32]int{}, servers: map[*ttrpc.Server]struct{}{}}
	s.stream = l.admit
	return l
}

// Listen makes the socket, open to every local user, in a folder that only the daemon's user may write to. A socket left by a
// controller that is gone is replaced; one that answers is not.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the socket: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("cannot listen on %s: another controller answers there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Serve accepts until ctx ends.
func (s *Local) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	slots := map[bool]chan struct{}{false: make(chan struct{}, s.places), true: make(chan struct{}, maxOperatorConns)}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer s.closeAll()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
				s.log.Error("cannot accept: out of file descriptors", "err", err)
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return fmt.Errorf("cannot accept on %s: %w", l.Addr(), err)
		}
		peer, err := s.identify(conn.(*net.UnixConn))
		if err != nil {
			s.log.Warn("a local connection was refused: the kernel does not say who it is", "err", err)
			_ = conn.Close()
			continue
		}
		slot := slots[peer.Operator]
		select {
		case slot <- struct{}{}:
		default: // commands that submit try again
			_ = conn.Close()
			continue
		}
		wg.Add(1)
		go func() {
			defer func() { <-slot; wg.Done() }()
			s.serveConn(ctx, conn, peer)
		}()
	}
}

func (s *Local) serveConn(ctx context.Context, conn net.Conn, peer *Peer) {
	defer conn.Close()
	if s.hold(peer.UID, 1) > maxUserConns && !peer.Operator {
		peer.crowded = true
		t := time.AfterFunc(crowdedFor, func() { _ = conn.Close() })
		defer t.Stop()
	}
	defer s.hold(peer.UID, -1)
	srv, err := ttrpc.NewServer(ttrpc.WithUnaryServerInterceptor(s.intercept))
	if err != nil {
		s.log.Error("cannot serve a local connection", "err", err)
		return
	}
	pb.RegisterControllerAPIService(srv, s.service)
	s.track(srv, true)
	defer s.track(srv, false)
	one := newOneConn(conn)
	_ = srv.Serve(context.WithValue(ctx, peerKey{}, peer), one)
	_ = srv.Close()
}

// hold counts the connections of a user.
func (s *Local) hold(uid uint32, by int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.conns[uid] + by
	if s.conns[uid] = n; n == 0 {
		delete(s.conns, uid)
	}
	return n
}

func (s *Local) track(srv *ttrpc.Server, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open {
		s.servers[srv] = struct{}{}
	} else {
		delete(s.servers, srv)
	}
}

func (s *Local) closeAll() {
	s.mu.Lock()
	open := make([]*ttrpc.Server, 0, len(s.servers))
	for srv := range s.servers {
		open = append(open, srv)
	}
	s.mu.Unlock()
	for _, srv := range open {
		_ = srv.Close()
	}
}

// identify asks the kernel who is at the other end: SO_PEERCRED and SO_PEERGROUPS, as of the time of the connect.
func (s *Local) identify(c *net.UnixConn) (*Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var groups []uint32
	var credErr, groupErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		groups, groupErr = peerGroups(int(fd))
	}); err != nil {
		return nil, err
	}
	if err := errors.Join(credErr, groupErr); err != nil {
		return nil, err
	}
	return &Peer{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid, Groups: groups, Operator: s.operator(cred.Uid)}, nil
}

// intercept authorises and limits a unary call.
func (s *Local) intercept(ctx context.Context, unmarshal ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	if err := s.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return method(ctx, unmarshal)
}

func (s *Local) admit(ctx context.Context, method string) error {
	peer, err := authorise(ctx, method)
	if err != nil {
		return err
	}
	switch {
	case peer.Operator:
		return nil
	case peer.crowded:
		return problem(pb.NewProblem(pb.CodeRateLimited, "you have more than %d connections to the controller", maxUserConns).WithHint("let some of your commands end"))
	}
	s.mu.Lock()
	lim := s.limiters[peer.UID]
	if lim == nil {
		lim = rate.NewLimiter(callRate, callBurst)
		s.limiters[peer.UID] = lim
	}
	s.mu.Unlock()
	if !wait(ctx, lim) {
		return problem(pb.NewProblem(pb.CodeRateLimited, "more than %d calls a second", callRate).WithHint("ask less often, or for more at once"))
	}
	return nil
}

// wait takes a place under the rate, unless that would take too long.
func wait(ctx context.Context, lim *rate.Limiter) bool {
	r := lim.Reserve()
	d := r.Delay()
	if until, ok := ctx.Deadline(); d > maxCallWait || ok && time.Until(until) < d {
		r.Cancel()
		return false
	}
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		r.Cancel()
		return false
	}
}

// oneConn is a listener of one connection: Accept gives it once and then waits until it is closed.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func newOneConn(c net.Conn) *oneConn {
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

// watchedConn tells when it is closed.
type watchedConn struct {
	net.Conn
	onClose func()
}

// Read ends with io.EOF however the connection ended: after any other error ttrpc's server goes on waiting, for ever, and the
// connection would count against its user for as long as the controller runs.
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
