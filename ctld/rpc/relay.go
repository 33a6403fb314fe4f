package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/mtls"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of relayed connections. Limits of a user count across all hosts, and apply where local connections are counted (Local).
const (
	// MaxLoginCalls and MaxNodeCalls bound the open connections of a login host and a compute host. Their relays stay below, so that
	// commands wait there.
	MaxLoginCalls = 1024
	MaxNodeCalls  = 256
	// MaxPiece is the size of a piece in bytes; MaxPieceMessage is that of its message.
	MaxPiece        = 64 << 10
	MaxPieceMessage = MaxPiece + 1<<10
	// pieceBytes is the size of the pieces that this side sends.
	pieceBytes = 32 << 10
	// maxUserName is the maximum length of a login name (LOGIN_NAME_MAX).
	maxUserName = 256
	// jobGrace is the time for which a compute host may act for a user after the user's last job there was seen.
	jobGrace = time.Minute
	// maxGraces bounds the users remembered for that, of one host.
	maxGraces = 1024
)

// Trust holds the administrator's settings about hosts.
type Trust interface {
	// Root reports whether a host may act for root and SlurmUser.
	Root(host string) bool
	// Login reports whether users work on a compute host without a job there.
	Login(host string) bool
}

// RelayServer implements RelayAPI: each call is a connection of the Local server, from a process of another host.
type RelayServer struct {
	nodepb.UnimplementedRelayAPIServer
	Local *Local
	View  func() *state.View
	Trust func() Trust
	Log   *slog.Logger

	once  sync.Once
	said  *logfile.Seldom
	mu    sync.Mutex
	calls map[string]int                  // open, by host
	seen  map[string]map[uint32]time.Time // when users last had a job on a host
	// rates of hosts that drain themselves
	drains map[string]*rate.Limiter
}

func (s *RelayServer) begin() {
	s.once.Do(func() {
		s.said = logfile.NewSeldom(time.Minute)
		s.calls, s.seen, s.drains = map[string]int{}, map[string]map[uint32]time.Time{}, map[string]*rate.Limiter{}
	})
}

// Call serves one connection, from the first piece until either side ends it.
func (s *RelayServer) Call(stream grpc.BidiStreamingServer[nodepb.Piece, nodepb.Piece]) error {
	s.begin()
	host, err := hostOf(stream.Context())
	if err != nil {
		return err
	}
	leave, ok := s.hold(host)
	if !ok {
		s.warn("a host has too many connections of commands open", host, nil, nil)
		return status.Errorf(codes.ResourceExhausted, "host %s has too many connections of commands open", host.Name)
	}
	defer leave()
	first, err := firstOf(stream.Context(), stream.Recv)
	if err != nil {
		return err
	}
	if err := checkFirst(first); err != nil {
		s.warn("refused a relayed connection: it does not follow the protocol", host, nil, err)
		return err
	}
	peer, refusal, err := relayed{s, host, first.Caller}.Identify(stream.Context())
	if err != nil {
		return status.FromContextError(err).Err()
	}
	if refusal != nil {
		peer = &Peer{UID: first.Caller.Uid, Via: ViaRelay, Host: host.Name, refused: refusal}
		refuse := func() { s.warn("refused a relayed connection", host, first.Caller, refusal) }
		if host.Role == mtls.RoleNode && first.Caller.Uid == 0 {
			peer.drains = &drainer{drains: s.drainsOf(host.Name), warn: refuse}
		} else {
			refuse()
		}
	}
	return s.serve(stream, peer, first.Data)
}

// serve passes a connection to the Local server.
func (s *RelayServer) serve(stream grpc.BidiStreamingServer[nodepb.Piece, nodepb.Piece], peer *Peer, data []byte) error {
	if peer.refused == nil { // a refused one only counts for the host: a false claim must not take a user's places
		leave, ok := s.Local.admitConn(peer)
		if !ok {
			return status.Error(codes.ResourceExhausted, "there are too many connections")
		}
		defer leave()
	}
	ours, theirs := net.Pipe()
	served, sent, received := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() {
		defer close(served)
		s.Local.serveConn(stream.Context(), theirs, peer)
	}()
	// Both goroutines end with the stream, which ends when Call returns.
	go func() {
		received <- receivePieces(stream, ours, data)
		_ = ours.Close()
	}()
	go func() {
		sent <- sendPieces(stream, ours)
		_ = ours.Close()
	}()
	<-served
	last := time.NewTimer(s.Local.patience) // for data that was sent and not taken yet
	defer last.Stop()
	var err error
	select {
	case err = <-sent:
	case <-last.C:
		return status.Error(codes.Aborted, "the host does not read the data sent to it")
	}
	if err == nil {
		select {
		case err = <-received:
		default:
		}
	}
	return err
}

// receivePieces copies data from the host until it ends.
func receivePieces(stream grpc.BidiStreamingServer[nodepb.Piece, nodepb.Piece], to net.Conn, data []byte) error {
	for {
		if len(data) > 0 {
			if _, err := to.Write(data); err != nil {
				return nil // the connection has ended
			}
		}
		p, err := stream.Recv()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case p.Caller != nil || len(p.Data) > MaxPiece:
			return errPiece
		}
		data = p.Data
	}
}

var errPiece = status.Errorf(codes.InvalidArgument, "a piece names a caller, or has more than %d bytes", MaxPiece)

// sendPieces copies data to the host until the Local server has no more. The write deadline of frames.Conn detects a host that does not
// read.
func sendPieces(stream grpc.BidiStreamingServer[nodepb.Piece, nodepb.Piece], from net.Conn) error {
	b := make([]byte, pieceBytes)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if err := stream.Send(&nodepb.Piece{Data: b[:n]}); err != nil { // encoded before Send returns
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// checkFirst checks the form of a first piece.
func checkFirst(p *nodepb.Piece) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	switch c := p.Caller; {
	case c == nil:
		return status.Error(codes.InvalidArgument, "the first piece of a connection must name the caller")
	case len(p.Data) > MaxPiece:
		return errPiece
	case len(c.User) > maxUserName || strings.ContainsFunc(c.User, odd):
		return status.Errorf(codes.InvalidArgument, "%.40q is not a login name", c.User)
	}
	return nil
}

// hold counts the connections of a host.
func (s *RelayServer) hold(host mtls.Identity) (leave func(), ok bool) {
	most, key := MaxNodeCalls, host.Role+" "+host.Name
	if host.Role == mtls.RoleLogin {
		most = MaxLoginCalls
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[key] >= most {
		return nil, false
	}
	s.calls[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calls[key]--; s.calls[key] == 0 {
			delete(s.calls, key)
		}
	}, true
}

// warn logs an event that a host can cause at any rate.
func (s *RelayServer) warn(what string, host mtls.Identity, by *nodepb.Caller, why error) {
	if due, left := s.said.Says(what + " " + host.Role + " " + host.Name); due {
		s.Log.Warn(what, "host", host.Name, "role", host.Role, "uid", by.GetUid(), "pid", by.GetPid(), "why", why, "left_out", left)
	}
}

// hostOf returns the host of a relay's certificate.
func hostOf(ctx context.Context) (mtls.Identity, error) {
	id, _, err := shownBy(ctx)
	if err == nil && id.Role != mtls.RoleNode && id.Role != mtls.RoleLogin {
		err = status.Errorf(codes.PermissionDenied, "a %s certificate does not identify a host", id.Role)
	}
	return id, err
}

// relayed is a connection with the relay of another host.
type relayed struct {
	s      *RelayServer
	host   mtls.Identity
	caller *nodepb.Caller
}

// Identify trusts the host for the uid, as far as it may act for it. Name and groups come from this machine; the name has to be the same on
// both.
func (r relayed) Identify(ctx context.Context) (*Peer, *pb.Problem, error) {
	uid, local, host := r.caller.Uid, r.s.Local, r.host.Name
	deny := func(code pb.Code, hint, text string, args ...any) (*Peer, *pb.Problem, error) {
		return nil, pb.NewProblem(code, text, args...).WithHint("%s", hint), nil
	}
	operator := local.operator(uid)
	if operator && !r.s.Trust().Root(host) {
		return deny(pb.CodeAccessDenied, "list the host in relay_root of SlurmctldParameters, or use the controller's own host",
			"host %s may not act for root and SlurmUser", host)
	}
	u, err := local.service.Users.Member(ctx, uid)
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case errors.Is(err, errNoAccount):
		return deny(pb.CodeUserID, "accounts must be the same on all hosts of a cluster",
			"uid %d of host %s, which is %s there, has no account on the controller's machine", uid, host, called(r.caller.User))
	case err != nil:
		return deny(pb.CodeUserID, "try again when the directory service answers", "uid %d of host %s cannot be looked up: %v", uid, host,
			err)
	case u.Name != r.caller.User:
		return deny(pb.CodeUserID, "accounts must be the same on all hosts of a cluster",
			"uid %d is %s on host %s, and %s on the controller's machine", uid, called(r.caller.User), host, u.Name)
	}
	if r.host.Role == mtls.RoleNode && !operator && !r.s.hasJob(host, uid, time.Now()) && !r.s.Trust().Login(host) {
		return deny(pb.CodeAccessDenied, "use a login host; relay_login of SlurmctldParameters lists compute hosts on which users work",
			"host %s runs no job of yours (uid %d), so it may not act for you", host, uid)
	}
	p := &Peer{UID: uid, GID: u.GID, Groups: u.Groups, Operator: operator, Via: ViaRelay, Host: host, User: u.Name,
		owner: local.ownerOf(uid)}
	for _, g := range u.Groups { // newgrp(1)
		if g == r.caller.Gid {
			p.GID = g
		}
	}
	return p, nil, nil
}

// called formats a login name for a sentence.
func called(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}

// hasJob reports whether a user has something left on a node, or had a moment ago: commands at the end of a job's script may arrive after
// the node has reported its end.
func (s *RelayServer) hasJob(node string, uid uint32, now time.Time) bool {
	v := s.View()
	has := false
	if n := v.Node(node); n != nil {
		for _, id := range n.Jobs {
			if j := v.Jobs.Get(id); j != nil && j.Spec.GetUid() == uid {
				has = true
				break
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen[node]
	if !has {
		last, ok := seen[uid]
		return ok && now.Sub(last) < jobGrace
	}
	if seen == nil || len(seen) >= maxGraces {
		seen = map[uint32]time.Time{}
		s.seen[node] = seen
	}
	seen[uid] = now
	return true
}
