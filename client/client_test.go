package client_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, c *clienttest.Controller) string {
	t.Helper()
	socket, stop, err := c.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return socket
}

// both runs a test on a full and on a short connection.
func both(t *testing.T, c *clienttest.Controller, test func(t *testing.T, c *client.Client)) {
	socket := serve(t, c)
	for name, dial := range map[string]func(context.Context, string) (*client.Client, error){"full": client.Dial, "short": client.DialShort} {
		t.Run(name, func(t *testing.T) {
			conn, err := dial(context.Background(), socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			test(t, conn)
		})
	}
}

func TestCallsOneAfterAnother(t *testing.T) {
	both(t, &clienttest.Controller{Script: []byte("#!/bin/sh\n"), JobList: []*pb.JobRecord{{Id: 3}}}, func(t *testing.T, c *client.Client) {
		ctx := context.Background()
		for range 3 {
			r, err := c.Ping(ctx, &pb.PingRequest{})
			if err != nil || r.GetHost() != "head" {
				t.Fatalf("Ping = %v, %v", r, err)
			}
			script, err := c.Script(ctx, 3)
			if err != nil || string(script) != "#!/bin/sh\n" {
				t.Fatalf("Script = %q, %v", script, err)
			}
			stream, err := c.Jobs(ctx, &pb.JobsRequest{})
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
	both(t, &clienttest.Controller{Fail: want}, func(t *testing.T, c *client.Client) {
		_, err := c.Ping(context.Background(), &pb.PingRequest{})
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
	both(t, ctl, func(t *testing.T, c *client.Client) {
		for i, size := range []int{10, 2 << 20, 4 << 20} {
			script := []byte(strings.Repeat("x", size))
			id := fmt.Sprintf("%s-%d", t.Name(), i)
			if _, err := c.SubmitJob(context.Background(), &pb.SubmitRequest{RequestId: id, Spec: &pb.JobSpec{Name: "n"}, Script: script}); err != nil {
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
				if _, err := c.Submit(context.Background(), &pb.SubmitRequest{RequestId: fmt.Sprint(i, "/", k)}); err != nil {
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
	both(t, &clienttest.Controller{DropCalls: 2}, func(t *testing.T, c *client.Client) {
		_, err := c.Submit(context.Background(), &pb.SubmitRequest{RequestId: "a"})
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
	for path, want := range map[string]string{filepath.Join(dir, "none"): "no such file", stale: "nobody listens"} {
		for _, dial := range []func(context.Context, string) (*client.Client, error){client.Dial, client.DialShort} {
			_, err := dial(context.Background(), path)
			var ce *client.ConnectError
			if !errors.As(err, &ce) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "Unable to contact slurm controller (connect failure)") {
				t.Errorf("dialling %s: %v", path, err)
			}
			if !client.Broken(err) {
				t.Errorf("%v does not count as broken", err)
			}
		}
	}
}

func TestADeadlineEndsACall(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := client.DialShort(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Ping(ctx, &pb.PingRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent controller gave %v", err)
	}
}

var update = flag.Bool("update", false, "write short.gen.go")

// Every unary call of the interface has its method on a short connection.
func TestShortHasEveryUnaryCall(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("// Code generated by go test ./client -run TestShortHasEveryUnaryCall -update. DO NOT EDIT.\n\npackage client\n\n" +
		"import (\n\t\"context\"\n\n\tpb \"github.com/sluice-hpc/sluice/proto/sluice/v1\"\n)\n")
	api := reflect.TypeFor[pb.ControllerAPIClient]()
	for i := range api.NumMethod() {
		m := api.Method(i)
		if m.Type.NumIn() != 2 || m.Type.Out(0).Kind() != reflect.Pointer {
			continue // a stream
		}
		fmt.Fprintf(&b, "\nfunc (s *short) %s(ctx context.Context, req *pb.%s) (*pb.%s, error) {\n\tresp := new(pb.%s)\n\treturn resp, s.call(ctx, %q, req, resp)\n}\n",
			m.Name, m.Type.In(1).Elem().Name(), m.Type.Out(0).Elem().Name(), m.Type.Out(0).Elem().Name(), m.Name)
	}
	if *update {
		if err := os.WriteFile("short.gen.go", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("short.gen.go")
	if err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Errorf("short.gen.go is not up to date (%v): run go test ./client -run TestShortHasEveryUnaryCall -update", err)
	}
}

func TestSocketPath(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	env := map[string]string{"SLURM_CONF": conf}
	getenv := func(k string) string { return env[k] }
	if _, err := client.SocketPath(getenv); err == nil || !strings.Contains(err.Error(), conf) {
		t.Errorf("without a file: %v", err)
	}
	for text, want := range map[string]string{
		"ClusterName=Lab\n": "lab",
		"# ClusterName=no\n  clustername = big  # comment": "big",
		"SlurmctldHost=x\n": "",
	} {
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := client.SocketPath(getenv)
		if want != "" && (err != nil || got != "/run/sluice/"+want+"/ctld.sock") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if want == "" && err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	env["SLUICE_SOCKET"] = "/x"
	if got, _ := client.SocketPath(getenv); got != "/x" {
		t.Errorf("SLUICE_SOCKET gave %q", got)
	}
}
