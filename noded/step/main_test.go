package step_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/step"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	"github.com/sluice-hpc/sluice/noded/stepd"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestMain lets the test binary be the shim too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stepd" {
		os.Exit(stepd.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// patience bounds every wait for a state; nothing takes as long unless something is wrong.
const patience = 5 * time.Minute

// testUser is a user that is in no passwd file and that no other test on this machine uses at the same time.
func testUser() (uid, gid uint32) {
	if os.Geteuid() != 0 {
		return uint32(os.Geteuid()), uint32(os.Getegid())
	}
	uid = 300_000 + uint32(os.Getpid()%1_000_000)*200 + 2*users.Add(1)
	return uid, uid + 1
}

var users atomic.Uint32

// node is a node's spool, cgroup root and runner; restart replaces the runner as a new node daemon would.
type node struct {
	t       testing.TB
	spool   string
	groups  string
	uid     uint32
	gid     uint32
	work    string // folder of the job's user
	r       *step.Runner
	mu      sync.Mutex
	newest  map[string]*pb.StepReport
	all     map[string][]pb.StepPhase
	wake    chan struct{}
	job     uint32
	plugin  string
	shims   []string    // the program that shims are; nil: this one
	private *pb.Privacy // of its jobs
	env     []string    // what is said to shims of how to write their log
	answer  time.Duration
	onEnd   func(name string) // may be nil
}

func stepName(b *pb.Bundle) string { return folder.Name(b.Key) }

func newNode(t testing.TB) *node { return newNodeWith(t, "") }

func newNodeWith(t testing.TB, plugin string) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: jobs run as another user in real cgroups")
	}
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	base, err := os.MkdirTemp("/var/tmp", "sluice-step-")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, plugin: plugin, spool: filepath.Join(base, "spool"), work: filepath.Join(base, "work"),
		groups: "sluice-test/" + filepath.Base(base) + "/n1",
		newest: map[string]*pb.StepReport{}, all: map[string][]pb.StepPhase{}, wake: make(chan struct{}, 1)}
	n.uid, n.gid = testUser()
	must(t, os.Chmod(base, 0o755))
	must(t, os.Mkdir(n.spool, 0o755))
	must(t, os.Mkdir(n.work, 0o755))
	must(t, n.chown(n.work))
	t.Cleanup(func() {
		n.r.Close()
		n.nothingLeft()
		os.RemoveAll(base)
	})
	n.start()
	return n
}

// newUserNode is the same for whoever runs the test.
func newUserNode(t *testing.T) *node {
	t.Helper()
	base := t.TempDir()
	n := &node{t: t, spool: base + "/spool", work: base, groups: "sluice-test/user/n1",
		newest: map[string]*pb.StepReport{}, all: map[string][]pb.StepPhase{}, wake: make(chan struct{}, 1)}
	n.uid, n.gid = testUser()
	t.Cleanup(func() { n.r.Close() })
	n.start()
	return n
}

func (n *node) start() []*pb.StepReport {
	n.t.Helper()
	env := n.env // until the next start: the runner asks for it at any time
	r, err := step.New(step.Options{Spool: n.spool, CgroupRoot: n.groups, CgroupPlugin: n.plugin, Command: n.shims, AnswerTimeout: n.answer,
		ShimEnv: func() []string { return env },
		Log:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		n.t.Fatal(err)
	}
	n.r = r
	have, err := r.Recover(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	go func() {
		for rep := range r.Reports() {
			n.mu.Lock()
			name := folder.Name(rep.Key)
			n.newest[name] = rep
			n.all[name] = append(n.all[name], rep.Phase)
			n.mu.Unlock()
			if n.onEnd != nil && rep.Phase == pb.StepPhase_STEP_ENDED {
				n.onEnd(name)
			}
			select {
			case n.wake <- struct{}{}:
			default:
			}
		}
	}()
	return have
}

// restart is what a killed and restarted node daemon amounts to, as far as shims can see.
func (n *node) restart() []*pb.StepReport {
	n.t.Helper()
	n.r.Close()
	n.mu.Lock()
	n.newest = map[string]*pb.StepReport{}
	n.mu.Unlock()
	return n.start()
}

// bundle is a job of the test user's that runs script.
func (n *node) bundle() *pb.Bundle {
	n.job++
	return &pb.Bundle{
		Key: &pb.StepKey{JobId: n.job, Attempt: 1, Epoch: 7, Step: pb.BatchStep},
		Uid: n.uid, Gid: n.gid, Argv: []string{folder.Script},
		Env: []string{"PATH=/usr/bin:/bin", "SLURM_JOB_ID=" + fmt.Sprint(n.job), "SLURMD_NODENAME=n1"},
		Dir: n.work, StdIn: &pb.StdFile{Path: "/dev/null"}, StdOut: &pb.StdFile{Path: filepath.Join(n.work, fmt.Sprintf("out-%d", n.job))},
		Umask: 0o022, KillWaitS: 1, Cgroup: fmt.Sprintf("job_%d.1", n.job), Privacy: n.private,
	}
}

// launch runs body under /bin/sh, or as it is when it has a #! line.
func (n *node) launch(b *pb.Bundle, body string) *pb.StepKey {
	n.t.Helper()
	if !strings.HasPrefix(body, "#!") {
		body = "#!/bin/sh\n" + body + "\n"
	}
	if err := n.r.Launch(context.Background(), b, []byte(body)); err != nil {
		n.t.Fatal(err)
	}
	return b.Key
}

// await returns the first newest report of the step for which ok is true.
func (n *node) await(k *pb.StepKey, what string, ok func(*pb.StepReport) bool) *pb.StepReport {
	n.t.Helper()
	deadline := time.After(patience)
	for {
		n.mu.Lock()
		rep := n.newest[folder.Name(k)]
		n.mu.Unlock()
		if rep != nil && ok(rep) {
			return rep
		}
		select {
		case <-n.wake:
		case <-deadline:
			n.t.Fatalf("step %s: no report that is %q within %v; newest: %v", folder.Name(k), what, patience, rep)
		}
	}
}

func (n *node) ended(k *pb.StepKey) *pb.ExitRecord {
	n.t.Helper()
	return n.await(k, "ended", func(r *pb.StepReport) bool { return r.Phase == pb.StepPhase_STEP_ENDED }).Exit
}

func (n *node) running(k *pb.StepKey) *pb.StepReport {
	n.t.Helper()
	return n.await(k, "running", func(r *pb.StepReport) bool { return r.Phase == pb.StepPhase_STEP_RUNNING })
}

func (n *node) run(b *pb.Bundle, body string) *pb.ExitRecord {
	n.t.Helper()
	return n.ended(n.launch(b, body))
}

func (n *node) order(o *pb.StepOrder) {
	n.t.Helper()
	must(n.t, n.r.Control(context.Background(), o))
}

func (n *node) output(b *pb.Bundle) string {
	n.t.Helper()
	raw, err := os.ReadFile(b.StdOut.Path)
	must(n.t, err)
	return string(raw)
}

// awaitOutput waits, by inotify, until the job has written want.
func (n *node) awaitOutput(b *pb.Bundle, want string) {
	n.t.Helper()
	awaitFile(n.t, b.StdOut.Path, func(s string) bool { return strings.Contains(s, want) })
}

func awaitFile(t testing.TB, path string, ok func(string) bool) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE)
	must(t, err)
	for deadline := time.Now().Add(patience); ; {
		raw, _ := os.ReadFile(path)
		if ok(string(raw)) {
			return
		}
		left := time.Until(deadline)
		if left < 0 {
			t.Fatalf("file %s: not as expected within %v, but %q", path, patience, raw)
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		var buf [4096]byte
		_, _ = unix.Read(fd, buf[:])
	}
}

// groupDirs are the folders of this node in every hierarchy.
func (n *node) groupDirs() (dirs []string) {
	for _, pattern := range []string{"/sys/fs/cgroup/" + n.groups, "/sys/fs/cgroup/*/" + n.groups} {
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	return dirs
}

// nothingLeft fails the test when a group, a process or a spool file of a step is left over.
func (n *node) nothingLeft() {
	for _, dir := range n.groupDirs() {
		left, _ := filepath.Glob(dir + "/job_*")
		for _, l := range left {
			n.t.Errorf("cgroup left over: %s", l)
		}
	}
	if root, err := cgroup.Open(n.groups, n.plugin); err == nil {
		root.Tidy()
	}
	for _, d := range n.groupDirs() {
		raw, _ := os.ReadFile(d + ".shims/cgroup.procs")
		n.t.Errorf("cgroup left over: %s, shims in it: %q", d, raw)
	}
	if pids := ofUser(n.uid); len(pids) > 0 {
		n.t.Errorf("processes left over: %v", pids)
		for _, p := range pids {
			unix.Kill(p, unix.SIGKILL)
		}
	}
	if left, _ := filepath.Glob(n.spool + "/steps/.new-*"); len(left) > 0 {
		n.t.Errorf("spool files left over: %v", left)
	}
	if sockets, err := os.ReadDir(filepath.Join(n.spool, "shims")); err != nil || len(sockets) > 0 {
		n.t.Errorf("sockets of shims are left: %v %v", sockets, err)
	}
}

// ofUser lists living processes with that uid.
func ofUser(uid uint32) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		var st unix.Stat_t
		if unix.Stat(d, &st) != nil || st.Uid != uid {
			continue
		}
		// One without memory, which the kernel shows for a moment between its last instruction and its end, has ended.
		if raw, err := os.ReadFile(d + "/status"); err == nil && strings.Contains(string(raw), "\nVmSize:") {
			var pid int
			fmt.Sscanf(filepath.Base(d), "%d", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) chown(path string) error { return os.Lchown(path, int(n.uid), int(n.gid)) }
