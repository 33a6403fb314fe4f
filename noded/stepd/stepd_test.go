package stepd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/container/containertest"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// TestMain lets the test binary be the trampoline, and makes it a reaper as a shim is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stepd" {
		os.Exit(Main(os.Args[2:]))
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	os.Exit(m.Run())
}

func TestVerdict(t *testing.T) {
	exit := func(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }
	for name, c := range map[string]struct {
		f    facts
		want string
	}{
		"exit 0":                          {facts{status: exit(0)}, "exited"},
		"exit 1":                          {facts{status: exit(1)}, "exited"},
		"killed":                          {facts{status: 9}, "signaled"},
		"timeout":                         {facts{status: 15, hasStatus: true, stop: "timeout"}, "timeout"},
		"timeout, but exit 0":             {facts{status: exit(0), hasStatus: true, stop: "timeout"}, "timeout"},
		"timeout, ordered":                {facts{status: 15, hasStatus: true, stop: "timeout", onOrder: true}, "timeout"},
		"cancelled":                       {facts{status: 15, stop: "cancel", onOrder: true}, "cancelled"},
		"preempted":                       {facts{status: exit(0), hasStatus: true, stop: "preempt", onOrder: true}, "cancelled"},
		"oom":                             {facts{status: 9, oomKills: 1}, "oom"},
		"oom in a child":                  {facts{status: exit(0), oomKills: 2}, "oom"},
		"cancelled after oom":             {facts{status: 15, oomKills: 1, stop: "cancel"}, "cancelled"},
		"no output":                       {facts{failed: "output_failed", status: 53}, "output_failed"},
		"cancelled while opening":         {facts{stop: "cancel"}, "cancelled"},
		"killed while opening":            {facts{stop: "cancel", atOnce: true}, "cancelled"},
		"failed to launch, being stopped": {facts{failed: "node_failed", stop: "cancel"}, "cancelled"},
		"held":                            {facts{holdOnly: true, stop: "cancel", onOrder: true}, "exited"},
	} {
		r, status := verdict(c.f), c.f.status
		if c.f.stop != "" && !c.f.hasStatus && !c.f.holdOnly {
			status = 15 // it never ran: exit code 0 is not its own
			if c.f.atOnce {
				status = 9
			}
		}
		if r.Verdict != c.want || r.WaitStatus != uint32(status) || r.StoppedOnOrder != c.f.onOrder {
			t.Errorf("%s: %v, want %s", name, r, c.want)
		}
	}
}

// TestFarewell: the lines as Slurm 22.05 wrote them, with "slurmstepd: error: " before.
func TestFarewell(t *testing.T) {
	b := &pb.Bundle{Key: &pb.StepKey{JobId: 330, Step: pb.BatchStep}, Env: []string{"A=1", "SLURMD_NODENAME=n2"}}
	at := time.Date(2026, 11, 20, 15, 37, 2, 0, time.Local)
	for reason, want := range map[string]string{
		"timeout": "*** JOB 330 ON n2 CANCELLED AT 2026-11-20T15:37:02 DUE TO TIME LIMIT ***",
		"cancel":  "*** JOB 330 ON n2 CANCELLED AT 2026-11-20T15:37:02 ***",
		"preempt": "*** JOB 330 ON n2 CANCELLED AT 2026-11-20T15:37:02 DUE TO PREEMPTION ***",
	} {
		if got := farewell(b, reason, at); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	b.Key.Step = 3
	if got := farewell(b, "cancel", at); !strings.HasPrefix(got, "*** STEP 330.3 ON n2 ") {
		t.Errorf("a step: %q", got)
	}
	b.Key.Step = pb.InteractiveStep
	if got := farewell(b, "cancel", at); !strings.HasPrefix(got, "*** STEP 330.interactive ON n2 ") {
		t.Errorf("the step of salloc: %q", got)
	}
}

func TestBoard(t *testing.T) {
	var b board
	b.put(&pb.StepReport{Phase: pb.StepPhase_STEP_RUNNING})
	got := make(chan *pb.StepReport)
	go func() {
		got <- b.await(context.Background(), func(r *pb.StepReport) bool { return r.Phase == pb.StepPhase_STEP_ENDED })
	}()
	b.put(&pb.StepReport{Phase: pb.StepPhase_STEP_COMPLETING})
	b.put(&pb.StepReport{Phase: pb.StepPhase_STEP_ENDED})
	if r := <-got; r.Phase != pb.StepPhase_STEP_ENDED {
		t.Errorf("%v", r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := b.await(ctx, func(*pb.StepReport) bool { return false }); r.Phase != pb.StepPhase_STEP_ENDED {
		t.Errorf("given up: %v, want the newest", r)
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// run starts one step in this process, without a shim around it, and returns its record.
func runStep(t *testing.T, l *launcher, root cgroup.Root, b *pb.Bundle, script string) (*pb.ExitRecord, string) {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "sluice-stepd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.RemoveAll(base)
		os.RemoveAll(container.RunFolder(base))
	})
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, folder.Steps, "1.0.0") // base is its spool
	if err := os.Mkdir(filepath.Dir(dir), 0o777); err != nil {
		t.Fatal(err)
	}
	if b.Key == nil {
		b.Key = &pb.StepKey{JobId: 1, Attempt: 1, Step: pb.BatchStep}
	}
	if b.Cgroup == "" {
		b.Cgroup = "job_1.1"
	}
	b.Umask, b.Dir = 0o022, base
	if b.StdOut == nil {
		b.StdOut = &pb.StdFile{Path: base + "/out"}
	}
	if err := folder.Write(dir, b, []byte(script), os.Geteuid() == 0); err != nil {
		t.Fatal(err)
	}
	r := newRun(b, dir, quiet)
	r.loop(root, l.tasks)
	out, _ := os.ReadFile(b.StdOut.Path)
	return r.board.get().Exit, string(out)
}

func testLauncher(t *testing.T) *launcher {
	t.Helper()
	l := newLauncher(quiet)
	t.Cleanup(func() { close(l.tasks) })
	return l
}

// TestWithoutPtraceAndClone3 forces what seccomp filters and yama make necessary.
func TestWithoutPtraceAndClone3(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs as another user, in real cgroups")
	}
	root, err := cgroup.Open(fmt.Sprintf("sluice-test/stepd-%d", os.Getpid()), "")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Tidy()
	for _, c := range []struct{ noTrace, noClone bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		l := testLauncher(t)
		l.noTrace, l.noClone = c.noTrace, c.noClone
		l.run(nil)
		b := &pb.Bundle{Uid: containertest.UID(), Gid: 54322, Groups: []uint32{7}, Env: []string{"PATH=/usr/bin:/bin", "X=1"},
			Argv:    []string{folder.Script, "a b"},
			Limits:  &pb.Limits{Pids: 50},
			Rlimits: []*pb.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 99, Hard: 101}}}
		rec, out := runStep(t, l, root, b,
			"#!/bin/sh\nid -u; id -G; ulimit -n; ulimit -Hn; echo \"$1 $X\"; cat /proc/self/cgroup | grep -c job_1.1; exit 3\n")
		want := fmt.Sprint(b.Uid, "\n54322 7\n99\n101\na b 1\n")
		if rec.WaitStatus != 3<<8 || !strings.HasPrefix(out, want) || strings.HasSuffix(out, "\n0\n") {
			t.Errorf("%+v: %v, output %q", c, rec, out)
		}
		b.Cgroup = "job_1.2"
		b.StdOut = nil
		rec, out = runStep(t, l, root, b, "#!/no/such/thing\n")
		if rec.Verdict != "exited" || rec.WaitStatus != 2<<8 || !strings.Contains(out, "bad interpreter(/no/such/thing)") {
			t.Errorf("%+v: %v, output %q", c, rec, out)
		}
	}
}

// TestNoProcessIsLeft: a job that has all processes that it may have cannot start another, and that is no fault of its node.
func TestNoProcessIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	root := testRoot(t)
	if root.Layout() != cgroup.Hybrid {
		t.Skipf("needs a machine with cgroup v1: with %v a first process is within the least limit that there is", root.Layout())
	}
	l := testLauncher(t)
	l.run(nil)
	b := &pb.Bundle{Uid: containertest.UID(), Gid: 54322, Limits: &pb.Limits{Pids: 1}} // which the launcher's thread takes
	rec, out := runStep(t, l, root, b, "#!/bin/sh\n")
	if rec.Verdict != "exited" || rec.WaitStatus != uint32(unix.EAGAIN)<<8 || !strings.Contains(out, "temporarily unavailable") {
		t.Errorf("%v, output %q", rec, out)
	}
}

func TestCgroupFails(t *testing.T) {
	l := testLauncher(t)
	l.run(nil)
	fake := &cgroup.Fake{Fail: func(op, name string) error {
		if op == "create" {
			return errors.New("no space left on device")
		}
		return nil
	}}
	b := &pb.Bundle{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
	if rec, _ := runStep(t, l, fake, b, "#!/bin/sh\n"); rec.Verdict != "node_failed" || !strings.Contains(rec.Detail, "no space left") {
		t.Errorf("%v", rec)
	}
	fake.Fail = nil
	if rec, _ := runStep(t, l, fake, b, "#!/bin/sh\nexit 2\n"); rec.WaitStatus != 2<<8 || len(fake.Removed) != 1 {
		t.Errorf("%v, removed %v", rec, fake.Removed)
	}
}

// TestRecordCannotBeWritten: the end is told all the same, and the shim takes no other step until the record is on disk.
func TestRecordCannotBeWritten(t *testing.T) {
	l := testLauncher(t)
	l.run(nil)
	base := t.TempDir()
	b := &pb.Bundle{Key: &pb.StepKey{JobId: 1}, Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid()), Cgroup: "x", Dir: "/"}
	dir := filepath.Join(base, "1.0.0")
	if err := folder.Write(dir, b, []byte("#!/bin/sh\nexit 7\n"), false); err != nil {
		t.Fatal(err)
	}
	block := filepath.Join(dir, ".exit.tmp") // a folder where the record's temporary file should be
	if err := os.Mkdir(block, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &shim{spool: base, root: &cgroup.Fake{}, log: quiet, exit: func() {}, launch: l.tasks}
	s.cur = newRun(b, dir, quiet)
	go s.serve(s.cur)
	<-s.cur.ended
	if rec := s.cur.board.get().Exit; rec.WaitStatus != 7<<8 {
		t.Errorf("%v", rec)
	}
	if _, err := s.Launch(context.Background(), &pb.LaunchRequest{Bundle: dir}); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("took another step: %v", err)
	}
	if _, err := s.Control(context.Background(),
		&pb.ControlRequest{Order: &pb.StepOrder{Key: b.Key, Want: pb.StepWant_WANT_KILL}}); err != nil {
		t.Errorf("control of an ended step: %v", err)
	}
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
	<-s.cur.done
	if rec, err := folder.ReadExit(dir); err != nil || rec.GetWaitStatus() != 7<<8 {
		t.Errorf("on disk: %v, %v", rec, err)
	}
}

// TestHeldAtOnce: an allocation without a script is there for its steps at once, without the moment in which a short job ends.
func TestHeldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := t.TempDir()
		b := &pb.Bundle{Key: &pb.StepKey{JobId: 1, Step: pb.ExternStep}, Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid()), Cgroup: "x",
			Dir: "/", HoldOnly: true}
		dir := filepath.Join(base, folder.Steps, folder.New+"1")
		if err := errors.Join(os.Mkdir(filepath.Dir(dir), 0o700), folder.Write(dir, b, nil, false)); err != nil {
			t.Fatal(err)
		}
		s := &shim{spool: base, root: &cgroup.Fake{}, log: quiet, exit: func() {}}
		begun := time.Now()
		rep, err := s.Launch(t.Context(), &pb.LaunchRequest{Bundle: dir})
		if err != nil || rep.Phase != pb.StepPhase_STEP_RUNNING || time.Since(begun) > 0 {
			t.Errorf("%v, %v, after %v", rep, err, time.Since(begun))
		}
		order := &pb.StepOrder{Key: b.Key, Want: pb.StepWant_WANT_KILL}
		if _, err := s.Control(t.Context(), &pb.ControlRequest{Order: order}); err != nil {
			t.Error(err)
		}
		<-s.current().done
	})
}

func TestShimWithoutStep(t *testing.T) {
	s := &shim{spool: t.TempDir(), root: &cgroup.Fake{}, log: quiet, exit: func() {}}
	ctx := context.Background()
	if r, err := s.Status(ctx, nil); err != nil || r.Key != nil {
		t.Errorf("status: %v, %v", r, err)
	}
	if _, err := s.Wait(ctx, &pb.WaitRequest{}); err == nil {
		t.Error("wait without a step")
	}
	if _, err := s.Control(ctx, &pb.ControlRequest{Order: &pb.StepOrder{}}); err == nil {
		t.Error("control without a step")
	}
	if _, err := s.Launch(ctx, &pb.LaunchRequest{Bundle: "/no/such"}); err == nil {
		t.Error("launched nothing")
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{{}, {"--no-such"}, {"--spool", "/x"}, {"--spool", "/x", "--cgroup", "c", "more"}} {
		if code := Main(args); code != 2 {
			t.Errorf("Main(%q) = %d, want 2", args, code)
		}
	}
}

func TestObey(t *testing.T) {
	env,
		text := obey([]byte("export A=1=2\nexport B=\nexport NOVALUE\nexport  X=1\nunset C\nprint hello  there\nprint\nnoise\nexport A=3"),
		[]string{"A=0", "C=1", "D=1"})
	if got := fmt.Sprintf("%q", env); got != `["D=1" "B=" "A=3"]` || string(text) != "hello  there\n\n" {
		t.Errorf("environment %s, text %q", got, text)
	}
}

func FuzzObey(f *testing.F) {
	f.Add([]byte("export A=1\nunset B\nprint x"))
	f.Add([]byte("export =\nexport \x00=1\nunset \n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		env, _ := obey(said, []string{"K=1"})
		seen := map[string]bool{}
		for _, kv := range env {
			name, _, ok := strings.Cut(kv, "=")
			if !ok || name == "" || seen[name] || strings.ContainsRune(kv, 0) {
				t.Errorf("%q made the environment %q", said, env)
			}
			seen[name] = true
		}
	})
}

// TestUnwantedShimEnds: the node daemon, connected, waits for it while the step is still being cleared up.
func TestUnwantedShimEnds(t *testing.T) {
	gone := make(chan struct{})
	s := &shim{spool: t.TempDir(), root: &cgroup.Fake{}, log: quiet, exit: func() { close(gone) }}
	s.cur = newRun(&pb.Bundle{}, "", quiet)
	s.connected(1)
	if _, err := s.Release(t.Context(), &pb.ReleaseRequest{End: true}); err != nil {
		t.Fatal(err)
	}
	s.endIfUnused()
	select {
	case <-gone:
		t.Fatal("it has ended before its step was cleared up")
	default:
	}
	close(s.cur.done)
	s.endIfUnused()
	select {
	case <-gone:
	default:
		t.Error("it has not ended")
	}
}
