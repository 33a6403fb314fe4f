package rpc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/internal/jointoken"
	"github.com/sluice-hpc/sluice/internal/mtls"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Enrolment holds the dependencies of the methods about certificates, apart from the state.
type Enrolment struct {
	Addresses func() []string // host:port of the controllers, as hosts reach them
	// Trust returns the controller's certificate, and those of the authorities; the first of these signs.
	Trust func() (own *x509.Certificate, authorities []*x509.Certificate, err error)
	// Shown lists the certificates that were presented; Cut closes the connections of a host (Door).
	Shown func() []nodeport.Shown
	Cut   func(name string) int
	// TakeIn has the state record certificates that were issued without the controller.
	TakeIn func(ctx context.Context)
}

// defaultTokenTTL is the default lifetime of a token: long enough to paste it into another window.
const defaultTokenTTL = 15 * time.Minute

// roleShown returns the name of a role on the command line; in certificates a compute host's is "node".
func roleShown(role string) string {
	if role == mtls.RoleNode {
		return "compute"
	}
	return role
}

func roleMeant(word string) string {
	if word == "" || word == "compute" {
		return mtls.RoleNode
	}
	return word
}

// CreateToken makes a join token. Only the answer contains its secret.
func (s *Service) CreateToken(ctx context.Context, r *pb.CreateTokenRequest) (*pb.CreateTokenReply, error) {
	own, all, err := s.Enrol.Trust()
	if err != nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidSpec, "%v", err))
	}
	t := jointoken.Token{Cluster: s.Writer.View().Settings.Cluster, Controllers: s.Enrol.Addresses(), Node: r.Node, Role: roleMeant(r.Role)}
	id, secret := make([]byte, 6), make([]byte, jointoken.SecretLen)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(secret)
	t.ID, t.Secret = hex.EncodeToString(id), secret
	for _, a := range all {
		if own.CheckSignatureFrom(a) == nil {
			f := mtls.Fingerprint(a)
			t.Fingerprint = f[:]
		}
	}
	ttl := r.TtlNs
	if ttl == 0 {
		ttl = int64(defaultTokenTTL)
	}
	hash := sha256.Sum256(secret)
	rec := &pb.TokenRecord{Id: t.ID, SecretHash: hash[:], Node: r.Node, Role: t.Role, TtlNs: ttl, Uid: peerOf(ctx).UID}
	out, err := s.do(ctx, reactor.CreateToken{Caller: s.caller(peerOf(ctx)), Token: rec, AnyNode: r.AnyNode})
	if err != nil {
		return nil, err
	}
	text, err := t.Text()
	if err != nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidSpec, "%v", err))
	}
	made := out.(*pb.TokenRecord)
	return &pb.CreateTokenReply{Text: text, Id: made.Id, ExpiresNs: made.CreatedNs + made.TtlNs}, nil
}

// Tokens lists the join tokens, the newest last.
func (s *Service) Tokens(context.Context, *pb.TokensRequest) (*pb.TokensReply, error) {
	out := &pb.TokensReply{}
	now := time.Now().UnixNano()
	for _, t := range s.Writer.View().Tokens() {
		out.Tokens = append(out.Tokens, &pb.TokenInfo{Id: t.Id, Node: t.Node, Role: roleShown(t.Role), CreatedNs: t.CreatedNs,
			ExpiresNs: t.CreatedNs + t.TtlNs, State: reactor.TokenState(t, now), Uid: t.Uid})
	}
	slices.SortFunc(out.Tokens, func(a, b *pb.TokenInfo) int {
		return cmp.Or(cmp.Compare(a.CreatedNs, b.CreatedNs), strings.Compare(a.Id, b.Id))
	})
	return out, nil
}

// RevokeToken invalidates a join token.
func (s *Service) RevokeToken(ctx context.Context, r *pb.RevokeTokenRequest) (*pb.RevokeTokenReply, error) {
	out, err := s.do(ctx, reactor.RevokeToken{Caller: s.caller(peerOf(ctx)), ID: r.Id})
	if err != nil {
		return nil, err
	}
	return &pb.RevokeTokenReply{Node: out.(*pb.TokenRecord).Node}, nil
}

// RevokeHost shuts a host out. When it returns, that is on disk, and the host's connections are closed.
func (s *Service) RevokeHost(ctx context.Context, r *pb.RevokeHostRequest) (*pb.RevokeHostReply, error) {
	peer := peerOf(ctx)
	out, err := s.do(ctx, reactor.RevokeHost{Caller: s.caller(peer), UserName: s.Users.Name(peer.UID), Name: r.Name})
	if err != nil {
		return nil, err
	}
	revoked, cut := out.(reactor.Revoked), s.Enrol.Cut(r.Name)
	s.Log.Info("a host was revoked", "host", r.Name, "connections", cut, "by", peer.UID)
	return &pb.RevokeHostReply{Certificates: uint32(revoked.Certificates), Connections: uint32(cut), Tokens: uint32(revoked.Tokens)}, nil
}

// Certificates lists the issued certificates, by name and time.
func (s *Service) Certificates(ctx context.Context, _ *pb.CertificatesRequest) (*pb.CertificatesReply, error) {
	own, all, err := s.Enrol.Trust()
	if err != nil {
		return nil, problem(pb.NewProblem(pb.CodeInvalidSpec, "%v", err))
	}
	s.Enrol.TakeIn(ctx)
	out, v, now := &pb.CertificatesReply{}, s.Writer.View(), time.Now()
	for i, a := range all {
		out.Authorities = append(out.Authorities, &pb.AuthorityInfo{Id: mtls.AuthorityID(a), Name: a.Subject.CommonName,
			ExpiresNs: a.NotAfter.UnixNano(), Signs: i == 0})
	}
	mine := CertificateRecord(own, mtls.RoleController, "own")
	out.Certificates = append(out.Certificates, certificateInfo(own.Subject.CommonName, mine, now))
	shown := map[string]nodeport.Shown{}
	for _, c := range s.Enrol.Shown() {
		shown[c.Serial] = c
	}
	for _, h := range v.Hosts() {
		for _, c := range h.Certificates {
			info := certificateInfo(h.Name, c, now)
			if at, ok := shown[c.Serial]; ok {
				info.SeenNs, info.Connected = at.At.UnixNano(), at.Open > 0
				delete(shown, c.Serial)
			}
			out.Certificates = append(out.Certificates, info)
		}
	}
	for _, c := range shown { // not issued by the controller, or forgotten
		if c.Serial == mine.Serial {
			continue
		}
		rec := &pb.CertificateRecord{Serial: c.Serial, Role: c.Role, ExpiresNs: c.Expires.UnixNano(), Origin: "shown"}
		if !c.Issued.IsZero() {
			rec.IssuedNs = c.Issued.UnixNano()
		}
		info := certificateInfo(c.Name, rec, now)
		info.SeenNs, info.Connected = c.At.UnixNano(), c.Open > 0
		if !v.Accepts(c.Name, c.Serial) {
			info.State = "revoked"
		}
		out.Certificates = append(out.Certificates, info)
	}
	slices.SortFunc(out.Certificates[1:], func(a, b *pb.CertificateInfo) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.IssuedNs, b.IssuedNs), strings.Compare(a.Serial, b.Serial))
	})
	return out, nil
}

func certificateInfo(name string, c *pb.CertificateRecord, now time.Time) *pb.CertificateInfo {
	info := &pb.CertificateInfo{Name: name, Role: roleShown(c.Role), Serial: c.Serial, IssuedNs: c.IssuedNs, ExpiresNs: c.ExpiresNs,
		Authority: c.Authority, Origin: c.Origin, State: "valid"}
	switch {
	case c.RevokedNs != 0:
		info.State = "revoked"
	case now.UnixNano() > c.ExpiresNs:
		info.State = "expired"
	}
	return info
}
