package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/test/leaktest"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/msg"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func serve(t *testing.T, c *clienttest.Controller) string {
	t.Helper()
	socket, stop, err := c.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return socket
}

// connected runs a test on a client of c.
func connected(t *testing.T, c *clienttest.Controller, test func(*client.Client)) {
	t.Helper()
	conn, err := client.Dial(context.Background(), serve(t, c))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	test(conn)
}

func TestCallsOneAfterAnother(t *testing.T) {
	connected(t, &clienttest.Controller{Script: []byte("#!/bin/sh\n"), JobList: []*pb.JobRecord{{Id: 3}}}, func(c *client.Client) {
		ctx := context.Background()
		for range 3 {
			r, err := c.Ping(ctx, &msg.PingRequest{})
			if err != nil || r.GetHost() != "head" {
				t.Fatalf("Ping = %v, %v", r, err)
			}
			script, err := c.Script(ctx, 3)
			if err != nil || string(script) != "#!/bin/sh\n" {
				t.Fatalf("Script = %q, %v", script, err)
			}
			stream, err := c.Jobs(ctx, &msg.JobsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			page, err := stream.Recv()
			if err != nil || len(page.GetJobs()) != 1 {
				t.Fatalf("Jobs = %v, %v", page, err)
			}
			if _, err := stream.Recv(); err != io.EOF {
				t.Fatalf("end of the jobs: %v", err)
			}
		}
	})
}

func TestProblemsComeBack(t *testing.T) {
	want := pb.NewProblem(pb.CodeInvalidPartition, "there is no partition x").WithHint("sinfo lists them")
	connected(t, &clienttest.Controller{Fail: want}, func(c *client.Client) {
		_, err := c.Ping(context.Background(), &msg.PingRequest{})
		got := client.ProblemOf(err)
		if got.GetCode() != want.Code || got.GetPhrase() != want.Phrase || got.GetDetail() != want.Detail || got.GetHint() != want.Hint {
			t.Errorf("ProblemOf(%v) = %v, want %v", err, got, want)
		}
		if client.Broken(err) || client.Text(err) != want.Error() {
			t.Errorf("Broken %v, Text %q", client.Broken(err), client.Text(err))
		}
	})
}

func TestSubmissionsOfAnySize(t *testing.T) {
	ctl := &clienttest.Controller{}
	connected(t, ctl, func(c *client.Client) {
		for i, size := range []int{10, 2 << 20, 4 << 20} {
			script := []byte(strings.Repeat("x", size))
			id := fmt.Sprintf("%s-%d", t.Name(), i)
			if _, err := c.SubmitJob(context.Background(), &msg.SubmitRequest{RequestId: id, Spec: &msg.JobSpec{Name: "n"},
				Script: script}); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			last := ctl.Submitted[len(ctl.Submitted)-1]
			if last.GetRequestId() != id || len(last.GetScript()) != size {
				t.Errorf("%d bytes arrived as %d of %q", size, len(last.GetScript()), last.GetRequestId())
			}
		}
	})
}

func TestManyInFlight(t *testing.T) {
	ctl := &clienttest.Controller{}
	c, err := client.Dial(context.Background(), serve(t, ctl))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for k := range 10 {
				if _, err := c.Submit(context.Background(), &msg.SubmitRequest{RequestId: fmt.Sprint(i, "/", k)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(ctl.Submitted) != 640 {
		t.Errorf("%d submissions arrived", len(ctl.Submitted))
	}
}

func TestABrokenConnectionIsToldFromARefusal(t *testing.T) {
	connected(t, &clienttest.Controller{DropCalls: 2}, func(c *client.Client) {
		_, err := c.Submit(context.Background(), &msg.SubmitRequest{RequestId: "a"})
		if !client.Broken(err) || client.ProblemOf(err) != nil {
			t.Errorf("a cut connection gave %v", err)
		}
	})
}

func TestNobodyListens(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for path, want := range map[string]string{filepath.Join(dir, "none"): "no such file", stale: "no process listens"} {
		_, err := client.Dial(context.Background(), path)
		var ce *client.ConnectError
		if !errors.As(err, &ce) || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "Unable to contact slurm controller (connect failure)") {
			t.Errorf("dialling %s: %v", path, err)
		}
		if !client.Broken(err) {
			t.Errorf("%v does not count as broken", err)
		}
	}
}

func TestADeadlineEndsACall(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := client.Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Ping(ctx, &msg.PingRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent controller gave %v", err)
	}
}

func TestTheEndOfAContextEndsACall(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := client.Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = peer.Read(make([]byte, 1)) // the request is there
		cancel()
	}()
	if _, err := c.Ping(ctx, &msg.PingRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up gave %v", err)
	}
	if _, err := c.Ping(ctx, &msg.PingRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call after its context has ended gave %v", err)
	}
}

// A deadline and a connection that broke belong to one call: the next finds a connection without them.
func TestACallIsNotHurtByTheOneBefore(t *testing.T) {
	connected(t, &clienttest.Controller{DropCalls: 1}, func(c *client.Client) {
		if _, err := c.Submit(context.Background(), &msg.SubmitRequest{RequestId: "a"}); !client.Broken(err) {
			t.Fatalf("a cut connection gave %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		if _, err := c.Ping(ctx, &msg.PingRequest{}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := c.Ping(context.Background(), &msg.PingRequest{}); err != nil {
			t.Fatal(err)
		}
	})
}

// A call may be made while the answer of another is still being read.
func TestCallsDuringAStream(t *testing.T) {
	connected(t, &clienttest.Controller{JobList: []*pb.JobRecord{{Id: 3, Spec: &pb.JobSpec{Name: "x"}}}}, func(c *client.Client) {
		ctx := context.Background()
		jobs, err := c.Jobs(ctx, &msg.JobsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ping(ctx, &msg.PingRequest{}); err != nil {
			t.Fatal(err)
		}
		page, err := jobs.Recv()
		if err != nil || page.GetJobs()[0].GetSpec().GetName() != "x" {
			t.Fatalf("Jobs = %v, %v", page, err)
		}
		for range 2 {
			if _, err := jobs.Recv(); err != io.EOF {
				t.Fatalf("end of the jobs: %v", err)
			}
		}
	})
}

func TestAClosedClient(t *testing.T) {
	connected(t, &clienttest.Controller{}, func(c *client.Client) {
		for range 2 {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Ping(context.Background(), &msg.PingRequest{}); err == nil {
			t.Error("a closed client made a call")
		}
	})
}
