package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/internal/test/output"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// host is an address of this machine that nobody else uses, so that a port of it is free to listen on again: one of 127.0.0.1 may meanwhile
// be that of anybody's outgoing connection.
var host = net.IPv4(127, byte(1+mathrand.IntN(254)), byte(mathrand.IntN(256)), byte(1+mathrand.IntN(254)))

// certificate is self-signed: both sides trust exactly it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{host}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// echo answers each report with orders, and ends the stream on a report without steps.
type echo struct {
	nodepb.UnimplementedNodeAPIServer
}

func (echo) Sync(s nodepb.NodeAPI_SyncServer) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if len(m.Steps) == 0 {
			return nil
		}
		if err := s.Send(&pb.NodeOrders{Full: true}); err != nil {
			return err
		}
	}
}

func serve(t *testing.T, cert tls.Certificate, pool *x509.CertPool, addr string) (string, *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})))
	nodepb.RegisterNodeAPIServer(s, echo{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String(), s
}

// connect runs a link until the test ends.
func connect(t *testing.T, o Options) (<-chan Event, *output.Buffer) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(context.Background())
	w := &output.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(w, nil))
	o.MinBackoff, o.MaxBackoff = time.Millisecond, 20*time.Millisecond
	events, ended := make(chan Event), make(chan struct{})
	go func() { defer close(ended); Run(ctx, o, events) }()
	t.Cleanup(func() {
		cancel()
		for range events {
		}
		<-ended
		leaktest.None(t, before)
	})
	return events, w
}

func next(t *testing.T, events <-chan Event) Event {
	t.Helper()
	select {
	case ev := <-events:
		return ev
	case <-time.After(5 * time.Minute):
		t.Fatal("nothing happens")
		return Event{}
	}
}

func client(cert tls.Certificate, pool *x509.CertPool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: pool}
}

func TestTalkAndComeBack(t *testing.T) {
	cert, pool := certificate(t)
	addr, server := serve(t, cert, pool, host.String()+":0")
	events, _ := connect(t, Options{Controllers: []string{addr}, TLS: client(cert, pool)})
	for life := range 3 {
		up := next(t, events).Up
		if up == nil || up.Controller != addr {
			t.Fatalf("life %d: %+v", life, up)
		}
		up.Out <- &pb.NodeReport{Steps: []*pb.StepReport{{}}}
		var sent, orders bool
		for range 2 {
			ev := next(t, events)
			sent, orders = sent || ev.Sent, orders || ev.Orders.GetFull()
		}
		if !sent || !orders {
			t.Fatalf("life %d: sent %v, orders %v", life, sent, orders)
		}
		switch life {
		case 0: // the controller ends the stream
			up.Out <- &pb.NodeReport{}
		case 1: // the controller goes away
			server.Stop()
		case 2:
			return
		}
		for {
			if ev := next(t, events); ev.Down != nil {
				break
			}
		}
		if life == 1 {
			serve(t, cert, pool, addr)
		}
	}
}

func TestStrangersAreNotTalkedTo(t *testing.T) {
	cert, pool := certificate(t)
	other, otherPool := certificate(t)
	for name, c := range map[string]*tls.Config{
		"a controller of another authority": client(cert, otherPool),
		"a node of another authority":       client(other, pool),
	} {
		addr, _ := serve(t, cert, pool, host.String()+":0")
		events, w := connect(t, Options{Controllers: []string{addr}, TLS: c})
		deadline := time.After(5 * time.Minute)
		for !strings.Contains(w.String(), "certificate") {
			select {
			case ev := <-events:
				if ev.Orders != nil || ev.Sent {
					t.Fatalf("%s: %+v", name, ev)
				}
			case <-deadline:
				t.Fatalf("%s: %s", name, w)
			case <-time.After(time.Millisecond):
			}
		}
		if n := strings.Count(w.String(), "\n"); n > 20 {
			t.Errorf("%s: the same fault is logged repeatedly: %d lines", name, n)
		}
	}
}

func TestTriesTheOtherControllers(t *testing.T) {
	cert, pool := certificate(t)
	l, err := net.Listen("tcp", host.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	l.Close()
	addr, _ := serve(t, cert, pool, host.String()+":0")
	events, _ := connect(t, Options{Controllers: []string{"no port", dead, addr}, TLS: client(cert, pool)})
	if up := next(t, events).Up; up == nil || up.Controller != addr {
		t.Errorf("%+v", up)
	}
}

func TestRefusedControllerCountsAsFailure(t *testing.T) {
	cert, pool := certificate(t)
	addr, _ := serve(t, cert, pool, host.String()+":0")
	events, w := connect(t, Options{Controllers: []string{addr}, TLS: client(cert, pool)})
	for range 3 {
		up := next(t, events).Up
		up.Refuse(errors.New("not ours"))
		if ev := next(t, events); ev.Down == nil || !strings.Contains(ev.Down.Error(), "not ours") {
			t.Fatalf("%+v", ev)
		}
	}
	if n := strings.Count(w.String(), "not ours"); n != 1 {
		t.Errorf("said %d times", n)
	}
}
