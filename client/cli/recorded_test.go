package cli

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// What is recorded was said in UTC, whatever the time zone of the machine.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// record is what a real Slurm answered to one command line (testdata/record.sh).
type record struct {
	command        string
	stdout, stderr []string
	exit           int
}

func records(t *testing.T, file string) []record {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []record
	for _, line := range strings.Split(string(data), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			list = append(list, record{command: command})
			continue
		}
		if len(list) == 0 {
			continue
		}
		r := &list[len(list)-1]
		if out, ok := strings.CutPrefix(line, " 1> "); ok {
			r.stdout = append(r.stdout, out)
		} else if out, ok := strings.CutPrefix(line, " 2> "); ok {
			r.stderr = append(r.stderr, out)
		} else if code, ok := strings.CutPrefix(line, " = "); ok {
			if r.exit, err = strconv.Atoi(code); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(list) == 0 {
		t.Fatalf("%s holds no records", file)
	}
	return list
}

// words cuts a recorded command line: variables in front, then the command and its words; single quotes group.
func words(line string) (vars, argv []string) {
	var list []string
	var word []byte
	quoted, open := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			quoted, open = !quoted, true
		case c == ' ' && !quoted:
			if open {
				list = append(list, string(word))
			}
			word, open = nil, false
		default:
			word, open = append(word, c), true
		}
	}
	if open {
		list = append(list, string(word))
	}
	for len(list) > 0 && strings.Contains(list[0], "=") {
		vars, list = append(vars, list[0]), list[1:]
	}
	return vars, list
}

// run runs one command against a controller.
func run(t *testing.T, c *clienttest.Controller, stdin string, environ []string, argv ...string) (stdout, stderr string, exit int) {
	t.Helper()
	for _, cmd := range commands() {
		if cmd.name == argv[0] {
			return runWith(t, c, cmd.run, stdin, environ, argv...)
		}
	}
	t.Fatalf("no command %q", argv[0])
	return "", "", 0
}

// runFunc runs a function as a command.
func runFunc(t *testing.T, c *clienttest.Controller, f func(*command.Env, []string) int, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	return runWith(t, c, f, "", nil, append([]string{"sluice"}, args...)...)
}

func runWith(t *testing.T, c *clienttest.Controller, f func(*command.Env, []string) int, stdin string, environ []string,
	argv ...string) (stdout, stderr string, exit int) {
	t.Helper()
	socket, stop, err := c.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var out, errs bytes.Buffer
	dir, _ := os.Getwd()
	env := &command.Env{Name: argv[0], Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Args: argv, Environ: environ,
		Now: func() time.Time { return time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC) }, Sleep: func(time.Duration) {},
		Getwd:  func() (string, error) { return dir, nil },
		Socket: func() (string, error) { return socket, nil },
		Dial:   func(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, socket) }}
	exit = f(env, argv[1:])
	return out.String(), errs.String(), exit
}

// TestRecordedAnswers runs what a real Slurm was asked: the exit code is the same, stdout is the same, and every line that Slurm
// wrote to stderr is there, in order; Sluice may say more behind it.
func TestRecordedAnswers(t *testing.T) {
	t.Chdir("testdata/scripts")
	for _, file := range []string{"sbatch_refused.txt", "scancel_answers.txt", "scontrol_answers.txt", "reservation_answers.txt",
		"sprio_answers.txt"} {
		for _, r := range records(t, "../"+file) {
			t.Run(r.command, func(t *testing.T) {
				c := &clienttest.Controller{PrioritiesOf: recordedPriorities,
					OutcomeOf: func(string) *pb.Problem { return pb.NewProblem(pb.CodeInvalidJobID, "") }}
				vars, argv := words(r.command)
				stdout, stderr, exit := run(t, c, "", vars, argv...)
				if exit != r.exit {
					t.Errorf("exit code %d, Slurm's is %d", exit, r.exit)
				}
				if want := strings.Join(r.stdout, "\n"); strings.TrimSuffix(stdout, "\n") != want {
					t.Errorf("stdout %q, Slurm's is %q", stdout, want)
				}
				if missing := inOrder(strings.Split(stderr, "\n"), r.stderr); missing != "" {
					t.Errorf("stderr lacks Slurm's line %q:\n%s", missing, stderr)
				}
				if len(r.stderr) == 0 && stderr != "" {
					t.Errorf("Slurm is silent here, and this says %q", stderr)
				}
				resv := func(u any) bool { _, ok := u.(*pb.UpdateReservationRequest); return ok }
				if len(c.Submitted) > 0 || slices.ContainsFunc(c.Updates, resv) {
					t.Error("something was submitted or reserved")
				}
			})
		}
	}
}

// inOrder returns the first of want that does not follow the ones before it in have.
func inOrder(have, want []string) string {
	at := 0
	for _, w := range want {
		for at < len(have) && strings.TrimRight(have[at], " ") != strings.TrimRight(w, " ") {
			at++
		}
		if at == len(have) {
			return w
		}
		at++
	}
	return ""
}
