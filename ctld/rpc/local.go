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

// Limits of what ordinary users may occupy in this process, for its memory and descriptors. There is no rate of calls: users take turns by
// time (package turns, loop.For). Excess calls wait, or are refused once they have been read, and commands then retry.
const (
	// maxLocalConns bounds open connections of the unix socket, maxUserConns those of one ordinary user, so that one user cannot lock out
	// the others.
	maxLocalConns = 4096
	maxUserConns  = 1024
	// maxOperatorConns are reserved on top of them, so that users together cannot lock out root.
	maxOperatorConns = 256
	// crowdedFor is the lifetime of an excess connection: long enough to deliver the refusal. One user may have maxCrowded of them.
	crowdedFor = 2 * time.Second
	maxCrowded = 64
	// maxUserCalls bounds the calls of one ordinary user that are being answered or wait; maxUserStreams those of them with more than one
	// message either way, because an answer that waits for its reader, or a request under way, takes memory. Further calls wait.
	maxUserCalls   = 1024
	maxUserStreams = 64
	// maxUserAnswers bounds the calls of one ordinary user that are worked on, or whose answer waits to be written, on all connections;
	// maxConnAnswers does so for one connection.
	maxUserAnswers = 32
	// maxConnAnswers: an answer takes up to four mebibytes, and its construction as much again. Calls that wait for a job's end are not
	// counted.
	maxConnAnswers = 2
	// maxUserSelections bounds the calls that read the accounting database, which supports few at a time: a slow reader occupies a place
	// there.
	maxUserSelections = 2
)

// Local serves ControllerAPI on a unix socket.
//
// Each connection has a ttrpc.Server of its own, because ttrpc passes a handler no data of its connection except the context of Serve. A
// server is a small map; making one costs microseconds, and the peer's identity is then in every context of the connection.
type Local struct {
	service  *Service
	methods  map[string]ttrpc.Stream
	operator func(uid uint32) bool
	owner    func(uid uint32) uint32 // the owner of a subordinate uid: a user's limits include the uids of his containers
	log      *slog.Logger
	said     *logfile.Seldom // limits lines that users can cause

	// frames.Patience, crowdedFor, drainsFor and frames.MaxWait; tests set longer ones so that no client is too late.
	patience, crowdedFor, drainsFor, readWait time.Duration

	slots map[bool]chan struct{} // of connections: operators', and all others'
	gates *turns.Gates           // for users' calls

	mu    sync.Mutex
	loads map[uint32]*load
	conns map[uint32]int // open, by uid
}

// load holds the present demands of one ordinary user.
type load struct {
	calls      atomic.Int32
	frames     *frames.User  // frames being read
	answers    chan struct{} // calls being worked on, or whose answers wait to be written
	streams    chan struct{}
	selections chan struct{}
}

// NewLocal makes the server. operator reports whether a uid may act on everything.
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

// localPlaces returns maxLocalConns, or half of this process's descriptors: the others are for nodes and state.
func localPlaces() int {
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return maxLocalConns
	}
	return int(min(maxLocalConns, most.Cur/2))
}

// Listen makes the socket, open to every local user, in a directory that only the daemon's user may write to. It replaces the socket of a
// dead controller, but not one that answers.
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
	old := unix.Umask(0) // no chmod afterwards: in a directory of SlurmUser's a link could have replaced it by then
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
		if !ok { // more than can be answered; commands that submit try again
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

// admitConn takes the places of a connection: its user's, from any host, and a general one.
func (s *Local) admitConn(peer *Peer) (leave func(), ok bool) {
	slot, mine := s.slots[peer.Operator], s.hold(peer.owner, 1)
	if full := mine > maxUserConns+maxCrowded && !peer.Operator; full || !tryTake(slot) {
		s.hold(peer.owner, -1)
		return nil, false
	}
	peer.crowded = mine > maxUserConns && !peer.Operator
	return func() { s.hold(peer.owner, -1); <-slot }, true
}

// tryTake takes a place, unless all are taken.
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
	// The end of the controller breaks the connection, which ends its calls, in this order: an answer would report a failure although the
	// outcome of the call is unknown. Commands ask the next controller again.
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

// servedFor returns the maximum lifetime of a connection; 0: no limit.
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

// kernel is a connection from this machine.
type kernel struct {
	s *Local
	c *net.UnixConn
}

// Identify asks the kernel for the peer: SO_PEERCRED and SO_PEERGROUPS, as of the time of the connect.
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

// ownerOf returns the user to whom a uid's limits apply: the owner of a subordinate uid, unless it is known to have an account of its own.
// Ranges may by mistake contain uids of a directory service. The service is not asked, because this must not wait; earlier look-ups count.
func (s *Local) ownerOf(uid uint32) uint32 {
	if owner := s.owner(uid); owner == uid || !s.service.Users.absent.Present(uid) {
		return owner
	}
	return uid
}

const controllerAPI = "sluice.v1.ControllerAPI"

// waitMethods wait for jobs and steps, for any time.
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

// sayable makes the message of an error valid UTF-8, as google.rpc.Status requires: otherwise ttrpc would end the connection without an
// answer. The message may quote a user's input.
func sayable(err error) error {
	if err == nil || utf8.ValidString(err.Error()) {
		return err
	}
	st := status.Convert(err).Proto()
	st.Message = strings.ToValidUTF8(st.Message, "\uFFFD")
	return status.FromProto(st).Err()
}

// answer carries out a call. A panic of a handler ends its call, but not the controller: a handler has changed nothing, as it reads
// published views and passes commands to the writer.
func (s *Local) answer(ctx context.Context, name string, m method, in ttrpc.StreamServer) (out any, err error) {
	waits := m.collects || waitMethods[name] // waits for something outside the controller; its answer is small
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
		_ = s.working(ctx, peer) // only waits for its turn: a completed call is not refused any more
	}
	return out, err
}

// turnOf returns the kind of sender for a call's commands.
func turnOf(p *Peer) loop.Who {
	if p.Operator {
		return loop.Operators
	}
	return loop.Users
}

// admit lets a call begin; leave ends it. streaming: it has more than one message in some direction.
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
	// Calls that read the accounting database may take long, and share few connections to it.
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

// loadOf returns the load of a user. Users are those of this machine, so there are not many.
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
