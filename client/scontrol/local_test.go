package scontrol

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-hpc/sluice/client"
	"github.com/sluice-hpc/sluice/client/clienttest"
	"github.com/sluice-hpc/sluice/client/command"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// fakeProc makes a /proc of processes of jobs, with names that try to mislead.
func fakeProc(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for pid, p := range map[int]struct {
		parent int
		cgroup string
	}{
		1:   {0, "0::/init.scope\n"},
		100: {50, "8:pids:/\n4:memory:/sluice/c/n1/job_12.1\n0::/sluice/c/n1/job_12.1\n"},
		101: {100, "0::/sluice/c/n1/job_12.1\n"},
		200: {50, "9:pids:/sluice/c/n2/job_13.2\n8:memory:/sluice/c/n2/job_13.2.step_0\n0::/sluice/c/n2/job_13.2/step_0\n"},
		300: {1, "0::/user.slice/job_x\n"},
		301: {1, "0::/a/job_0.1\n"},
	} {
		d := filepath.Join(dir, fmt.Sprint(pid))
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.WriteFile(filepath.Join(d, "cgroup"), []byte(p.cgroup), 0o644)
		_ = os.WriteFile(filepath.Join(d, "stat"), fmt.Appendf(nil, "%d (a) R 7 (x) S %d 1 1", pid, p.parent), 0o644)
	}
	before := procPath
	procPath = dir
	t.Cleanup(func() { procPath = before })
}

// runControl runs scontrol beside a controller that knows some jobs.
func runControl(t *testing.T, c *clienttest.Controller, stdin string, args ...string) (rc int, stdout, stderr string) {
	t.Helper()
	socket, stop, err := c.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var out, errs bytes.Buffer
	e := &command.Env{Name: "scontrol", Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		Environ: []string{"SLURM_CONF=" + filepath.Join(t.TempDir(), "slurm.conf")}, // not what this machine has
		Now:     func() time.Time { return time.Unix(100, 0) },
		Sleep:   func(time.Duration) {}, Dial: func(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, socket) }}
	rc = Main(e, args)
	return rc, out.String(), errs.String()
}

func TestLocalProcesses(t *testing.T) {
	fakeProc(t)
	c := &clienttest.Controller{JobList: []*pb.JobRecord{{Id: 12, State: pb.JobState_JOB_RUNNING, StartNs: 50e9, TimeLimitS: 60,
		Spec: &pb.JobSpec{}}}}
	const header = "PID      JOBID    STEPID   LOCALID GLOBALID\n"
	for words, want := range map[string]string{
		"listpids": header +
			"100      12       batch    0       0       \n101      12       batch    -       -       \n200      13       0        0     " +
			"  0       \n",
		"listpids 12":   header + "100      12       batch    0       0       \n101      12       batch    -       -       \n",
		"listpids 13.0": header + "200      13       0        0       0       \n",
		"listpids * n2": header + "200      13       0        0       0       \n",
		"listjobs":      "JOBID\n12\n13\n",
		"liststeps":     "JOBID    STEPID\n12       batch\n13       0\n",
		"pidinfo 101": "Slurm JobId=12 ends at " + time.Unix(110, 0).Format("Mon Jan _2 15:04:05 2006") +
			"\nJob remaining time is 10 seconds\n",
	} {
		if rc, out, stderr := runControl(t, c, "", strings.Fields(words)...); rc != 0 || out != want || stderr != "" {
			t.Errorf("%s: %d, %q, %q, want %q", words, rc, out, stderr, want)
		}
	}
	for words, want := range map[string]string{
		"listpids 99":                 "JobId=99 does not exist on node",
		"listpids 13.4":               "StepId=13.4 does not exist on node",
		"listpids 12 n9":              "JobId=12 does not exist on node n9.",
		"pidinfo 1":                   "Failed to locate job for requested pid",
		"pidinfo x":                   "Failed to locate job for requested pid",
		"listpids x":                  "Invalid job id specified",
		"notify 12":                   "too few arguments for keyword:notify",
		"notify abc hi":               "Invalid job_id abc\njob notify failure: Invalid job id specified",
		"reboot nextstate=idle n1":    "Invalid state: idle\nValid states: DOWN, RESUME",
		"setdebugflags gres":          "invalid debug flag: gres",
		"token":                       "Error fetching token",
		"setdebug bogus":              "invalid debug level: bogus",
		"delete jobid=1":              "Invalid deletion entity: jobid=1",
		"update step=abc timelimit=1": "Invalid StepID parameter: step=abc\nRequest aborted",
		"create node name=x":          "scontrol: error: Failed to parse nodeline 'node name=x'\nError creating the node(s): ",
	} {
		if rc, _, stderr := runControl(t, &clienttest.Controller{}, "", strings.Fields(words)...); rc != 1 ||
			!strings.HasPrefix(stderr, want) {
			t.Errorf("%s: %d, %q, want %q", words, rc, stderr, want)
		}
	}
}

// Without a command they are read from standard input; an error does not end it, and "!!" is the last command again.
func TestPrompt(t *testing.T) {
	fakeProc(t)
	rc, out, stderr := runControl(t, &clienttest.Controller{}, "listjobs\n\nnonsense\n!!\nversion\nquit\nlistjobs\n")
	if want := "scontrol: JOBID\n12\n13\nscontrol: scontrol: scontrol: scontrol: slurm "; !strings.HasPrefix(out, want) ||
		strings.Count(out, "JOBID") != 1 {
		t.Errorf("stdout %q", out)
	}
	if rc != 1 || stderr != "invalid keyword: nonsense\ninvalid keyword: nonsense\n" {
		t.Errorf("%d, %q", rc, stderr)
	}
}

// TestQuotedFields: what stands between quotes is one word, empty ones too, and a quote that is never closed ends with the line.
func TestQuotedFields(t *testing.T) {
	for line, want := range map[string][]string{
		`update jobid=5 comment="two words"`: {"update", "jobid=5", "comment=two words"},
		"  a\t'b c' ":                        {"a", "b c"},
		`x='it"s' ""`:                        {"x=it\"s", ""},
		`reason="never closed`:               {"reason=never closed"},
		``:                                   nil,
	} {
		if got := quotedFields(line); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// TestShowSteps: every step is shown, not one of them as often as there are; -v says how many.
func TestShowSteps(t *testing.T) {
	c := &clienttest.Controller{}
	for id := range uint32(3) {
		c.JobList = append(c.JobList, &pb.JobRecord{Id: 11 + id, State: pb.JobState_JOB_RUNNING, StartNs: 50e9, NodeList: "n1",
			Spec:  &pb.JobSpec{},
			Alloc: []*pb.NodeAlloc{{Node: "n1"}}})
	}
	rc, out, stderr := runControl(t, c, "", "-o", "-v", "show", "step")
	var ids []string
	for line := range strings.Lines(out) {
		ids = append(ids, strings.Fields(line)[0])
	}
	want := []string{"last_update_time=" + time.Unix(100, 0).Format("2006-01-02T15:04:05") + ",", "StepId=11.batch", "StepId=12.batch",
		"StepId=13.batch"}
	if rc != 0 || stderr != "" || !slices.Equal(ids, want) || !strings.Contains(out, "records=3\n") {
		t.Errorf("%d, %q, %v", rc, stderr, ids)
	}
}
