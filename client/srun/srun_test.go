package srun

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/internal/test/output"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// session is one run of srun against a fake controller and fake nodes.
type session struct {
	ctl     *clienttest.Controller
	dir     string
	stdin   io.Reader
	environ []string
}

func newSession(t *testing.T) *session {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &session{ctl: &clienttest.Controller{}, dir: dir, stdin: strings.NewReader(""),
		environ: []string{"HOME=/", "PATH=/bin:/usr/bin", "SLURM_CONF=/nonexistent"}}
}

// inside has the session run in a job.
func (s *session) inside() *session {
	s.environ = append(s.environ, "SLURM_JOB_ID=7")
	return s
}

func (s *session) run(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	socket, stop, err := s.ctl.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var out, errs output.Buffer
	env := &command.Env{Name: "srun", Stdin: s.stdin, Stdout: &out, Stderr: &errs, Args: append([]string{"srun"}, args...),
		Environ: s.environ, Now: time.Now, Sleep: time.Sleep, Getwd: func() (string, error) { return s.dir, nil },
		Dial: func(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, socket) }}
	exit = Main(env, args)
	return out.String(), errs.String(), exit
}

func (s *session) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInsideAndOutside(t *testing.T) {
	for _, where := range []string{"inside", "outside"} {
		s := newSession(t)
		if where == "inside" {
			s.inside()
		}
		out, errs, exit := s.run(t, "-n2", "-N2", "sh", "-c", "echo out$SLURM_PROCID; echo err >&2; exit $((SLURM_PROCID * 3))")
		if out != "out0\nout1\n" && out != "out1\nout0\n" || exit != 3 {
			t.Errorf("%s: exit %d, %q", where, exit, out)
		}
		want := "srun: error: n2: task 1: Exited with exit code 3\n"
		if !strings.Contains(errs, want) || strings.Count(errs, "err\n") != 2 {
			t.Errorf("%s: said %q", where, errs)
		}
		ended := s.ctl.Stepping.Ended
		switch {
		case where == "inside" && (len(ended) != 0 || len(s.ctl.Submitted) != 0):
			t.Errorf("inside: the allocation is ended, or one is made")
		case where == "outside" && (len(ended) != 1 || ended[0].GetExitStatus() != 3<<8 || !s.ctl.Submitted[0].GetSpec().GetInteractive()):
			t.Errorf("outside: %v", ended)
		}
	}
}

// TestFirstStep: what the start of the job has made is not asked for again; what srun cannot know before is asked for then.
func TestFirstStep(t *testing.T) {
	for args, asked := range map[string]int{"-n2": 0, "--ntasks-per-gpu=2 --gpus=1": 0, "--ntasks-per-gpu=2 -n2": 0,
		"--bcast=/tmp/x": 1} {
		s := newSession(t)
		s.ctl.Stepping.First = true
		if asked > 0 {
			s.ctl.Stepping.Answer = func(*pb.CreateStepRequest) (*pb.CreateStepReply, error) { return nil, errors.New("no") }
		}
		_, errs, exit := s.run(t, append(strings.Fields(args), "echo", "x")...)
		if got := len(s.ctl.Stepping.Created); got != asked || (exit == 0) != (asked == 0) || len(s.ctl.Stepping.Ended) != 1 {
			t.Errorf("%s: asked %d times for a step, exit %d, %q", args, got, exit, errs)
		}
		if first := s.ctl.Submitted[0].GetFirstStep(); (first == nil) != (asked > 0) {
			t.Errorf("%s: submitted with %v", args, first)
		}
	}
}

func TestLabelsAndBytes(t *testing.T) {
	s := newSession(t).inside()
	out, _, exit := s.run(t, "-l", "-n11", "sh", "-c", "[ $SLURM_PROCID != 10 ] || printf 'a\\nb'")
	if out != "10: a\n10: b\n" || exit != 0 {
		t.Errorf("exit %d, %q", exit, out)
	}
	all := make([]byte, 1<<20)
	for i := range all {
		all[i] = byte(i * 7 >> 3)
	}
	s.stdin = bytes.NewReader(all)
	if out, errs, exit := s.run(t, "cat"); out != string(all) || exit != 0 {
		t.Errorf("exit %d, %d bytes of %d, %q", exit, len(out), len(all), errs)
	}
}

func TestFiles(t *testing.T) {
	s := newSession(t).inside()
	s.file(t, "in", "hello\n")
	if _, errs, exit := s.run(t, "-i", "in", "-o", "out-%j-%s", "sh", "-c", "cat; echo err >&2"); exit != 0 {
		t.Fatalf("exit %d, %s", exit, errs)
	}
	if b, err := os.ReadFile(filepath.Join(s.dir, "out-7-0")); err != nil || string(b) != "hello\nerr\n" && string(b) != "err\nhello\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := os.Symlink("same", filepath.Join(s.dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"same", "./same", "link"} {
		if _, errs, exit := s.run(t, "-o", "same", "-e", name, "sh", "-c", "echo out; echo err >&2"); exit != 0 {
			t.Fatalf("exit %d, %s", exit, errs)
		}
		b, err := os.ReadFile(filepath.Join(s.dir, "same"))
		if err != nil || string(b) != "out\nerr\n" && string(b) != "err\nout\n" {
			t.Errorf("-e %s: %q, %v", name, b, err)
		}
	}
	if out, errs, exit := s.run(t, "-i", "nothing", "cat"); exit != 1 || out != "" || !strings.Contains(errs, "nothing") {
		t.Errorf("exit %d, %q, %q", exit, out, errs)
	}
	if out, _, _ := s.run(t, "-n2", "-o", "1", "sh", "-c", "echo $SLURM_PROCID"); out != "1\n" {
		t.Errorf("of task 1: %q", out)
	}
}

func TestPrograms(t *testing.T) {
	s := newSession(t).inside()
	for text, want := range map[string]string{
		"# c\n0 echo zero %t %o\n1-2 echo rest %t %o\n": "rest 1 0\nrest 2 1\nzero 0 0\n",
		"0\techo a\n* echo 'b  c' %t %o\n":              "a\nb  c 1 1\nb  c 2 2\n",
		"0 echo a\n2 echo b\n":                          "! no record for task id 1",
		"0-1 echo a\n1-2 echo b\n":                      "! Duplicate record for task 1",
		"x echo a\n":                                    "! invalid",
		"0-2\n":                                         "! invalid",
	} {
		out, errs, exit := s.run(t, "-n3", "--multi-prog", s.file(t, "programs", text))
		lines := strings.SplitAfter(out, "\n")
		slices.Sort(lines)
		fault, bad := strings.CutPrefix(want, "! ")
		switch {
		case bad && (exit != 1 || !strings.Contains(errs, fault)):
			t.Errorf("%q: exit %d, %q", text, exit, errs)
		case !bad && (exit != 0 || strings.Join(lines, "") != want):
			t.Errorf("%q: exit %d, %q %q", text, exit, out, errs)
		}
	}
}

func TestFailures(t *testing.T) {
	s := newSession(t).inside()
	_, errs, exit := s.run(t, "-n3", "-K", "sh", "-c", "[ $SLURM_PROCID != 1 ] || exit 4; exec sleep 60")
	if exit != 143 && exit != 4 || !strings.Contains(errs, "Exited with exit code 4\n") ||
		!strings.Contains(errs, "Terminating StepId=7.") {
		t.Errorf("exit %d, %s", exit, errs)
	}
	if _, errs, exit := s.run(t, "-n2", "sh", "-c", "kill -9 $$"); exit != 137 || !strings.Contains(errs, ": Killed\n") {
		t.Errorf("exit %d, %s", exit, errs)
	}
	if _, errs, exit := s.run(t, "/nonexistent/program"); exit == 0 || !strings.Contains(errs, "/nonexistent/program") {
		t.Errorf("exit %d, %s", exit, errs)
	}
	for _, args := range [][]string{{}, {""}, {"--mpi=pmix_v9", "true"}, {"-n", "0", "true"}, {"--bcast=/x", "nosuch"},
		{"--bcast", "--multi-prog", "/dev/null"}, {"--send-libs=x", "true"}, {"a", ":", "b"},
		{"--cpu-bind=x", "true"},
		{"-o", "/nonexistent/x", "true"}, {"-i", "9", "true"}, {":", "true"},
		{"--wait=x", "true"}, {"-r", "-1", "true"}, {"--jobid=x", "true"}} {
		if _, errs, exit := s.run(t, args...); exit == 0 || errs == "" {
			t.Errorf("%v: exit %d, %q", args, exit, errs)
		}
	}
}

// TestPrologThatIsNotThere: the step runs, and Slurm's words say why the prolog did not.
func TestPrologThatIsNotThere(t *testing.T) {
	out, errs, exit := newSession(t).inside().run(t, "--prolog=/nonexistent/x", "echo", "ran")
	if out != "ran\n" || errs != "srun: Access denied for /nonexistent/x: No such file or directory\n" || exit != 0 {
		t.Errorf("exit %d, %q %q", exit, out, errs)
	}
}

// TestOnlyTested: no command is needed to ask when a job would start, and a refusal begins as that of a job.
func TestOnlyTested(t *testing.T) {
	s := newSession(t)
	if _, errs, exit := s.run(t, "--test-only", "-n2"); exit != 0 || !strings.HasPrefix(errs, "srun: Job ") {
		t.Errorf("exit %d, %q", exit, errs)
	}
	s.ctl.Fail = pb.NewProblem(pb.CodeInvalidPartition, "there is no partition x")
	want := "srun: error: invalid partition specified: x\nallocation failure: Invalid partition name specified\n" +
		"srun: error: there is no partition x\n"
	if _, errs, exit := s.run(t, "--test-only", "-p", "x", "true"); exit != 1 || errs != want {
		t.Errorf("exit %d, %q", exit, errs)
	}
}

// TestBcastIntoAContainer: the copy would not be in it.
func TestBcastIntoAContainer(t *testing.T) {
	s := newSession(t).inside()
	_, errs, exit := s.run(t, "--bcast=/tmp/x", "--container-image=x", "true")
	if exit != 1 || !strings.HasPrefix(errs, "srun: error: --bcast is not supported with containers\n") {
		t.Errorf("exit %d, %s", exit, errs)
	}
}

// TestBrokenConnectionWhileWaiting: SIGPIPE comes of a connection that breaks, as when the controller is restarted, and ends no waiting for
// an allocation.
func TestBrokenConnectionWhileWaiting(t *testing.T) {
	s := newSession(t)
	asked := 0
	s.ctl.Stepping.Allocation = func(*pb.WaitAllocationRequest) *pb.JobRecord {
		job := clienttest.Job(1, 1)
		if asked++; asked < 20 {
			job.State = pb.JobState_JOB_PENDING
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGPIPE)
		return job
	}
	if _, errs, exit := s.run(t, "true"); exit != 0 || asked < 20 {
		t.Errorf("asked %d times: exit %d, %s", asked, exit, errs)
	}
}

// TestNodesAreTasks: nodes that are named, or those of the job that --jobid names, each run a task.
func TestNodesAreTasks(t *testing.T) {
	job := clienttest.Job(7, 2)
	for args, want := range map[string][2]uint32{"-w n[2-3]": {2, 2}, "-w n2": {0, 0}, "-w n[2-3] -n2": {0, 2}, "--jobid=7": {2, 0},
		"--jobid=7 -n1": {0, 1}, "--jobid=7 -n5": {2, 5}, "--jobid=7 -N1": {1, 0}} {
		s := newSession(t)
		s.ctl.Stepping.Allocation = func(*pb.WaitAllocationRequest) *pb.JobRecord { return job }
		_, errs, exit := s.run(t, append(strings.Fields(args), "true")...)
		if exit != 0 || len(s.ctl.Stepping.Created) != 1 {
			t.Errorf("%s: exit %d, %s", args, exit, errs)
			continue
		}
		spec := s.ctl.Stepping.Created[0].GetSpec()
		if got := [2]uint32{spec.GetMinNodes(), spec.GetNumTasks()}; got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
}

// TestTasksOfNodes: --ntasks-per-node is forgotten where more tasks are asked for, and --exclusive outside of an allocation is the job's.
func TestTasksOfNodes(t *testing.T) {
	const warning = "srun: Warning: can't honor --ntasks-per-node set to 1 which doesn't match the requested tasks 4 with the number of " +
		"requested nodes 1. Ignoring --ntasks-per-node.\n"
	for args, want := range map[string]struct {
		perNode uint32
		exact   bool
		said    string
	}{
		"-n4 -N1 --ntasks-per-node=1": {0, false, warning}, "-n2 -N2 --ntasks-per-node=1": {1, false, ""},
		"--exclusive": {0, false, ""}, "--exclusive -n2": {0, true, ""}, "--jobid=7 --exclusive": {0, true, ""},
	} {
		s := newSession(t)
		_, errs, exit := s.run(t, append(strings.Fields(args), "true")...)
		spec := s.ctl.Stepping.Created[0].GetSpec()
		if exit != 0 || spec.GetNtasksPerNode() != want.perNode || spec.GetExact() != want.exact || errs != want.said {
			t.Errorf("%s: exit %d, %q, %v", args, exit, errs, spec)
		}
	}
}

// TestMoreNodesThanTheJobHas: Slurm's srun says it in these words, and no more.
func TestMoreNodesThanTheJobHas(t *testing.T) {
	s := newSession(t).inside()
	s.ctl.Stepping.Answer = func(*pb.CreateStepRequest) (*pb.CreateStepReply, error) {
		with, err := status.New(codes.FailedPrecondition, "x").
			WithDetails(pb.NewProblem(pb.CodeNodeConfig, "x").WithLead("Only allocated 2 nodes asked for 3"))
		if err != nil {
			return nil, err
		}
		return nil, with.Err()
	}
	if _, errs, exit := s.run(t, "-N3", "true"); exit != 1 || errs != "srun: error: Only allocated 2 nodes asked for 3\n" {
		t.Errorf("exit %d, %s", exit, errs)
	}
}

// TestVariables: -J names the step's job for its tasks, and srun says less of a job than salloc.
func TestVariables(t *testing.T) {
	show := "echo $SLURM_JOB_NAME,$SLURM_DISTRIBUTION,$SLURM_MEM_PER_NODE,$SLURM_GPUS"
	for args, want := range map[string]string{"-J inner": "inner,cyclic,,\n", "": "outer,cyclic,,\n", "-m block": "outer,block,,\n"} {
		s := newSession(t).inside()
		s.environ = append(s.environ, "SLURM_JOB_NAME=outer")
		if out, errs, _ := s.run(t, append(strings.Fields(args), "sh", "-c", show)...); out != want {
			t.Errorf("inside, %s: %q, %s", args, out, errs)
		}
	}
	if out, errs, _ := newSession(t).run(t, "--mem=300", "--gpus=1", "sh", "-c", "echo $SLURM_MEM_PER_NODE$SLURM_GPUS"); out != "\n" {
		t.Errorf("outside: %q, %s", out, errs)
	}
}

// TestTasksBeginTogether: no node is told what to execute before all are there.
func TestTasksBeginTogether(t *testing.T) {
	s := newSession(t).inside()
	greeted, told := make(chan struct{}), make(chan struct{})
	s.ctl.Stepping.Node = func(step *pb.StepRecord, index int) {
		if index == 1 {
			<-greeted
			select {
			case <-told:
				t.Error("a node begins before the other has come")
			case <-time.After(100 * time.Millisecond):
			}
			_ = clienttest.RunNode(step, index)
			return
		}
		n, err := clienttest.GreetStep(step, index)
		close(greeted)
		if err != nil {
			t.Error(err)
			return
		}
		defer n.Close()
		_, _, err = n.Next()
		close(told)
		n.Send(stepwire.Started, stepwire.All, &pb.StepStarted{})
		n.Send(stepwire.Exit, stepwire.All, &pb.StepExit{Tasks: []uint32{0}})
		n.Bytes(stepwire.Out, 0, nil)
		n.Bytes(stepwire.Err, 0, nil)
		n.Send(stepwire.Ended, stepwire.All, &pb.StepEnded{Verdict: "exited"})
		if err != nil {
			t.Error(err)
		}
	}
	if _, errs, exit := s.run(t, "-n2", "-N2", "true"); exit != 0 {
		t.Errorf("exit %d, %s", exit, errs)
	}
}

// TestNodeGoesBeforeOthersCome: the step is ended, and nothing of it has begun.
func TestNodeGoesBeforeOthersCome(t *testing.T) {
	s := newSession(t).inside()
	cancelled := make(chan struct{})
	s.ctl.OutcomeOf = func(string) *pb.Problem {
		close(cancelled)
		return nil
	}
	s.ctl.Stepping.Waited = func() *pb.StepRecord {
		<-cancelled
		return &pb.StepRecord{JobId: 7, State: pb.JobState_JOB_CANCELLED, ExitStatus: 9}
	}
	s.ctl.Stepping.Node = func(step *pb.StepRecord, index int) {
		if index == 1 {
			n, err := clienttest.GreetStep(step, index)
			if err != nil {
				t.Error(err)
				return
			}
			n.Close()
		}
	}
	_, errs, exit := s.run(t, "-n2", "-N2", "true")
	if exit == 0 || !strings.Contains(errs, "the connection to n2 has ended") {
		t.Errorf("exit %d, %s", exit, errs)
	}
}
