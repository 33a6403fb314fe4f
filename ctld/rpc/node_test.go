package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/ctld/dispatch"
	"github.com/sluice-hpc/sluice/ctld/journal"
	"github.com/sluice-hpc/sluice/ctld/loop"
	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/ctld/state"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// nodeServer is a writer, a dispatcher and NodeAPI over TLS.
type nodeServer struct {
	t       *testing.T
	dir     string // of the authority
	addr    string
	loop    *loop.Loop
	disp    *dispatch.Dispatcher
	mu      sync.Mutex
	scripts map[uint32][]byte
	changed chan struct{} // one for each commit

	door     *nodeport.Door
	services func() map[string]grpc.ServiceInfo
}

// ofTests is the generation of the state that serveNodes serves.
var ofTests = version.Generation{Cluster: "cluster-1", Number: 5}

func serveNodes(t *testing.T) *nodeServer {
	t.Helper()
	s := &nodeServer{t: t, dir: filepath.Join(t.TempDir(), "tls"), scripts: map[uint32][]byte{}, changed: make(chan struct{}, 1000)}
	if err := ca.Ensure(s.dir); err != nil {
		t.Fatal(err)
	}
	s.provide(s.dir, s.dir, "ctld", mtls.RoleController)
	log := slog.New(slog.DiscardHandler)
	s.loop = loop.New(journal.NewMemory(), state.New(stateConfig(), "cluster-1", 1), time.Now, log)
	s.disp = dispatch.New(s.loop.View, s.script, func(v *state.View, n *state.Node) *pb.NodeSettings {
		return &pb.NodeSettings{ClusterId: v.ClusterID, Node: n.NodeRecord}
	}, log)
	s.loop.Observe(s.disp.Changed)
	s.loop.Observe(func(state.Change) { s.changed <- struct{}{} })
	conf, err := ca.ServerTLS(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	s.door = nodeport.NewDoor(listener, log)
	accepts := func(name, serial string) bool { return s.loop.View().Accepts(name, serial) }
	s.door.Accepts = accepts
	server := grpc.NewServer(append(Guard{Accepts: accepts, Generation: ofTests}.Options(),
		grpc.Creds(nodeport.Credentials(credentials.NewTLS(conf), nil)))...)
	s.services = server.GetServiceInfo
	nodepb.RegisterEnrolAPIServer(server, &EnrolServer{Writer: s.loop, Log: log, Cluster: func() string { return "test" },
		Authority: &ca.Signer{Dir: s.dir, Life: ca.HostLife, Now: time.Now}})
	nodepb.RegisterNodeAPIServer(server, &NodeServer{Writer: s.loop, Dispatcher: s.disp, Beats: NewBeats(), ClusterID: "cluster-1",
		Generation: ofTests, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.loop.Run(ctx) })
	wg.Go(func() { _ = server.Serve(s.door) })
	t.Cleanup(func() { server.Stop(); cancel(); wg.Wait() })
	return s
}

func (s *nodeServer) script(j *pb.JobRecord) ([]byte, []string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.scripts[j.Id]; b != nil {
		return b, []string{"A=b"}, nil
	}
	return nil, nil, errors.New("damaged")
}

func (s *nodeServer) provide(dir, folder, name, role string) {
	s.t.Helper()
	if _, err := ca.Provide(dir, folder, name, role, []string{"localhost", "127.0.0.1"}); err != nil {
		s.t.Fatal(err)
	}
}

// certificate is the TLS configuration of a node with a certificate of the authority in dir.
func (s *nodeServer) certificate(dir, name string) *tls.Config {
	s.t.Helper()
	folder := s.t.TempDir()
	s.provide(dir, folder, name, mtls.RoleNode)
	conf, err := mtls.Host(folder, mtls.RoleNode)
	if err != nil {
		s.t.Fatal(err)
	}
	return conf
}

type nodeStream = grpc.BidiStreamingClient[pb.NodeReport, pb.NodeOrders]

// dial opens a stream; creds nil is a connection without TLS.
func (s *nodeServer) dial(conf *tls.Config) nodeStream {
	s.t.Helper()
	return s.dialWith(conf, nil)
}

// dialWith opens one with metadata.
func (s *nodeServer) dialWith(conf *tls.Config, md metadata.MD) nodeStream {
	s.t.Helper()
	creds := insecure.NewCredentials()
	if conf != nil {
		conf = conf.Clone()
		conf.ServerName = "127.0.0.1"
		creds = credentials.NewTLS(conf)
	}
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	stream, err := nodepb.NewNodeAPIClient(conn).Sync(metadata.NewOutgoingContext(ctx, md))
	if err != nil {
		return refused{err: err}
	}
	return stream
}

// refused is a stream that could not be opened.
type refused struct {
	nodeStream
	err error
}

func (r refused) Send(*pb.NodeReport) error     { return nil }
func (r refused) Recv() (*pb.NodeOrders, error) { return nil, r.err }

func nodeHello(name string) *pb.NodeReport {
	return &pb.NodeReport{Hello: &pb.NodeHello{Node: name, BootId: "b", NowNs: time.Now().UnixNano(),
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}}}
}

// talk says one thing and hears the answer.
func talk(s nodeStream, m *pb.NodeReport) (*pb.NodeOrders, error) {
	_ = s.Send(m)
	return s.Recv()
}

// await waits until cond holds of the state.
func (s *nodeServer) await(what string, cond func(*state.View) bool) {
	s.t.Helper()
	late := time.After(patience)
	for !cond(s.loop.View()) {
		select {
		case <-s.changed:
		case <-late:
			s.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Only the holder of a node's certificate of this cluster speaks for that node.
func TestWhoIsANode(t *testing.T) {
	s := serveNodes(t)
	foreign := filepath.Join(t.TempDir(), "foreign")
	if err := ca.Ensure(foreign); err != nil {
		t.Fatal(err)
	}
	ours, theirs := s.certificate(s.dir, "n1"), s.certificate(foreign, "n1")
	theirs.RootCAs, theirs.InsecureSkipVerify, theirs.VerifyConnection = ours.RootCAs, true, nil // it would speak to us
	controller := ours.Clone()
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.dir, mtls.RoleController+".crt"), filepath.Join(s.dir, mtls.RoleController+".key"))
	if err != nil {
		t.Fatal(err)
	}
	controller.Certificates, controller.GetClientCertificate = []tls.Certificate{pair}, nil
	none := ours.Clone()
	none.Certificates, none.GetClientCertificate = nil, nil
	otherCluster := nodeHello("n1")
	otherCluster.Hello.ClusterId = "cluster-2"
	for _, c := range []struct {
		name string
		conf *tls.Config
		say  *pb.NodeReport
		want codes.Code
	}{
		{"in another node's name", ours, nodeHello("n2"), codes.PermissionDenied},
		{"without hello", ours, &pb.NodeReport{Heartbeat: &pb.Heartbeat{}}, codes.InvalidArgument},
		{"of another cluster", ours, otherCluster, codes.FailedPrecondition},
		{"not configured", s.certificate(s.dir, "stranger"), nodeHello("stranger"), codes.FailedPrecondition},
		{"with a controller's certificate", controller, nodeHello("ctld"), codes.Unavailable},
		{"with a certificate of another authority", theirs, nodeHello("n1"), codes.Unauthenticated}, // it does not even show that
		{"without certificate", none, nodeHello("n1"), codes.Unauthenticated},
		{"without TLS", nil, nodeHello("n1"), codes.Unavailable},
	} {
		m, err := talk(s.dial(c.conf), c.say)
		if got := status.Code(err); got != c.want && (c.want != codes.Unavailable || got != codes.PermissionDenied) {
			t.Errorf("%s: %v, answered %v; want %v", c.name, err, m, c.want)
		}
	}
	for _, n := range []string{"n1", "n2"} {
		if s.loop.View().Node(n).LinkUp {
			t.Errorf("%s is linked", n)
		}
	}
	m, err := talk(s.dial(ours), nodeHello("n1"))
	if err != nil || !m.Full || m.Settings.GetClusterId() != "cluster-1" || m.Settings.Node.Name != "n1" {
		t.Errorf("a node is answered %v, %v", m, err)
	}
}

// A newer stream takes the place of an older one; the node is without a link only when the last has ended.
func TestStreamsOfANode(t *testing.T) {
	s := serveNodes(t)
	conf := s.certificate(s.dir, "n1")
	first, second := s.dial(conf), s.dial(conf)
	if _, err := talk(first, nodeHello("n1")); err != nil {
		t.Fatal(err)
	}
	if _, err := talk(second, nodeHello("n1")); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("the first stream ends with %v", err)
	}
	if !s.loop.View().Node("n1").LinkUp || s.disp.Links() != 1 {
		t.Error("the node is not linked")
	}
	_ = second.CloseSend()
	s.await("the node is gone", func(v *state.View) bool { return !v.Node("n1").LinkUp })
}

// run starts a job on n1, as a plan would.
func (s *nodeServer) run(script bool) uint32 {
	s.t.Helper()
	out, err := s.loop.Do(ctx, reactor.Submit{Job: &pb.JobRecord{Spec: &pb.JobSpec{Name: "j", Uid: alice, User: "u"}, Partition: "debug"}})
	if err != nil {
		s.t.Fatal(err)
	}
	id := out.(reactor.Submitted).ID
	if script {
		s.mu.Lock()
		s.scripts[id] = []byte("#!/bin/sh\n")
		s.mu.Unlock()
	}
	start := reactor.PlannedStart{ID: id, Task: -1, Spec: s.loop.View().Jobs.Get(id).Spec, Partition: "debug", LimitS: 60, NodeList: "n1",
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}}}
	if _, err := s.loop.Do(ctx, reactor.ApplyPlan{Starts: []reactor.PlannedStart{start}}); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// A job over the wire: launched, reported, recorded, forgotten; one whose script is lost ends by itself.
func TestJobOverTheWire(t *testing.T) {
	s := serveNodes(t)
	stream := s.dial(s.certificate(s.dir, "n1"))
	if _, err := talk(stream, nodeHello("n1")); err != nil {
		t.Fatal(err)
	}
	id := s.run(true)
	m, err := stream.Recv()
	if err != nil || len(m.Steps) != 1 || m.Steps[0].Want != pb.StepWant_WANT_RUN ||
		string(m.Steps[0].Launch.GetScript()) != "#!/bin/sh\n" || m.Steps[0].Launch.Env[0] != "A=b" {
		t.Fatal(m, err)
	}
	key := m.Steps[0].Key
	end := &pb.StepReport{Key: key, Phase: pb.StepPhase_STEP_ENDED, Exit: &pb.ExitRecord{Key: key, Verdict: "exited", WaitStatus: 3 << 8}}
	m, err = talk(stream, &pb.NodeReport{Steps: []*pb.StepReport{end}})
	if err != nil || len(m.Steps) != 1 || m.Steps[0].Want != pb.StepWant_WANT_FORGET {
		t.Fatal(m, err)
	}
	if j := s.loop.View().Jobs.Get(id); j.State != pb.JobState_JOB_FAILED || j.ExitStatus != 3<<8 {
		t.Errorf("the job is %v, %#x", j.State, j.ExitStatus)
	}
	lost := s.run(false)
	s.await("the job without a script has ended", func(v *state.View) bool { return v.Jobs.Get(lost).State == pb.JobState_JOB_FAILED })
}

// TestEndOfTheController: that all streams end with it is nothing to be written down.
func TestEndOfTheController(t *testing.T) {
	ending := make(chan struct{})
	close(ending)
	w := &commands{}
	(&NodeServer{Writer: w, Ending: ending}).gone("n1", 1)
	if w.n != 0 {
		t.Errorf("the writer was given %d commands", w.n)
	}
	(&NodeServer{Writer: w}).gone("n1", 1)
	if w.n != 1 {
		t.Errorf("the writer was given %d commands, want the end of the stream", w.n)
	}
}

// commands is a Writer that counts what it is given.
type commands struct {
	Writer
	n int
}

func (c *commands) Do(context.Context, reactor.Command) (any, error) {
	c.n++
	return nil, nil
}
