package root

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/policy"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// adopters is a runner whose allocations take sessions, or do not.
type adopters struct {
	noSteps
	answers map[uint32]error // by job
	asked   []uint32
	pids    map[int]bool
}

func (s *adopters) Adopt(_ context.Context, k *pb.StepKey, pid int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.pids[pid] = append(s.asked, k.JobId), true
	return s.answers[k.JobId]
}

// allocation has a node know of an allocation.
func allocation(r *Root, job, uid uint32, start int64, phase pb.StepPhase) {
	k := &pb.StepKey{JobId: job, Attempt: 1, Epoch: 1, Step: pb.ExternStep}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[agent.KeyOf(k)] = &known{key: k, name: folder.Name(k), brief: &pb.Bundle{Key: k, Uid: uid, Cgroup: folder.Group(k)},
		rep: &pb.StepReport{Key: k, Phase: phase, StartNs: start}}
}

// TestWhichJobAdopts: the newest of the user's own that run, however it is asked.
func TestWhichJobAdopts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root may request an adoption")
	}
	s := &adopters{noSteps: noSteps{out: make(chan *pb.StepReport)}, pids: map[int]bool{}}
	r := newRoot(t, s, policy.Policy{})
	allocation(r, 1, 1001, 100, pb.StepPhase_STEP_RUNNING)
	allocation(r, 2, 1001, 300, pb.StepPhase_STEP_RUNNING)
	allocation(r, 3, 1001, 200, pb.StepPhase_STEP_RUNNING)
	allocation(r, 4, 1001, 400, pb.StepPhase_STEP_ENDED)
	allocation(r, 5, 1002, 500, pb.StepPhase_STEP_RUNNING)
	ending, suspended := step.ErrEnding, step.ErrSuspended
	for _, c := range []struct {
		uid     uint32
		answers map[uint32]error
		want    string
		asked   []uint32
	}{
		{1001, nil, "adopted 2", []uint32{2}},
		{1002, nil, "adopted 5", []uint32{5}},
		{1003, nil, "none", nil},
		{1001, map[uint32]error{2: ending}, "adopted 3", []uint32{2, 3}},
		{1001, map[uint32]error{2: suspended, 3: ending}, "adopted 1", []uint32{2, 3, 1}},
		{1001, map[uint32]error{2: ending, 3: suspended, 1: suspended}, "suspended 3", []uint32{2, 3, 1}},
		{1001, map[uint32]error{2: ending, 3: ending, 1: ending}, "none", []uint32{2, 3, 1}},
		{1001, map[uint32]error{2: errors.New("no\nroom")}, "failed no; room", []uint32{2}},
	} {
		s.answers, s.asked = c.answers, nil
		if got := r.adopt(t.Context(), c.uid, os.Getpid()); got != c.want || fmt.Sprint(s.asked) != fmt.Sprint(c.asked) {
			t.Errorf("uid %d, %v: %q of %v, want %q of %v", c.uid, c.answers, got, s.asked, c.want, c.asked)
		}
	}
	if len(s.pids) != 1 || !s.pids[os.Getppid()] {
		t.Errorf("adopted were %v, and the parent is %d", s.pids, os.Getppid())
	}
}

// TestSessionsSocket: what is asked is a user id, and who asks the kernel says.
func TestSessionsSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root may request an adoption")
	}
	s := &adopters{noSteps: noSteps{out: make(chan *pb.StepReport)}, pids: map[int]bool{}}
	r := newRoot(t, s, policy.Policy{})
	allocation(r, 7, 1001, 100, pb.StepPhase_STEP_RUNNING)
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	r.wg.Go(func() { r.serveAdopt(l) })
	t.Cleanup(func() { _ = l.Close() })
	for say, want := range map[string]string{
		"1001\n": "adopted 7\n", "1002\n": "none\n", "0\n": "failed root is in no job\n", "\n": "failed the request is not a user id\n",
		"-1\n": "failed the request is not a user id\n", "4294967296\n": "failed the request is not a user id\n",
		"1001 0\n": "failed the request is not a user id\n", strings.Repeat("1", 500) + "\n": "failed the request is not a user id\n",
		"100": "", "": "",
	} {
		if got := ask(t, path, say); got != want {
			t.Errorf("%.20q is answered with %q, want %q", say, got, want)
		}
	}
	user := os.Getenv("SLUICE_TEST_USER")
	if user == "" {
		t.Skip("the rest needs a second user: .ci/test-user, and its name in SLUICE_TEST_USER")
	}
	// Only the daemon itself is left to refuse.
	for p, mode := range map[string]os.FileMode{path: 0o666, dir: 0o755, filepath.Dir(dir): 0o755} {
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("setpriv", "--reuid="+user, "--clear-groups", "--", "/usr/bin/python3", "-ISc",
		"import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(99).decode())", path)
	if out, err := cmd.CombinedOutput(); !strings.Contains(string(out), "failed only root may request an adoption") {
		t.Errorf("a user: %v: %s", err, out)
	}
}

// ask says something and gives the whole answer.
func ask(t *testing.T, path, say string) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = c.Write([]byte(say))
	_ = c.(*net.UnixConn).CloseWrite()
	out := make([]byte, 0, 100)
	for buf := make([]byte, 100); ; {
		n, err := c.Read(buf)
		out = append(out, buf[:n]...)
		if err != nil {
			return string(out)
		}
	}
}
