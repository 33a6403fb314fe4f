package step_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// shimOf finds the shim of a running step: the parent of its first process.
func (n *node) shimOf(k *pb.StepKey) int {
	n.t.Helper()
	rep := n.running(k)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", rep.Pid))
	must(n.t, err)
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	pid, err := strconv.Atoi(f[1])
	must(n.t, err)
	return pid
}

// awaitDeath waits on a pidfd.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	must(t, err)
	defer unix.Close(fd)
	n := 0
	for err = unix.EINTR; err == unix.EINTR; { // poll(2) is not restarted when another child ends
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	}
	if n != 1 {
		t.Fatalf("process %d does not end", pid)
	}
}

func TestShimKilled(t *testing.T) {
	n := newNode(t)
	other := n.bundle()
	must(t, unix.Mkfifo(n.work+"/fifo", 0o666))
	must(t, os.Chmod(n.work+"/fifo", 0o666))
	ko := n.launch(other, "read line < fifo; exit 4")
	b := n.bundle()
	k := n.launch(b, "(setsid sleep 600 &)\nsleep 600")
	first := int(n.running(k).Pid)
	shim := n.shimOf(k)
	if shim == n.shimOf(ko) {
		t.Fatal("two steps in one shim")
	}
	must(t, unix.Kill(shim, unix.SIGKILL))
	rec := n.ended(k)
	if rec.Verdict != "lost" || rec.WaitStatus != 0 && rec.WaitStatus != 9 {
		t.Errorf("record %v, want lost", rec)
	}
	awaitDeath(t, first)
	disk, err := folder.ReadExit(n.r.Dir(k))
	if err != nil || !proto.Equal(disk, rec) {
		t.Errorf("on disk: %v, %v; reported: %v", disk, err, rec)
	}
	for _, d := range n.groupDirs() {
		if _, err := os.Stat(d + "/" + b.Cgroup); err == nil {
			t.Errorf("cgroup left: %s/%s", d, b.Cgroup)
		}
	}
	w, err := os.OpenFile(n.work+"/fifo", os.O_WRONLY, 0)
	must(t, err)
	fmt.Fprintln(w, "go")
	w.Close()
	if rec := n.ended(ko); rec.Verdict != "exited" {
		t.Errorf("the other step: %v", rec)
	}
}

func TestRestart(t *testing.T) {
	n := newNode(t)
	must(t, unix.Mkfifo(n.work+"/go", 0o666))
	must(t, os.Chmod(n.work+"/go", 0o666))
	runs := n.launch(n.bundle(), "sleep 600")
	ends := n.launch(n.bundle(), "read line < go; exit 5")
	done := n.launch(n.bundle(), "exit 6")
	dies := n.launch(n.bundle(), "sleep 600")
	pid := n.running(runs).Pid
	n.running(ends)
	n.ended(done)
	shim, victim := n.shimOf(dies), int(n.running(dies).Pid)

	n.r.Close()
	w, err := os.OpenFile(n.work+"/go", os.O_WRONLY, 0)
	must(t, err)
	fmt.Fprintln(w, "go")
	w.Close()
	awaitFile(t, n.r.Dir(ends)+"/exit.pb", func(s string) bool { return s != "" })
	must(t, unix.Kill(shim, unix.SIGKILL))
	awaitDeath(t, shim)
	// A launch that was written and that nobody accepted.
	late := n.bundle()
	withdrawn := filepath.Join(n.spool, "steps", ".new-"+stepName(late))
	must(t, folder.Write(withdrawn, late, []byte("#!/bin/sh\n"), true))

	have := map[string]*pb.StepReport{}
	for _, rep := range n.restart() {
		have[folder.Name(rep.Key)] = rep
	}
	if len(have) != 4 {
		t.Errorf("found %d steps, want 4: %v", len(have), have)
	}
	if rep := have[folder.Name(runs)]; rep.GetPhase() != pb.StepPhase_STEP_RUNNING || rep.Pid != pid {
		t.Errorf("running: %v, want pid %d", rep, pid)
	}
	for k, want := range map[*pb.StepKey]string{ends: "exited 1280", done: "exited 1536", dies: "lost 0"} {
		rep := have[folder.Name(k)]
		if k == ends && rep.GetPhase() != pb.StepPhase_STEP_ENDED { // the record was there, and its shim still syncing it
			rep = &pb.StepReport{Key: rep.GetKey(), Phase: pb.StepPhase_STEP_ENDED, Exit: n.ended(k)}
		}
		if got := fmt.Sprint(rep.GetExit().GetVerdict(), " ", rep.GetExit().GetWaitStatus()); got != want ||
			rep.Phase != pb.StepPhase_STEP_ENDED || rep.Key.Epoch != 7 {
			t.Errorf("step %s: %v, want %s", folder.Name(k), rep, want)
		}
		must(t, n.r.Forget(k))
	}
	awaitDeath(t, victim)
	if _, err := os.Stat(withdrawn); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the launch that nobody accepted is still there: %v", err)
	}
	b, err := n.r.Bundle(runs)
	if err != nil || b.Uid != n.uid {
		t.Errorf("bundle after restart: %v, %v", b, err)
	}
	n.order(&pb.StepOrder{Key: runs, Want: pb.StepWant_WANT_STOP})
	if rec := n.ended(runs); rec.Verdict != "cancelled" {
		t.Errorf("stopped after restart: %v", rec)
	}
	if rec := n.run(late, "exit 8"); rec.WaitStatus != 8<<8 {
		t.Errorf("launched again after restart: %v", rec)
	}
}

// awaitStopped looks until every thread has stopped: the signal is sent at once, but a running thread notices later.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		running := slices.ContainsFunc(stats, func(f string) bool {
			raw, err := os.ReadFile(f)
			return err == nil && !strings.Contains(string(raw), ") T ")
		})
		if !running {
			return
		}
	}
	t.Fatalf("process %d does not stop", pid)
}

// TestShimStopped: one that lives but does not answer at recovery is killed, then its step is lost.
func TestShimStopped(t *testing.T) {
	n := newNode(t)
	n.answer = 300 * time.Millisecond
	k := n.launch(n.bundle(), "sleep 600")
	shim := n.shimOf(k)
	n.r.Close()
	must(t, unix.Kill(shim, unix.SIGSTOP))
	awaitStopped(t, shim)
	have := n.restart()
	if len(have) != 1 || have[0].Exit.GetVerdict() != "lost" {
		t.Errorf("found %v, want one lost step", have)
	}
	awaitDeath(t, shim)
}

func TestLaunchTwice(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	k := n.launch(b, "echo once")
	n.ended(k)
	n.mu.Lock()
	delete(n.newest, folder.Name(k))
	n.mu.Unlock()
	n.launch(b, "echo twice")
	if rec := n.ended(k); rec.WaitStatus != 0 || n.output(b) != "once\n" {
		t.Errorf("%v, output %q: want the first run, told again", rec, n.output(b))
	}
}

func TestForget(t *testing.T) {
	n := newNode(t)
	k := n.launch(n.bundle(), "sleep 600")
	n.running(k)
	if err := n.r.Forget(k); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("forget a running step: %v", err)
	}
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_KILL})
	n.ended(k)
	must(t, os.WriteFile(n.r.Dir(k)+"/epilog", nil, 0o600))
	must(t, n.r.Forget(k))
	must(t, n.r.Forget(k))
	if left, _ := os.ReadDir(n.spool + "/steps"); len(left) > 0 {
		t.Errorf("left in the spool: %v", left)
	}
}

func TestFail(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	exit := &pb.ExitRecord{Key: b.Key, Verdict: "prolog_failed", Detail: "exit code 1"}
	must(t, n.r.Fail(b, exit))
	n.ended(b.Key)
	have := n.restart()
	if len(have) != 1 || !proto.Equal(have[0].Exit, exit) {
		t.Errorf("after restart: %v, want %v", have, exit)
	}
	if err := n.r.Fail(b, exit); err == nil {
		t.Error("failed twice without an error")
	}
}

// TestRefusedLaunch: a launch that fails leaves nothing and can be repeated.
func TestRefusedLaunch(t *testing.T) {
	n := newNode(t)
	b := n.bundle()
	must(t, os.Mkdir(n.r.Dir(b.Key), 0o700)) // the name is taken, by what no runner made
	must(t, os.WriteFile(n.r.Dir(b.Key)+"/x", nil, 0o600))
	if err := n.r.Launch(context.Background(), b, []byte("#!/bin/sh\n")); err == nil {
		t.Fatal("launched into a folder that exists")
	}
	must(t, os.RemoveAll(n.r.Dir(b.Key)))
	if rec := n.run(b, "exit 3"); rec.WaitStatus != 3<<8 {
		t.Errorf("again: %v", rec)
	}
	b = n.bundle()
	b.Cgroup = "../evil"
	if rec := n.run(b, "true"); rec.Verdict != "node_failed" || !strings.Contains(rec.Detail, "not a single plain name") {
		t.Errorf("a cgroup outside: %v", rec)
	}
	if err := n.r.Launch(context.Background(), &pb.Bundle{}, nil); err == nil {
		t.Error("launched without a key")
	}
}

// TestDeepSpool: socket addresses hold 107 bytes, spools are deeper.
func TestDeepSpool(t *testing.T) {
	n := newNode(t)
	n.r.Close()
	n.spool = filepath.Join(filepath.Dir(n.spool), strings.Repeat("deep/", 30)+"spool")
	n.start()
	if rec := n.run(n.bundle(), "exit 2"); rec.WaitStatus != 2<<8 {
		t.Errorf("%v", rec)
	}
	n.restart()
	if rec := n.run(n.bundle(), "exit 3"); rec.WaitStatus != 3<<8 {
		t.Errorf("%v", rec)
	}
}

// TestOrdinaryUser runs itself again as a user without any right: process trees instead of cgroups.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		n := newNode(t) // for its clean-up
		exe := filepath.Join(n.work, "step.test")
		self, err := os.Executable()
		must(t, err)
		must(t, exec.Command("install", "-m", "755", self, exe).Run()) // another process writes it: no descriptor of ours makes it busy
		cmd := exec.Command(exe, "-test.run=^TestOrdinaryUser$", "-test.v")
		cmd.Dir = n.work
		cmd.Env = []string{"HOME=" + n.work, "TMPDIR=" + n.work, "PATH=/usr/bin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: n.uid, Gid: n.gid}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestOrdinaryUser") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	n := newUserNode(t)
	b := n.bundle()
	b.Limits = &pb.Limits{MemoryMib: 1} // cannot be had: said once, not an error
	if rec := n.run(b, "ulimit -n; id -u; exit 3"); rec.WaitStatus != 3<<8 {
		t.Errorf("%v, output %q", rec, n.output(b))
	}
	b = n.bundle()
	b.Rlimits = []*pb.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 99, Hard: 100}}
	if n.run(b, "ulimit -n; ulimit -Hn"); n.output(b) != "99\n100\n" {
		t.Errorf("limits: %q", n.output(b))
	}
	before := len(ofUser(uint32(os.Getuid())))
	if rec := n.run(n.bundle(), "(setsid sleep 600 &)\nnohup sleep 600 >/dev/null &\nexit 1"); rec.WaitStatus != 1<<8 {
		t.Errorf("%v", rec)
	}
	if after := ofUser(uint32(os.Getuid())); len(after) > before+1 { // a shim may have been added
		t.Errorf("left running: %v", after)
	}
	b = n.bundle()
	b.Uid = 65534
	if rec := n.run(b, "true"); rec.Verdict != "node_failed" || !strings.Contains(rec.Detail, "cannot become uid 65534") {
		t.Errorf("another user's job: %v", rec)
	}
	k := n.launch(n.bundle(), "(setsid sleep 600 &)\nsleep 600")
	first := int(n.running(k).Pid)
	must(t, unix.Kill(n.shimOf(k), unix.SIGKILL))
	if rec := n.ended(k); rec.Verdict != "lost" {
		t.Errorf("shim killed: %v", rec)
	}
	awaitDeath(t, first)
	b = n.bundle()
	k = n.launch(b, deaf)
	n.awaitOutput(b, "ready")
	n.order(&pb.StepOrder{Key: k, Want: pb.StepWant_WANT_STOP})
	if rec := n.ended(k); rec.Verdict != "cancelled" {
		t.Errorf("stopped: %v", rec)
	}
}

// TestFoldersOfUsers: a folder is reused for the same user, never for another.
func TestFoldersOfUsers(t *testing.T) {
	n := newNode(t)
	inode := func(k *pb.StepKey) uint64 {
		var st unix.Stat_t
		must(t, unix.Stat(n.r.Dir(k)+"/slurm_script", &st))
		return st.Ino
	}
	b := n.bundle()
	n.run(b, "echo the first, which is longer")
	first := inode(b.Key)
	must(t, n.r.Forget(b.Key))
	other := n.bundle()
	other.Uid, other.StdOut.Path = 65534, "/dev/null"
	n.run(other, "exit 0")
	if inode(other.Key) == first {
		t.Error("another user got the folder")
	}
	b = n.bundle()
	n.run(b, "echo two")
	if inode(b.Key) != first || n.output(b) != "two\n" {
		t.Errorf("not reused, or wrongly: output %q", n.output(b))
	}
}
