package bcast

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/client/submission"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/internal/test/output"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// copying is a job whose nodes are the test's.
type copying struct {
	*Job
	ctl  *clienttest.Controller
	errs *output.Buffer
	mu   sync.Mutex
	got  map[int][]byte // what has come, by node
}

// begin has a node that has begun its task be played by a function.
func begin(t *testing.T, nodes int, node func(c *copying, n *clienttest.NodeConn, index int)) *copying {
	t.Helper()
	c := &copying{ctl: &clienttest.Controller{}, errs: &output.Buffer{}, got: map[int][]byte{}}
	c.ctl.Stepping.Node = func(step *pb.StepRecord, index int) {
		n, err := clienttest.DialStep(step, index)
		if err != nil {
			return // it has been ended
		}
		defer n.Close()
		n.Send(stepwire.Started, stepwire.All, &pb.StepStarted{Pids: []uint32{1}})
		node(c, n, index)
	}
	socket, stop, err := c.ctl.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	env := &command.Env{Name: "sbcast", Stderr: c.errs, Stdout: c.errs, Args: []string{"sbcast"},
		Environ: []string{"SLURM_CONF=/nonexistent"}, Now: time.Now, Sleep: time.Sleep,
		Dial: func(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, socket) }}
	c.Job = &Job{Env: env, Sender: &submission.Sender{Env: env}, ID: 7}
	for i := range nodes {
		c.Nodes = append(c.Nodes, fmt.Sprintf("n%d", i+1))
	}
	if c.Client, err = env.Dial(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Client.Close() })
	return c
}

// exit is the end of a node's task and step.
func exit(n *clienttest.NodeConn, index int, errno syscall.Errno) {
	n.Send(stepwire.Exit, stepwire.All, &pb.StepExit{Tasks: []uint32{uint32(index)}, WaitStatus: uint32(errno) << 8})
	n.Send(stepwire.Ended, stepwire.All, &pb.StepEnded{Verdict: "exited", WaitStatus: uint32(errno) << 8})
}

// takes reads a file to its end, and has it put in place.
func takes(c *copying, n *clienttest.NodeConn, index int) {
	var in bytes.Buffer
	for {
		h, b, err := n.Next()
		if err != nil || h.Kind == stepwire.In && len(b) == 0 {
			break
		}
		in.Write(b)
	}
	c.mu.Lock()
	c.got[index] = in.Bytes()
	c.mu.Unlock()
	exit(n, index, 0)
}

func source(t *testing.T, size int64) (f *os.File, data []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if size <= 1<<24 {
		data = make([]byte, size)
		_, _ = rand.Read(data)
	}
	if err := errors.Join(os.WriteFile(path, data, 0o644), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, data
}

// TestCopy: each node gets the content and its checksum, however many there are.
func TestCopy(t *testing.T) {
	for _, compress := range []bool{false, true} {
		c := begin(t, 20, takes)
		c.Fanout = 3
		f, data := source(t, 1_000_003)
		if err := c.Copy(context.Background(), &File{Path: "file", From: f, To: "/to", Compress: compress}); err != nil {
			t.Fatal(err, c.errs)
		}
		sum := sha256.Sum256(data)
		want := append(data, sum[:]...)
		for i := range 20 {
			c.mu.Lock()
			got := c.got[i]
			c.mu.Unlock()
			if compress {
				got, _ = io.ReadAll(s2.NewReader(bytes.NewReader(got)))
			}
			if !bytes.Equal(got, want) {
				t.Errorf("node %d has got %d bytes of %d", i, len(got), len(want))
			}
		}
		if c.errs.String() != "" {
			t.Error(c.errs)
		}
		s := c.ctl.Stepping.Created[0].GetSpec()
		if !s.GetCopy() || !s.GetOverlap() || s.GetReqNodes() != "n[1-20]" || s.GetNumTasks() != 20 {
			t.Error(s)
		}
	}
}

// TestNodesThatFail: each is told of in Slurm's words, and the others have the file.
func TestNodesThatFail(t *testing.T) {
	var taken sync.WaitGroup
	taken.Add(2)
	c := begin(t, 4, func(c *copying, n *clienttest.NodeConn, index int) {
		switch index {
		case 1:
			exit(n, index, syscall.EEXIST)
		case 2:
			_ = n.NetConn().Close()
		default:
			takes(c, n, index)
			taken.Done()
		}
	})
	c.ctl.Stepping.Waited = func() *pb.StepRecord {
		taken.Wait()
		return &pb.StepRecord{Reason: "node n3 has failed"}
	}
	f, _ := source(t, 1<<20)
	err := c.Copy(context.Background(), &File{Path: "file", From: f, To: "/to"})
	var failed *Failure
	if !errors.As(err, &failed) || failed.Errno != int(syscall.EEXIST) {
		t.Error(err)
	}
	for _, want := range []string{"sbcast: error: REQUEST_FILE_BCAST(n2): File exists\n",
		"sbcast: error: REQUEST_FILE_BCAST(n3): Communication connection failure, node n3 has failed\n"} {
		if !strings.Contains(c.errs.String(), want) {
			t.Errorf("no %q in %q", want, c.errs)
		}
	}
	if n := strings.Count(c.errs.String(), "\n"); n != 2 {
		t.Errorf("%d lines: %s", n, c.errs)
	}
}

// hangs reads nothing more than its connection takes.
func hangs(until <-chan struct{}) func(*copying, *clienttest.NodeConn, int) {
	return func(*copying, *clienttest.NodeConn, int) { <-until }
}

// TestNodeThatTakesNothing is given up with --timeout.
func TestNodeThatTakesNothing(t *testing.T) {
	over := make(chan struct{})
	c := begin(t, 1, hangs(over))
	defer close(over)
	c.Timeout = 200 * time.Millisecond
	f, _ := source(t, 1<<28)
	err := c.Copy(context.Background(), &File{Path: "file", From: f, To: "/to"})
	var failed *Failure
	if !errors.As(err, &failed) || failed.Errno != int(syscall.ETIMEDOUT) ||
		!strings.Contains(c.errs.String(), "(n1): Connection timed out") {
		t.Error(err, c.errs)
	}
}

// TestSignalEndsACopy: also one that is stuck.
func TestSignalEndsACopy(t *testing.T) {
	over, signals := make(chan struct{}), make(chan os.Signal, 1)
	signals <- syscall.SIGCONT
	c := begin(t, 1, func(*copying, *clienttest.NodeConn, int) {
		signals <- syscall.SIGTERM
		<-over
	})
	defer close(over)
	c.Signals = signals
	f, _ := source(t, 1<<28)
	err := c.Copy(context.Background(), &File{Path: "file", From: f, To: "/to"})
	var i *submission.Interrupted
	if !errors.As(err, &i) || i.Signal != syscall.SIGTERM {
		t.Error(err, c.errs)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"nosuch": "Can't open `%s`: No such file or directory",
		".": "Can't mmap file `%s`, No such device.", "fifo": "Can't mmap file `%s`, No such device."} {
		path = filepath.Join(dir, path)
		if f, err := Open(path); err == nil || err.Error() != fmt.Sprintf(want, path) {
			t.Error(f, err)
		}
	}
}

func TestExcluded(t *testing.T) {
	for of, want := range map[[2]string]bool{{"/lib/x.so", ExcludedLibraries}: true, {"/libx/x.so", ExcludedLibraries}: false,
		{"/lib/x.so", "NONE"}: false, {"/opt/a/x.so", "/opt/b,/opt/a/"}: true, {"/x.so", ""}: false} {
		if got := excluded(of[0], of[1]); got != want {
			t.Errorf("%v: %v", of, got)
		}
	}
}
