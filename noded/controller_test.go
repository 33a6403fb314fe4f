package noded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/noded/agent"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
)

// authority makes a cluster's certificates in a folder, as package mtls reads them.
func authority(t testing.TB, dir string) {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(t, err)
	write(t, filepath.Join(dir, "ca.crt"), "CERTIFICATE", der)
	for i, role := range []string{mtls.RoleController, mtls.RoleNode} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 2)),
			Subject:   pkix.Name{CommonName: "n1", OrganizationalUnit: []string{role}},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, key.Public(), caKey)
		must(t, err)
		write(t, filepath.Join(dir, role+".crt"), "CERTIFICATE", der)
		keyDER, err := x509.MarshalECPrivateKey(key)
		must(t, err)
		write(t, filepath.Join(dir, role+".key"), "EC PRIVATE KEY", keyDER)
	}
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// controller is a small level-triggered controller behind the real protocol.
type controller struct {
	nodepb.UnimplementedNodeAPIServer
	t      testing.TB
	tlsDir string
	addr   string
	server *grpc.Server

	mu       sync.Mutex
	changed  *sync.Cond
	settings *pb.NodeSettings
	standing *pb.NodeStanding
	wants    map[agent.Key]*pb.StepOrder  // with launch
	has      map[agent.Key]*pb.StepReport // of the present stream
	ends     map[agent.Key]*pb.ExitRecord // recorded
	phases   map[agent.Key][]pb.StepPhase // in the order in which they were reported
	hellos   []*pb.NodeReport
	fault    string // of the last heartbeat
	beats    int
	devices  *pb.DeviceReport   // newest, after the hello
	samples  []*pb.DeviceSample // newest
	streams  int                // open
	stream   int                // number of the newest
}

func newController(t testing.TB) *controller {
	c := &controller{t: t, tlsDir: t.TempDir(), settings: &pb.NodeSettings{Cluster: "c1", ClusterId: "id1", HeartbeatS: 1, KillWaitS: 1},
		wants: map[agent.Key]*pb.StepOrder{}, has: map[agent.Key]*pb.StepReport{}, ends: map[agent.Key]*pb.ExitRecord{},
		phases: map[agent.Key][]pb.StepPhase{}}
	c.changed = sync.NewCond(&c.mu)
	authority(t, c.tlsDir)
	c.listen(fmt.Sprintf("127.%d.%d.%d:0", 1+mathrand.IntN(254), mathrand.IntN(256), 1+mathrand.IntN(254)))
	t.Cleanup(func() { c.server.Stop() })
	return c
}

// listen serves NodeAPI. The address is one of this machine's that nobody else uses, so that its port is free to listen on again: a port of
// 127.0.0.1 may meanwhile be that of anybody's outgoing connection.
func (c *controller) listen(addr string) {
	c.t.Helper()
	l, err := net.Listen("tcp", addr)
	must(c.t, err)
	conf, err := mtls.Server(c.tlsDir)
	must(c.t, err)
	c.addr = l.Addr().String()
	c.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	nodepb.RegisterNodeAPIServer(c.server, c)
	server := c.server
	go func() { _ = server.Serve(l) }()
}

func (c *controller) update(f func()) {
	c.mu.Lock()
	f()
	c.mu.Unlock()
	c.changed.Broadcast()
}

// Sync tells the node what it should have, whenever that changes.
func (c *controller) Sync(s nodepb.NodeAPI_SyncServer) error {
	hello, err := s.Recv()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.stream++
	me := c.stream
	c.hellos = append(c.hellos, hello)
	c.has = map[agent.Key]*pb.StepReport{}
	c.streams++
	c.take(hello)
	c.mu.Unlock()
	c.changed.Broadcast()
	gone := make(chan struct{})
	go func() {
		for {
			m, err := s.Recv()
			c.update(func() {
				switch {
				case err != nil:
					c.streams--
					close(gone)
				case me == c.stream:
					c.take(m)
				}
			})
			if err != nil {
				return
			}
		}
	}()
	told := map[agent.Key]string{}
	first := true
	for {
		c.mu.Lock()
		m := c.orders(told, first)
		for m == nil {
			select {
			case <-gone: // before the wait: nobody may wake it after this
				c.mu.Unlock()
				return nil
			default:
			}
			c.changed.Wait()
			m = c.orders(told, first)
		}
		c.mu.Unlock()
		first = false
		if err := s.Send(m); err != nil {
			<-gone
			return err
		}
	}
}

func (c *controller) take(m *pb.NodeReport) {
	if m.Heartbeat != nil {
		c.beats++
		c.fault = m.Heartbeat.Fault
	}
	if m.Devices != nil {
		c.devices = m.Devices
	}
	if len(m.Samples) > 0 {
		c.samples = m.Samples
	}
	for _, r := range m.Steps {
		k := agent.KeyOf(r.Key)
		c.has[k] = r
		c.phases[k] = append(c.phases[k], r.Phase)
		if r.Phase == pb.StepPhase_STEP_ENDED && c.wants[k] != nil {
			if c.ends[k] != nil {
				c.t.Errorf("%v ended twice", k)
			}
			c.ends[k] = r.Exit
			delete(c.wants, k)
		}
	}
}

// orders gives what is new for this stream, or nil.
func (c *controller) orders(told map[agent.Key]string, first bool) *pb.NodeOrders {
	m := &pb.NodeOrders{Full: first}
	if first {
		m.Settings = proto.CloneOf(c.settings)
	}
	if text := c.standing.String(); c.standing != nil && told[agent.Key{}] != text {
		told[agent.Key{}] = text
		m.Standing = proto.CloneOf(c.standing)
	}
	for k, o := range c.wants {
		o = &pb.StepOrder{Key: o.Key, Want: o.Want, Launch: o.Launch, Signals: o.Signals, StopReason: o.StopReason, Suspended: o.Suspended,
			LimitS: o.LimitS}
		if c.has[k] != nil {
			o.Launch = nil
		}
		if text := o.Want.String() + string(rune('0'+len(o.Signals))); told[k] != text {
			told[k] = text
			m.Steps = append(m.Steps, o)
		}
	}
	for k, r := range c.has {
		if c.wants[k] == nil && r.Phase == pb.StepPhase_STEP_ENDED && told[k] != "forget" {
			told[k] = "forget"
			m.Steps = append(m.Steps, &pb.StepOrder{Key: k.Proto(), Want: pb.StepWant_WANT_FORGET})
		}
	}
	if !first && len(m.Steps) == 0 && m.Standing == nil {
		return nil
	}
	return m
}

// patience bounds every wait for a state; nothing takes as long unless something is wrong.
const patience = 5 * time.Minute

// await waits until what f looks at is so.
func (c *controller) await(what string, f func() bool) {
	c.t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() { c.update(func() { late = true }) })
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !f() {
		if late {
			c.t.Fatalf("waited %v for %s: wants %v, has %v, ends %v; %d streams are open, of %d; %d heartbeats, the last with %q", patience,
				what, c.wants, c.has, c.ends, c.streams, c.stream, c.beats, c.fault)
		}
		c.changed.Wait()
	}
}

// heard is how often a node has said hello.
func (c *controller) heard() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.hellos)
}

// hello waits until a node has said hello once more than so often, and gives that hello.
func (c *controller) hello(before int) *pb.NodeReport {
	c.t.Helper()
	c.await("the node's hello", func() bool { return len(c.hellos) > before })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hellos[before]
}

// submit wants a job run, and gives its key.
func (c *controller) submit(l *pb.LaunchSpec) agent.Key {
	k := agent.KeyOf(l.Key)
	c.update(func() {
		c.wants[k] = &pb.StepOrder{Key: l.Key, Want: pb.StepWant_WANT_RUN, Launch: l, LimitS: l.LimitS}
	})
	return k
}

func (c *controller) order(k agent.Key, want pb.StepWant) {
	c.update(func() {
		if o := c.wants[k]; o != nil {
			o.Want = want
		}
	})
}

// phase waits until the node has reported a step to be in a phase.
func (c *controller) phase(k agent.Key, p pb.StepPhase) {
	c.t.Helper()
	c.await(k.String()+" "+p.String(), func() bool { return c.has[k].GetPhase() == p || c.ends[k] != nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends[k] != nil && p != pb.StepPhase_STEP_ENDED {
		c.t.Fatalf("%v has ended: %v", k, c.ends[k])
	}
}

// end waits for the recorded end of a step.
func (c *controller) end(k agent.Key) *pb.ExitRecord {
	c.t.Helper()
	c.await("the end of "+k.String(), func() bool { return c.ends[k] != nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends[k]
}
