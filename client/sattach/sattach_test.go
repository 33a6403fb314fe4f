package sattach

import (
	"context"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
	"github.com/sluice-hpc/sluice/internal/test/leaktest"
	"github.com/sluice-hpc/sluice/internal/test/output"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
	"github.com/sluice-hpc/sluice/proto/stepwire"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// running is step 0 of job 7, on two nodes, with three tasks.
func running() *clienttest.Controller {
	return &clienttest.Controller{StepList: []*pb.StepRecord{{JobId: 7, State: pb.JobState_JOB_RUNNING, NumTasks: 3, NodeList: "n[1-2]",
		Nodes: []*pb.StepNode{{Node: "n1", Tasks: []uint32{0, 2}}, {Node: "n2", Tasks: []uint32{1}}}}}}
}

func run(t *testing.T, ctl *clienttest.Controller, stdin io.Reader, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	socket, stop, err := ctl.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var out, errs output.Buffer
	env := &command.Env{Name: "sattach", Stdin: stdin, Stdout: &out, Stderr: &errs, Args: append([]string{"sattach"}, args...),
		Environ: []string{"SLURM_CONF=/nonexistent"}, Now: time.Now, Sleep: time.Sleep,
		Dial: func(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, socket) }}
	exit = Main(env, args)
	return out.String(), errs.String(), exit
}

// speak is a node whose tasks print a line to each stream, and end, task 1 with exit code 3.
func speak(n *clienttest.NodeConn, index int) {
	for _, task := range [][]uint32{{0, 2}, {1}}[index] {
		n.Bytes(stepwire.Out, task, []byte("out\n"))
		n.Bytes(stepwire.Err, task, []byte("err\n"))
		n.Bytes(stepwire.Out, task, nil)
		n.Bytes(stepwire.Err, task, nil)
		n.Send(stepwire.Exit, stepwire.All, &pb.StepExit{Tasks: []uint32{task}, WaitStatus: 3 * (task & 1) << 8})
	}
	n.Send(stepwire.Ended, stepwire.All, &pb.StepEnded{Verdict: "exited", WaitStatus: uint32(index) * 3 << 8})
}

func lines(text string) string {
	list := strings.Split(strings.TrimSpace(text), "\n")
	for i := range list {
		for j := range i {
			if list[i] < list[j] {
				list[i], list[j] = list[j], list[i]
			}
		}
	}
	return strings.Join(list, "|")
}

func TestOutput(t *testing.T) {
	for _, c := range []struct{ args, out, err string }{
		{"7.0", "out|out|out", "err|err|err|sattach: error: task 1 exited with exit code 3"},
		{"-l 7.0", "0: out|1: out|2: out", "0: err|1: err|2: err|sattach: error: task 1 exited with exit code 3"},
		{"-l --output-filter=2 --error-filter 1 7.0", "2: out", "1: err|sattach: error: task 1 exited with exit code 3"},
	} {
		ctl := running()
		ctl.Stepping.AttachedNode = speak
		out, errs, exit := run(t, ctl, strings.NewReader(""), strings.Fields(c.args)...)
		if lines(out) != c.out || lines(errs) != c.err || exit != 3 {
			t.Errorf("%s: exit %d, %q, said %q", c.args, exit, out, errs)
		}
	}
}

// TestNodeThatHasEnded is not waited for.
func TestNodeThatHasEnded(t *testing.T) {
	ctl := running()
	ctl.StepList[0].Nodes[0].Ended = true
	ctl.Stepping.AttachedNode = speak
	if out, _, exit := run(t, ctl, strings.NewReader(""), "7.0"); out != "out\n" || exit != 3 {
		t.Errorf("exit %d, %q", exit, out)
	}
	ctl.StepList[0].Nodes[1].Ended = true
	if _, errs, exit := run(t, ctl, strings.NewReader(""), "7.0"); exit != 1 ||
		!strings.HasPrefix(errs, "sattach: error: Could not get job step info: Job/step already completing or completed\n") {
		t.Errorf("exit %d, %q", exit, errs)
	}
}

// TestInput: what is typed goes to all tasks or to one, and its end is not told.
func TestInput(t *testing.T) {
	for filter, want := range map[string][2]string{"": {"-1 hello\n", "-1 hello\n"}, "--input-filter=1": {"", "1 hello\n"}} {
		var got [2]string
		var done sync.WaitGroup
		done.Add(2)
		ctl := running()
		ctl.Stepping.AttachedNode = func(n *clienttest.NodeConn, index int) {
			for want[index] != "" {
				h, b, err := n.Next()
				if err != nil || h.Kind != stepwire.In {
					t.Errorf("node %d: frame %d, %v", index, h.Kind, err)
					break
				}
				who := "-1 "
				if h.Task != stepwire.All {
					who = string(rune('0'+h.Task)) + " "
				}
				if got[index] += who + string(b); strings.HasSuffix(got[index], "\n") {
					break
				}
			}
			done.Done()
			done.Wait()
			speak(n, index)
		}
		args := strings.Fields(filter + " 7.0")
		if _, errs, exit := run(t, ctl, strings.NewReader("hello\n"), args...); exit != 3 || got != want {
			t.Errorf("%s: exit %d, %q, said %q", filter, exit, got, errs)
		}
	}
}

// TestConnectionThatBreaks is no good end.
func TestConnectionThatBreaks(t *testing.T) {
	ctl := running()
	ctl.Stepping.AttachedNode = func(n *clienttest.NodeConn, index int) { n.Bytes(stepwire.Out, uint32(index), []byte("part")) }
	out, errs, exit := run(t, ctl, strings.NewReader(""), "7.0")
	if out != "partpart" || exit != 1 || strings.Count(errs, "the output of its tasks is no longer shown") != 2 {
		t.Errorf("exit %d, %q, said %q", exit, out, errs)
	}
}

// TestEndBeforeNodesCome: the controller says that the step has ended.
func TestEndBeforeNodesCome(t *testing.T) {
	ctl := running()
	ctl.Stepping.Waited = func() *pb.StepRecord { return &pb.StepRecord{ExitStatus: uint32(syscall.SIGKILL)} }
	_, errs, exit := run(t, ctl, strings.NewReader(""), "7.0")
	if exit != 137 || !strings.Contains(errs, "Job/step already completing or completed") {
		t.Errorf("exit %d, said %q", exit, errs)
	}
}

// TestTerminal: with --pty the terminal of the user passes everything on while a step that has one runs, and is put back. Of a step
// without one it stays what it is, so that Ctrl-C leaves it.
func TestTerminal(t *testing.T) {
	for _, has := range []bool{true, false} {
		ptmx, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer ptmx.Close()
		defer tty.Close()
		cooked := func() bool {
			mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			return err == nil && mode.Lflag&unix.ICANON != 0 && mode.Lflag&unix.ISIG != 0 && mode.Lflag&unix.ECHO != 0
		}
		ctl := running()
		ctl.StepList[0].Spec = &pb.StepSpec{Pty: has}
		ctl.Stepping.AttachedNode = func(n *clienttest.NodeConn, index int) {
			if cooked() == has {
				t.Errorf("a step with a terminal: %v; that of sattach takes whole lines: %v", has, cooked())
			}
			speak(n, index)
		}
		_, errs, exit := run(t, ctl, tty, "--pty", "7.0")
		if !cooked() {
			t.Errorf("a step with a terminal: %v; that of sattach is not put back", has)
		}
		said := "sattach: error: task 1 exited with exit code 3\n"
		if has {
			said = "sattach: error: task 1 exited with exit code 3\r\n"
		}
		if exit != 3 || !strings.Contains(errs, said) ||
			strings.Contains(errs, "sattach: error: StepId=7.0 was started without --pty, disregarding --pty option\n") == has {
			t.Errorf("a step with a terminal: %v; exit %d, said %q", has, exit, errs)
		}
	}
}

func TestLayout(t *testing.T) {
	out, errs, exit := run(t, running(), strings.NewReader(""), "--layout", "7.0")
	want := "Job step layout:\n\t3 tasks, 2 nodes (n[1-2])\n\n\tNode 0 (n1), 2 task(s): 0 2 \n\tNode 1 (n2), 1 task(s): 1 \n"
	if out != want || exit != 0 {
		t.Errorf("exit %d, %q, said %q", exit, out, errs)
	}
}

func TestRefused(t *testing.T) {
	const lead = "sattach: error: Could not get job step info: "
	denied := func(*pb.AttachStepRequest) error {
		p := pb.NewProblem(pb.CodeAccessDenied, "job 7 belongs to u")
		s, _ := status.New(codes.PermissionDenied, p.GetPhrase()).WithDetails(p)
		return s.Err()
	}
	ended := running()
	ended.StepList, ended.JobList = nil, []*pb.JobRecord{{Id: 7, State: pb.JobState_JOB_FAILED}}
	others := running()
	others.Stepping.Attached = denied
	for _, c := range []struct {
		ctl        *clienttest.Controller
		args, want string
	}{
		{running(), "", "sattach: error: too many parameters\n"},
		{running(), "7.0 8.0", "sattach: error: too many parameters\n"},
		{running(), "7", "sattach: error: Failed to parse stepid from command line options\n"},
		{running(), "7.1", lead + "Invalid job id specified\n"},
		{running(), "7.batch", lead + "Invalid job id specified\n"},
		{running(), "x.1", lead + "Invalid job id specified\n"},
		{ended, "7.0", lead + "Job/step already completing or completed\n"},
		{others, "7.0", "sattach: Node n1: no tasks running\nsattach: Node n2: no tasks running\n"},
		{running(), "--output-filter=x 7.0", "sattach: error: Invalid numeric value \"x\" for output-filter.\n"},
		{running(), "--pty --input-filter=0 7.0", "sattach: error: "},
	} {
		out, errs, exit := run(t, c.ctl, strings.NewReader(""), strings.Fields(c.args)...)
		if exit != 1 || !strings.HasPrefix(errs, c.want) {
			t.Errorf("%s: exit %d, %q, said %q", c.args, exit, out, errs)
		}
	}
}
