package stepd

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-hpc/sluice/noded/cgroup"
	"github.com/sluice-hpc/sluice/noded/container"
	"github.com/sluice-hpc/sluice/noded/container/containertest"
	"github.com/sluice-hpc/sluice/noded/sruntest"
	"github.com/sluice-hpc/sluice/noded/step/folder"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
)

// stepBundle is a step of n tasks.
func stepBundle(n int) *pb.Bundle {
	b := &pb.Bundle{Key: &pb.StepKey{JobId: 7, Attempt: 1, Step: 0}, Cgroup: "job_7.1/step_0", KillWaitS: 1,
		Env: []string{"SLURMD_NODENAME=n1", "SLURM_JOB_ID=7"}, Step: &pb.StepTasks{}}
	if os.Geteuid() == 0 {
		b.Uid, b.Gid = containertest.UID(), containertest.UID()
	} else {
		b.Uid, b.Gid = uint32(os.Geteuid()), uint32(os.Getegid())
	}
	for i := range n {
		b.Step.Tasks = append(b.Step.Tasks, &pb.StepTask{Rank: uint32(i), Env: []string{fmt.Sprintf("SLURM_PROCID=%d", i)}})
	}
	return b
}

func stepWork(argv ...string) *pb.StepWork {
	return &pb.StepWork{Programs: []*pb.StepProgram{{Argv: argv}}, Env: []string{"PATH=/usr/bin:/bin", "A=1", "SLURM_TASK_PID=1"},
		Dir: "/tmp", Umask: 0o22, InTask: stepwire.All}
}

// aStep is one that runs in this process, without a shim around it.
type aStep struct {
	*sruntest.Srun
	t    testing.TB
	r    *run
	base string
}

// beginStep starts a step in an allocation that holds only.
func beginStep(t testing.TB, b *pb.Bundle, work *pb.StepWork) *aStep {
	t.Helper()
	root := testRoot(t)
	job, err := root.Create(strings.Split(b.Cgroup, "/")[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("/var/tmp", "sluice-stepd-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	s := &aStep{Srun: sruntest.New(t, b, work), t: t, base: base}
	dir := filepath.Join(base, folder.Steps, "7.1.0") // base is its spool
	if err := os.Mkdir(filepath.Dir(dir), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := folder.Write(dir, b, nil, false); err != nil {
		t.Fatal(err)
	}
	l := newLauncher(quiet)
	l.run(nil)
	s.r = newRun(b, dir, quiet)
	go s.r.loop(root, l.tasks)
	t.Cleanup(func() {
		select {
		case s.r.orders <- &pb.StepOrder{Want: pb.StepWant_WANT_KILL}:
		case <-s.r.ended:
		}
		<-s.r.done
		close(l.tasks)
		if err := job.Remove(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(base)
		os.RemoveAll(container.RunFolder(base))
	})
	return s
}

var rootsMade int

func testRoot(t testing.TB) cgroup.Root {
	t.Helper()
	rootsMade++
	root, err := cgroup.Open(fmt.Sprintf("sluice-test/stepd-%d-%d", os.Getpid(), rootsMade), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Tidy)
	return root
}

// end waits for the end.
func (s *aStep) end() *pb.ExitRecord {
	s.t.Helper()
	select {
	case <-s.r.done:
	case <-time.After(2 * time.Minute):
		s.t.Fatalf("the step does not end: %v, frames %v, said %q", s.r.board.get(), s.Frames, s.Said)
	}
	return s.r.board.get().Exit
}

func (s *aStep) order(o *pb.StepOrder) {
	select {
	case s.r.orders <- o:
	case <-s.r.ended:
	}
}

func TestStepOfSeveralTasks(t *testing.T) {
	work := stepWork("sh", "-c", `echo out $SLURM_PROCID $A $SLURM_JOB_ID
		echo err $SLURM_PROCID >/proc/self/fd/2; [ $SLURM_TASK_PID = $$ ]; exit $SLURM_PROCID`)
	s := beginStep(t, stepBundle(3), work)
	rec := s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if rec.Verdict != "exited" || rec.WaitStatus != 2<<8 || s.Ended.WaitStatus != 2<<8 {
		t.Errorf("record %v, ended %v", rec, s.Ended)
	}
	for i := range uint32(3) {
		if got := s.Text(fmt.Sprint("out ", i)); got != fmt.Sprintf("out %d 1 7\n", i) {
			t.Errorf("task %d: %q", i, got)
		}
		if got := s.Text(fmt.Sprint("err ", i)); got != fmt.Sprintf("err %d\n", i) {
			t.Errorf("task %d: %q", i, got)
		}
		if x := s.Exits[i]; x == nil || x.WaitStatus != i<<8 {
			t.Errorf("task %d: %v", i, x)
		}
	}
	if len(s.Started.GetPids()) != 3 || s.Started.Pids[0] == 0 || len(s.Said) > 0 || len(s.Closed) != 6 {
		t.Errorf("started %v, said %q, ends of streams %v", s.Started, s.Said, s.Closed)
	}
}

func TestStepReadsStandardInput(t *testing.T) {
	s := beginStep(t, stepBundle(2), stepWork("cat"))
	big := bytes.Repeat([]byte("x"), stepwire.MaxPayload)
	go func() {
		for range 100 {
			s.Send(stepwire.In, stepwire.All, big)
		}
		s.Send(stepwire.In, 1, []byte("for one\n"))
		s.Send(stepwire.In, stepwire.All, nil)
	}()
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if a, b := s.Text("out 0"), s.Text("out 1"); len(a) != 100*len(big) || b != a+"for one\n" {
		t.Errorf("%d and %d bytes", len(a), len(b))
	}
}

// TestTasksThatDoNotRead: what srun sends them does not keep them from being ended.
func TestTasksThatDoNotRead(t *testing.T) {
	s := beginStep(t, stepBundle(1), stepWork("sleep", "600"))
	go func() {
		s.Await("a connection", func() bool { return s.Conn != nil })
		for range 100 {
			if _, err := s.Conn.Write(stepwire.Append(nil, stepwire.In, 0, stepwire.All, make([]byte, stepwire.MaxPayload))); err != nil {
				return
			}
		}
	}()
	s.Await("a start", func() bool { return s.Started != nil })
	s.order(&pb.StepOrder{Want: pb.StepWant_WANT_STOP})
	if rec := s.end(); rec.Verdict != "cancelled" || rec.WaitStatus != uint32(unix.SIGTERM) {
		t.Errorf("%v", rec)
	}
	s.Await("words", func() bool { return len(s.Said) > 0 && s.Ended != nil })
	if !strings.HasPrefix(s.Said[0], "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT ") {
		t.Errorf("said %q", s.Said)
	}
}

// TestProgramsThatCannotBeExecuted: why is said in the standard error of the task, wherever it goes, with and without a program in between.
func TestProgramsThatCannotBeExecuted(t *testing.T) {
	const said = "slurmstepd: error: execve(): %s: No such file or directory\n"
	for _, c := range []struct{ program, prolog, stderr string }{
		{"nosuch", "", ""}, {"nosuch", "", "err.%t"}, {"nosuch", "", os.DevNull}, {"/nosuch", "", ""}, {"/nosuch", "", "err.%t"},
		{"/nosuch", "/bin/true", ""}, {"/nosuch", "/bin/true", "err.%t"}, {"/nosuch", "/bin/true", os.DevNull},
	} {
		work, dir := stepWork(c.program), ""
		work.TaskProlog, work.StdErr = c.prolog, c.stderr
		if strings.HasPrefix(c.stderr, "err") {
			base, err := os.MkdirTemp("/var/tmp", "sluice-stepd-err-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(base)
			if err := os.Chmod(base, 0o777); err != nil {
				t.Fatal(err)
			}
			dir, work.Dir = base, base
		}
		s := beginStep(t, stepBundle(2), work)
		rec := s.end()
		s.Await("the last word", func() bool { return s.Ended != nil })
		if rec.Verdict != "exited" || rec.WaitStatus != 2<<8 || s.Exits[0] == nil || s.Exits[1].WaitStatus != 2<<8 {
			t.Errorf("%v: %v %v", c, rec, s.Exits)
		}
		for task := range 2 {
			var got, want string
			if b := s.Out[fmt.Sprintf("err %d", task)]; b != nil {
				got = b.String()
			}
			if c.stderr != os.DevNull {
				want = fmt.Sprintf(said, c.program)
			}
			if c.stderr == "err.%t" {
				if got != "" {
					t.Errorf("%v: task %d has also %q", c, task, got)
				}
				b, _ := os.ReadFile(filepath.Join(dir, fmt.Sprintf("err.%d", task)))
				got = string(b)
			}
			if got != want || len(s.Said) > 0 {
				t.Errorf("%v: task %d has %q, not %q; said beside it: %q", c, task, got, want, s.Said)
			}
		}
	}
}

func TestSignalAndStopOfSrun(t *testing.T) {
	work := stepWork("sh", "-c", `trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.01; done`)
	s := beginStep(t, stepBundle(2), work)
	up := func(text string) func() bool {
		return func() bool {
			return s.Out["out 0"] != nil && s.Out["out 1"] != nil && strings.Contains(s.Out["out 0"].String(), text) &&
				strings.Contains(s.Out["out 1"].String(), text)
		}
	}
	s.Await("both", up("up"))
	s.SendMessage(stepwire.Signal, &pb.StepSignal{Signal: uint32(unix.SIGUSR1)})
	s.Await("USR1", up("usr1"))
	s.Send(stepwire.Stop, stepwire.All, nil)
	rec, heard := s.end(), false
	s.Set(func() { heard = up("term")() })
	if rec.Verdict != "cancelled" || rec.WaitStatus != uint32(unix.SIGKILL) || heard {
		t.Errorf("%v, its tasks have heard SIGTERM: %v", rec, heard)
	}
}

// TestKillOfAStep: scancel of a step is SIGKILL, and nothing before it.
func TestKillOfAStep(t *testing.T) {
	s := beginStep(t, stepBundle(1), stepWork("sh", "-c", `trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.01; done`))
	s.Await("its task", func() bool { return s.Out["out 0"] != nil && strings.Contains(s.Out["out 0"].String(), "up") })
	s.r.orders <- &pb.StepOrder{Want: pb.StepWant_WANT_KILL, StopReason: "cancel"}
	if rec := s.end(); rec.Verdict != "cancelled" || rec.WaitStatus != uint32(unix.SIGKILL) {
		t.Errorf("%v", rec)
	}
}

// TestKillOfAStepThatHasNotBegun: it ends as one that runs does.
func TestKillOfAStepThatHasNotBegun(t *testing.T) {
	s := beginStep(t, stepBundle(1), stepWork("sleep", "600"))
	s.r.orders <- &pb.StepOrder{Want: pb.StepWant_WANT_KILL, StopReason: "cancel"}
	if rec := s.end(); rec.Verdict != "cancelled" || rec.WaitStatus != uint32(unix.SIGKILL) {
		t.Errorf("%v", rec)
	}
}

// TestLostConnection: the step ends with it, and with no_kill it goes on.
func TestLostConnection(t *testing.T) {
	for _, noKill := range []bool{false, true} {
		b := stepBundle(1)
		b.Step.NoKill = noKill
		file := fmt.Sprintf("/var/tmp/sluice-stepd-go-%d", os.Getpid())
		defer os.Remove(file)
		s := beginStep(t, b, stepWork("sh", "-c", "while [ ! -e "+file+" ]; do echo on; sleep 0.01; done"))
		s.Await("output", func() bool { return s.Out["out 0"] != nil })
		s.Conn.NetConn().Close()
		if noKill {
			if err := os.WriteFile(file, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := map[bool]string{true: "exited", false: "cancelled"}[noKill]
		if rec := s.end(); rec.Verdict != want {
			t.Errorf("no_kill %v: %v", noKill, rec)
		}
	}
}

// TestBackgroundProcesses: what a task leaves behind does not hold its end up. It goes on while it may write to srun, and ends then.
func TestBackgroundProcesses(t *testing.T) {
	work := stepWork("sh", "-c", `[ $SLURM_PROCID = 0 ] || exit 0
		sleep 600 >/dev/null 2>&1 & exec 3<&0; (read x <&3; echo late) & exit 4`)
	s := beginStep(t, stepBundle(2), work)
	s.Await("the ends of the tasks", func() bool { return s.Exits[0] != nil && s.Exits[1] != nil })
	if s.Closed["out 0"] || s.Ended != nil {
		t.Error("its output has ended, although a process has it open")
	}
	s.Send(stepwire.In, 0, []byte("x\n"))
	if rec := s.end(); rec.Verdict != "exited" || rec.WaitStatus != 4<<8 {
		t.Errorf("%v", rec)
	}
	s.Await("the last word", func() bool { return s.Ended != nil && s.Closed["out 0"] })
	if got := s.Text("out 0"); got != "late\n" {
		t.Errorf("%q", got)
	}
}

// TestStopOfBackgroundProcesses: what goes on after the tasks is ended as they would be.
func TestStopOfBackgroundProcesses(t *testing.T) {
	// Not a shell, whose loop of commands has moments at which a signal is lost.
	const background = `import os, signal, sys
if os.fork(): sys.exit()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.write(1, b"up\n")
signal.sigwait([signal.SIGTERM])
os.write(1, b"term\n")`
	s := beginStep(t, stepBundle(1), stepWork("/usr/bin/python3", "-ISc", background))
	s.Await("the end of the task", func() bool {
		return s.Exits[0] != nil && s.Out["out 0"] != nil && s.Out["out 0"].String() == "up\n"
	})
	s.order(&pb.StepOrder{Want: pb.StepWant_WANT_STOP})
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if got := s.Text("out 0"); got != "up\nterm\n" {
		t.Errorf("%q", got)
	}
}

// TestSlowReader: a srun that does not read holds up what the tasks write, and not their end on an order.
func TestSlowReader(t *testing.T) {
	s := beginStep(t, stepBundle(2), stepWork("cat", "/dev/zero"))
	s.Await("output", func() bool { return s.Out["out 0"] != nil })
	s.Set(func() { s.Stall = true })
	s.order(&pb.StepOrder{Want: pb.StepWant_WANT_KILL})
	rec := s.end()
	if rec.Verdict != "cancelled" {
		t.Errorf("%v", rec)
	}
	s.Set(func() { s.Stall = false })
}

func TestTerminal(t *testing.T) {
	b := stepBundle(2)
	b.Step.Pty = true
	work := stepWork("sh", "-c", `if [ $SLURM_PROCID != 0 ]; then exec cat; fi
		stty size; tty; read x; echo "got $x"; stty size; [ -O $(tty) ] && echo mine`)
	work.Window = &pb.StepWindow{Rows: 11, Columns: 22}
	s := beginStep(t, b, work)
	s.Await("its size", func() bool { return s.Out["out 0"] != nil && strings.Contains(s.Out["out 0"].String(), "/dev/pts/") })
	s.SendMessage(stepwire.Window, &pb.StepWindow{Rows: 33, Columns: 44})
	s.Send(stepwire.In, 0, []byte("hello\n"))
	rec := s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	got := s.Text("out 0")
	for _, want := range []string{"11 22\r\n", "got hello\r\n", "33 44\r\n", "mine\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if rec.WaitStatus != 0 {
		t.Errorf("%v", rec)
	}
}

func TestFilesOfTasks(t *testing.T) {
	s0, err := os.MkdirTemp("/var/tmp", "sluice-stepd-files-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(s0)
	if err := os.Chmod(s0, 0o777); err != nil {
		t.Fatal(err)
	}
	work := stepWork("sh", "-c", `echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2`)
	work.Dir, work.StdOut, work.StdErr = s0, "o-%j.%s-%3t-%N", "all-%n"
	s := beginStep(t, stepBundle(2), work)
	if rec := s.end(); rec.Verdict != "exited" || rec.WaitStatus != 0 {
		t.Errorf("%v", rec)
	}
	for name, want := range map[string]string{"o-7.0-000-n1": "out 0\n", "o-7.0-001-n1": "out 1\n"} {
		if raw, err := os.ReadFile(filepath.Join(s0, name)); string(raw) != want {
			t.Errorf("%s: %q %v", name, raw, err)
		}
	}
	if raw, err := os.ReadFile(filepath.Join(s0, "all-0")); len(raw) != len("err 0\nerr 1\n") {
		t.Errorf("%q %v", raw, err)
	}
}

func TestNobodyListens(t *testing.T) {
	b := stepBundle(1)
	work := stepWork("true")
	root := testRoot(t)
	job, err := root.Create("job_7.1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer job.Remove()
	s := sruntest.New(t, b, work)
	s.Listener.Close()
	l := newLauncher(quiet)
	l.run(nil)
	defer close(l.tasks)
	dir := t.TempDir() + "/7.1.0"
	if err := folder.Write(dir, b, nil, false); err != nil {
		t.Fatal(err)
	}
	r := newRun(b, dir, quiet)
	r.loop(root, l.tasks)
	if rec := r.board.get().Exit; rec.Verdict != "launch_failed" || !strings.Contains(rec.Detail, "connection refused") {
		t.Errorf("%v", rec)
	}
}

// TestManyTasks: sixty-four, whose ends are told together where they are alike.
func TestManyTasks(t *testing.T) {
	s := beginStep(t, stepBundle(64), stepWork("sh", "-c", "echo $SLURM_PROCID; exit $((SLURM_PROCID % 2))"))
	if rec := s.end(); rec.WaitStatus != 1<<8 {
		t.Errorf("%v", rec)
	}
	s.Await("the last word", func() bool { return s.Ended != nil })
	for i := range uint32(64) {
		if x := s.Exits[i]; x == nil || x.WaitStatus != i%2<<8 || s.Out[fmt.Sprint("out ", i)].String() != fmt.Sprintln(i) {
			t.Errorf("task %d: %v", i, x)
		}
	}
}

// TestLongOutput: nothing of it is lost, nor in another order, however long its lines are.
func TestLongOutput(t *testing.T) {
	s := beginStep(t, stepBundle(2), stepWork("sh", "-c", `
		head -c 33554432 /dev/urandom | tee /proc/self/fd/2 | md5sum
		head -c 10000000 /dev/zero | tr '\0' x`))
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	for i := range 2 {
		sum, line, _ := strings.Cut(s.Text(fmt.Sprint("out ", i)), "  -\n")
		if got := fmt.Sprintf("%x", md5.Sum([]byte(s.Text(fmt.Sprint("err ", i))))); got != sum || len(line) != 10_000_000 {
			t.Errorf("task %d: checksum %s, want %s; a line of %d bytes", i, got, sum, len(line))
		}
	}
}

func TestOutOfMemoryOfATask(t *testing.T) {
	b := stepBundle(2)
	b.Limits = &pb.Limits{MemoryMib: 40, MemorySwapMib: 40}
	s := beginStep(t, b, stepWork("sh", "-c", `[ $SLURM_PROCID = 1 ] || exit 0; x=$(head -c 200000000 /dev/zero | tr '\0' x)`))
	rec := s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	if s.r.f.oomKills == 0 {
		t.Skip("no memory controller here")
	}
	said := fmt.Sprintf("slurmstepd: error: Detected %d oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
		s.r.f.oomKills) // the kernel may kill more than one process of the pipeline
	if rec.Verdict != "oom" || !slices.Equal(s.Said, []string{said}) {
		t.Errorf("%v, said %q", rec, s.Said)
	}
}

func TestTimeLimitOfAStep(t *testing.T) {
	b := stepBundle(1)
	b.LimitS = 1
	s := beginStep(t, b, stepWork("sleep", "600"))
	if rec := s.end(); rec.Verdict != "timeout" {
		t.Errorf("%v", rec)
	}
	s.Await("words", func() bool { return s.Ended != nil })
	if len(s.Said) != 1 || !strings.HasSuffix(s.Said[0], " DUE TO TIME LIMIT ***") {
		t.Errorf("said %q", s.Said)
	}
}

// TestOneProgramForEach: --multi-prog, PATH, a relative name, a name that only the working folder has, and limits.
func TestOneProgramForEach(t *testing.T) {
	b := stepBundle(4)
	b.Rlimits = []*pb.Rlimit{{Resource: unix.RLIMIT_NOFILE, Hard: 1 << 20}}
	work := stepWork("sh", "-c", "ulimit -n; umask")
	work.Umask = 0o27
	work.Rlimits = []*pb.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 99, Hard: 99}, {Resource: unix.RLIMIT_CORE, Soft: 5}}
	work.Programs = append(work.Programs, &pb.StepProgram{Tasks: []uint32{1}, Argv: []string{"./prog", "a b"}},
		&pb.StepProgram{Tasks: []uint32{2}, Argv: []string{"readlink", "/proc/self/cwd"}},
		&pb.StepProgram{Tasks: []uint32{3}, Argv: []string{"prog", "c"}})
	dir, err := os.MkdirTemp("/var/tmp", "sluice-stepd-dir-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/prog", []byte("#!/bin/sh\necho \"$0 $1 $#\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	work.Dir = dir
	s := beginStep(t, b, work)
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	for i, want := range []string{"99\n0027\n", dir + "/./prog a b 1\n", dir + "\n", "prog c 1\n"} {
		if got := s.Text(fmt.Sprint("out ", i)); got != want {
			t.Errorf("task %d: %q, want %q (%v %q)", i, got, want, s.Exits, s.Said)
		}
	}
}

// TestTaskPrologsAndEpilogs run for each task.
func TestTaskPrologsAndEpilogs(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "sluice-stepd-dir-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"prolog": "echo export P=$SLURM_PROCID; echo print said",
		"own":    "echo own $SLURM_TASK_PID >>" + dir + "/ended.$SLURM_PROCID",
		"epilog": "echo $SLURM_TASK_PID >>" + dir + "/ended.$SLURM_PROCID"} {
		if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := stepBundle(2)
	b.TaskProlog, b.TaskEpilog = []string{dir + "/prolog"}, dir+"/epilog"
	work := stepWork("sh", "-c", "echo $P $$")
	work.TaskEpilog = dir + "/own"
	s := beginStep(t, b, work)
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	for i := range 2 {
		ended, _ := os.ReadFile(fmt.Sprintf("%s/ended.%d", dir, i))
		own, after, _ := strings.Cut(string(ended), "\n") // srun's own is first
		if got, want := s.Text(fmt.Sprint("out ", i)), fmt.Sprintf("said\n%d %s", i, after); got != want || "own "+after != own+"\n" {
			t.Errorf("task %d: %q, want %q; %q", i, got, want, ended)
		}
	}
}

// TestWatchers: an sattach hears what comes after it, and its input reaches the tasks; one that does not read is left.
func TestWatchers(t *testing.T) {
	s := beginStep(t, stepBundle(1), stepWork("sh", "-c", "echo up; while read x; do echo got $x; done"))
	s.Await("it runs", func() bool { return s.Out["out 0"] != nil })
	other := stepBundle(1)
	w := sruntest.New(t, other, nil)
	if err := w.Use(s.r.b.Step); err != nil {
		t.Fatal(err)
	}
	s.order(&pb.StepOrder{Want: pb.StepWant_WANT_RUN, Watchers: []*pb.StepWatcher{{Seq: 1, Addresses: other.Step.Addresses}}})
	w.Send(stepwire.In, 0, []byte("it\n"))
	w.Await("the answer", func() bool { return w.Out["out 0"] != nil && w.Out["out 0"].String() == "got it\n" })
	s.Send(stepwire.In, 0, nil)
	s.end()
	w.Await("the end", func() bool { return w.Ended != nil && w.Exits[0] != nil })
	if got := s.Text("out 0"); got != "up\ngot it\n" {
		t.Errorf("srun hears %q", got)
	}
}

// TestWatcherInput: what an sattach sends is not lost when the tasks do not read it yet.
func TestWatcherInput(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "sluice-stepd-dir-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const chunks = 3 * maxIn / stepwire.MaxPayload
	script := fmt.Sprintf("echo up; until [ -e %s/go ]; do sleep 0.01; done; head -c %d | wc -c", dir, chunks*stepwire.MaxPayload)
	s := beginStep(t, stepBundle(1), stepWork("sh", "-c", script))
	s.Await("it runs", func() bool { return s.Out["out 0"] != nil })
	other := stepBundle(1)
	w := sruntest.New(t, other, nil)
	if err := w.Use(s.r.b.Step); err != nil {
		t.Fatal(err)
	}
	s.order(&pb.StepOrder{Want: pb.StepWant_WANT_RUN, Watchers: []*pb.StepWatcher{{Seq: 1, Addresses: other.Step.Addresses}}})
	chunk := make([]byte, stepwire.MaxPayload)
	for i := range chunks {
		if i == chunks/3+1 {
			if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		w.Send(stepwire.In, stepwire.All, chunk)
	}
	w.Await("the count", func() bool { return w.Out["out 0"] != nil && w.Closed["out 0"] })
	if got, want := strings.TrimSpace(w.Text("out 0")), fmt.Sprint(chunks*stepwire.MaxPayload); got != want {
		t.Errorf("the task has read %s bytes of %s", got, want)
	}
	s.end()
}

// TestUnbuffered: standard output is a terminal, which changes nothing of what is written.
func TestUnbuffered(t *testing.T) {
	work := stepWork("sh", "-c", "[ -t 1 ] && ! [ -t 0 ] && ! [ -t 2 ] && seq 50000 && printf 'a\\tb\\r\\n\\004\\003end' && echo err >&2")
	work.Unbuffered = true
	var want strings.Builder
	for i := range 50000 {
		fmt.Fprintln(&want, i+1)
	}
	want.WriteString("a\tb\r\n\004\003end")
	s := beginStep(t, stepBundle(2), work)
	s.end()
	s.Await("the last word", func() bool { return s.Ended != nil })
	for i := range 2 {
		if got := s.Text(fmt.Sprint("out ", i)); got != want.String() || s.Text(fmt.Sprint("err ", i)) != "err\n" {
			t.Errorf("task %d: %d bytes of %d, ends with %q", i, len(got), want.Len(), got[max(0, len(got)-30):])
		}
	}
}
