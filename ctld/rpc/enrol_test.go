package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/mtls"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// enrolment is that of a controller with an authority and no node port.
func enrolment(t *testing.T) Enrolment {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tls")
	if err := ca.Ensure(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Provide(dir, dir, "c", mtls.RoleController, nil); err != nil {
		t.Fatal(err)
	}
	cfg, err := ca.ServerTLS(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Enrolment{Addresses: func() []string { return []string{"head:1"} }, Shown: func() []nodeport.Shown { return nil },
		Cut: func(string) int { return 0 }, TakeIn: func(context.Context) {},
		Trust: func() (*x509.Certificate, []*x509.Certificate, error) {
			own, err := x509.ParseCertificate(cfg.Certificates[0].Certificate[0])
			if err != nil {
				return nil, nil, err
			}
			all, err := ca.Authorities(dir)
			return own, all, err
		}}
}

// joining is the TLS configuration of a host that has a token.
func (s *nodeServer) joining(dir string) *tls.Config {
	s.t.Helper()
	all, err := ca.Authorities(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return mtls.Joining(mtls.Fingerprint(all[0]))
}

func (s *nodeServer) connect(conf *tls.Config) *grpc.ClientConn {
	s.t.Helper()
	conf = conf.Clone()
	conf.ServerName = "127.0.0.1"
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *nodeServer) do(cmd reactor.Command) any {
	s.t.Helper()
	out, err := s.loop.Do(context.Background(), cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

var secret = []byte("0123456789abcdef01234567")

// token makes one for a node.
func (s *nodeServer) token(id, node string, ttl time.Duration) {
	s.t.Helper()
	hash := sha256.Sum256(secret)
	s.do(reactor.CreateToken{Caller: reactor.Caller{Operator: true}, Token: &pb.TokenRecord{Id: id, SecretHash: hash[:], Node: node,
		Role: state.RoleNode, TtlNs: int64(ttl)}})
}

func newRequest(t *testing.T, id mtls.Identity) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, _, err := mtls.MakeKey()
	if err != nil {
		t.Fatal(err)
	}
	return key, requestFor(t, key, id)
}

func requestFor(t *testing.T, key *ecdsa.PrivateKey, id mtls.Identity) []byte {
	t.Helper()
	r, err := mtls.Request(key, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var n1 = mtls.Identity{Role: mtls.RoleNode, Name: "n1"}

// TestStrangersMayOnlyJoin calls every method of every service of the port without a certificate, and with those of each role.
func TestStrangersMayOnlyJoin(t *testing.T) {
	s := serveNodes(t)
	for _, by := range []struct {
		role string
		conf *tls.Config
		may  map[string]bool
	}{
		{"nobody", s.joining(s.dir), map[string]bool{"sluice.node.v1.EnrolAPI/Join": true}},
		{"node", s.hostConfig(mtls.RoleNode, "n1"), map[string]bool{"sluice.node.v1.EnrolAPI/Join": true,
			"sluice.node.v1.EnrolAPI/Renew": true, "sluice.node.v1.NodeAPI/Sync": true, "sluice.node.v1.NodeAPI/Configuration": true}},
		{"login", s.hostConfig(mtls.RoleLogin, "l1"), map[string]bool{"sluice.node.v1.EnrolAPI/Join": true,
			"sluice.node.v1.EnrolAPI/Renew": true, "sluice.node.v1.NodeAPI/Configuration": true}},
		{"ctld", s.hostConfig(mtls.RoleController, "c"), map[string]bool{"sluice.node.v1.EnrolAPI/Join": true}},
	} {
		conn := s.connect(by.conf)
		called := 0
		for service, info := range s.services() {
			for _, m := range info.Methods {
				called++
				name := service + "/" + m.Name
				stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+name)
				if err == nil {
					_ = stream.SendMsg(&nodepb.RenewRequest{})
					_ = stream.CloseSend()
					err = stream.RecvMsg(&nodepb.CertificateReply{})
				}
				st := status.Convert(err)
				refused := st.Code() == codes.Unauthenticated || st.Code() == codes.PermissionDenied &&
					(strings.Contains(st.Message(), "does not identify a host that may") || strings.Contains(st.Message(), "not served"))
				if refused == by.may[name] {
					t.Errorf("%s calls %s: %v; may it = %v", by.role, name, err, by.may[name])
				}
			}
		}
		if called < 3 {
			t.Errorf("%s has called %d methods", by.role, called)
		}
	}
}

// hostConfig is the TLS configuration of a host with a certificate of the authority.
func (s *nodeServer) hostConfig(role, name string) *tls.Config {
	s.t.Helper()
	crt, key, err := ca.Issue(s.dir, name, role, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		s.t.Fatal(err)
	}
	conf := s.joining(s.dir)
	conf.Certificates = []tls.Certificate{pair}
	return conf
}

// clientOf is the TLS configuration of a host that was given a certificate.
func (s *nodeServer) clientOf(r *nodepb.CertificateReply, key *ecdsa.PrivateKey) *tls.Config {
	s.t.Helper()
	block, _ := pem.Decode(r.Certificate)
	conf := s.joining(s.dir)
	conf.Certificates = []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: key}}
	return conf
}

func TestJoin(t *testing.T) {
	s := serveNodes(t)
	s.token("t1", "n1", time.Hour)
	s.token("t2", "n1", time.Hour)
	s.do(reactor.RevokeToken{Caller: reactor.Caller{Operator: true}, ID: "t2"})
	c := nodepb.NewEnrolAPIClient(s.connect(s.joining(s.dir)))
	key, req := newRequest(t, n1)
	_, forN2 := newRequest(t, mtls.Identity{Role: mtls.RoleNode, Name: "n2"})
	ask := func(change func(*nodepb.JoinRequest)) (*nodepb.CertificateReply, error) {
		r := &nodepb.JoinRequest{Token: "t1", Secret: secret, Node: "n1", Role: mtls.RoleNode, Cluster: "test", Request: req}
		if change != nil {
			change(r)
		}
		return c.Join(context.Background(), r)
	}
	for what, tt := range map[string]struct {
		change func(*nodepb.JoinRequest)
		says   string
	}{
		"no such token":       {func(r *nodepb.JoinRequest) { r.Token = "t9" }, "unknown join token"},
		"wrong secret":        {func(r *nodepb.JoinRequest) { r.Secret = []byte("x") }, "unknown join token"},
		"no secret":           {func(r *nodepb.JoinRequest) { r.Secret = nil }, "unknown join token"},
		"another cluster":     {func(r *nodepb.JoinRequest) { r.Cluster = "c2" }, "for cluster c2, not for this one (test)"},
		"another name":        {func(r *nodepb.JoinRequest) { r.Node, r.Request = "n2", forN2 }, "for host n1, not for n2"},
		"another role":        {func(r *nodepb.JoinRequest) { r.Role = mtls.RoleLogin }, "for role node, not for login"},
		"the controller":      {func(r *nodepb.JoinRequest) { r.Role = mtls.RoleController }, "for role node, not for ctld"},
		"request of another":  {func(r *nodepb.JoinRequest) { r.Request = forN2 }, "it is for"},
		"revoked":             {func(r *nodepb.JoinRequest) { r.Token = "t2" }, "was revoked"},
		"no request":          {func(r *nodepb.JoinRequest) { r.Request = nil }, "cannot read the certificate request"},
		"a request cut short": {func(r *nodepb.JoinRequest) { r.Request = req[:len(req)-5] }, "cannot read the certificate request"},
		"a large request":     {func(r *nodepb.JoinRequest) { r.Request = make([]byte, 5000) }, "too large"},
		"a signature that is another's": {func(r *nodepb.JoinRequest) {
			r.Request = append([]byte(nil), req...)
			r.Request[len(req)-1] ^= 1
		}, "does not have the key"},
	} {
		if r, err := ask(tt.change); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, %v; want %q", what, r, err, tt.says)
		}
	}
	if s.loop.View().Host("n1") != nil || s.loop.View().Token("t1").UsedNs != 0 {
		t.Error("an attempt that was refused has changed something")
	}

	first, err := ask(nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ask(nil) // the answer was lost
	if err != nil || string(again.Certificate) != string(first.Certificate) {
		t.Errorf("asked again for the same key: %v, %q, first it was %q", err, again.GetCertificate(), first.Certificate)
	}
	_, other := newRequest(t, n1)
	if _, err := ask(func(r *nodepb.JoinRequest) { r.Request = other }); err == nil || !strings.Contains(err.Error(), "was used") {
		t.Errorf("a used token with another key: %v", err)
	}
	if got := len(s.loop.View().Host("n1").GetCertificates()); got != 1 {
		t.Errorf("%d certificates are noted, want 1", got)
	}
	stream, err := nodepb.NewNodeAPIClient(s.connect(s.clientOf(first, key))).Sync(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if m, err := talk(stream, nodeHello("n1")); err != nil || !m.Full {
		t.Errorf("with its certificate the host is answered %v, %v", m, err)
	}
}

// TestRevocation: a revoked host is disconnected at once and refused until it has a new token.
func TestRevocation(t *testing.T) {
	s := serveNodes(t)
	join := func(token string) (*nodepb.CertificateReply, *ecdsa.PrivateKey) {
		s.token(token, "n1", time.Hour)
		key, req := newRequest(t, n1)
		r, err := nodepb.NewEnrolAPIClient(s.connect(s.joining(s.dir))).Join(context.Background(), &nodepb.JoinRequest{Token: token,
			Secret: secret, Node: "n1", Role: mtls.RoleNode, Cluster: "test", Request: req})
		if err != nil {
			t.Fatal(err)
		}
		return r, key
	}
	reply, key := join("t1")
	conf := s.clientOf(reply, key)
	byHand := s.certificate(s.dir, "n1") // nobody has noted it
	linked := func(conf *tls.Config) nodeStream {
		stream := s.dial(conf)
		if _, err := talk(stream, nodeHello("n1")); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	stream := linked(conf)
	_, next := newRequest(t, n1)
	if _, err := nodepb.NewEnrolAPIClient(s.connect(conf)).Renew(context.Background(), &nodepb.RenewRequest{Request: next}); err != nil {
		t.Errorf("renewing: %v", err)
	}
	out := s.do(reactor.RevokeHost{Caller: reactor.Caller{Operator: true}, UserName: "root", Name: "n1"}).(reactor.Revoked)
	if out.Certificates != 2 || s.door.Cut("n1") == 0 {
		t.Errorf("revoked %+v", out)
	}
	for { // what was on its way
		if _, err := stream.Recv(); err != nil {
			break
		}
	}
	for what, conf := range map[string]*tls.Config{"with the certificate": conf, "with one that was not noted": byHand} {
		if _, err := talk(s.dial(conf), nodeHello("n1")); err == nil || !strings.Contains(err.Error(), "was revoked") {
			t.Errorf("revoked, it is let in %s: %v", what, err)
		}
		_, err := nodepb.NewEnrolAPIClient(s.connect(conf)).Renew(context.Background(), &nodepb.RenewRequest{Request: next})
		if err == nil || !strings.Contains(err.Error(), "was revoked") {
			t.Errorf("revoked, it renews %s: %v", what, err)
		}
	}
	if n := s.loop.View().Node("n1"); n.State != pb.NodeState_NODE_DOWN {
		t.Errorf("the node is %v", n.State)
	}
	reply, key = join("t3")
	linked(s.clientOf(reply, key))
	if n := s.loop.View().Node("n1"); n.State != pb.NodeState_NODE_IDLE || n.Reason != "" {
		t.Errorf("let in again, the node is %v, %q", n.State, n.Reason)
	}
	if _, err := talk(s.dial(conf), nodeHello("n1")); err == nil {
		t.Error("the certificate that was revoked counts again")
	}
}

// TestRenewOnlyForOneself: a host gets certificates of its own name and role.
func TestRenewOnlyForOneself(t *testing.T) {
	s := serveNodes(t)
	c := nodepb.NewEnrolAPIClient(s.connect(s.hostConfig(mtls.RoleNode, "n1")))
	for _, id := range []mtls.Identity{{Role: mtls.RoleNode, Name: "n2"}, {Role: mtls.RoleLogin, Name: "n1"},
		{Role: mtls.RoleController, Name: "n1"}} {
		_, req := newRequest(t, id)
		if _, err := c.Renew(context.Background(), &nodepb.RenewRequest{Request: req}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("n1 asks to be %+v: %v", id, err)
		}
	}
}

// TestStrangersSendLittle: a connection without a certificate is closed when it has sent more than anybody who joins has to.
func TestStrangersSendLittle(t *testing.T) {
	s := serveNodes(t)
	conn, err := tls.Dial("tcp", s.addr, withALPN(s.joining(s.dir)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		b := make([]byte, 4096)
		for {
			if _, err := conn.Read(b); err != nil {
				return
			}
		}
	}()
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	ping := append([]byte{0, 0, 8, 6, 1, 0, 0, 0, 0}, make([]byte, 8)...) // a PING that answers another
	for range 100 {
		var many []byte
		for range 1000 {
			many = append(many, ping...)
		}
		if _, err = conn.Write(many); err != nil {
			return
		}
	}
	select { // what was written may not have been read yet
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("it may send as much as it likes")
	}
}

// TestManyStrangers: connections without certificates do not keep hosts out, and make room for one another.
func TestManyStrangers(t *testing.T) {
	s := serveNodes(t)
	const most = 8 // of one address (package nodeport)
	var idle []net.Conn
	for range 3 * most {
		conn, err := tls.Dial("tcp", s.addr, withALPN(s.joining(s.dir)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	closed := make(chan struct{}, len(idle))
	for _, c := range idle {
		go func() {
			b := make([]byte, 100)
			for {
				if _, err := c.Read(b); err != nil {
					closed <- struct{}{}
					return
				}
			}
		}()
	}
	for range len(idle) - most {
		<-closed
	}
	if m, err := talk(s.dial(s.certificate(s.dir, "n1")), nodeHello("n1")); err != nil || !m.Full {
		t.Errorf("a node among strangers is answered %v, %v", m, err)
	}
	s.token("t1", "n1", time.Hour)
	_, req := newRequest(t, n1)
	_, err := nodepb.NewEnrolAPIClient(s.connect(s.joining(s.dir))).Join(context.Background(), &nodepb.JoinRequest{Token: "t1",
		Secret: secret, Node: "n1", Role: mtls.RoleNode, Cluster: "test", Request: req})
	if err != nil {
		t.Errorf("a host that joins among strangers: %v", err)
	}
}

func withALPN(c *tls.Config) *tls.Config {
	c.NextProtos = []string{"h2"}
	return c
}

// TestAttemptsHaveARate: a peer that tries many tokens is told to wait.
func TestAttemptsHaveARate(t *testing.T) {
	s := serveNodes(t)
	c := nodepb.NewEnrolAPIClient(s.connect(s.joining(s.dir)))
	for range 10 * addrJoinBurst {
		_, err := c.Join(context.Background(), &nodepb.JoinRequest{Token: "x", Cluster: "test"})
		switch status.Code(err) {
		case codes.ResourceExhausted:
			return
		case codes.PermissionDenied, codes.Unavailable:
		default:
			t.Fatal(err)
		}
	}
	t.Error("nobody said stop")
}
