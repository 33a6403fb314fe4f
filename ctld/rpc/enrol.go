package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/internal/logfile"
	"github.com/sluice-hpc/sluice/internal/mtls"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Authority signs certificates (ca.Signer).
type Authority interface {
	// Sign certifies a key that a host has made.
	Sign(id mtls.Identity, key *ecdsa.PublicKey) (*x509.Certificate, error)
	// Bundle returns the certificates of all authorities that hosts have to trust, PEM.
	Bundle() ([]byte, error)
}

// EnrolServer implements EnrolAPI.
type EnrolServer struct {
	nodepb.UnimplementedEnrolAPIServer
	Writer    Writer
	Authority Authority
	Cluster   func() string
	Log       *slog.Logger

	mu    sync.Mutex
	all   *rate.Limiter
	from  map[netip.Addr]*rate.Limiter
	names map[string]*rate.Limiter
	said  *logfile.Seldom
}

// Rates of attempts to join, per second and burst: of all hosts, and of one address. Secrets have 192 bits and cannot be guessed; the rates
// bound the cost of attempts. The rates of renewals are for each host: each renewal is a signature and a commit.
const (
	joinRate, joinBurst         = 50, 100
	addrJoinRate, addrJoinBurst = 1, 20
	renewRate, renewBurst       = 1.0 / 30, 5
	maxLimiters                 = 4096
	maxRenewers                 = 65536
)

// Limits of an unauthenticated request.
const (
	maxTokenID   = 64
	maxSecret    = 64
	maxJoinName  = 255
	maxJoinBytes = 4096 // of a certificate request
)

// mayJoin reports whether the rates allow another attempt from an address.
func (s *EnrolServer) mayJoin(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.from) >= maxLimiters {
		if s.all == nil {
			s.all = rate.NewLimiter(joinRate, joinBurst)
		}
		s.from = map[netip.Addr]*rate.Limiter{}
	}
	l := s.from[from]
	if l == nil {
		l = rate.NewLimiter(addrJoinRate, addrJoinBurst)
		s.from[from] = l
	}
	return l.Allow() && s.all.Allow()
}

// mayRenew reports whether a host may get another certificate now.
func (s *EnrolServer) mayRenew(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil || len(s.names) >= maxRenewers {
		s.names = map[string]*rate.Limiter{}
	}
	l := s.names[name]
	if l == nil {
		l = rate.NewLimiter(renewRate, renewBurst)
		s.names[name] = l
	}
	return l.Allow()
}

// Join admits a host with a token.
func (s *EnrolServer) Join(ctx context.Context, r *nodepb.JoinRequest) (*nodepb.CertificateReply, error) {
	from := netip.Addr{}
	if p, ok := peer.FromContext(ctx); ok {
		from = nodeport.Source(p.Addr)
	}
	if !s.mayJoin(from) {
		return nil, status.Error(codes.ResourceExhausted, "too many attempts to join; try again in a while")
	}
	cert, err := s.join(ctx, r)
	if err != nil {
		s.refused(from, r, err)
		return nil, err
	}
	s.Log.Info("a host has joined", "host", r.Node, "role", r.Role, "token", r.Token, "from", from.String())
	return s.reply(cert)
}

// refused logs an attempt, but does not let strangers fill the log.
func (s *EnrolServer) refused(from netip.Addr, r *nodepb.JoinRequest, err error) {
	s.mu.Lock()
	if s.said == nil {
		s.said = logfile.NewSeldom(10 * time.Second)
	}
	due, left := s.said.Says("join")
	s.mu.Unlock()
	if due {
		s.Log.Warn("a host was refused", "from", from.String(), "host", r.Node, "err", status.Convert(err).Message(),
			"left_out", left)
	}
}

// join returns the certificate as DER.
func (s *EnrolServer) join(ctx context.Context, r *nodepb.JoinRequest) ([]byte, error) {
	if len(r.Token) > maxTokenID || len(r.Secret) > maxSecret || len(r.Node) > maxJoinName || len(r.Role) > maxJoinName ||
		len(r.Request) > maxJoinBytes {
		return nil, status.Error(codes.InvalidArgument, "the join request is too large")
	}
	reactor.PlainWords(r)
	if mine := s.Cluster(); r.Cluster != mine {
		return nil, problem(pb.NewProblem(pb.CodeAccessDenied, "the join token is for cluster %s, not for this one (%s)", r.Cluster, mine))
	}
	hash := sha256.Sum256(r.Secret)
	// Check first, before anything expensive: without a token nothing is parsed or signed. The writer judges again.
	t, now := s.Writer.View().Token(r.Token), time.Now().UnixNano()
	if p := reactor.JudgeToken(t, hash[:], r.Node, r.Role, t.GetKeyHash(), now); p != nil {
		return nil, problem(p)
	}
	id := mtls.Identity{Role: r.Role, Name: r.Node}
	key, keyHash, err := keyOf(r.Request, id)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if p := reactor.JudgeToken(t, hash[:], r.Node, r.Role, keyHash, now); p != nil {
		return nil, problem(p)
	}
	cert, err := s.Authority.Sign(id, key)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	out, err := s.Writer.Do(loop.ForNode(ctx, ""), reactor.Join{Token: r.Token, SecretHash: hash[:], Node: r.Node, Role: r.Role,
		KeyHash: keyHash, Certificate: cert.Raw, Record: CertificateRecord(cert, r.Role, "token "+r.Token)})
	if err != nil {
		return nil, s.failed(err)
	}
	return out.(reactor.Joined).Certificate, nil
}

func keyOf(request []byte, id mtls.Identity) (*ecdsa.PublicKey, []byte, error) {
	key, err := mtls.ReadRequest(request, id)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, nil, err
	}
	hash := sha256.Sum256(der)
	return key, hash[:], nil
}

// Renew issues the next certificate to the holder of one.
func (s *EnrolServer) Renew(ctx context.Context, r *nodepb.RenewRequest) (*nodepb.CertificateReply, error) {
	id, serial, err := shownBy(ctx)
	if err != nil {
		return nil, err
	}
	key, err := mtls.ReadRequest(r.Request, id)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if !s.mayRenew(id.Role + " " + id.Name) {
		return nil, status.Error(codes.ResourceExhausted, "too many renewals; try again in a minute")
	}
	cert, err := s.Authority.Sign(id, key)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	_, err = s.Writer.Do(loop.ForNode(ctx, id.Name), reactor.Certified{Name: id.Name, By: serial,
		Record: CertificateRecord(cert, id.Role, "renewal")})
	if err != nil {
		return nil, s.failed(err)
	}
	s.Log.Info("a host has renewed its certificate", "host", id.Name, "role", id.Role, "until", cert.NotAfter)
	return s.reply(cert.Raw)
}

// failed converts the writer's error to an answer.
func (s *EnrolServer) failed(err error) error {
	var p *pb.Problem
	if errors.As(err, &p) {
		return problem(p)
	}
	return status.Error(codes.Unavailable, err.Error()) // busy, or shutting down
}

func (s *EnrolServer) reply(der []byte) (*nodepb.CertificateReply, error) {
	bundle, err := s.Authority.Bundle()
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &nodepb.CertificateReply{Certificate: mtls.EncodeCertificate(der), Authorities: bundle}, nil
}

// CertificateRecord returns the state's record of a certificate.
func CertificateRecord(c *x509.Certificate, role, origin string) *pb.CertificateRecord {
	r := &pb.CertificateRecord{Serial: mtls.Serial(c), Role: role, ExpiresNs: c.NotAfter.UnixNano(), Origin: origin,
		Authority: mtls.SignerOf(c)}
	if at, ok := mtls.Issued(c); ok {
		r.IssuedNs = at.UnixNano()
	}
	return r
}
