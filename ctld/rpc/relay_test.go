package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/sluice-hpc/sluice/ctld/ca"
	"github.com/sluice-hpc/sluice/ctld/frames"
	"github.com/sluice-hpc/sluice/ctld/nodeport"
	"github.com/sluice-hpc/sluice/ctld/reactor"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/test/output"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// port is a server with a node port behind which there is RelayAPI, as the controller's.
type port struct {
	*server
	dir    string // of the authority
	addr   string
	relays *RelayServer
	log    *output.Buffer

	mu    sync.Mutex
	roots map[string]bool
}

func (p *port) Root(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roots[host]
}

func (p *port) Login(host string) bool { return host == "work" }

func servePort(t *testing.T, prepare ...func(*Local)) *port {
	t.Helper()
	p := &port{server: serve(t, prepare...), dir: filepath.Join(t.TempDir(), "tls"), roots: map[string]bool{"trusted": true},
		log: &output.Buffer{}}
	if err := ca.Ensure(p.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Provide(p.dir, p.dir, "ctld", mtls.RoleController, nil); err != nil {
		t.Fatal(err)
	}
	conf, err := ca.ServerTLS(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = listener.Addr().String()
	log := slog.New(slog.NewTextHandler(p.log, nil))
	annex := nodeport.NewAnnex(listener.Addr())
	nodes := grpc.NewServer(grpc.Creds(nodeport.Credentials(credentials.NewTLS(conf), annex)))
	nodepb.RegisterNodeAPIServer(nodes, &NodeServer{Log: log})
	relays := grpc.NewServer(grpc.Creds(nodeport.AnnexCredentials()), grpc.MaxRecvMsgSize(MaxPieceMessage), grpc.WaitForHandlers(true))
	p.relays = &RelayServer{Local: p.local, View: p.loop.View, Trust: func() Trust { return p }, Log: log}
	nodepb.RegisterRelayAPIServer(relays, p.relays)
	var wg sync.WaitGroup
	wg.Go(func() { _ = nodes.Serve(nodeport.NewDoor(listener, log)) })
	wg.Go(func() { _ = relays.Serve(annex) })
	t.Cleanup(func() { relays.Stop(); nodes.Stop(); wg.Wait() })
	return p
}

// as is a connection with a certificate, to the RelayAPI or, with another server name, to the NodeAPI.
func (p *port) connect(role, name, server string) *grpc.ClientConn {
	p.t.Helper()
	folder := p.t.TempDir()
	if _, err := ca.Provide(p.dir, folder, name, role, nil); err != nil {
		p.t.Fatal(err)
	}
	var conf *tls.Config
	var err error
	if role == mtls.RoleController {
		conf, err = mtls.Host(folder, mtls.RoleController)
	} else {
		conf, err = mtls.Host(folder, role)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	conf.ServerName = server
	conn, err := grpc.NewClient("passthrough:///"+p.addr, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

type pieces = grpc.BidiStreamingClient[nodepb.Piece, nodepb.Piece]

func (p *port) open(conn *grpc.ClientConn, first *nodepb.Piece) pieces {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(cancel)
	s, err := nodepb.NewRelayAPIClient(conn).Call(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := s.Send(first); err != nil && err != io.EOF {
		p.t.Fatal(err)
	}
	return s
}

// end is how a stream ends.
func end(s pieces) error {
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
}

func caller(uid uint32, user string) *nodepb.Piece {
	return &nodepb.Piece{Caller: &nodepb.Caller{Uid: uid, Gid: uid, Pid: 1, User: user}}
}

// client makes calls on a relayed connection.
func (p *port) client(conn *grpc.ClientConn, uid uint32, user string) pb.ControllerAPIClient {
	p.t.Helper()
	s := p.open(conn, caller(uid, user))
	ours, theirs := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1000)
		for {
			n, err := ours.Read(b)
			if err != nil || s.Send(&nodepb.Piece{Data: b[:n]}) != nil {
				_ = s.CloseSend()
				return
			}
		}
	})
	wg.Go(func() {
		defer ours.Close()
		for {
			m, err := s.Recv()
			if err != nil {
				return
			}
			if _, err := ours.Write(m.Data); err != nil {
				return
			}
		}
	})
	c := ttrpc.NewClient(theirs)
	p.t.Cleanup(func() { _ = c.Close(); wg.Wait() })
	return pb.NewControllerAPIClient(c)
}

const aliceName = "65533" // serve's directory calls her so

// Every method through a relay: as on the controller's own host, but for those that the table keeps there.
func TestEveryMethodThroughARelay(t *testing.T) {
	p := servePort(t)
	login, trusted := p.connect(mtls.RoleLogin, "login1", mtls.RelayServerName), p.connect(mtls.RoleLogin, "trusted", mtls.RelayServerName)
	owner, root := p.client(login, alice, aliceName), p.client(trusted, 0, "root")
	ended := submit(t, owner, request("#!/bin/sh\n")) // for WaitJob
	if _, err := owner.CancelJobs(ctx, &pb.CancelJobsRequest{Ids: []string{fmt.Sprint(ended)}}); err != nil || ended != 1 {
		t.Fatal(ended, err)
	}
	for name, call := range calls {
		row := Table[controllerAPI+"/"+name]
		job := submit(t, owner, request("#!/bin/sh\n"))
		if host := p.loop.View().Jobs.Get(job).Spec.AllocNode; host != "login1" {
			t.Errorf("the job comes from %q", host)
		}
		if err := call(owner, job); (err == nil) != (row.Via[ViaRelay] == Yes && row.Who != Operator) {
			t.Errorf("%s by its owner: %v", name, err)
		}
		err := call(root, submit(t, owner, request("#!/bin/sh\n")))
		if (err == nil) != (row.Via[ViaRelay] == Yes) {
			t.Errorf("%s by root: %v", name, err)
		}
		if row.Via[ViaRelay] == No && !strings.Contains(err.Error(), "is not available from host trusted") {
			t.Errorf("%s by root: %v", name, err)
		}
	}
}

// Claims that a host may not make are refused, explained to the command, and logged.
func TestRelayedIdentity(t *testing.T) {
	p := servePort(t)
	local := p.as(alice, alice)
	startable := request("#!/bin/sh\n")
	startable.Spec.Hold = false
	id := submit(t, local, startable)
	hello := reactor.NodeHello{Hello: &pb.NodeHello{Node: "n1",
		Hardware: &pb.Hardware{Cpus: 4, Sockets: 1, Cores: 4, Threads: 1, RealMemoryMib: 4000}}, Stream: 1}
	if _, err := p.loop.Do(ctx, hello); err != nil {
		t.Fatal(err)
	}
	start := reactor.PlannedStart{ID: id, Task: -1, Spec: p.loop.View().Jobs.Get(id).Spec, Partition: "debug",
		Alloc: []*pb.NodeAlloc{{Node: "n1", Cpus: 1}}, NodeList: "n1", LimitS: 60}
	if r, err := p.loop.Do(ctx, reactor.ApplyPlan{Starts: []reactor.PlannedStart{start}}); err != nil || r.(reactor.Applied).Started != 1 {
		t.Fatal(r, err)
	}
	for name, c := range map[string]struct {
		role, host string
		uid        uint32
		user       string
		says       string // "": it works
	}{
		"a user of a login host":          {mtls.RoleLogin, "login1", alice, aliceName, ""},
		"root of a login host":            {mtls.RoleLogin, "login2", 0, "root", "host login2 may not act for root and SlurmUser"},
		"root of a listed host":           {mtls.RoleLogin, "trusted", 0, "root", ""},
		"a name that differs":             {mtls.RoleLogin, "login3", alice, "bob", "uid 65533 is bob on host login3, and 65533 on the"},
		"a name that the host has not":    {mtls.RoleLogin, "login4", alice, "", "uid 65533 is nobody on host login4"},
		"an unknown uid":                  {mtls.RoleLogin, "login5", 64999, "eve", "uid 64999 of host login5, which is eve there, has no"},
		"a compute host with a job":       {mtls.RoleNode, "n1", alice, aliceName, ""},
		"a compute host without":          {mtls.RoleNode, "n2", alice, aliceName, "host n2 runs no job of yours (uid 65533)"},
		"another user on a compute host":  {mtls.RoleNode, "n1", nobody, "nobody", "host n1 runs no job of yours (uid 65534)"},
		"root of a compute host":          {mtls.RoleNode, "n1", 0, "root", "host n1 may not act for root"},
		"a compute host where users work": {mtls.RoleNode, "work", alice, aliceName, ""},
	} {
		_, err := p.client(p.connect(c.role, c.host, mtls.RelayServerName), c.uid, c.user).Ping(ctx, &pb.PingRequest{})
		problem, _ := problemOf(err)
		switch {
		case c.says == "" && err != nil, c.says != "" && problem == nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (!strings.Contains(problem.Error(), c.says) || !strings.Contains(p.log.String(), c.host)):
			t.Errorf("%s: %v\n%s", name, problem, p.log)
		}
	}
	if p.local.hold(nobody, 0) != 0 {
		t.Error("a connection that was refused took the place of the user whom it named")
	}
	// A job that has just ended leaves time for its last command.
	if !p.relays.hasJob("n1", alice, time.Now()) || p.relays.hasJob("n2", alice, time.Now()) {
		t.Error("who has a job where")
	}
	p.relays.mu.Lock()
	p.relays.seen["n2"] = map[uint32]time.Time{alice: time.Now()}
	p.relays.mu.Unlock()
	if !p.relays.hasJob("n2", alice, time.Now()) || p.relays.hasJob("n2", alice, time.Now().Add(jobGrace+time.Second)) {
		t.Error("the time after a job's end is not what it should be")
	}
}

// Certificates open what they are for: a login host has no orders to get, a controller no users, and each server serves its own.
func TestRolesOfHosts(t *testing.T) {
	p := servePort(t)
	sync := func(conn *grpc.ClientConn) error {
		s, err := nodepb.NewNodeAPIClient(conn).Sync(t.Context())
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	if err := sync(p.connect(mtls.RoleLogin, "login1", "127.0.0.1")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a login host as a node: %v", err)
	}
	if err := sync(p.connect(mtls.RoleNode, "n1", mtls.RelayServerName)); status.Code(err) != codes.Unimplemented {
		t.Errorf("NodeAPI where relays are served: %v", err)
	}
	if err := end(p.open(p.connect(mtls.RoleNode, "n1", "127.0.0.1"), caller(alice, aliceName))); status.Code(err) != codes.Unimplemented {
		t.Errorf("RelayAPI where nodes are served: %v", err)
	}
	err := end(p.open(p.connect(mtls.RoleController, "c", mtls.RelayServerName), caller(alice, aliceName)))
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a controller as a host: %v", err)
	}
}

// The connections of a host are limited, without effect on other hosts, and invalid pieces end their connection.
func TestRelayBounds(t *testing.T) {
	p := servePort(t)
	bad, good := p.connect(mtls.RoleNode, "work", mtls.RelayServerName), p.connect(mtls.RoleLogin, "login1", mtls.RelayServerName)
	for name, first := range map[string]*nodepb.Piece{
		"no caller":        {Data: []byte("x")},
		"too much":         {Caller: &nodepb.Caller{Uid: alice}, Data: make([]byte, MaxPiece+1)},
		"no name":          {Caller: &nodepb.Caller{Uid: alice, User: "a\nb"}},
		"a long name":      {Caller: &nodepb.Caller{Uid: alice, User: strings.Repeat("a", maxUserName+1)}},
		"megabytes":        {Caller: &nodepb.Caller{Uid: alice}, Data: make([]byte, 8<<20)},
		"a caller at last": {},
	} {
		want := codes.InvalidArgument
		if name == "megabytes" {
			want = codes.ResourceExhausted
		}
		if err := end(p.open(bad, first)); status.Code(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	twice := p.open(bad, caller(alice, aliceName))
	_ = twice.Send(caller(0, "root"))
	if err := end(twice); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a second caller: %v", err)
	}
	var flood []pieces
	for range MaxNodeCalls {
		flood = append(flood, p.open(bad, caller(alice, aliceName)))
	}
	for held := -1; held != MaxNodeCalls; time.Sleep(time.Millisecond) { // all have arrived
		p.relays.mu.Lock()
		held = p.relays.calls["node work"]
		p.relays.mu.Unlock()
	}
	if err := end(p.open(bad, caller(alice, aliceName))); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	if _, err := p.client(good, alice, aliceName).Ping(ctx, &pb.PingRequest{}); err != nil {
		t.Errorf("another host: %v", err)
	}
	for _, s := range flood {
		_ = s.CloseSend()
		if err := end(s); !errors.Is(err, io.EOF) {
			t.Errorf("a connection that was closed ends with %v", err)
		}
	}
	for held := -1; held != 0; time.Sleep(time.Millisecond) {
		p.relays.mu.Lock()
		held = len(p.relays.calls)
		p.relays.mu.Unlock()
		if held == 1 && p.relaysHeld("login login1") == 1 { // good's client
			break
		}
	}
}

func (p *port) relaysHeld(host string) int {
	p.relays.mu.Lock()
	defer p.relays.mu.Unlock()
	return p.relays.calls[host]
}

// The end of a host's connection ends its calls.
func TestRelayedConnectionsEnd(t *testing.T) {
	p := servePort(t)
	conn := p.connect(mtls.RoleLogin, "login1", mtls.RelayServerName)
	waits := p.open(conn, caller(alice, aliceName))
	job := submit(t, p.as(alice, alice), request("#!/bin/sh\n"))
	_ = waits.Send(&nodepb.Piece{Data: waitRequest(t, job)})
	for p.local.hold(alice, 0) < 2 {
		time.Sleep(time.Millisecond)
	}
	_ = conn.Close()
	for p.relaysHeld("login login1") != 0 {
		time.Sleep(time.Millisecond)
	}
}

// waitRequest is the frame of a call that waits for a job's end.
func waitRequest(t *testing.T, job uint32) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	c := ttrpc.NewClient(ours)
	defer theirs.Close()
	go func() { _, _ = pb.NewControllerAPIClient(c).WaitJob(t.Context(), &pb.WaitJobRequest{JobId: job}) }()
	b := make([]byte, 4096)
	n, err := theirs.Read(b)
	for err == nil && n < frames.HeaderBytes {
		var more int
		more, err = theirs.Read(b[n:])
		n += more
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	return b[:n]
}

// FuzzFirstPiece: every first piece is checked, and one that passes names a user.
func FuzzFirstPiece(f *testing.F) {
	f.Add(uint32(0), uint32(0), "root", []byte("x"), true)
	f.Add(uint32(1), uint32(1), "\x00", []byte{}, true)
	f.Add(uint32(1), uint32(1), "", []byte{}, false)
	f.Fuzz(func(t *testing.T, uid, gid uint32, user string, data []byte, has bool) {
		p := &nodepb.Piece{Data: data}
		if has {
			p.Caller = &nodepb.Caller{Uid: uid, Gid: gid, User: user}
		}
		if err := checkFirst(p); err == nil {
			if !has || len(data) > MaxPiece || len(user) > maxUserName || strings.ContainsAny(user, "\n\x00\x1b") {
				t.Errorf("%q passes", p)
			}
		}
	})
}
