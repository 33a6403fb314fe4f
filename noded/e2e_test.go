package noded

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/noded/agent"
	"github.com/sluice-hpc/sluice/noded/container/containertest"
	"github.com/sluice-hpc/sluice/noded/hw"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

// daemonMain is the node daemon as a process of its own, to be killed.
func daemonMain() int {
	var o Options
	if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	o.Prober = hw.Linux{}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// realNode is a node daemon in its own process, with real shims, cgroups and a second user.
type realNode struct {
	t    *testing.T
	c    *controller
	o    Options
	work string // folder of the jobs' user
	cmd  *exec.Cmd
	was  int // hellos before the daemon was started
}

var someUID = containertest.UID()

func newRealNode(t *testing.T) *realNode {
	if os.Geteuid() != 0 {
		t.Skip("needs root: jobs run as another user in real cgroups")
	}
	base, err := os.MkdirTemp("/var/tmp", "sluice-noded-")
	must(t, err)
	n := &realNode{t: t, c: newController(t), work: filepath.Join(base, "work")}
	must(t, os.Chmod(base, 0o755))
	must(t, os.Mkdir(n.work, 0o755))
	must(t, os.Chown(n.work, int(someUID), int(someUID)))
	n.o = Options{NodeName: "n1", Spool: filepath.Join(base, "spool"), TLS: n.c.tlsDir, Controllers: []string{n.c.addr},
		Cluster: "test-" + filepath.Base(base), Conf: "/etc/slurm/slurm.conf"}
	t.Cleanup(func() {
		n.nothingLeft()
		os.RemoveAll(base)
	})
	return n
}

func (n *realNode) start() {
	n.t.Helper()
	arg, err := json.Marshal(n.o)
	must(n.t, err)
	n.was = n.c.heard()
	n.cmd = exec.Command(os.Args[0], "noded", string(arg))
	n.cmd.Stderr = os.Stderr
	must(n.t, n.cmd.Start())
}

func (n *realNode) kill(sig syscall.Signal) {
	n.t.Helper()
	if sig == syscall.SIGTERM { // it does not listen for the signal from its first moment
		n.c.hello(n.was)
	}
	must(n.t, n.cmd.Process.Signal(sig))
	err := n.cmd.Wait()
	if sig == syscall.SIGTERM && err != nil {
		n.t.Errorf("the daemon did not end well: %v", err)
	}
}

// nothingLeft: no process of the user, no cgroup, no shim that does anything.
func (n *realNode) nothingLeft() {
	if n.cmd != nil && n.cmd.ProcessState == nil {
		n.kill(syscall.SIGTERM)
	}
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if !strings.Contains(string(line), n.o.Spool) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// A shim whose daemon was killed before it ever called waits some seconds for the call: that is not waited for here.
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if len(children) > 0 {
			n.t.Errorf("shim %d still has processes %s", pid, children)
		}
		ended := func(limit time.Duration) bool {
			for {
				got, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit.Milliseconds()))
				if err != unix.EINTR { // poll(2) is not restarted when another child ends
					return got == 1
				}
			}
		}
		if !ended(500 * time.Millisecond) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			if !ended(patience) {
				n.t.Errorf("shim %d does not end", pid)
			}
		}
		unix.Close(fd)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/sluice/", "/sys/fs/cgroup/sluice/"} {
		left, _ := filepath.Glob(pattern + n.o.Cluster + "/*/job_*")
		for _, dir := range left {
			n.t.Errorf("cgroup %s is left", dir)
		}
		for _, part := range []string{"/n1.shims", "/n1", ""} { // the last shim may have gone after its daemon had tidied up
			dirs, _ := filepath.Glob(pattern + n.o.Cluster + part)
			for _, dir := range dirs {
				_ = unix.Rmdir(dir)
			}
		}
	}
}

// submit has a script run as the user.
func (n *realNode) submit(id uint32, body string, change ...func(*pb.LaunchSpec)) agent.Key {
	l := jobSpec(id, 1)
	l.Script, l.Env = []byte("#!/bin/sh\n"+body+"\n"), []string{"PATH=/usr/bin:/bin", "MINE=1"}
	l.Spec.Uid, l.Spec.Gid, l.Spec.WorkDir, l.Spec.Umask, l.Spec.Name = someUID, someUID, n.work, 0o27, "real job"
	for _, f := range change {
		f(l)
	}
	return n.c.submit(l)
}

func (n *realNode) output(id uint32) string {
	n.t.Helper()
	return readFile(n.t, filepath.Join(n.work, fmt.Sprintf("slurm-%d.out", id)))
}

func TestRealJob(t *testing.T) {
	n := newRealNode(t)
	n.start()
	k := n.submit(1, "id -u; umask; pwd; echo $SLURM_JOB_ID $MINE $SLURM_CONF $1; exit 3",
		func(l *pb.LaunchSpec) { l.Spec.Args = []string{"arg one"} })
	if x := n.c.end(k); x.Verdict != "exited" || x.WaitStatus != 3<<8 {
		t.Errorf("%v", x)
	}
	if got, want := n.output(1), fmt.Sprint(someUID)+"\n0027\n"+n.work+"\n1 1 /etc/slurm/slurm.conf arg one\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	k = n.submit(2, "", func(l *pb.LaunchSpec) { l.Script = []byte("#!/no/such/interpreter\n") })
	if x := n.c.end(k); x.WaitStatus == 0 || !strings.Contains(n.output(2)+x.Detail, "/no/such/interpreter") {
		t.Errorf("%v %q: the user has to be told which interpreter is missing", x, n.output(2))
	}
	k = n.submit(3, "echo hi", func(l *pb.LaunchSpec) { l.Spec.StdOut = "/proc/nowhere/%j" })
	if x := n.c.end(k); x.Verdict != "output_failed" || !strings.Contains(x.Detail, "/proc/nowhere/3") {
		t.Errorf("%v", x)
	}
}

func TestJobsDoNotNoticeThatTheDaemonIsKilled(t *testing.T) {
	n := newRealNode(t)
	n.start()
	gate := func(name string) string {
		p := filepath.Join(n.work, name)
		must(t, unix.Mkfifo(p, 0o600))
		must(t, os.Chown(p, int(someUID), int(someUID)))
		return p
	}
	g1, g2, g3 := gate("g1"), gate("g2"), gate("g3")
	open := func(p string) { must(t, os.WriteFile(p, []byte("go\n"), 0)) }
	body := "echo $$; read x < %s; echo $$ $x; exit %d"
	during := n.submit(1, fmt.Sprintf(body, g1, 41))
	after := n.submit(2, fmt.Sprintf(body, g2, 42))
	stopped := n.submit(3, "trap 'echo told; exit 9' TERM; read x < "+g3)
	for _, k := range []agent.Key{during, after, stopped} {
		n.c.phase(k, pb.StepPhase_STEP_RUNNING)
	}
	n.kill(syscall.SIGKILL)
	open(g1) // ends while there is no daemon
	appears(t, filepath.Join(n.o.Spool, "steps", during.String(), "exit.pb"))
	n.start()
	if x := n.c.end(during); x.Verdict != "exited" || x.WaitStatus != 41<<8 {
		t.Errorf("%v", x)
	}
	n.kill(syscall.SIGTERM)
	n.start()
	open(g2)
	if x := n.c.end(after); x.Verdict != "exited" || x.WaitStatus != 42<<8 {
		t.Errorf("%v", x)
	}
	n.c.order(stopped, pb.StepWant_WANT_STOP)
	if x := n.c.end(stopped); x.Verdict != "cancelled" || !x.StoppedOnOrder {
		t.Errorf("%v", x)
	}
	for _, id := range []uint32{1, 2} {
		f := strings.Fields(n.output(id))
		if len(f) != 3 || f[0] != f[1] || f[2] != "go" {
			t.Errorf("job %d was disturbed: %q", id, f)
		}
	}
	for _, k := range []agent.Key{during, after, stopped} {
		if p := last(n.c, k, 1); !slices.Equal(p, []pb.StepPhase{pb.StepPhase_STEP_ENDED}) {
			t.Errorf("%v: %v", k, p)
		}
	}
}

func TestRealLimitsAndTime(t *testing.T) {
	n := newRealNode(t)
	n.c.settings.ConstrainRam, n.c.settings.ConstrainCores, n.c.settings.Node = true, true, &pb.NodeRecord{Cpus: 1}
	n.start()
	k := n.submit(1, "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo survived",
		func(l *pb.LaunchSpec) { l.Alloc[0].MemMib, l.Alloc[0].CpuIds = 40, "0" })
	late := n.submit(2, "read x < /dev/tty || sleep 1000", func(l *pb.LaunchSpec) { l.LimitS = 1 })
	over := n.submit(3, "sleep 2", func(l *pb.LaunchSpec) { l.LimitS, l.OverTimeS = 1, pb.Unlimited })
	tooLate := n.submit(4, "read x < /dev/tty || sleep 1000", func(l *pb.LaunchSpec) { l.LimitS, l.OverTimeS = 1, 1 })
	if x := n.c.end(k); x.Verdict != "oom" {
		t.Errorf("%v", x)
	}
	for _, k := range []agent.Key{late, tooLate} {
		if x := n.c.end(k); x.Verdict != "timeout" {
			t.Errorf("%v", x)
		}
	}
	if x := n.c.end(over); x.Verdict != "exited" {
		t.Errorf("within OverTimeLimit: %v", x)
	}
}

// appears waits for a file to be renamed into its place.
func appears(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_MOVED_TO)
	must(t, err)
	for buf := make([]byte, 4096); ; {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds())); n != 1 &&
			err != unix.EINTR {
			t.Fatalf("%s does not appear", path)
		}
		_, _ = unix.Read(fd, buf)
	}
}
