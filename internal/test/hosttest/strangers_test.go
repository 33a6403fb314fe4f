package hosttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/msg"
	"github.com/sluice-hpc/sluice/internal/mtls"
	"github.com/sluice-hpc/sluice/internal/test/hosttest"
	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// liar is the daemon of a host that says what it likes, with the host's own certificate and from the host's own network.
type liar struct {
	c     *cluster
	host  *hosttest.Host
	relay *grpc.ClientConn // where RelayAPI is served
	nodes *grpc.ClientConn // where NodeAPI is
}

func (c *cluster) liar(h *hosttest.Host, role string) *liar {
	c.t.Helper()
	config, err := mtls.Host(h.Etc("sluice/tls"), role)
	must(c.t, err)
	dial := func(server string) *grpc.ClientConn {
		config := config.Clone()
		config.ServerName = server
		conn, err := grpc.NewClient("passthrough:///"+c.ctl.Addr+":6817", grpc.WithTransportCredentials(credentials.NewTLS(config)),
			grpc.WithContextDialer(func(_ context.Context, addr string) (net.Conn, error) { return h.Dial(addr) }))
		must(c.t, err)
		c.t.Cleanup(func() { conn.Close() })
		return conn
	}
	return &liar{c, h, dial(mtls.RelayServerName), dial(c.ctl.Addr)}
}

// speak calls the controller's API through RelayAPI for a caller of whom only the liar knows, and gives what it is answered.
func (l *liar) speak(who *nodepb.Caller, call func(*client.Client) error) error {
	l.c.t.Helper()
	dir, err := os.MkdirTemp(l.c.dir, "liar")
	must(l.c.t, err)
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	must(l.c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer listener.Close()
	wg.Go(func() {
		for {
			local, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { l.forward(ctx, local, who) })
		}
	})
	cl, err := client.Dial(ctx, path)
	must(l.c.t, err)
	defer cl.Close()
	return call(cl)
}

// forward carries one connection.
func (l *liar) forward(ctx context.Context, local net.Conn, who *nodepb.Caller) {
	defer local.Close()
	stream, err := nodepb.NewRelayAPIClient(l.relay).Call(ctx)
	if err != nil || stream.Send(&nodepb.Piece{Caller: who}) != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := local.Read(b)
			if n > 0 && stream.Send(&nodepb.Piece{Data: append([]byte(nil), b[:n]...)}) != nil || err != nil {
				_ = stream.CloseSend()
				return
			}
		}
	})
	for {
		p, err := stream.Recv()
		if err != nil {
			break
		}
		if _, err := local.Write(p.Data); err != nil {
			break
		}
	}
	local.Close()
	wg.Wait()
	for { // the stream has ended when this has failed
		if _, err := stream.Recv(); err != nil {
			return
		}
	}
}

// denied: the answer is a refusal that has these words, and the controller's log has the host.
func (l *liar) denied(what string, err error, words ...string) {
	l.c.t.Helper()
	if err == nil {
		l.c.t.Errorf("%s: obeyed", what)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			l.c.t.Errorf("%s: the answer is %q, without %q", what, err, w)
		}
	}
}

// TestHostsThatLie: the daemon of a host has been taken over. It speaks for others than it may, for another node, and calls what hosts may
// not call.
func TestHostsThatLie(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	login, node := c.liar(c.login, mtls.RoleLogin), c.liar(c.compute[0], mtls.RoleNode)
	ping := func(cl *client.Client) error { _, err := cl.Ping(ctx, &msg.PingRequest{}); return err }
	alice, bob := &nodepb.Caller{Uid: 5001, Gid: 5001, Pid: 1, User: "alice"}, &nodepb.Caller{Uid: 5002, Gid: 5002, Pid: 1, User: "bob"}

	// What it may: a login host speaks for ordinary users, a compute host for those who have a job there.
	if err := login.speak(alice, ping); err != nil {
		t.Errorf("the login host may not speak for alice: %v", err)
	}
	w := c.gate("hers", "-w", "c1")
	w.says([3]string{"0", "c1", "start"})
	if err := node.speak(alice, ping); err != nil {
		t.Errorf("c1 may not speak for alice, who has a job there: %v", err)
	}

	node.denied("for bob, who has no job there", node.speak(bob, ping), "c1", "5002")
	for _, l := range []*liar{login, node} {
		l.denied("for root", l.speak(&nodepb.Caller{Pid: 1, User: "root"}, ping), "root", l.host.Name)
		l.denied("for SlurmUser", l.speak(&nodepb.Caller{Uid: 5000, Gid: 5000, Pid: 1, User: "slurm"}, ping), "SlurmUser", l.host.Name)
		l.denied("with another name", l.speak(&nodepb.Caller{Uid: 5001, Gid: 5001, Pid: 1, User: "bob"}, ping), "alice", "bob")
		l.denied("for nobody's uid", l.speak(&nodepb.Caller{Uid: 5999, Gid: 5999, Pid: 1, User: "eve"}, ping), "5999", "eve")
	}
	login.denied("a method that is for the controller's host alone",
		login.speak(alice, func(cl *client.Client) error { _, err := cl.Shutdown(ctx, &msg.ShutdownRequest{}); return err }))
	login.denied("another user's job",
		login.speak(bob, func(cl *client.Client) error {
			r, err := cl.CancelJobs(ctx, &msg.CancelJobsRequest{Ids: []string{fmt.Sprint(w.job)}})
			if err == nil && len(r.Outcomes) == 1 && r.Outcomes[0].Problem != nil {
				err = errors.New(r.Outcomes[0].Problem.Phrase)
			}
			return err
		}))

	for what, l := range map[string]*liar{"another node's name": node, "a login host as a node": login} {
		stream, err := nodepb.NewNodeAPIClient(l.nodes).Sync(ctx)
		if err == nil {
			err = stream.Send(&pb.NodeReport{Hello: &pb.NodeHello{Node: "c2", BootId: "b"}})
		}
		if err == nil || errors.Is(err, io.EOF) { // of Send, which leaves it to Recv to say why the stream has ended
			_, err = stream.Recv()
		}
		if code := status.Code(err); code != codes.PermissionDenied && code != codes.Unauthenticated && code != codes.Unimplemented {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Clocks that are an hour apart. What is connected stays so.
	wrong := time.Now().Add(time.Hour).UnixNano()
	stream, err := nodepb.NewNodeAPIClient(node.nodes).Sync(ctx)
	must(t, err)
	must(t, stream.Send(&pb.NodeReport{Hello: &pb.NodeHello{Node: "c1", BootId: "b", NowNs: wrong}}))
	_, err = stream.Recv()
	node.denied("a node's clock", err, "the clock of c1 shows", "that of the controller")
	call, err := nodepb.NewRelayAPIClient(login.relay).Call(metadata.AppendToOutgoingContext(ctx, version.ClockKey, fmt.Sprint(wrong)))
	must(t, err)
	_, err = call.Recv()
	login.denied("a login host's clock", err, "the clock of login shows", "that of the controller")
	for _, method := range []string{"/sluice.v1.ControllerAPI/Ping", "/sluice.v1.StepAPI/Launch", "/sluice.node.v1.NodeAPI/None"} {
		for _, conn := range []*grpc.ClientConn{node.nodes, node.relay, login.nodes, login.relay} {
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err == nil {
				err = stream.RecvMsg(&nodepb.Piece{})
			}
			if code := status.Code(err); code != codes.Unimplemented && code != codes.PermissionDenied {
				t.Errorf("%s: %v", method, err)
			}
		}
	}
	if t.Failed() {
		return
	}
	c.await("the log has every host that was refused", func() bool {
		for _, h := range []string{"login", "c1"} {
			if !strings.Contains(c.ctld.Text(), `msg="refused a relayed connection" host=`+h) {
				return false
			}
		}
		return true
	})
	w.open()
	w.once("c1")
}
