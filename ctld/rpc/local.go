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
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/containerd/ttrpc"
	"github.com/sluice-hpc/sluice/ctld/frames"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/turns"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/passwd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of what ordinary users have in this process at a time, for its memory and descriptors. There is no rate of calls: for time, users
// take turns (package turns, loop.For). What a user has too much of waits, or is refused when it has been read, and commands then ask
// again.
const (
	// maxLocalConns bounds open connections of the unix socket, maxUserConns those of one ordinary user: nobody shuts the others out.
	maxLocalConns = 4096
	maxUserConns  = 1024
	// maxOperatorConns are on top of them: several users together do not shut out root either.
	maxOperatorConns = 256
	// crowdedFor is how long a connection too many lives: long enough to be told so. So many of one user live at a time.
	crowdedFor = 2 * time.Second
	maxCrowded = 64
	// maxUserCalls bounds the calls of one ordinary user that are being answered or wait, maxUserStreams those among them that have more
	// than one message either way: what waits for its reader, or is being collected, takes memory. One more waits for its turn.
	maxUserCalls   = 1024
	maxUserStreams = 64
	// maxUserAnswers bounds the calls of one ordinary user that are worked on at a time, or whose answer waits to be written, on all
	// connections; as maxConnAnswers does for one.
	maxUserAnswers = 32
	// maxConnAnswers: an answer takes up to four mebibytes, and as much again for what it is made of. Calls that wait for a job's end
	// are not counted.
	maxConnAnswers = 2
	// maxUserSelections bounds those that read the accounting, which can hold few at a time: who reads slowly keeps a place there.
	maxUserSelections = 2
)

// Local serves ControllerAPI on a unix socket.
//
// Why one ttrpc.Server per connection: ttrpc hands a handler no data of its connection but the context that Serve was given.
// A server is a small map; making one costs microseconds, and the peer's identity is then in every context of the connection.
type Local struct {
	service  *Service
	methods  map[string]ttrpc.Stream
	operator func(uid uint32) bool
	owner    func(uid uint32) uint32 // of a subordinate uid: what a user may have is his, whoever he is in his containers
	log      *slog.Logger
	said     *logfile.Seldom // lines that users can bring about

	// frames.Patience, crowdedFor, drainsFor and frames.MaxWait, but in tests, where nobody is to be too late for them.
	patience, crowdedFor, drainsFor, readWait time.Duration

	slots map[bool]chan struct{} // of connections, of operators and of all others
	gates *turns.Gates           // of users' calls

	mu    sync.Mutex
	loads map[uint32]*load
	conns map[uint32]int // open, by uid
}

// load is what one ordinary user asks for at present.
type load struct {
	calls      atomic.Int32
	frames     *frames.User  // what of theirs is read
	answers    chan struct{} // those that are worked on, or whose answers wait to be written
	streams    chan struct{}
	selections chan struct{}
}

// NewLocal makes the server. operator says who may act on everything.
func NewLocal(s *Service, operator func(uid uint32) bool, log *slog.Logger) *Local {
	l := &Local{service: s, methods: map[string]ttrpc.Stream{}, operator: operator, log: log, said: logfile.NewSeldom(time.Minute),
		owner: passwd.NewSubordinates("/etc/subuid").Owner, patience: frames.Patience,
		crowdedFor: crowdedFor, drainsFor: drainsFor, readWait: frames.MaxWait,
		loads: map[uint32]*load{}, conns: map[uint32]int{}}
	l.slots = map[bool]chan struct{}{false: make(chan struct{}, localPlaces()), true: make(chan struct{}, maxOperatorConns)}
	l.gates = turns.New()
	s.calls = newCalls(log)
	for name, m := range methods(s) {
		l.methods[name] = l.guard(name, m)
	}
	return l
}

// localPlaces is maxLocalConns, or half of the descriptors that this process may have: the others are for the nodes and the state.
func localPlaces() int {
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return maxLocalConns
	}
	return int(min(maxLocalConns, most.Cur/2))
}

// Listen makes the socket, open to every local user, in a folder that only the daemon's user may write to. A socket left by a
// controller that is gone is replaced; one that answers is not.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the directory of the socket: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("cannot listen on %s: another controller is listening there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the old socket: %w", err)
	}
	old := unix.Umask(0) // and no chmod afterwards: in a folder of SlurmUser's a link could be in its place by then
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return l, nil
}

// Serve accepts until ctx ends.
func (s *Local) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	var said time.Time
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
				if now := time.Now(); now.Sub(said) > time.Minute {
					said = now
					s.log.Error("cannot accept connections of commands: out of file descriptors", "err", err)
				}
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return fmt.Errorf("cannot accept on %s: %w", l.Addr(), err)
		}
		peer, _, err := kernel{s, conn.(*net.UnixConn)}.Identify(ctx)
		if err != nil {
			if due, left := s.said.Says("credentials"); due {
				s.log.Warn("refused a local connection: the kernel does not report its credentials", "err", err, "left_out", left)
			}
			_ = conn.Close()
			continue
		}
		leave, ok := s.admitConn(peer)
		if !ok { // more than is answered; commands that submit try again
			_ = conn.Close()
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer leave()
			s.serveConn(ctx, conn, peer)
		}()
	}
}

// admitConn takes the places of a connection: of its user, wherever he connects from, and of all.
func (s *Local) admitConn(peer *Peer) (leave func(), ok bool) {
	slot, mine := s.slots[peer.Operator], s.hold(peer.owner, 1)
	if full := mine > maxUserConns+maxCrowded && !peer.Operator; full || !tryTake(slot) {
		s.hold(peer.owner, -1)
		return nil, false
	}
	peer.crowded = mine > maxUserConns && !peer.Operator
	return func() { s.hold(peer.owner, -1); <-slot }, true
}

// tryTake takes a place, unless there is none.
func tryTake(places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *Local) serveConn(ctx context.Context, conn net.Conn, peer *Peer) {
	defer conn.Close()
	if d := s.servedFor(peer); d > 0 {
		t := time.AfterFunc(d, func() { _ = conn.Close() })
		defer t.Stop()
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		s.log.Error("cannot serve a local connection", "err", err)
		return
	}
	srv.RegisterService(controllerAPI, &ttrpc.ServiceDesc{Streams: s.methods})
	// The end of the controller breaks the connection, and that ends its calls, in this order: an answer would say that a call has
	// failed of which nobody knows what becomes. Commands ask the next controller again.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var user *frames.User
	if !peer.Operator && peer.refused == nil {
		user = s.loadOf(peer.owner).frames
	}
	peer.answers = make(chan struct{}, maxConnAnswers)
	peer.conn = frames.NewConn(conn, user)
	peer.conn.Patience, peer.conn.Wait = s.patience, s.readWait
	defer peer.conn.Release()
	ctx, cancel := context.WithCancel(context.WithValue(quiet(context.WithoutCancel(ctx)), peerKey{}, peer))
	defer cancel()
	_ = srv.Serve(ctx, frames.Listener(peer.conn))
	_ = srv.Close()
}

// servedFor is how long a connection may live at most; 0: as long as its peer wants.
func (s *Local) servedFor(p *Peer) time.Duration {
	switch {
	case p.drains != nil:
		return s.drainsFor
	case p.crowded || p.refused != nil:
		return s.crowdedFor
	}
	return 0
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

// kernel is a connection of this machine.
type kernel struct {
	s *Local
	c *net.UnixConn
}

// Identify asks the kernel who is at the other end: SO_PEERCRED and SO_PEERGROUPS, as of the time of the connect.
func (k kernel) Identify(context.Context) (*Peer, *pb.Problem, error) {
	raw, err := k.c.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var cred *unix.Ucred
	var groups []uint32
	var credErr, groupErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		groups, groupErr = peerGroups(int(fd))
	}); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(credErr, groupErr); err != nil {
		return nil, nil, err
	}
	s := k.s
	return &Peer{UID: cred.Uid, GID: cred.Gid, Groups: groups, Operator: s.operator(cred.Uid), owner: s.ownerOf(cred.Uid)}, nil, nil
}

// ownerOf is for whom a uid counts: the owner of a subordinate one, unless it is known to have an account of its own. Ranges may by mistake
// hold uids of a directory service. It is not asked, this must not wait: who was looked up before is known.
func (s *Local) ownerOf(uid uint32) uint32 {
	if owner := s.owner(uid); owner == uid || !s.service.Users.absent.Present(uid) {
		return owner
	}
	return uid
}

const controllerAPI = "sluice.v1.ControllerAPI"

// waitMethods may take as long as jobs and steps do.
var waitMethods = map[string]bool{"WaitJob": true, "WaitAllocation": true, "WaitStep": true, "CreateStep": true}

// guard makes a method read its request, and then authorise, limit and count the call.
func (s *Local) guard(name string, m method) ttrpc.Stream {
	return ttrpc.Stream{StreamingClient: m.collects, StreamingServer: m.lists, Handler: func(ctx context.Context, in ttrpc.StreamServer) (
		any, error) {
		defer keepAlive(ctx, in)()
		out, err := s.answer(ctx, name, m, in)
		if m.collects && err != nil { // ttrpc would answer each piece that comes after the answer
			for err := error(nil); err != io.EOF && ctx.Err() == nil; {
				err = in.RecvMsg(new(pb.SubmitChunk))
			}
		}
		return out, sayable(err)
	}}
}

// sayable makes the message of an error UTF-8, as that of google.rpc.Status has to be: ttrpc would end the connection without an answer.
// What a user has given may be quoted in it.
func sayable(err error) error {
	if err == nil || utf8.ValidString(err.Error()) {
		return err
	}
	st := status.Convert(err).Proto()
	st.Message = strings.ToValidUTF8(st.Message, "\uFFFD")
	return status.FromProto(st).Err()
}

// answer carries out a call. A handler that panics ends its call, and not the controller: it has changed nothing, as it reads published
// views and hands commands to the writer.
func (s *Local) answer(ctx context.Context, name string, m method, in ttrpc.StreamServer) (out any, err error) {
	waits := m.collects || waitMethods[name] // for something that is not the controller's; its answer is small
	first := m.first()
	if err := in.RecvMsg(first); err != nil {
		return nil, err
	}
	leave, err := s.admit(ctx, name, m.collects || m.lists)
	if err != nil {
		return nil, err
	}
	defer leave()
	peer := peerOf(ctx)
	uid := peer.UID
	if !waits {
		if err := s.working(ctx, peer); err != nil {
			return nil, err
		}
	}
	defer s.service.calls.begin(name, uid)()
	defer func() {
		if r := recover(); r != nil {
			if due, left := s.said.Says(fmt.Sprint(name, uid)); due {
				s.log.Error("a call failed because of a bug in the controller", "method", name, "uid", uid, "panic", r, "left_out",
					left, "stack", string(debug.Stack()))
			}
			out, err = nil, status.Error(codes.Internal, "the request hit a bug in the controller; see its log")
		}
	}()
	if p := tooMany(first.ProtoReflect()); p != nil {
		return nil, problem(p)
	}
	t := s.turnFor(peer, name)
	defer t.Give()
	if turnMethods[name] || selectMethods[name] {
		if err := t.Take(ctx); err != nil {
			return nil, err
		}
	}
	ctx = turns.With(ctx, t)
	if out, err = m.handle(loop.For(ctx, turnOf(peer), peer.owner), first, boundedStream{in, ctx, t}); waits && err == nil {
		_ = s.working(ctx, peer) // it waits for its turn at most; what has been done is not refused any more
	}
	return out, err
}

// turnOf is whose turn of the writer a call takes.
func turnOf(p *Peer) loop.Who {
	if p.Operator {
		return loop.Operators
	}
	return loop.Users
}

// admit lets a call begin; leave is for its end. streaming: it has more than one message one way or the other.
func (s *Local) admit(ctx context.Context, method string, streaming bool) (leave func(), err error) {
	if p := peerOf(ctx); p.refused != nil {
		return func() {}, p.mayDrain(ctx, method)
	}
	peer, err := authorise(ctx, controllerAPI+"/"+method)
	if err == nil {
		err = commandMeets(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case peer.Operator:
		return func() {}, nil
	case peer.crowded:
		return nil, problem(pb.NewProblem(pb.CodeRateLimited, "you have more than %d connections to the controller",
			maxUserConns).WithHint("wait until some of your commands have finished"))
	}
	l := s.loadOf(peer.owner)
	if l.calls.Add(1) > maxUserCalls {
		l.calls.Add(-1)
		return nil, problem(pb.NewProblem(pb.CodeRateLimited, "%d of your calls are already in progress",
			maxUserCalls).WithHint("wait until some of your commands have finished"))
	}
	// What reads the accounting database may take long, and has few connections to it.
	selects := selectMethods[method]
	if !streaming && !selects {
		return func() { l.calls.Add(-1) }, nil
	}
	places := l.streams
	if selects {
		places = l.selections
	}
	ctx, cancel := context.WithTimeout(ctx, s.readWait)
	defer cancel()
	select {
	case places <- struct{}{}:
		return func() { <-places; l.calls.Add(-1) }, nil
	case <-ctx.Done():
		l.calls.Add(-1)
		return nil, problem(pb.NewProblem(pb.CodeRateLimited, "%d of your listings are already in progress",
			cap(places)).WithHint("wait until some of your commands have finished"))
	}
}

// loadOf is what a user asks for. Users are those of this machine, so there are not many.
func (s *Local) loadOf(uid uint32) *load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.loads[uid]
	if l == nil {
		l = &load{streams: make(chan struct{}, maxUserStreams), selections: make(chan struct{}, maxUserSelections),
			frames: frames.NewUser(maxUserCalls), answers: make(chan struct{}, maxUserAnswers)}
		s.loads[uid] = l
	}
	return l
}
