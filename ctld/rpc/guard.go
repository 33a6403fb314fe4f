package rpc

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/version"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Guard checks every call to the node port against the authorisation table. The port accepts connections without a certificate, so that
// hosts can join; they may do nothing else.
type Guard struct {
	// Accepts reports whether a certificate of the cluster's authority is valid, not revoked.
	Accepts func(name, serial string) bool
	// Signs names the authority that signs certificates (mtls.AuthorityID); nil: hosts are not told.
	Signs func() string
	// Generation is the generation of this controller's state.
	Generation version.Generation
	// Met is called with a host's release and by how much its clock is ahead, as sent with a call. May be nil.
	Met func(serial, release string, ahead time.Duration)
}

// Options are the options of the port's server.
func (g Guard) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, do grpc.UnaryHandler) (any, error) {
			if err := g.check(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return do(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, do grpc.StreamHandler) error {
			if err := g.check(s.Context(), info.FullMethod); err != nil {
				return err
			}
			return do(srv, s)
		}),
	}
}

func (g Guard) check(ctx context.Context, method string) error {
	if err := g.may(ctx, method); err != nil {
		return err
	}
	return g.welcome(ctx, method)
}

func (g Guard) may(ctx context.Context, method string) error {
	who := Table[strings.TrimPrefix(method, "/")].Who
	if who == Joiner {
		return nil
	}
	id, serial, err := shownBy(ctx)
	if err != nil {
		return err
	}
	if !g.Accepts(id.Name, serial) {
		return problem(reactor.RevokedProblem(id.Name))
	}
	switch {
	case who == NodeCert && id.Role == mtls.RoleNode:
	case who == HostCert && (id.Role == mtls.RoleNode || id.Role == mtls.RoleLogin):
	case who == NodeCert, who == HostCert:
		return status.Errorf(codes.PermissionDenied, "a %s certificate does not identify a host that may call %s", id.Role, method)
	default:
		return status.Errorf(codes.PermissionDenied, "%s is not served on this port", method)
	}
	return nil
}

// shownBy returns the identity and serial of a call's certificate.
func shownBy(ctx context.Context) (id mtls.Identity, serial string, err error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return id, "", status.Error(codes.Unauthenticated, "no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return id, "", status.Error(codes.Unauthenticated, "no TLS")
	}
	if id, err = mtls.PeerOf(info.State); err != nil {
		return id, "", status.Errorf(codes.Unauthenticated, "%v; to join this cluster, create a token on the controller: sluice token "+
			"create --node NAME", err)
	}
	return id, mtls.Serial(mtls.CertificateOf(info.State)), nil
}
