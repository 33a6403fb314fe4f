// Package relay lets commands work on hosts other than the controller's. It serves a unix socket with the controller's own
// protocol, asks the kernel who has connected (SO_PEERCRED), and passes the bytes on, one stream of RelayAPI per connection. It
// neither interprets them nor decides anything: the controller judges whether this host may speak for a user.
//
// The only answer from the relay itself is that the controller is away, given only if the controller has certainly not received
// the request. Then sbatch may wait. Otherwise the connection breaks, and the request id makes a retry the same job.
//
// All streams share one connection, separate from that of the node's reports. The relay runs in noded-link because it parses
// network input; noded-root creates the socket and passes it on.
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

// Bounds of a relay. The controller has its own limits, slightly above these.
const (
	LoginCalls = 1000 // command connections on a login host
	NodeCalls  = 240  // command connections on a compute host
	// userShare: one user may have the userShare-th part of them.
	userShare = 4
	// patience is how long a connection may be open without a request, and how long a write may wait for a command to read.
	patience = 30 * time.Second
	// connectPatience is how long a command waits for the controller: less than MessageTimeout (slurm.conf(5)), so that the user
	// sees the reason.
	connectPatience = 4 * time.Second
	// pieceBytes is the size of the pieces that this side sends.
	pieceBytes = 32 << 10
	// fullPause is the pause when the process is out of descriptors.
	fullPause = 50 * time.Millisecond
)

// Options of a relay.
type Options struct {
	Listener    *net.UnixListener
	Host        string   // its name, for messages to users
	Controllers []string // host:port, tried in turn
	TLS         *tls.Config
	Most        int  // limit for command connections: LoginCalls or NodeCalls
	Keep        bool // keep the connection to the controller open when unused
	// User returns the login name of a uid on this host; empty: it has none.
	User func(ctx context.Context, uid uint32) (string, error)
	Log  *slog.Logger
	// Followed decides which controllers to accept; nil: all.
	Followed *greet.Followed
	// Signs receives the CA that signs certificates; may be nil. It must not block.
	Signs func(authority string)
	// Renewed signals that TLS has a new certificate: later calls use a new connection that presents it. May be nil.
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
			r.warn("cannot accept command connections", err)
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

// begin keeps a connection open if Keep is set.
func (r *relay) begin(ctx context.Context, up *uplink) {
	ctx, up.end = context.WithCancel(ctx)
	if r.o.Keep {
		r.wg.Go(func() { up.keep(ctx) })
	}
}

// follow opens a new connection after the certificate was renewed. The old one closes after its last call.
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

// uplink returns the connection for the next call.
func (r *relay) uplink() *uplink {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up
}

// take is uplink for a call, which must call leave when it ends.
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

// credentials asks the kernel who has connected, as of the time of connect(2).
func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, credErr)
}

// hold reserves a place for a user's connection. Root may exceed the limits, to see what is wrong.
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

// serve handles one connection of a command.
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
		r.warn("refusing a command connection: cannot read its credentials", err)
		return
	}
	leave, ok := r.hold(cred.Uid)
	if !ok {
		refuse(c, nil, pb.NewProblem(pb.CodeRateLimited, "host %s has too many command connections open", r.o.Host).WithHint(
			"wait until some of your commands have finished"))
		return
	}
	defer leave()
	// The stream starts with the first bytes: a silent connection costs the controller nothing.
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
	if err := stream.Send(piece); err != nil && err != io.EOF { // io.EOF: the receiver gets the reason
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
	_ = c.SetReadDeadline(time.Unix(1, 0)) // stops the sender
	<-sent
	if err != nil && !answered && !gone {
		r.refused(whole, c, first[:n], err)
	}
}

type stream = grpc.BidiStreamingClient[nodepb.Piece, nodepb.Piece]

// send forwards the command's bytes until the command ends.
func send(c *net.UnixConn, s stream) {
	b := make([]byte, pieceBytes)
	for {
		n, err := c.Read(b)
		if n > 0 && s.Send(&nodepb.Piece{Data: b[:n]}) != nil { // Send has encoded it when it returns, so b is free again
			return
		}
		if err != nil {
			return
		}
	}
}

// receive forwards the controller's bytes until the stream ends. A command that does not read is disconnected, as on the
// controller's host.
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

// refused tells a command why it cannot reach the controller, if the request has certainly not arrived. Otherwise only the answer
// may be lost, and the connection breaks, as on the controller's host.
func (r *relay) refused(ctx context.Context, c *net.UnixConn, first []byte, err error) {
	var away *awayError
	switch st := status.Convert(err); {
	case ctx.Err() != nil:
	case errors.As(err, &away):
		refuse(c, first, pb.NewProblem(pb.CodeAway, "%v", away).WithHint("sluice-noded of host %s keeps trying", r.o.Host))
	case st.Code() == codes.ResourceExhausted:
		refuse(c, first, pb.NewProblem(pb.CodeRateLimited, "%s", st.Message()))
	case st.Code() == codes.PermissionDenied, st.Code() == codes.Unauthenticated, st.Code() == codes.InvalidArgument,
		st.Code() == codes.FailedPrecondition: // builds or clocks too far apart
		r.warn("the controller refuses what this host relays", err)
		refuse(c, first, pb.NewProblem(pb.CodeAccessDenied, "the controller refuses host %s: %s", r.o.Host, st.Message()))
	}
}

// awayError reports that the controller cannot be reached.
type awayError struct{ text string }

func (e *awayError) Error() string { return e.text }

// Listen creates the socket of a host, open to every local user, in a directory that only the daemon's user may write to. It
// replaces the socket of a daemon that is gone, but not one that answers.
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
	l.SetUnlinkOnClose(false) // the socket outlives the daemon, so that commands that submit recognise a restart and wait
	return l.File()
}

// FromFile returns the listener of Listen's file, perhaps in another process.
func FromFile(f *os.File) (*net.UnixListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("cannot use descriptor %d as a listening socket: %w", f.Fd(), err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("descriptor %d is not a listening unix socket", f.Fd())
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}
