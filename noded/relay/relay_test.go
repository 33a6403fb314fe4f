package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/ttrpc"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"google.golang.org/grpc/status"
)

// start serves a relay whose controller is at addr.
func start(t *testing.T, addr string, most int, user func(context.Context, uint32) (string, error)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay.sock")
	f, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Listen(path); err == nil {
		t.Error("two daemons listen on one socket")
	}
	l, err := FromFile(f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- Run(ctx, Options{Listener: l, Host: "login1", Controllers: []string{addr}, TLS: &tls.Config{MinVersion: tls.VersionTLS13},
			Most: most, User: user, Log: slog.New(slog.DiscardHandler)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

func ping(t *testing.T, path string) *pb.Problem {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(c)
	defer client.Close()
	_, err = pb.NewControllerAPIClient(client).Ping(context.Background(), &pb.PingRequest{})
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if p, ok := d.(*pb.Problem); ok {
			return p
		}
	}
	t.Fatalf("no problem is named: %v", err)
	return nil
}

func known(context.Context, uint32) (string, error) { return "alice", nil }

// Where there is no controller, the command is told so by its right name, each time.
func TestAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	path := start(t, addr, 10, known)
	for range 5 {
		p := ping(t, path)
		if pb.Code(p.Code) != pb.CodeAway || !strings.Contains(p.Error(), "the controller at "+addr+" cannot be reached") ||
			!strings.Contains(p.Error(), "login1") {
			t.Errorf("a command is told %v", p)
		}
	}
}

// A user who cannot be looked up is nobody whom the controller could know.
func TestNameless(t *testing.T) {
	path := start(t, "127.0.0.1:1", 10, func(context.Context, uint32) (string, error) { return "", errors.New("the directory is away") })
	if p := ping(t, path); pb.Code(p.Code) != pb.CodeUserID || !strings.Contains(p.Error(), "the directory is away") {
		t.Errorf("a command is told %v", p)
	}
}
