package ctld

import (
	"time"

	"github.com/sluice-hpc/sluice/conf"
	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/rpc"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// relayWindow bounds the unread bytes of a host on a stream. gRPC would let it grow to megabytes.
	relayWindow = 64 << 10
	// relayIdle is the time for which the connection of a relay without calls is kept: login hosts reconnect at once.
	relayIdle = 5 * time.Minute
)

// relayServer makes the gRPC server for the relays of other hosts. The node port's server has admitted their connections.
func (d *daemon) relayServer(local *rpc.Local) *grpc.Server {
	s := grpc.NewServer(append(rpc.Guard{Accepts: d.accepts, Signs: d.certs.signs, Met: d.met, Generation: d.generation()}.Options(),
		grpc.Creds(nodeport.AnnexCredentials()),
		grpc.MaxRecvMsgSize(rpc.MaxPieceMessage),
		grpc.InitialWindowSize(relayWindow), grpc.InitialConnWindowSize(relayWindow*16),
		grpc.MaxConcurrentStreams(rpc.MaxLoginCalls), grpc.ConnectionTimeout(connectTimeout), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: relayIdle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))...)
	nodepb.RegisterRelayAPIServer(s, &rpc.RelayServer{Local: local, View: d.loop.View, Trust: d.trust, Log: d.log})
	return s
}

// trust returns the present settings about hosts.
func (d *daemon) trust() rpc.Trust { return trust{d.conf.Load()} }

type trust struct{ c *conf.Config }

// Root implements relay_root of SlurmctldParameters.
func (t trust) Root(host string) bool { return t.c.SlurmctldParameters.Hosts("relay_root")[host] }

// Login implements relay_login of SlurmctldParameters.
func (t trust) Login(host string) bool { return t.c.SlurmctldParameters.Hosts("relay_login")[host] }
