package hook

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/internal/program"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T) (*Runner, string) {
	spool := t.TempDir()
	r, err := Open(spool, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return r, spool
}

func script(t *testing.T, dir, name, text string) string {
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEnvironmentIsExactlyWhatIsGiven(t *testing.T) {
	t.Setenv("LEAK", "1")
	r, dir := open(t)
	p := script(t, dir, "p", "/usr/bin/env > "+dir+"/out; pwd >> "+dir+"/out; cat >> "+dir+"/out")
	if err := r.Prolog(context.Background(), "1.1.2", p, []string{"SLURM_JOB_ID=1"}, 0); err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(read(t, dir+"/out"))
	got = slices.DeleteFunc(got, func(s string) bool {
		return strings.HasPrefix(s, "PWD=") || strings.HasPrefix(s, "_=") || strings.HasPrefix(s, "SHLVL=")
	})
	if !slices.Equal(got, []string{"SLURM_JOB_ID=1", "/"}) {
		t.Errorf("%q", got)
	}
}

func TestFailureSaysWhy(t *testing.T) {
	r, dir := open(t)
	for text, want := range map[string]string{
		"echo one; echo 'no scratch disk' >&2; exit 3":  "exit status 3: no scratch disk",
		"printf 'a\\033[31mb\\n'; exit 1":               "exit status 1: a[31mb",
		"kill -9 $$":                                    "signal: killed",
		"head -c 100000 /dev/zero | tr '\\0' x; exit 1": "exit status 1: " + strings.Repeat("x", 200),
	} {
		p := script(t, dir, "p", text)
		err := r.Prolog(context.Background(), "1.1.2", p, nil, 0)
		if err == nil || !strings.HasSuffix(err.Error(), p+" failed: "+want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, bad := range []string{dir + "/missing", "relative", dir} {
		if err := r.Prolog(context.Background(), "1.1.2", bad, nil, 0); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestPatternRunsSeveral(t *testing.T) {
	r, dir := open(t)
	d := filepath.Join(dir, "d")
	if err := os.Mkdir(d, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Prolog(context.Background(), "1.1.2", d+"/*", nil, 0); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	for _, n := range []string{"20", "10", "30"} {
		script(t, d, n, "echo "+n+" >> "+dir+"/out; [ "+n+" != 20 ]")
	}
	if err := r.Prolog(context.Background(), "1.1.2", d+"/*", nil, 0); err == nil {
		t.Error("the failure of the second was not noticed")
	}
	if got := read(t, dir+"/out"); got != "10\n20\n" {
		t.Errorf("%q", got)
	}
}

func TestTimeoutKillsTheGroup(t *testing.T) {
	r, dir := open(t)
	p := script(t, dir, "p", "sleep 1000 & echo $! > "+dir+"/child; wait")
	for limit := 300 * time.Millisecond; ; limit *= 2 { // until it is long enough for the script to begin
		err := r.Prolog(context.Background(), "1.1.2", p, []string{"PATH=/bin:/usr/bin"}, limit)
		if err == nil || !strings.Contains(err.Error(), "PrologEpilogTimeout") {
			t.Fatal(err)
		}
		if child, err := os.ReadFile(dir + "/child"); err == nil && len(child) > 0 {
			gone(t, strings.TrimSpace(string(child)))
			return
		}
	}
}

// gone waits for the end of a process that was killed.
func gone(t *testing.T, pid string) {
	n, _ := strconv.Atoi(pid)
	fd, err := unix.PidfdOpen(n, 0)
	if err == unix.ESRCH {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for err = unix.EINTR; err == unix.EINTR; { // poll(2) is not restarted when another child ends
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 300_000)
	}
	if n != 1 {
		t.Fatalf("process %s still runs (%v)", pid, err)
	}
}

func TestDaemonLeftBehindIsNoFailure(t *testing.T) {
	r, dir := open(t)
	p := script(t, dir, "p", "sleep 1000 & echo $! > "+dir+"/child")
	if err := r.Prolog(context.Background(), "1.1.2", p, []string{"PATH=/bin:/usr/bin"}, 0); err != nil {
		t.Error(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(read(t, dir+"/child")))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Error("a service that the prolog started was ended:", err)
	}
}

func TestEpilogRunsOnce(t *testing.T) {
	r, dir := open(t)
	p := script(t, dir, "e", "echo x >> "+dir+"/out; echo broken; exit 1")
	for range 2 {
		failed, err := r.Epilog(context.Background(), "1.1.2", p, nil, 0)
		if err != nil || !strings.Contains(failed, "broken") {
			t.Fatalf("%q, %v", failed, err)
		}
		if r, err = Open(dir, quiet); err != nil { // as after a restart
			t.Fatal(err)
		}
	}
	if got := read(t, dir+"/out"); got != "x\n" {
		t.Errorf("%q", got)
	}
	r.Forget("1.1.2")
	if n := r.Names(); len(n) != 0 {
		t.Errorf("%v", n)
	}
}

func TestInterruptedEpilogRunsAgain(t *testing.T) {
	r, dir := open(t)
	fifo := dir + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := script(t, dir, "e", "echo x >> "+dir+"/out; echo > "+fifo+"; sleep 1000")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := r.Epilog(ctx, "1.1.2", p, []string{"PATH=/bin:/usr/bin"}, 0)
		done <- err
	}()
	read(t, fifo) // it runs
	cancel()
	if err := <-done; err == nil {
		t.Error("the interruption was taken for an end")
	}
	p = script(t, dir, "e", "echo y >> "+dir+"/out")
	if failed, err := r.Epilog(context.Background(), "1.1.2", p, nil, 0); failed != "" || err != nil {
		t.Error(failed, err)
	}
	if got := read(t, dir+"/out"); got != "x\ny\n" {
		t.Errorf("%q", got)
	}
}

func TestStrayOfAKilledDaemonIsEnded(t *testing.T) {
	r, dir := open(t)
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	note := func(began string) {
		if err := program.Replace(r.path("7.1.2", "pid"), fmt.Appendf(nil, "%d %s", pid, began)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, quiet); err != nil {
			t.Fatal(err)
		}
	}
	note("1@another-boot")
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatal("a stranger with the same number was killed")
	}
	note(program.StartTime(pid))
	err := cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Error(err)
	}
}

func TestRememberAndRecall(t *testing.T) {
	r, _ := open(t)
	if r.Recall("3.1.2") != nil {
		t.Error("recalled what was never kept")
	}
	if err := r.Remember("3.1.2", &pb.LaunchSpec{Partition: "p", Key: &pb.StepKey{JobId: 3}}); err != nil {
		t.Fatal(err)
	}
	if l := r.Recall("3.1.2"); l.GetPartition() != "p" || !slices.Equal(r.Names(), []string{"3.1.2"}) {
		t.Errorf("%v %v", l, r.Names())
	}
}

// TestSerial: with PrologFlags=Serial no two prologs or epilogs run at a time.
func TestSerial(t *testing.T) {
	r, dir := open(t)
	r.Serial(true)
	script := filepath.Join(dir, "one-at-a-time")
	text := "#!/bin/sh\nmkdir " + dir + "/busy || exit 1\nsleep 0.05\nrmdir " + dir + "/busy\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	for i := range 6 {
		go func() { errs <- r.Prolog(t.Context(), fmt.Sprintf("%d.1.2", i), script, nil, 0) }()
	}
	for range 6 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestForgetWhatAnEarlierDaemonKept: nothing is left of a step, whoever wrote it, and what is another step's stays.
func TestForgetWhatAnEarlierDaemonKept(t *testing.T) {
	dir := t.TempDir()
	first, err := Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"7.1.2", "8.1.2"} {
		if err := first.Remember(name, &pb.LaunchSpec{Node: name}); err != nil {
			t.Fatal(err)
		}
	}
	second, err := Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	second.Forget("7.1.2")
	second.Forget("9.1.2")
	if got := second.Names(); len(got) != 1 || got[0] != "8.1.2" {
		t.Errorf("there are records of %v", got)
	}
	first.Forget("8.1.2")
	if got := second.Names(); len(got) != 0 {
		t.Errorf("there are records of %v", got)
	}
}
