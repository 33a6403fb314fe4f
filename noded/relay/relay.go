// Package relay lets commands work on a host that is not the controller's. It serves a unix socket with the protocol of
// the controller's own, asks the kernel who has connected (SO_PEERCRED), and passes the bytes on, one stream of RelayAPI
// for each connection. It understands nothing of them and decides nothing: the controller judges whether this host may
// speak for a user.
//
// The only answer that a relay gives itself is that the controller is away, and only when the controller has certainly
// not heard the request. Then sbatch may wait. Otherwise the connection breaks, and the request id makes a retry the
// same job.
//
// All streams share one connection, which is not that of the node's reports. The relay runs in noded-link, because it
// parses what comes from the network; noded-root makes the socket and hands it over.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/noded/greet"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of a relay. The controller has its own, a little above those of MaxCalls.
const (
	LoginCalls = 1000 // connections of commands on a login host
	NodeCalls  = 240  // on a compute host
	// userShare is the part of them that one user may have.
	userShare = 4
	// patience is how long a connection may be open without having said anything, and how long a write may wait for a command to read.
	patience = 30 * time.Second
	// connectPatience is how long a command waits for the way to the controller: less than MessageTimeout (slurm.conf(5)), so that it is
	// told what is wrong.
	connectPatience = 4 * time.Second
	// pieceBytes are those of a piece that this side sends.
	pieceBytes = 32 << 10
	// fullPause is how long is waited when the process has no descriptor left.
	fullPause = 50 * time.Millisecond
)

// Options of a relay.
type Options struct {
	Listener    *net.UnixListener
	Host        string   // its name, for what is said to users
	Controllers []string // host:port, tried in turn
	TLS         *tls.Config
	Most        int  // connections of commands: LoginCalls or NodeCalls
	Keep        bool // the connection with the controller is kept also while nobody uses it
	// User gives the login name of a uid on this host; empty: it has none.
	User func(ctx context.Context, uid uint32) (string, error)
	Log  *slog.Logger
	// Followed judges controllers; nil: every one is followed.
	Followed *greet.Followed
	// Signs is told which authority signs certificates; may be nil. It must not wait.
	Signs func(authority string)
	// Renewed says that the certificate behind TLS is another one: calls from then on go over a connection that shows it. May be nil.
	Renewed <-chan struct{}
}

// Run serves until ctx ends, and closes the listener.
func Run(ctx context.Context, o Options) error {
	up, err := dial(o)
	if err != nil {
		_ = o.Listener.Close()
		return err
	}
	r := &relay{o: o, up: up, said: logfile.NewSeldom(time.Minute), conns: map[uint32]int{}}
	ctx, cancel := context.WithCancel(ctx)
	defer func() { r.uplink().close() }()
	defer r.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = o.Listener.Close() })
	defer stop()
	r.begin(ctx, up)
	r.wg.Go(func() { r.follow(ctx) })
	for {
		c, err := o.Listener.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ECONNABORTED):
			r.warn("cannot accept connections of commands", err)
			time.Sleep(fullPause)
			continue
		case err != nil:
			return fmt.Errorf("cannot accept on %s: %w", o.Listener.Addr(), err)
		}
		r.wg.Go(func() { r.serve(ctx, c) })
	}
}

type relay struct {
	o    Options
	said *logfile.Seldom
	wg   sync.WaitGroup

	mu    sync.Mutex
	up    *uplink
	all   int
	conns map[uint32]int // by uid
}

// begin keeps a connection open where that is wanted.
func (r *relay) begin(ctx context.Context, up *uplink) {
	ctx, up.end = context.WithCancel(ctx)
	if r.o.Keep {
		r.wg.Go(func() { up.keep(ctx) })
	}
}

// follow makes a new connection when the certificate was renewed. The old one ends with the last call on it.
func (r *relay) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.o.Renewed:
		}
		up, err := dial(r.o)
		if err != nil {
			r.warn("cannot use the renewed certificate for commands", err)
			continue
		}
		r.begin(ctx, up)
		r.mu.Lock()
		old := r.up
		r.up = up
		r.mu.Unlock()
		old.end()
		r.wg.Go(func() { old.calls.Wait(); old.close() })
	}
}

// uplink is the connection for the next call.
func (r *relay) uplink() *uplink {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up
}

// take is uplink for a call, which leaves it when it ends.
func (r *relay) take() (up *uplink, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up.calls.Add(1)
	return r.up, r.up.calls.Done
}

func (r *relay) warn(what string, err error) {
	if due, left := r.said.Says(what); due {
		r.o.Log.Warn(what, "err", err, "left_out", left)
	}
}

// credentials asks the kernel who has connected, as of the time of the connect.
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, credErr)
}

// hold takes a place for a user's connection. Root, who may want to see what is wrong, has room of its own.
func (r *relay) hold(uid uint32) (leave func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid != 0 && (r.all >= r.o.Most || r.conns[uid] >= r.o.Most/userShare) {
		return nil, false
	}
	r.all++
	r.conns[uid]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all--
		if r.conns[uid]--; r.conns[uid] == 0 {
			delete(r.conns, uid)
		}
	}, true
}

// serve is the life of one connection of a command.
func (r *relay) serve(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	whole := ctx
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	defer cancel()
	stop := context.AfterFunc(whole, func() { _ = c.Close() })
	defer stop()
	cred, err := credentials(c)
	if err != nil {
		r.warn("refused a connection of a command: the kernel does not report its credentials", err)
		return
	}
	leave, ok := r.hold(cred.Uid)
	if !ok {
		refuse(c, nil, pb.NewProblem(pb.CodeRateLimited, "host %s has too many connections of commands open", r.o.Host).WithHint(
			"wait until some of your commands have finished"))
		return
	}
	defer leave()
	// The first bytes go with the first piece: a connection that says nothing costs the controller nothing.
	first := make([]byte, pieceBytes)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	n, err := c.Read(first)
	if err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	user, err := r.o.User(ctx, cred.Uid)
	if err != nil {
		refuse(c, first[:n], pb.NewProblem(pb.CodeUserID, "uid %d cannot be looked up on host %s: %v", cred.Uid, r.o.Host, err))
		return
	}
	up, leave := r.take()
	defer leave()
	stream, err := up.call(ctx, end)
	if err != nil {
		r.refused(whole, c, first[:n], err)
		return
	}
	piece := &nodepb.Piece{Caller: &nodepb.Caller{Uid: cred.Uid, Gid: cred.Gid, Pid: cred.Pid, User: user}, Data: first[:n]}
	if err := stream.Send(piece); err != nil && err != io.EOF { // io.EOF: the receiver learns why
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send(c, stream)
		cancel() // the command has gone
	}()
	answered, err := receive(c, stream)
	gone := ctx.Err() != nil
	_ = c.SetReadDeadline(time.Unix(1, 0)) // the sender ends
	<-sent
	if err != nil && !answered && !gone {
		r.refused(whole, c, first[:n], err)
	}
}

type stream = grpc.BidiStreamingClient[nodepb.Piece, nodepb.Piece]

// send passes on what the command says, until it ends.
func send(c *net.UnixConn, s stream) {
	b := make([]byte, pieceBytes)
	for {
		n, err := c.Read(b)
		if n > 0 && s.Send(&nodepb.Piece{Data: b[:n]}) != nil { // encoded when it returns
			return
		}
		if err != nil {
			return
		}
	}
}

// receive passes on what the controller says, until it ends. A command that does not read is cut off, as on the controller's host.
func receive(c *net.UnixConn, s stream) (answered bool, err error) {
	for {
		p, err := s.Recv()
		if err == io.EOF {
			return answered, nil
		}
		if err != nil {
			return answered, err
		}
		answered = true
		if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return answered, nil
		}
		if _, err := c.Write(p.Data); err != nil {
			return answered, nil
		}
	}
}

// refused tells a command what keeps it from the controller, where that is certain: what may have arrived, and only its answer is lost,
// looks as it does on the controller's host, where the connection breaks.
func (r *relay) refused(ctx context.Context, c *net.UnixConn, first []byte, err error) {
	var away *awayError
	switch st := status.Convert(err); {
	case ctx.Err() != nil:
	case errors.As(err, &away):
		refuse(c, first, pb.NewProblem(pb.CodeAway, "%v", away).WithHint("sluice-noded of host %s keeps trying", r.o.Host))
	case st.Code() == codes.ResourceExhausted:
		refuse(c, first, pb.NewProblem(pb.CodeRateLimited, "%s", st.Message()))
	case st.Code() == codes.PermissionDenied, st.Code() == codes.Unauthenticated, st.Code() == codes.InvalidArgument,
		st.Code() == codes.FailedPrecondition: // builds or clocks that are too far apart
		r.warn("the controller refuses what this host relays", err)
		refuse(c, first, pb.NewProblem(pb.CodeAccessDenied, "the controller refuses host %s: %s", r.o.Host, st.Message()))
	}
}

// awayError says that there is no way to the controller.
type awayError struct{ text string }

func (e *awayError) Error() string { return e.text }

// Listen makes the socket of a host, open to every local user, in a folder that only the daemon's user may write to. One that is left from
// a daemon that is gone is replaced; one that answers is not.
func Listen(path string) (*os.File, error) {
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("cannot listen on %s: another daemon is listening there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the old socket: %w", err)
	}
	old := unix.Umask(0)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false) // between two daemons the socket stays: commands that submit see that one has been here, and wait
	return l.File()
}

// FromFile is the listener of what Listen gave, perhaps to another process.
func FromFile(f *os.File) (*net.UnixListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use descriptor %d as a listening socket: %w", f.Fd(), err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("descriptor %d is no listening unix socket", f.Fd())
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}
