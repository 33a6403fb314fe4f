package greet

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/internal/version"
	nodepb "github.com/sluice-hpc/sluice/proto/sluice/node/v1"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// controller answers a stream and a call, and says of itself what says has.
type controller struct {
	nodepb.UnimplementedNodeAPIServer
	nodepb.UnimplementedEnrolAPIServer
	says  string
	heard chan metadata.MD

	generation string
	followed   *Followed // of the host that calls it
}

func (c *controller) greet(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	c.heard <- md
	if c.generation != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs(version.GenerationKey, c.generation))
	}
	if c.says != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs(version.Key, c.says))
	}
}

func (c *controller) Sync(s grpc.BidiStreamingServer[pb.NodeReport, pb.NodeOrders]) error {
	c.greet(s.Context())
	if err := s.Send(&pb.NodeOrders{}); err != nil {
		return err
	}
	return s.Send(&pb.NodeOrders{})
}

func (c *controller) Renew(ctx context.Context, _ *nodepb.RenewRequest) (*nodepb.CertificateReply, error) {
	c.greet(ctx)
	return &nodepb.CertificateReply{}, nil
}

// TestHandshake: a host says its build and its clock with every call, and works with no controller that is too old.
func TestHandshake(t *testing.T) {
	far := version.Build{Protocol: 9, Oldest: 9, Release: "9.0"}
	for _, c := range []struct {
		ours    version.Build
		says    string
		refused bool
	}{
		{version.Ours, "", false}, // from before protocol numbers
		{version.Ours, version.Ours.String(), false},
		{far, "", true},
		{far, version.Ours.String(), true},
		{version.Ours, far.String(), true},
	} {
		ctl := &controller{says: c.says, heard: make(chan metadata.MD, 2)}
		conn := serve(t, ctl, c.ours)
		ctx, cancel := context.WithCancel(context.Background())
		_, err := nodepb.NewEnrolAPIClient(conn).Renew(ctx, &nodepb.RenewRequest{})
		check(t, c.refused, err)
		stream, err := nodepb.NewNodeAPIClient(conn).Sync(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		check(t, c.refused, err)
		if !c.refused {
			if _, err := stream.Recv(); err != nil {
				t.Errorf("the second message: %v", err)
			}
		}
		cancel()
		for range 2 {
			md := <-ctl.heard
			now, err := strconv.ParseInt(strings.Join(md.Get(version.ClockKey), ""), 10, 64)
			if err != nil || version.Parse(strings.Join(md.Get(version.Key), "")) != c.ours || now > time.Now().UnixNano() || now <= 0 {
				t.Errorf("the controller heard %v", md)
			}
		}
	}
}

// TestFollowed: a host keeps the highest generation before it acts on what the controller says, tells it with each call, and follows no
// controller of a lower one, whether or not that refuses by itself.
func TestFollowed(t *testing.T) {
	var kept, told []string
	f := NewFollowed("n1", version.Generation{}, func(g version.Generation, refused string) error {
		kept, told = append(kept, g.String()), append(told, refused)
		return nil
	})
	for i, c := range []struct{ says, want string }{
		{"c 1", "c 1"},
		{"c 1", "c 1"},
		{"c 7", "c 7"},
		{"c 1", ""},
		{"c 7", "c 7"},
	} {
		ctl := &controller{says: version.Ours.String(), generation: c.says, heard: make(chan metadata.MD, 2), followed: f}
		before := f.said()
		conn := serve(t, ctl, version.Ours)
		_, err := nodepb.NewEnrolAPIClient(conn).Renew(t.Context(), &nodepb.RenewRequest{})
		stream, serr := nodepb.NewNodeAPIClient(conn).Sync(t.Context())
		if serr == nil {
			_, serr = stream.Recv()
		}
		for _, err := range []error{err, serr} {
			if (err != nil) != (c.want == "") ||
				err != nil && !strings.Contains(err.Error(), "n1 has followed a controller of generation 7") {
				t.Errorf("%d: %v", i, err)
			}
		}
		if md := <-ctl.heard; strings.Join(md.Get(version.GenerationKey), "") != before {
			t.Errorf("%d: the controller heard %v", i, md)
		}
		<-ctl.heard
		if c.want != "" && f.said() != c.want {
			t.Errorf("%d: followed is %q", i, f.said())
		}
	}
	if got := strings.Join(kept, ", "); got != "c 1, c 7, c 7, c 7" || told[2] == "" || told[3] != "" {
		t.Errorf("kept %s, told %q", got, told)
	}
	full := NewFollowed("n1", version.Generation{}, func(version.Generation, string) error { return errors.New("disk full") })
	if err := full.meet(metadata.Pairs(version.GenerationKey, "c 2")); status.Code(err) != codes.Unavailable || full.said() != "" {
		t.Errorf("what could not be kept: %v, %q", err, full.said())
	}
}

func check(t *testing.T, refused bool, err error) {
	t.Helper()
	if refused && (status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), ": upgrade ")) {
		t.Errorf("a controller that is too far away: %v", err)
	}
	if !refused && err != nil {
		t.Error(err)
	}
}

func serve(t *testing.T, c *controller, ours version.Build) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	s := grpc.NewServer()
	nodepb.RegisterNodeAPIServer(s, c)
	nodepb.RegisterEnrolAPIServer(s, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///controller", append(as(ours, c.followed, nil),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); s.Stop(); <-done })
	return conn
}
